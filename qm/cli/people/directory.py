"""`qm directory`: the objects of the embedded directory [MS-MQDMPR 3.1.7.1.18 to .26]."""

from __future__ import annotations

import re
from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.guid import Guid
from qm.cli.lib.output import confirm, output_option, show_one, show_rows, yes_option
from qm.cli.lib.pages import all_pages
from qm.cli.people.manager import manager
from qm.cli.people.user import user

_COLUMNS = ("identifier", "name", "pathname", "label", "full_path")
_CLASSES = (
    *("enterprise", "site", "queue_manager", "queue", "routing_link"),
    *("connected_network", "user"),
)
_WRITABLE = tuple(name for name in _CLASSES if name != "queue")
_FILTER = re.compile(r"(\w+)(==|!=|<=|>=|<|>|=)(.*)", re.DOTALL)
_HEX = "0x"


@click.group()
def directory() -> None:
    """Show and change objects of the directory, and find where a queue is."""


@directory.command("list")
@click.argument("object_class", metavar="CLASS", type=click.Choice(_CLASSES))
@click.option(
    "--where",
    "filters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only objects whose attribute is so; also != < > <= >=. Repeat it: all must hold.",
)
@output_option
@connected
def list_objects(
    connection: Connection, object_class: str, filters: tuple[str, ...], output: str
) -> None:
    """List objects of CLASS: enterprise, site, queue_manager, queue, routing_link ..."""
    from qm.pb import control_pb2

    wanted = [_filter(text) for text in filters]
    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.directory.ListObjects,
            lambda token: control_pb2.ListObjectsRequest(
                object_class=object_class, filters=wanted, page_token=token
            ),
            "objects",
        )
    )
    show_rows(map(_row, found), _COLUMNS, output)


@directory.command()
@click.argument("object_class", metavar="CLASS", type=click.Choice(_WRITABLE))
@click.argument("attributes", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--identifier", type=Guid(), help="GUID of the object; without it a new one.")
@output_option
@changing
def put(
    connection: Connection,
    object_class: str,
    attributes: tuple[str, ...],
    identifier: bytes | None,
    output: str,
) -> None:
    """Create an object of CLASS, or change attributes of the one that --identifier names.

    Numbers and true or false are read as such, 0x... as bytes, [a,b] as a list of either.
    """
    from qm.names.guid import guid_text
    from qm.pb import control_pb2

    values = {}
    for text in attributes:
        name, found, value = text.partition("=")
        if not found:
            raise click.UsageError(f"{text!r} is not NAME=VALUE")
        values[name] = _value(value)
    request = control_pb2.PutObjectRequest(
        object_class=object_class, identifier=identifier or b"", attributes=values
    )
    reply: Any = connection.run(
        lambda wire: wire.call(lambda stubs: stubs.directory.PutObject, request)
    )
    show_one({"identifier": guid_text(reply.identifier)}, output)


@directory.command()
@click.argument("object_class", metavar="CLASS", type=click.Choice(_WRITABLE))
@click.argument("identifier", type=Guid())
@yes_option
@changing
def delete(connection: Connection, object_class: str, identifier: bytes, yes: bool) -> None:
    """Delete the object of CLASS with IDENTIFIER, a GUID."""
    from qm.names.guid import guid_text
    from qm.pb import control_pb2

    confirm(f"Delete the {object_class} {guid_text(identifier)}?", yes=yes)
    request = control_pb2.DeleteObjectRequest(object_class=object_class, identifier=identifier)
    connection.run(lambda wire: wire.call(lambda stubs: stubs.directory.DeleteObject, request))


@directory.command()
@click.argument("format_name")
@output_option
@connected
def path(connection: Connection, format_name: str, output: str) -> None:
    """Show the path name and the computer of the queue that FORMAT_NAME means."""
    from qm.pb import control_pb2

    request = control_pb2.GetQueuePathRequest(format_name=format_name)
    reply: Any = connection.run(
        lambda wire: wire.call(lambda stubs: stubs.directory.GetQueuePath, request)
    )
    show_one({"path_name": reply.path_name, "machine_name": reply.machine_name}, output)


def _filter(text: str) -> Any:
    from qm.pb import control_pb2

    match = _FILTER.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    name, operator, value = match.groups()
    operator = "==" if operator == "=" else operator
    return control_pb2.DirectoryFilter(attribute=name, operator=operator, value=_value(value))


def _value(text: str) -> Any:
    """Return a value of the kind that its text looks like."""
    from qm.pb import control_pb2

    if text.startswith("[") and text.endswith("]"):
        items = [item for item in text[1:-1].split(",") if item]
        if all(item.startswith(_HEX) for item in items):
            return control_pb2.Value(datas=control_pb2.DataList(items=map(_bytes, items)))
        return control_pb2.Value(texts=control_pb2.TextList(items=items))
    if text in ("true", "false"):
        return control_pb2.Value(flag=text == "true")
    if text.startswith(_HEX):
        return control_pb2.Value(data=_bytes(text))
    if re.fullmatch(r"-?\d{1,18}", text):
        return control_pb2.Value(number=int(text))
    return control_pb2.Value(text=text)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError:
        raise click.UsageError(f"{text!r} is not 0x and pairs of hex digits") from None


def _row(found: Any) -> dict[str, Any]:
    from qm.names.guid import guid_text

    shown = {name: _shown(value) for name, value in sorted(found.attributes.items())}
    return {"identifier": guid_text(found.identifier)} | {
        name: value for name, value in shown.items() if name != "identifier"
    }


def _shown(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    plain: Any = getattr(value, kind) if kind else ""
    if kind == "data":
        return _HEX + plain.hex()
    if kind == "datas":
        return [_HEX + item.hex() for item in plain.items]
    return list(plain.items) if kind == "texts" else plain


directory.add_command(manager)
directory.add_command(user)
