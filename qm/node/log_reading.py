"""Describes the log of a node in words; opens files for reading only and changes nothing.

For a running node it is the log as of the moment of opening. Of messages' bodies only number and
length are shown.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from qm.model.values.commands import Command
from qm.node.replica.replicated_store import GROUP, RAFT_FOLDER
from qm.store.codec import UnknownCommand, decode_entry
from raft.core.membership import decode_configuration
from raft.founding import LOG_DIRECTORY
from raft.inspection import Inspection, LogDamaged, SegmentInfo
from raft.log.disk import ReadOnlyDirectory
from raft.types import Configuration, Entry, EntryKind

TEXT_MAX_CHARS: Final = 80
"""Characters shown of one field of a command."""
ITEMS_MAX: Final = 8
"""Items shown of a sequence in a field."""
_OPENED_MAX: Final = 5


class LogUnreadable(Exception):
    """The folder holds no log, or a damaged one; the text says where and what to do."""


class Damage(LogUnreadable):
    """Bytes that were once durable have changed."""

    def __init__(self, file: Path, offset: int, index: int, reason: str) -> None:
        super().__init__(
            f"{file}: damaged at byte {offset} (entry {index}): {reason}; keep the folder, and let"
            " the node join again with an empty one"
        )
        self.file = file
        self.offset = offset
        """Offset of the damaged record's first byte."""
        self.index = index
        """Index of the first entry that can no longer be trusted."""
        self.reason = reason


class Summary(msgspec.Struct, frozen=True):
    """Facts about a log as a whole."""

    folder: Path
    first_index: int
    last_index: int
    last_term: int
    synced_index: int
    """Highest index that the log itself records as durable."""
    term: int
    voted_for: str
    commit_index: int
    """As noted last; the log may be committed further."""
    snapshot_index: int
    """Last index that the state has without the log, 0 for none."""
    configuration: Configuration
    segments: tuple[SegmentInfo, ...]


class EntryInfo(msgspec.Struct, frozen=True):
    """One entry in words."""

    index: int
    term: int
    kind: str
    size_bytes: int
    time_ms: int
    """Cluster time of its stamp; 0 for Raft's own entries."""
    leader: str
    """Node that stamped it."""
    commands: tuple[str, ...]


class NodeLog:
    """A log, open for reading, with all checksums verified. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """`folder`: a node's data folder, or the log's own. Raises LogUnreadable, Damage."""
        inner = folder / RAFT_FOLDER / LOG_DIRECTORY
        self._folder = inner if inner.is_dir() else folder
        if not self._folder.is_dir():
            raise LogUnreadable(f"{folder}: there is no such folder")
        self._directory = ReadOnlyDirectory(self._folder)
        try:
            self._log = self._open()
        except FileNotFoundError:
            raise LogUnreadable(
                f"{folder} holds no log: name a node's data folder, or the folder of the segments"
            ) from None
        except LogDamaged as error:
            raise self._damage(error) from None
        except OSError as error:
            raise LogUnreadable(f"{self._folder}: {error.strerror}") from error

    def _open(self) -> Inspection:
        """Read the log; try again if the running node has replaced segments in the meantime."""
        for _ in range(_OPENED_MAX):
            names = self._directory.names()
            try:
                return Inspection.open(self._directory, GROUP)
            except (LogDamaged, FileNotFoundError):
                if self._directory.names() == names:
                    raise
        return Inspection.open(self._directory, GROUP)

    def _damage(self, error: LogDamaged) -> Damage:
        return Damage(self._folder / error.file, error.offset, error.index, error.reason)

    def summary(self) -> Summary:
        """Return the facts about the whole log."""
        log = self._log
        meta, hard_state = log.snapshot_meta, log.hard_state
        return Summary(
            folder=self._folder,
            first_index=log.first_index,
            last_index=log.last_index,
            last_term=log.last_term,
            synced_index=log.synced_index,
            term=hard_state.term,
            voted_for=hard_state.vote or "",
            commit_index=hard_state.commit,
            snapshot_index=0 if meta is None else meta.index,
            configuration=log.configuration(),
            segments=tuple(log.segments()),
        )

    def entries(self, first: int, last: int) -> Iterator[EntryInfo]:
        """Yield the entries from `first` to `last` that are in the log, in words.

        Raises Damage, and LogUnreadable for an entry that this build does not understand.
        """
        try:
            for entry in self._log.entries(first, last):
                yield _told(entry)
        except LogDamaged as error:
            raise self._damage(error) from None
        except UnknownCommand as error:
            raise LogUnreadable(f"{self._folder}: {error}") from error

    def data(self, index: int) -> bytes | None:
        """Return the bytes of an entry; None if the log does not reach that far. Raises Damage, and
        LogUnreadable if the entry was dropped.
        """
        if index > self.summary().last_index:
            return None
        try:
            for entry in self._log.entries(index, index):
                return entry.data
        except LogDamaged as error:
            raise self._damage(error) from None
        raise LogUnreadable(f"{self._folder} holds no entry {index}")

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    def __enter__(self) -> "NodeLog":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _told(entry: Entry) -> EntryInfo:
    time_ms, leader = 0, ""
    commands: tuple[str, ...] = ()
    if entry.kind is EntryKind.DATA:
        batch = decode_entry(entry.index, entry.data)
        time_ms, leader = batch.stamp.now_ms, batch.stamp.node
        commands = tuple(map(_words, batch.commands))
    elif entry.kind is EntryKind.CONFIG:
        commands = (_fields(decode_configuration(entry.data)),)
    return EntryInfo(
        entry.index,
        entry.term,
        entry.kind.name.lower(),
        len(entry.data),
        time_ms,
        leader,
        commands,
    )


_NOT_SHOWN: Final = frozenset(
    {"body_index", "body_offset", "body_ordinal", "first_ordinal", "checksum", "checksums"}
    | {"offsets", "facts_of", "sealed_private_keys", "public_keys", "security_descriptor"}
)
"""Fields not shown: places of bodies, which the entry itself implies, and long binary ones."""


def _words(command: Command) -> str:
    """Return a command's name and fields."""
    return f"{type(command).__name__} {_fields(command)}".rstrip()


def _fields(struct: msgspec.Struct) -> str:
    return " ".join(
        f"{field}={_text(value)}"
        for field in struct.__struct_fields__
        if field not in _NOT_SHOWN and (value := getattr(struct, field)) not in (None, "", b"", ())
    )


def _text(value: Any) -> str:
    match value:
        case memoryview():
            return f"({len(value)} bytes)"
        case bytes():
            text = value.hex()
        case msgspec.Struct():
            said = [getattr(value, field) for field in value.__struct_fields__]
            text = "/".join(_text(each) for each in said if each is not None)
        case dict():
            text = ",".join(sorted(value))
        case str():
            text = value
        case bool() | int() | float():
            text = str(value)
        case _:
            items = [_text(each) for each in value[:ITEMS_MAX]]
            more = f" and {len(value) - ITEMS_MAX} more" if len(value) > ITEMS_MAX else ""
            text = f"[{' '.join(items)}{more}]"
    return text if len(text) <= TEXT_MAX_CHARS else text[: TEXT_MAX_CHARS - 3] + "..."
