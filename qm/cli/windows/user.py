"""`qm user`: accounts with which Windows programs log on by NTLM, in a file of each node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # slow to load, and not needed for --help
    from qm.rpc.users_file import User

_file_option = click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The users file, `rpc.users_file` of the nodes.",
)


@click.group()
def user() -> None:
    """Add and remove accounts of Windows programs (docs/windows.md).

    A users file holds hashes that are as good as the passwords. It is readable by its owner alone;
    copy it to every node. A running node reads it again when it changes.
    """


@user.command("add")
@click.argument("name")
@_file_option
@click.option("--domain", default="", help="Only for logons to this domain; empty: any.")
@click.option("--sid", default="", help="SID of the user; left out: derived from the name.")
@click.option(
    "--group", "groups", multiple=True, metavar="SID", help="S-1-5-32-544: administrators."
)
@click.option("--disabled", is_flag=True, help="Keep the account, but let nobody log on with it.")
@click.password_option(help="Asked for when left out, which keeps it out of the shell's history.")
def add(
    name: str,
    path: Path,
    domain: str,
    sid: str,
    groups: tuple[str, ...],
    disabled: bool,
    password: str,
) -> None:
    """Add an account, or replace it."""
    from qm.rpc.security.ntlm_keys import nt_hash
    from qm.rpc.users_file import User, described

    added = User(name, nt_hash(password).hex(), sid, groups, domain, not disabled)
    try:
        added.account()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _change(path, lambda users: [*_without(users, name), added])
    click.echo(described(added))


@user.command("remove")
@click.argument("name")
@_file_option
def remove(name: str, path: Path) -> None:
    """Remove an account."""
    _change(path, lambda users: _without(users, name))


@user.command("list")
@_file_option
def list_(path: Path) -> None:
    """Show accounts, without their hashes."""
    from qm.rpc.users_file import UsersFileUnusable, described, read_users

    try:
        users = read_users(path)
    except UsersFileUnusable as error:
        raise click.ClickException(str(error)) from error
    for one in users:
        click.echo(described(one))


def _without(users: list[User], name: str) -> list[User]:
    return [one for one in users if one.name.casefold() != name.casefold()]


def _change(path: Path, change: Callable[[list[User]], list[User]]) -> None:
    from qm.rpc.users_file import UsersFileUnusable, read_users, write_users

    try:
        users = list(read_users(path)) if path.exists() else []
        write_users(path, change(users))
    except UsersFileUnusable as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
