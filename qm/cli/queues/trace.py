"""`qm message trace`: what happened to one message, and where it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from qm.cli.lib.connection import Connection, connected_unless
from qm.cli.lib.output import instant, output_option, show_rows
from qm.cli.queues.archived import (
    BEGINNINGS,
    Contents,
    archive_options,
    is_made_by_apply,
    opened_archive,
    operation_row,
    say_what_was_read,
)
from qm.cli.queues.browse import (
    PAGE_SCANNED,
    browsed_row,
    class_name,
    pages_of,
    parse_message_id,
)
from qm.cli.queues.queue import KINDS, queues_like
from qm.client.search import message_id_text

if TYPE_CHECKING:
    from qm.archive.reader import ArchiveReader, Operation

EVENTS_MAX: Final = 10_000
"""Of one message; in memory at the same time."""
_COLUMNS: Final = ("time", "event", "queue", "lookup_id", "class", "entry", "note")
_UNTRACED: Final = ("order", "notification", "connector")
_EVENTS_OF_KINDS: Final = {
    "journal": "journaled",
    "system_journal": "journaled",
    "dead_letter": "dead_lettered",
    "transactional_dead_letter": "dead_lettered",
}
_NOTES: Final = {
    "pending": "in a transaction",
    "locked": "a reader has it",
    "unlocked": "available",
    "rolled_back": "its transaction was aborted",
    "discarded": "no quota had room for this copy",
    "delivered": "the other queue manager has it",
    "refused": "it entered no queue",
}
_ENDS_ACKNOWLEDGED: Final = frozenset(
    {"received", "expired", "purged", "queue_deleted", "rejected", "failed"}
)
_FIRST, _LAST = 0, 1 << 62
"""Places of what is first or last, whatever its time."""


@click.command()
@click.argument("message_id")
@click.option(
    "--look-at",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Messages to look at for acknowledgments, about.",
)
@archive_options
@output_option
@connected_unless("archive_only")
def trace(
    connection: Connection | None,
    message_id: str,
    look_at: int,
    url: str | None,
    cluster: str,
    archive_only: bool,
    output: str,
) -> None:
    r"""Show in order of time what happened to the message MESSAGE_ID, and where it is now.

    MESSAGE_ID is GUID\NUMBER, with or without braces, or 40 hexadecimal digits. The cluster knows
    of messages that are in its queues, and of their acknowledgments; an archive has all operations
    on all messages.

    Exit code 1: no queue holds it, and nothing is known of it; 2: the archive cannot be read.
    """
    traced = _Traced(parse_message_id(message_id))
    archive = opened_archive(url, cluster, archive_only=archive_only)
    if connection is not None:
        connection.run(traced.look_in_queues)
    if archive is not None:
        traced.read(archive)
        say_what_was_read(archive)
    if connection is not None and traced.may_be_acknowledged:
        connection.run(lambda wire: traced.find_acknowledgments(wire, look_at))
    rows = traced.rows(is_gone=connection is not None)
    if rows or output != "table":
        show_rows(rows, _COLUMNS, output)
    if rows:
        return
    where = "no queue holds it" if connection is not None else "the archive does not know it"
    hint = "" if url else "; an archive may know what happened to it: --archive FOLDER"
    click.echo(f"{where}{hint}", err=True)
    sys.exit(1)


class _Traced:
    """What is known of one message."""

    def __init__(self, message_id: bytes) -> None:
        self._message_id = message_id
        self._events: list[tuple[int, int, dict[str, Any]]] = []
        """Time, order within that time, and a row."""
        self._places: set[tuple[int, int]] = set()
        """Queue id and LookupIdentifier of beginnings that the archive has."""
        self._held: list[tuple[Any, Any]] = []
        """Queues that hold it, and the message there."""
        self._properties: Any = None

    @property
    def may_be_acknowledged(self) -> bool:
        """Whether it asked for acknowledgments, as far as that is known."""
        found = self._properties
        return found is None or bool(found.acknowledgements and found.administration_queue)

    def _add(self, at_ms: int, order: int, row: dict[str, Any]) -> None:
        self._events.append((at_ms, order, row))

    # The cluster

    async def look_in_queues(self, wire: Any) -> None:
        """Find it in all queues; their readers never see that."""
        from qm.pb import control_pb2

        kinds = [kind for kind in KINDS if kind not in _UNTRACED]
        for queue in await queues_like(wire, kinds=kinds):
            where = control_pb2.QueueName(queue_id=queue.queue_id)
            pages = pages_of(wire, where, with_bodies=False, message_id=self._message_id)
            if not queue.message_count:
                continue
            async for page in pages:
                self._held += [(queue, entry) for entry in page]
        if self._held:
            self._properties = self._held[0][1].properties

    async def find_acknowledgments(self, wire: Any, look_at: int) -> None:
        """Find acknowledgments that are still queued."""
        from qm.pb import control_pb2

        if self._properties is not None:
            name = self._properties.administration_queue
            queues = [("", control_pb2.QueueName(name=name))]
        else:
            found = await queues_like(wire, kinds=("application", "subqueue", "outgoing"))
            queues = [
                (each.path_name, control_pb2.QueueName(queue_id=each.queue_id))
                for each in found
                if each.message_count
            ]
        looked = 0
        for name, where in queues:
            pages = pages_of(wire, where, with_bodies=False, correlation_id=self._message_id)
            async for page in pages:
                for entry in page:
                    self._acknowledged(name or self._properties.administration_queue, entry)
                looked += PAGE_SCANNED
                if looked > look_at:
                    click.echo(f"only {look_at} messages were looked at: --look-at", err=True)
                    return

    def _acknowledged(self, queue: str, entry: Any) -> None:
        """Note an acknowledgment that is in a queue, unless it is an application's answer."""
        message_class = entry.properties.message_class
        if not message_class:
            return
        place = entry.queue_id, entry.lookup_identifier
        note = "the acknowledgment is there"
        for _, _, row in self._events:
            if row.get("place") == place:
                row["note"] = note
                return
        self._add(
            entry.arrived_time_s * 1000 + 999,
            2,
            {
                "time": instant(entry.arrived_time_s),
                "event": "acknowledged",
                "queue": queue,
                "lookup_id": entry.lookup_identifier,
                "class": class_name(message_class),
                "entry": entry.entry_index or None,
                "note": note,
            },
        )

    # The archive

    def read(self, archive: ArchiveReader) -> None:
        """Add what the archive has of it."""
        from qm.archive.reader import Wanted

        source, ordinal = self._message_id[:16], int.from_bytes(self._message_id[16:], "little")
        contents = Contents(archive)
        for found in archive.operations(Wanted(message=(source, ordinal))):
            if len(self._events) >= EVENTS_MAX:
                click.echo(
                    f"there are more than {EVENTS_MAX} events: these are the first", err=True
                )
                return
            self._operation(found, contents)

    def _operation(self, found: Operation, contents: Contents) -> None:
        row = found.row
        shown = operation_row(row) | {"note": _NOTES.get(row["operation"], "")}
        if row["operation"] in BEGINNINGS:
            self._places.add((row["queue_id"], shown["lookup_id"]))
        if row["body_index"] == row["index"] and (origin := contents.origin(row)) is not None:
            shown["note"] = "; ".join(filter(None, (_origin_text(origin), shown["note"])))
        if self._properties is None:
            message = contents.message(row)
            self._properties = None if message is None else message.properties
        self._add(row["time_ms"], 2 * row["ordinal"], shown)
        if (ack := self._acknowledgment(found)) is not None:
            self._add(row["time_ms"], 2 * row["ordinal"] + 1, ack)

    def _acknowledgment(self, found: Operation) -> dict[str, Any] | None:
        """Return the acknowledgment that apply made of it, next to its cause; None if it made none.

        The archive does not have its packet: which one it is follows from what the message asked
        for.
        """
        from qm.wire.message_class import AcknowledgeFlags, MessageClass, is_negative

        asked = self._properties
        if asked is None or not asked.administration_queue or asked.trace:
            return None
        operation, reason = found.row["operation"], found.row["reason"]
        if operation in _ENDS_ACKNOWLEDGED:
            beside = found.near(-1)
            flag = AcknowledgeFlags.PR
            if is_negative(reason):
                flag = AcknowledgeFlags.NR if reason & 0x4000 else AcknowledgeFlags.NA
        elif operation in ("arrived", "unlocked"):
            beside, flag, reason = found.near(1), AcknowledgeFlags.PA, MessageClass.ACK_REACH_QUEUE
        else:
            return None
        if beside is None or not asked.acknowledgements & flag or not _is_new(beside):
            return None
        shown = operation_row(beside)
        return shown | {
            "event": "acknowledged",
            "class": class_name(reason),
            "note": f"acknowledgment {shown['message_id']}",
            "place": (beside["queue_id"], shown["lookup_id"]),
        }

    # Together

    def rows(self, *, is_gone: bool) -> list[dict[str, Any]]:
        """Return everything in order of time; `is_gone`: whether the queues were searched."""
        events = list(self._events)
        if self._properties is not None and self._properties.sent_time_s:
            events.append((_FIRST, 0, self._sent()))
        for queue, entry in self._held:
            events += self._standing(queue, entry)
        if events and is_gone and not self._held:
            events.append((_LAST, 0, {"event": "gone", "note": "no queue holds it"}))
        identifier = message_id_text(self._message_id)
        ordered = sorted(events, key=lambda event: event[:2])
        return [_complete(row) | {"message_id": identifier} for _, _, row in ordered]

    def _sent(self) -> dict[str, Any]:
        from qm.names.guid import guid_text

        sent = self._properties
        return {
            "time": instant(sent.sent_time_s),
            "event": "sent",
            "queue": sent.destination_queue,
            "class": class_name(sent.message_class),
            "label": sent.label,
            "note": f"by queue manager {guid_text(self._message_id[:16])}, its clock",
        }

    def _standing(self, queue: Any, entry: Any) -> Sequence[tuple[int, int, dict[str, Any]]]:
        """Return how it came into a queue, unless the archive tells, and that it is there."""
        from qm.pb import control_pb2

        row = browsed_row(entry, "none")
        del row["bytes"], row["body"]
        row["queue"] = queue.path_name
        kind = _EVENTS_OF_KINDS.get(control_pb2.QueueKind.Name(queue.kind).lower(), "arrived")
        is_moved = kind == "arrived" and entry.moves
        came = row | {
            "time": instant(entry.arrived_time_s),
            "event": kind,
            "entry": entry.entry_index or None,
            "note": f"moved {entry.moves} times since" if is_moved else "",
        }
        if is_moved:
            came |= {"queue": "", "lookup_id": None}
        returned = f", returns {entry.returns}, aborts {entry.aborts}, moves {entry.moves}"
        owner = f" by {entry.lock_owner}" if entry.lock_owner else ""
        here = row | {"event": "here", "note": f"{row['state']}{owner}{returned}"}
        standing = (_LAST, 0, here)
        if (entry.queue_id, entry.lookup_identifier) in self._places:
            return [standing]
        return [(entry.arrived_time_s * 1000 + 999, 0, came), standing]


def _is_new(row: dict[str, Any]) -> bool:
    """Whether an operation is the arrival of a message that apply made in the same entry."""
    is_here = row["operation"] == "arrived" and row["body_index"] == row["index"]
    return is_here and is_made_by_apply(row)


def _origin_text(origin: Any) -> str:
    from qm.names.guid import guid_text

    if origin.client_id:
        where = f"from client {origin.client_id}"
    else:
        where = (
            f"from queue manager {guid_text(origin.peer_queue_manager)} at {origin.peer_address}"
        )
    return f"{where}, {origin.sender_sid}" if origin.sender_sid else where


def _complete(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with all columns, the common ones first."""
    row.pop("place", None)
    return {name: row.get(name, "") for name in _COLUMNS} | row
