"""Entries that no build can read, left out by operators' decision, the same on every node.

Unreadable commands are never proposed (`qm.store.codec.inspect_foreign`). Should the log contain
one all the same, every node ends when it comes to its entry, and says how to go on: with a build
that reads it, or, if there is none, by `qm log skip` with its index and hash on all nodes. The
entry then does nothing, on all of them.
"""

import json
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from qm.model.values.commands import Stamp
from qm.store.codec import UnknownCommand, decode_entry, encode_stamp
from qm.store.generation import sync_folder
from raft.batch import BatchBuilder
from raft.types import Entry

_FILE: Final = "skipped-entries.json"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
SKIPPED_MAX: Final = 1_024
"""Entries that one node leaves out."""


class UnreadableEntry(Exception):
    """An entry cannot be read; the text says which, why, and how to go on."""


def entry_hash(data: bytes) -> str:
    """Return the hash that identifies an entry together with its index."""
    return sha256(data).hexdigest()


class SkippedEntries:
    """A file in the data folder: index -> hash."""

    def __init__(self, data: Path) -> None:
        """Raises ValueError when the file cannot be read."""
        self._path = data / _FILE
        self._known: dict[int, str] = {}
        if self._path.exists():
            try:
                text = self._path.read_text(encoding="ascii")
                self._known = {int(index): str(known) for index, known in json.loads(text).items()}
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{self._path} is not what `qm log skip` wrote: {error}") from None

    def add(self, index: int, data: bytes | None, expected: str) -> None:
        """Leave an entry out from the next start on; `data` None: it is not in this log yet.

        Raises ValueError, OSError.
        """
        if not _HASH.fullmatch(expected):
            raise ValueError(f"{expected!r} is not a SHA-256 in hexadecimal digits")
        if data is not None:
            _check_unreadable(index, data, expected)
        if len(self._known) >= SKIPPED_MAX:
            raise ValueError(f"{SKIPPED_MAX} entries are left out already: restore a backup")
        self._known[index] = expected
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="ascii") as file:
            json.dump({str(number): known for number, known in sorted(self._known.items())}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        sync_folder(self._path.parent)

    def without(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries, skipped ones replaced by empty ones. Raises UnreadableEntry."""
        if not self._known:
            return entries
        return [self._or_nothing(entry) for entry in entries]

    def _or_nothing(self, entry: Entry) -> Entry:
        known = self._known.get(entry.index)
        if known is None:
            return entry
        if known != entry_hash(entry.data):
            raise UnreadableEntry(
                f"entry {entry.index} is not the one that {self._path} leaves out: remove the file"
                " if this node's data folder was replaced since"
            )
        # Its stamp does not move time, and it has no command.
        builder = BatchBuilder()
        builder.add(encode_stamp(Stamp(0, "", 1)))
        return msgspec.structs.replace(entry, data=builder.build())


def _check_unreadable(index: int, data: bytes, expected: str) -> None:
    """Raise ValueError unless this is the expected entry and cannot be read."""
    found = entry_hash(data)
    if found != expected:
        raise ValueError(f"entry {index} here has the hash {found}, not {expected}")
    try:
        decode_entry(index, data)
    except UnknownCommand:
        return
    raise ValueError(f"entry {index} can be read: this build applies it")


def explained(entries: Sequence[Entry], error: UnknownCommand) -> UnreadableEntry:
    """Return, with advice for the operator, the first entry that cannot be read."""
    for entry in entries:
        try:
            decode_entry(entry.index, entry.data)
        except UnknownCommand:
            return UnreadableEntry(
                f"{error}. If a newer build wrote this, upgrade this node. If no build reads it,"
                " stop every node, run `qm log skip DATA_FOLDER"
                f" {entry.index} {entry_hash(entry.data)}` for each of their data folders, so that"
                " all leave the entry out, and start them again"
            )
    return UnreadableEntry(str(error))
