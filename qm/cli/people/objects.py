"""What `qm directory manager` and `qm directory user` have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import EXIT_REFUSED, Connection, connected
from qm.cli.lib.output import (
    confirm,
    dry_run_option,
    output_option,
    show_one,
    show_rows,
    yes_option,
)
from qm.cli.lib.pages import all_pages
from qm.cli.people.documents import Document, Noun, plain, read_documents, wire_value

_CHANGES = ("change", "object", "fields")


def add_common(group: click.Group, noun: Noun) -> None:
    """Add show, list, remove, export, diff and import to the group of a noun."""

    @group.command("list", help=f"List the {noun.name}s of the directory.")
    @output_option
    @connected
    def list_all(connection: Connection, output: str) -> None:
        found = connection.run(lambda wire: documents(wire, noun))
        show_rows([document for _, document in found.values()], noun.columns, output)

    @group.command(help=f"Show everything that the directory says of a {noun.name}.")
    @click.argument(noun.key)
    @output_option
    @connected
    def show(connection: Connection, output: str, **given: str) -> None:
        show_one(connection.run(lambda wire: _found(wire, noun, given[noun.key]))[1], output)

    @group.command(help=f"Remove a {noun.name} from the directory.")
    @click.argument(noun.key)
    @yes_option
    @connected
    def remove(connection: Connection, yes: bool, **given: str) -> None:
        confirm(f"Remove the {noun.name} {given[noun.key]}?", yes=yes)

        async def work(wire: Any) -> None:
            identifier, _ = await _found(wire, noun, given[noun.key])
            await _delete(wire, noun, identifier)

        connection.run(work)

    @group.command("export", help=f"Write all {noun.name}s as YAML, for `import` elsewhere.")
    @click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False))
    @connected
    def export(connection: Connection, file: Path | None) -> None:
        found = connection.run(lambda wire: documents(wire, noun))
        write_yaml([document for _, document in found.values()], file)

    @group.command(help="Show what importing FILE would change. Exit code 1: there are changes.")
    @click.argument("file", type=click.File(encoding="utf-8"))
    @click.option("--prune", is_flag=True, help=f"Also count {noun.name}s that FILE lacks.")
    @output_option
    @connected
    def diff(connection: Connection, file: Any, prune: bool, output: str) -> None:
        wanted = read_documents(noun, file.read())
        present = connection.run(lambda wire: documents(wire, noun))
        changes = _changes(noun, present, wanted, prune=prune)
        show_rows(changes, _CHANGES, output)
        if changes:
            sys.exit(1)

    @group.command("import", help=f"Make the {noun.name}s of the directory those of FILE.")
    @click.argument("file", type=click.File(encoding="utf-8"))
    @click.option("--prune", is_flag=True, help=f"Remove {noun.name}s that FILE lacks.")
    @yes_option
    @dry_run_option
    @output_option
    @connected
    def import_all(
        connection: Connection, file: Any, prune: bool, yes: bool, dry_run: bool, output: str
    ) -> None:
        wanted = read_documents(noun, file.read())
        present = connection.run(lambda wire: documents(wire, noun))
        changes = _changes(noun, present, wanted, prune=prune)
        gone = [change["object"] for change in changes if change["change"] == "remove"]
        if gone and not dry_run:
            confirm(f"Remove {', '.join(gone)}?", yes=yes)

        async def work(wire: Any) -> None:
            for change in changes:
                key = change["object"]
                if change["change"] == "remove":
                    await _delete(wire, noun, present[key][0])
                else:
                    await put(wire, noun, wanted[key], present.get(key, (b"",))[0])

        if not dry_run:
            connection.run(work)
        show_rows(changes, _CHANGES, output)


async def documents(wire: Any, noun: Noun, key: str = "") -> dict[str, tuple[bytes, Document]]:
    """Return the noun's objects by key, with their identifiers; our queue manager is left out."""
    from qm.pb import control_pb2

    found = await all_pages(
        wire,
        lambda stubs: stubs.directory.ListObjects,
        lambda token: control_pb2.ListObjectsRequest(
            object_class=noun.object_class, page_token=token
        ),
        "objects",
    )
    if noun.object_class == "queue_manager":
        found = found[1:]
    shown = {}
    for one in found:
        attributes = {name: plain(value) for name, value in one.attributes.items()}
        document = noun.shown(one.identifier, attributes)
        if key in ("", document[noun.key].lower()):
            shown[document[noun.key].lower()] = (one.identifier, document)
    return shown


async def own_manager(wire: Any, noun: Noun) -> Document:
    """Return the document of the cluster's own queue manager."""
    from qm.pb import control_pb2

    request = control_pb2.ListObjectsRequest(object_class=noun.object_class, page_size=1)
    reply = await wire.call(lambda stubs: stubs.directory.ListObjects, request)
    one = reply.objects[0]
    attributes = {name: plain(value) for name, value in one.attributes.items()}
    return noun.shown(one.identifier, attributes)


async def put(wire: Any, noun: Noun, document: Document, identifier: bytes = b"") -> None:
    """Create an object, or change the one with this identifier."""
    from qm.names.guid import guid_from_text
    from qm.pb import control_pb2

    values = noun.values(document)
    if not identifier and noun.key == "identifier":
        identifier = guid_from_text(document["identifier"]) or b""
    request = control_pb2.PutObjectRequest(
        object_class=noun.object_class,
        identifier=identifier,
        attributes={name: wire_value(value) for name, value in values.items()},
    )
    _typed_lists(request)
    await wire.call(lambda stubs: stubs.directory.PutObject, request)


async def changed(wire: Any, noun: Noun, key: str, changes: Document) -> None:
    """Change fields of an object. Ends the process if there is none."""
    identifier, document = await _found(wire, noun, key)
    await put(wire, noun, document | changes, identifier)


async def _found(wire: Any, noun: Noun, key: str) -> tuple[bytes, Document]:
    found = await documents(wire, noun, key.strip("{}").lower())
    if not found:
        click.echo(f"Error: there is no {noun.name} {key}", err=True)
        sys.exit(EXIT_REFUSED)
    return next(iter(found.values()))


async def _delete(wire: Any, noun: Noun, identifier: bytes) -> None:
    from qm.pb import control_pb2

    request = control_pb2.DeleteObjectRequest(object_class=noun.object_class, identifier=identifier)
    await wire.call(lambda stubs: stubs.directory.DeleteObject, request)


def _typed_lists(request: Any) -> None:
    """Give empty lists of bytes their kind, which their items cannot tell."""
    from qm.pb import control_pb2

    for name in ("groups", "certificate_digest_list"):
        if name in request.attributes and not plain(request.attributes[name]):
            request.attributes[name].datas.CopyFrom(control_pb2.DataList())


def _changes(
    noun: Noun,
    present: dict[str, tuple[bytes, Document]],
    wanted: dict[str, Document],
    *,
    prune: bool,
) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = []
    for key, document in wanted.items():
        if key not in present:
            changes.append({"change": "create", "object": key, "fields": []})
            continue
        old = present[key][1]
        fields = [name for name, value in document.items() if old.get(name) != value]
        if fields:
            changes.append({"change": "set", "object": key, "fields": fields})
    if prune:
        gone = present.keys() - wanted.keys()
        changes += [{"change": "remove", "object": key, "fields": []} for key in sorted(gone)]
    return changes


def write_yaml(items: list[Document], file: Path | None) -> None:
    """Write documents to a file, or to standard output."""
    import yaml

    text = yaml.safe_dump(items, sort_keys=False, allow_unicode=True)
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_text(text, encoding="utf-8")
