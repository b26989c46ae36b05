"""`qm directory manager`: other queue managers, with the keys that bodies are encrypted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.people.documents import MANAGERS, Document
from qm.cli.people.objects import add_common, changed, own_manager, put, write_yaml

_PROVIDERS = {
    "base": "Microsoft Base Cryptographic Provider v1.0",
    "enhanced": "Microsoft Enhanced Cryptographic Provider v1.0",
    "advanced": "Microsoft Enhanced RSA and AES Cryptographic Provider",
}


@click.group()
def manager() -> None:
    """Other queue managers: GUID, names, addresses and public keys."""


def _options(command: Any) -> Any:
    for option in (
        click.option("--name", help="Computer name."),
        click.option("--dns-name", help="Fully qualified name."),
        click.option("--address", multiple=True, help="Where it is reached; repeat it."),
        click.option(
            "--encryption-key",
            multiple=True,
            metavar="PROVIDER=FILE",
            help="Its public key in PEM; PROVIDER: base, enhanced, advanced. Repeat it.",
        ),
        click.option("--signing-key", multiple=True, metavar="PROVIDER=FILE", help="Likewise."),
    ):
        command = option(command)
    return command


@manager.command()
@click.argument("identifier")
@_options
@connected
def create(connection: Connection, identifier: str, **given: Any) -> None:
    """Add the queue manager with the GUID IDENTIFIER."""
    from qm.cli.people.documents import completed

    document = completed(MANAGERS, {"identifier": identifier, **_fields(given)})
    connection.run(lambda wire: put(wire, MANAGERS, document))


@manager.command("set")
@click.argument("identifier")
@_options
@connected
def set_fields(connection: Connection, identifier: str, **given: Any) -> None:
    """Change what is given; lists are replaced."""
    fields = _fields(given)
    if not fields:
        raise click.UsageError("nothing to change: give an option")
    connection.run(lambda wire: changed(wire, MANAGERS, identifier, fields))


@manager.command()
@click.option("--address", multiple=True, help="Where others reach this cluster; repeat it.")
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False))
@connected
def own(connection: Connection, address: tuple[str, ...], file: Path | None) -> None:
    """Write this cluster's own entry as YAML, for `import` at others."""
    document = connection.run(lambda wire: own_manager(wire, MANAGERS))
    write_yaml([document | {"addresses": list(address)}], file)


add_common(manager, MANAGERS)


def _fields(given: dict[str, Any]) -> Document:
    fields: Document = {
        name: given[name] for name in ("name", "dns_name") if given[name] is not None
    }
    if given["address"]:
        fields["addresses"] = list(given["address"])
    for option, field in (("encryption_key", "encryption_keys"), ("signing_key", "signing_keys")):
        if given[option]:
            fields[field] = [_key(text) for text in given[option]]
    return fields


def _key(text: str) -> dict[str, str]:
    provider, found, file = text.partition("=")
    if not found or provider not in _PROVIDERS:
        raise click.UsageError(f"{text!r}: write PROVIDER=FILE; base, enhanced or advanced")
    return {"provider": _PROVIDERS[provider], "key": Path(file).read_text(encoding="ascii")}
