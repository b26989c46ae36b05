"""`qm user`: accounts of people and Windows programs who prove themselves with a password."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qm.cli.lib.connection import EXIT_REFUSED, Connection, connected
from qm.cli.lib.output import output_option, show_rows
from qm.cli.lib.pages import all_pages
from qm.cli.people.documents import plain, sid, wire_value

if TYPE_CHECKING:  # slow to load, and not needed for --help
    from qm.rpc.users_file import User

_COLUMNS: Final = ("name", "domain", "sid", "role", "groups", "state")
_ROLES: Final = ("admin", "operator", "client")
_CLASS: Final = "user"
_file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group()
def user() -> None:
    """Add and remove accounts of people and Windows programs (docs/security.md, docs/windows.md).

    An account belongs to a user of the directory. The cluster keeps the hash of its password sealed
    and tells it nobody; every node logs the user on. A role lets it sign in to the console, too.
    """


@user.command("add")
@click.argument("name")
@click.option("--domain", default="", help="Only for logons to this domain; empty: any.")
@click.option(
    "--sid", "sid_given", default="", help="SID of the user; left out: derived from the name."
)
@click.option(
    "--group", "groups", multiple=True, metavar="SID", help="S-1-5-32-544: administrators."
)
@click.option(
    "--role", type=click.Choice(_ROLES), help="Let it sign in to the console: the role's group."
)
@click.option(
    "--console-only", is_flag=True, help="Not for Windows programs: keep no hash that NTLM needs."
)
@click.option("--disabled", is_flag=True, help="Keep the account, but let nobody log on with it.")
@click.password_option(help="Asked for when left out, which keeps it out of the shell's history.")
@connected
def add(
    connection: Connection,
    name: str,
    domain: str,
    sid_given: str,
    groups: tuple[str, ...],
    role: str | None,
    console_only: bool,
    disabled: bool,
    password: str,
) -> None:
    """Add an account, or replace it.

    Its groups are its roles at the console: S-1-5-32-544 admin, S-1-5-32-549 operator, S-1-5-32-545
    client; without one of them it cannot sign in there.
    """
    from qm.api.gate.identity import ROLE_GROUPS, Role
    from qm.rpc.security.ntlm_keys import nt_hash
    from qm.rpc.users_file import User, described
    from qm.security.passwords import SALT_BYTES, verifier_of
    from qm.security.sid import sid_text

    if role is not None:
        groups = tuple(dict.fromkeys((*groups, sid_text(ROLE_GROUPS[Role(role)]))))
    added = User(name, nt_hash(password).hex(), sid_given, groups, domain, not disabled)
    try:
        added.account()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    kept = verifier_of(password, secrets.token_bytes(SALT_BYTES)) if console_only else b""
    connection.run(lambda wire: _put(wire, added, kept))
    click.echo(described(added))


@user.command("remove")
@click.argument("name")
@connected
def remove(connection: Connection, name: str) -> None:
    """Remove an account; what else the directory says of the user stays."""

    async def work(wire: Any) -> None:
        found = (await _accounts(wire)).get(name.casefold())
        if found is None:
            click.echo(f"Error: there is no account {name}", err=True)
            raise SystemExit(EXIT_REFUSED)
        identifier, values = found
        nothing = {"account_name": "", "password_hash": b""}
        await _write(
            wire, identifier, {"security_identifier": values["security_identifier"], **nothing}
        )

    connection.run(work)


@user.command("list")
@output_option
@connected
def list_(connection: Connection, output: str) -> None:
    """Show accounts, without their hashes."""
    found = connection.run(_accounts)
    show_rows([_shown(values) for _, values in found.values()], _COLUMNS, output)


@user.command("import")
@_file_argument
@connected
def import_file(connection: Connection, file: Path) -> None:
    """Take over the accounts of a users file of earlier releases (`rpc.users_file`)."""
    from qm.rpc.users_file import UsersFileUnusable, read_users

    try:
        users = read_users(file)
    except UsersFileUnusable as error:
        raise click.ClickException(str(error)) from error

    async def work(wire: Any) -> None:
        for one in users:
            await _put(wire, one)
            click.echo(one.name)

    connection.run(work)


async def _accounts(wire: Any) -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Return (identifier, attributes) of users that have an account, by its name in lower case."""
    return {
        values["account_name"].casefold(): (identifier, values)
        for identifier, values in await _users(wire)
        if values.get("account_name")
    }


async def _users(wire: Any) -> list[tuple[bytes, dict[str, Any]]]:
    from qm.pb import control_pb2

    found = await all_pages(
        wire,
        lambda stubs: stubs.directory.ListObjects,
        lambda token: control_pb2.ListObjectsRequest(object_class=_CLASS, page_token=token),
        "objects",
    )
    return [
        (one.identifier, {name: plain(value) for name, value in one.attributes.items()})
        for one in found
    ]


async def _put(wire: Any, given: User, verifier: bytes = b"") -> None:
    """Give the user of this account's name, or else of its SID, the account.

    `verifier`: is kept in place of the NT hash.
    """
    account = given.account()
    users = await _users(wire)
    of_name = [
        (identifier, values)
        for identifier, values in users
        if values.get("account_name", "").casefold() == given.name.casefold()
    ]
    of_sid = [one for one in users if one[1].get("security_identifier") == account.sids[0]]
    identifier, known = next(iter(of_name or of_sid), (b"", {}))
    values: dict[str, Any] = {
        "security_identifier": account.sids[0],
        "account_name": given.name,
        "account_domain": given.domain,
        "account_disabled": not given.enabled,
        "password_hash": verifier or account.nt_hash,
        "groups": [sid(text) for text in given.groups],
    }
    if not known.get("name"):
        values["name"] = given.name
    await _write(wire, identifier, values)


async def _write(wire: Any, identifier: bytes, values: dict[str, Any]) -> None:
    from qm.pb import control_pb2

    attributes = {name: wire_value(value) for name, value in values.items()}
    if values.get("groups") == []:
        attributes["groups"] = control_pb2.Value(datas=control_pb2.DataList())
    request = control_pb2.PutObjectRequest(
        object_class=_CLASS, identifier=identifier, attributes=attributes
    )
    await wire.call(lambda stubs: stubs.directory.PutObject, request)


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    from qm.api.gate.identity import role_of_groups
    from qm.security.sid import sid_text

    role = role_of_groups(values.get("groups") or [])
    return {
        "name": values["account_name"],
        "domain": values.get("account_domain", ""),
        "sid": sid_text(values["security_identifier"]),
        "role": "" if role is None else role.value,
        "groups": [sid_text(one) for one in values.get("groups") or []],
        "state": "disabled" if values.get("account_disabled") else "enabled",
    }
