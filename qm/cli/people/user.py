"""`qm directory user`: people by their SIDs, their groups and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.people.documents import USERS, Document, completed, pem_text
from qm.cli.people.objects import add_common, changed, put


@click.group()
def user() -> None:
    """People who sign messages: SID, name, groups and certificates."""


def _options(command: Any) -> Any:
    for option in (
        click.option("--name", help="What people call the user, such as DOMAIN\\alice."),
        click.option("--group", multiple=True, metavar="SID", help="A group; repeat it."),
        click.option(
            "--certificate",
            multiple=True,
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="X.509, PEM or DER; repeat it.",
        ),
        click.option("--no-groups", is_flag=True, help="Leave all groups."),
    ):
        command = option(command)
    return command


@user.command()
@click.argument("sid")
@_options
@connected
def create(connection: Connection, sid: str, **given: Any) -> None:
    """Add the user with the SID S-1-..."""
    document = completed(USERS, {"sid": sid, **_fields(given)})
    connection.run(lambda wire: put(wire, USERS, document))


@user.command("set")
@click.argument("sid")
@_options
@connected
def set_fields(connection: Connection, sid: str, **given: Any) -> None:
    """Change what is given; lists are replaced."""
    fields = _fields(given)
    if not fields:
        raise click.UsageError("nothing to change: give an option")
    connection.run(lambda wire: changed(wire, USERS, sid, fields))


add_common(user, USERS)


def certificate_of(file: Path) -> bytes:
    """Return the certificate in a file, PEM or DER, as DER. Raises click.UsageError."""
    from qm.cli.people.documents import der_of

    raw = file.read_bytes()
    return der_of(raw.decode("ascii")) if b"-----BEGIN" in raw else raw


def _fields(given: dict[str, Any]) -> Document:
    fields: Document = {}
    if given["name"] is not None:
        fields["name"] = given["name"]
    if given["group"] or given["no_groups"]:
        fields["groups"] = list(given["group"])
    if given["certificate"]:
        fields["certificates"] = [pem_text(certificate_of(file)) for file in given["certificate"]]
    return fields
