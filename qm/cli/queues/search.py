"""`qm search`: messages by what is in them, in every queue of the cluster and in an archive."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from qm.cli.lib.connection import Connection, connected_unless
from qm.cli.lib.output import instant, output_option, show_rows
from qm.cli.lib.times import parse_time_ms
from qm.cli.queues.archived import (
    Contents,
    archive_options,
    is_made_by_apply,
    opened_archive,
    operation_row,
    say_what_was_read,
)
from qm.cli.queues.browse import browsed_row, pages_of, parse_message_id
from qm.cli.queues.copies import class_of
from qm.cli.queues.queue import KINDS, queues_like
from qm.client.search import PLACES, found_in

if TYPE_CHECKING:
    from qm.archive.reader import ArchiveReader

_BROUGHT: Final = ("arrived", "refused")
_CAME: Final = (*_BROUGHT, "moved_in", "journaled", "dead_lettered")
"""Operations that say that a message came into a queue, or into none."""
_UNREAD: Final = ("order", "notification", "connector")
_COLUMNS: Final = ("queue", "lookup_id", "found_in", "state", "arrived", "label", "body")
_OF_BOTH: Final = (
    *("from", "time", "state", "queue", "lookup_id", "class"),
    *("label", "message_id", "entry"),
)


@click.command()
@click.argument("text", default="")
@click.option("--in", "places", type=click.Choice(PLACES), multiple=True, help="Repeatable.")
@click.option("--label", default="", help="What the label contains, in any case.")
@click.option("--correlation-id", metavar="ID", default="", help="GUID\\NUMBER or 40 hex digits.")
@click.option("--message-id", metavar="ID", default="", help="GUID\\NUMBER or 40 hex digits.")
@click.option("--queue", "pattern", default="", help="Shell pattern for the queues' path names.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind for kind in KINDS if kind not in _UNREAD]),
    multiple=True,
    help="Of queues, journals and dead letters among them; repeatable. Not for archives."
    "  [default: all]",
)
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="CLASS",
    help="Of acknowledgments, or why something happened, such as Q_PURGED; repeatable.",
)
@click.option(
    "--since", "since_ms", callback=parse_time_ms, metavar="TIME", help="Such as 2h or 2026-05-01."
)
@click.option("--until", "until_ms", callback=parse_time_ms, metavar="TIME", help="Likewise.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--look-at",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Messages to look at before it gives up, in queues and in the archive.",
)
@archive_options
@output_option
@connected_unless("archive_only")
def search(
    connection: Connection | None,
    text: str,
    pattern: str,
    kinds: tuple[str, ...],
    limit: int,
    look_at: int,
    url: str | None,
    cluster: str,
    archive_only: bool,
    output: str,
    **sought: Any,
) -> None:
    """Find messages whose label, body, id, correlation id or destination contains TEXT, in any
    case, and to which all options apply.

    Bodies are searched as UTF-8 and as UTF-16; ids are hexadecimal digits. An archive has every
    message that came into a queue, by when it came, with the class for which something else
    happened to it; what is in messages only if nodes archive the entries (`bodies = "full"`).

    Exit code 1: there is none; 2: the archive cannot be read.
    """
    wanted = _sought(text, **sought)
    archive = opened_archive(url, cluster, archive_only=archive_only)
    found = _Found(limit, look_at)
    if connection is not None:
        wanted_kinds = kinds or tuple(kind for kind in KINDS if kind not in _UNREAD)
        connection.run(lambda wire: _look_in_queues(wire, wanted, pattern, wanted_kinds, found))
    if archive is not None:
        if not found.is_full:
            _look_in_archive(archive, wanted, pattern, found)
        say_what_was_read(archive)
    show_rows(found.rows[:limit], _OF_BOTH if archive is not None else _COLUMNS, output)
    found.say_whether_there_may_be_more()
    if not found.rows:
        sys.exit(1)


class _Sought(msgspec.Struct, frozen=True):
    """What must be true of a message."""

    text: str
    places: Sequence[str]
    label: str
    correlation_id: bytes
    message_id: bytes
    classes: frozenset[int]
    since_ms: int
    until_ms: int
    """0: no end."""

    @property
    def needs_packets(self) -> bool:
        """Whether anything is sought that is in packets alone."""
        return bool(self.text or self.label or self.correlation_id)

    def found_in(self, entry: Any) -> list[str] | None:
        """Return where a message (`BrowsedMessage`) has the text, if it is sought; None: it is not
        what is sought. Looks at what is in the packet only.
        """
        properties = entry.properties
        if self.label and self.label.casefold() not in properties.label.casefold():
            return None
        if self.correlation_id and properties.correlation_id != self.correlation_id:
            return None
        if not self.text:
            return []
        return found_in(entry, self.text, self.places) or None

    def is_of_queue(self, entry: Any) -> bool:
        """Whether identifier, class and time of a message in a queue are those sought."""
        at_ms = entry.arrived_time_s * 1000
        return (
            (not self.message_id or entry.message_id == self.message_id)
            and (not self.classes or not self.classes.isdisjoint(_classes_of(entry)))
            and self.since_ms <= at_ms + 999
            and (not self.until_ms or at_ms <= self.until_ms)
        )


def _classes_of(entry: Any) -> tuple[int, int]:
    return entry.reason_class, entry.properties.message_class


def _sought(
    text: str,
    *,
    places: tuple[str, ...],
    label: str,
    correlation_id: str,
    message_id: str,
    classes: tuple[str, ...],
    since_ms: int,
    until_ms: int,
) -> _Sought:
    """Return what the options say. Raises UsageError if they say nothing."""
    if not (text or label or correlation_id or message_id or classes or since_ms or until_ms):
        raise click.UsageError(
            "say what to look for: TEXT, --label, --correlation-id, --message-id, --class, --since"
            " or --until"
        )
    return _Sought(
        text,
        places or PLACES,
        label,
        parse_message_id(correlation_id) if correlation_id else b"",
        parse_message_id(message_id) if message_id else b"",
        frozenset(map(class_of, classes)),
        since_ms,
        until_ms,
    )


class _Found:
    """Rows, one more than are shown: then there are more."""

    def __init__(self, limit: int, look_at: int) -> None:
        self._limit, self._look_at = limit, look_at
        self._looked = 0
        self._was_cut = False
        self.unread = 0
        """Messages whose contents are not in the archive."""
        self.rows: list[dict[str, Any]] = []

    @property
    def is_full(self) -> bool:
        """Whether enough was found."""
        return len(self.rows) > self._limit

    def may_look(self) -> bool:
        """Count one more message; return whether it may be looked at."""
        if self.is_full or self._looked == self._look_at:
            self._was_cut = not self.is_full
            return False
        self._looked += 1
        return True

    def say_whether_there_may_be_more(self) -> None:
        """Print to stderr what the rows do not show."""
        if self.is_full:
            click.echo(f"there are more than {self._limit}: --limit", err=True)
        elif self._was_cut:
            click.echo(f"only {self._look_at} messages were looked at: --look-at", err=True)
        if self.unread:
            click.echo(
                f"the archive does not have the contents of {self.unread} messages, which were"
                ' not searched: `bodies = "full"` keeps them',
                err=True,
            )


async def _look_in_queues(
    wire: Any, sought: _Sought, pattern: str, kinds: Sequence[str], found: _Found
) -> None:
    async for queue, entry in _messages(wire, sought, pattern, kinds):
        if not found.may_look():
            return
        where = sought.found_in(entry) if sought.is_of_queue(entry) else None
        if where is None:
            continue
        row = browsed_row(entry, "auto")
        came = {"queue": queue.path_name, "found_in": where, "time": row["arrived"]}
        more = {"entry": entry.entry_index or None, "from": "cluster"}
        found.rows.append(came | row | more)


async def _messages(
    wire: Any, sought: _Sought, pattern: str, kinds: Sequence[str]
) -> AsyncIterator[tuple[Any, Any]]:
    from qm.pb import control_pb2

    for queue in await queues_like(wire, pattern, kinds):
        if queue.message_count:
            where = control_pb2.QueueName(queue_id=queue.queue_id)
            pages = pages_of(
                wire,
                where,
                message_id=sought.message_id,
                correlation_id=sought.correlation_id,
            )
            async for page in pages:
                for entry in page:
                    yield queue, entry


# Archives --------------------------------------------------------------------------------------


def _look_in_archive(archive: ArchiveReader, sought: _Sought, pattern: str, found: _Found) -> None:
    from qm.archive.reader import Wanted

    kinds = _BROUGHT if sought.needs_packets else _CAME
    limits = {"until_ms": sought.until_ms} if sought.until_ms else {}
    identifier = sought.message_id
    wanted = Wanted(
        message=(identifier[:16], int.from_bytes(identifier[16:], "little"))
        if identifier
        else None,
        pattern=f"*{pattern[1:]}" if pattern.startswith(".\\") else pattern,
        kinds=() if sought.classes else kinds,
        reasons=sorted(sought.classes),
        since_ms=sought.since_ms,
        **limits,
    )
    contents = Contents(archive)
    for each in archive.operations(wanted):
        if not found.may_look():
            return
        message = contents.message(each.row)
        if message is None and sought.needs_packets:
            found.unread += not is_made_by_apply(each.row)
            continue
        where = [] if message is None else sought.found_in(message)
        if where is not None:
            found.rows.append(_archived_row(each.row, message, where))


def _archived_row(row: dict[str, Any], message: Any, where: list[str]) -> dict[str, Any]:
    shown = operation_row(row)
    event = shown.pop("event")
    found = {
        "from": "archive",
        "found_in": where,
        "state": event,
        "arrived": instant(row["time_ms"] // 1000),
    }
    if message is not None:
        properties = message.properties
        found |= {"label": properties.label, "correlation_id": properties.correlation_id}
    return shown | found
