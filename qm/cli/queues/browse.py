"""Messages in their queues, by the control plane: browsing, returning, their identifiers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import click

from qm.cli.lib.bodies import shown_body
from qm.cli.lib.connection import Connection
from qm.cli.lib.output import confirm, instant, show_rows
from qm.client.search import message_id_text

_PAGE = 500
PAGE_SCANNED = 1_000
"""Messages that a page looks at where few are shown."""


async def browse(
    wire: Any,
    where: Any,
    *,
    limit: int = 0,
    reasons: Sequence[int] = (),
    with_bodies: bool = True,
) -> list[Any]:
    """Return messages of a queue (a QueueName) without taking them; `limit` 0 is all."""
    from qm.pb import control_pb2, data_pb2

    found: list[Any] = []
    token = ""
    while True:
        request = control_pb2.BrowseRequest(
            queue=where,
            page_size=min(_PAGE, limit - len(found)) if limit else _PAGE,
            page_token=token,
            view=data_pb2.PROPERTIES if with_bodies else data_pb2.PROPERTIES_WITHOUT_BODY,
            reason_classes=reasons,
        )
        reply = await wire.call(lambda stubs: stubs.messages.Browse, request)
        found += reply.messages
        token = reply.page_token
        if not token or (limit and len(found) >= limit):
            return found


async def pages_of(
    wire: Any,
    where: Any,
    *,
    with_bodies: bool = True,
    message_id: bytes = b"",
    correlation_id: bytes = b"",
) -> AsyncIterator[list[Any]]:
    """Yield the messages of a queue (a QueueName) page by page, all or those with an identifier.
    A queue that is gone meanwhile ends it.
    """
    from qm.client.errors import MqError
    from qm.pb import control_pb2, data_pb2

    token = ""
    size = PAGE_SCANNED if message_id or correlation_id else _PAGE
    while True:
        request = control_pb2.BrowseRequest(
            queue=where,
            page_size=size,
            page_token=token,
            view=data_pb2.PROPERTIES if with_bodies else data_pb2.PROPERTIES_WITHOUT_BODY,
            message_id=message_id,
            correlation_id=correlation_id,
        )
        try:
            reply = await wire.call(lambda stubs: stubs.messages.Browse, request)
        except MqError:
            return
        yield [
            each
            for each in reply.messages  # of a node of an older version, all
            if not message_id or each.message_id == message_id
            if not correlation_id or each.properties.correlation_id == correlation_id
        ]
        token = reply.page_token
        if not token:
            return


async def get_message(wire: Any, name: str, lookup_id: int) -> Any:
    """Return one message with its packet."""
    from qm.cli.queues.queue import queue_name
    from qm.pb import control_pb2, data_pb2

    request = control_pb2.GetMessageRequest(
        queue=await queue_name(wire, name),
        lookup_identifier=lookup_id,
        view=data_pb2.PACKETS_AND_PROPERTIES,
    )
    return await wire.call(lambda stubs: stubs.messages.GetMessage, request)


async def return_to_source(
    wire: Any, where: Any, lookup_ids: Sequence[int], target: str
) -> list[dict[str, Any]]:
    """Return messages of a queue (a QueueName) to their source, all if none is given."""
    from qm.pb import control_pb2

    wanted = list(lookup_ids)
    if not wanted:
        found = await browse(wire, where, with_bodies=False)
        wanted = [entry.lookup_identifier for entry in found]
    rows = []
    for lookup_id in wanted:
        reply = await wire.call(
            lambda stubs: stubs.messages.ReturnToSource,
            control_pb2.ReturnToSourceRequest(
                queue=where, lookup_identifier=lookup_id, target=target
            ),
        )
        rows.append(
            {
                "lookup_id": lookup_id,
                "target": reply.target,
                "message_id": message_id_text(reply.message_id),
            }
        )
    return rows


def return_chosen(
    connection: Connection,
    name_of: Callable[[Any], Awaitable[Any]],
    lookup_ids: Sequence[int],
    target: str,
    output: str,
) -> None:
    """Return messages of the queue that `name_of` finds, and show where they went."""

    async def work(wire: Any) -> list[dict[str, Any]]:
        return await return_to_source(wire, await name_of(wire), lookup_ids, target)

    show_rows(connection.run(work), ("lookup_id", "target", "message_id"), output)


def confirm_choice(
    lookup_ids: Sequence[int], question: str, *, is_all: bool, is_confirmed: bool
) -> None:
    """Ask before acting on all messages. Raises UsageError if the choice is not clear."""
    if bool(lookup_ids) == is_all:
        raise click.UsageError("give either LOOKUP_IDS or --all")
    if is_all:
        confirm(question, yes=is_confirmed)


def browsed_row(entry: Any, form: str) -> dict[str, Any]:
    """Return a browsed message for output."""
    from qm.pb import control_pb2

    properties = entry.properties
    return {
        "lookup_id": entry.lookup_identifier,
        "message_id": message_id_text(entry.message_id),
        "label": properties.label,
        "priority": entry.priority,
        "bytes": len(properties.body),
        "packet_bytes": entry.size_bytes,
        "state": control_pb2.PositionState.Name(entry.state).lower().removeprefix("position_"),
        "lock_owner": entry.lock_owner,
        "class": class_name(entry.reason_class or properties.message_class),
        "reason": entry.reason,
        "returns": entry.returns,
        "aborts": entry.aborts,
        "moves": entry.moves,
        "arrived": instant(entry.arrived_time_s),
        "body": shown_body(properties.body, properties.body_type, form),
    }


def class_name(message_class: int) -> str:
    """Return what a class is called; "" for a normal message."""
    from qm.archive.reasons import reason_name

    return reason_name(message_class) if message_class else ""


def parse_message_id(text: str) -> bytes:
    """Return the 20 bytes of a message identifier. Raises UsageError."""
    from qm.names.guid import guid_from_text

    guid, backslash, number = text.partition("\\")
    raw = guid_from_text(guid.strip("{}"))
    try:
        if backslash and raw is not None:
            return raw + int(number).to_bytes(4, "little")
        whole = bytes.fromhex(text)
    except (ValueError, OverflowError):
        whole = b""
    if len(whole) != 20:
        raise click.UsageError(
            f"{text!r} is not a message identifier: GUID\\NUMBER or 40 hex digits"
        )
    return whole
