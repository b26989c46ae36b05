"""What `qm message trace` and `qm search` read of an archive, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from qm.cli.lib.times import instant_ms

if TYPE_CHECKING:
    from qm.archive.carried import CarriedMessages, Origin
    from qm.archive.reader import ArchiveReader

EXIT_UNUSABLE: Final = 2
"""As for `qm audit`: there is no archive, or it cannot be read."""
BEGINNINGS: Final = ("arrived", "pending", "moved_in", "journaled", "dead_lettered")
"""Operations by which a message comes into a queue."""
_PROBLEMS_SHOWN: Final = 5
_Command = TypeVar("_Command", bound=Callable[..., Any])


def archive_options(command: _Command) -> _Command:
    """Add `--archive`, `--cluster` and `--archive-only` to a command, which gets them as `url`,
    `cluster` and `archive_only`.
    """
    for option in (
        click.option(
            "--archive-only", is_flag=True, help="Do not ask the cluster; it may be gone."
        ),
        click.option(
            "--cluster",
            default="",
            help="Hexadecimal id of the cluster; needed when the archive holds several.",
        ),
        click.option(
            "--archive",
            "url",
            metavar="FOLDER",
            help="Also look into this archive: a folder or URL.",
        ),
    ):
        command = option(command)
    return command


def opened_archive(url: str | None, cluster: str, *, archive_only: bool) -> ArchiveReader | None:
    """Return the archive, None if none was named. Ends the command if it cannot be read."""
    if not url:
        if archive_only:
            raise click.UsageError("say which archive: --archive FOLDER")
        return None
    try:
        from qm.archive.destination import DestinationError
        from qm.archive.reader import ArchiveReader
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        _fail("pyarrow is not installed, which reads archives: pip install 'quorate[server]'")
    try:
        return ArchiveReader(url, cluster)
    except DestinationError as error:
        _fail(str(error))


def say_what_was_read(archive: ArchiveReader) -> None:
    """Print to stderr which part of the log the archive has, and what of it cannot be used."""
    click.echo(f"the archive has the entries {archive.begin} to {archive.end}", err=True)
    problems = archive.problems
    for problem in problems[:_PROBLEMS_SHOWN]:
        click.echo(f"warning: {problem}", err=True)
    if len(problems) > _PROBLEMS_SHOWN:
        click.echo(f"warning: {len(problems) - _PROBLEMS_SHOWN} more such files", err=True)


class Contents:
    """The messages behind operations, from the entries that brought them; keeps the last entry."""

    def __init__(self, archive: ArchiveReader) -> None:
        self._archive = archive
        self._at = 0
        self._entry: CarriedMessages | None = None

    def _carried(self, index: int) -> CarriedMessages | None:
        """Return what an entry brought; None if the archive does not have its data."""
        from qm.archive.carried import CarriedMessages
        from qm.store.codec import UnknownCommand

        if index == self._at:
            return self._entry
        data = self._archive.entry(index)
        try:
            self._entry = None if data is None else CarriedMessages(index, data)
        except UnknownCommand as error:
            self._archive.problems.append(str(error))
            self._entry = None
        self._at = index
        return self._entry

    def message(self, row: dict[str, Any]) -> Any:
        """Return the message of an operation as a BrowsedMessage; None without its packet."""
        from qm.api.convert.properties import message_id, properties_of
        from qm.pb import control_pb2

        carried = self._carried(row["body_index"])
        ordinal = row.get("body_ordinal")
        packet = None if carried is None or ordinal is None else carried.packet(ordinal)
        if packet is None:
            return None
        key = row["lookup_identifier"] & (1 << 64) - 1
        identifier = message_id(row["source_queue_manager"], row["message_ordinal"])
        return control_pb2.BrowsedMessage(
            message_id=identifier,
            properties=properties_of(packet, key, row["time_ms"] // 1000, 0, with_body=True),
        )

    def origin(self, row: dict[str, Any]) -> Origin | None:
        """Return who brought the message of an operation; None if the archive does not tell."""
        carried = self._carried(row["body_index"])
        ordinal = row.get("body_ordinal")
        return None if carried is None or ordinal is None else carried.origin(ordinal)


def is_made_by_apply(row: dict[str, Any]) -> bool:
    """Whether an operation's packet is in no entry: an acknowledgment, a report."""
    from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST

    return (row.get("body_ordinal") or 0) >= BODY_ORDINAL_SYNTHETIC_FIRST


def operation_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return an operation for output."""
    from qm.api.convert.properties import message_id
    from qm.cli.queues.browse import class_name
    from qm.client.search import message_id_text

    identifier = message_id(row["source_queue_manager"], row["message_ordinal"])
    is_class = row["operation"] != "discarded"  # its reason is which quota had no room
    return {
        "time": instant_ms(row["time_ms"]),
        "event": row["operation"],
        "queue": row["queue"],
        "lookup_id": row["lookup_identifier"] & (1 << 64) - 1 or None,
        "class": class_name(row["reason"]) if is_class else "",
        "entry": row["index"],
        "message_id": message_id_text(identifier),
        "transaction": row["transaction"] or "",
        "packet_bytes": row["size_bytes"],
    }


def _fail(text: str) -> NoReturn:
    click.echo(f"Error: {text}", err=True)
    sys.exit(EXIT_UNUSABLE)
