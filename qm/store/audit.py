"""The digest that a node reports at an audit mark, verified against the rows on its disk.

The running digest would not reveal a byte that flipped on the disk, so the rows are read again, in
a thread, while apply continues. They are read from a copy by hard links that is taken soon after
the mark, since a copy at the mark itself would flush the state while all callers wait. The copy
contains the running digest at its own index: if its rows give that digest, the running digest was
right at the mark as well, where it was noted when the mark was applied.
"""

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from qm.model.state.ledger import QueueInHand
from qm.model.state.tables import Table
from qm.model.values.records import Queue, decode
from qm.store.database import DatabaseError
from qm.store.digest import digest_bytes
from qm.store.rocks import PinnedRows, RocksState, open_database
from raft.log.files import FatalDiskError

COPY_CACHE_BYTES: Final = 8 * 1024 * 1024
UNREADABLE: Final = b"unreadable state"
"""Reported by a node whose rows cannot be read; no digest ever equals it."""
UNREADABLE_ROW: Final = (DatabaseError, FatalDiskError, ValueError, struct.error)
"""What reading damaged rows raises; msgspec's errors are ValueErrors."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An audit mark that this node has applied."""

    number: int
    index: int
    kept: bytes
    """The running digest, 16 bytes."""
    pinned: PinnedRows
    """The rows at the mark, until they are copied or the state is closed."""


class MarkGone(Exception):
    """The state that a mark was applied to was closed or replaced."""


class QueueContents(NamedTuple):
    """The contents of a queue at a mark, including hidden and locked positions."""

    queue_id: int
    name: str
    """The name as in the rows of effects."""
    messages: int
    size_bytes: int
    quota_kb: int


class MarkCopy(NamedTuple):
    """The input of `prove`."""

    mark: Mark
    folder: Path
    """A copy of the state at the mark or later; `prove` removes it."""
    queue_rows: Sequence[tuple[bytes, bytes | None]]
    """(QUEUE row, QUEUE_STATS row) at the mark, by ascending queue_id."""
    damage: str = ""
    """Why `queue_rows` could not be read; else empty."""


class Proof(msgspec.Struct, frozen=True, gc=False):
    """The result of `prove`."""

    digest: bytes
    """The digest to report to all members."""
    is_sound: bool
    """Whether the rows gave the running digest; if not, this node must stop."""
    reason: str = ""
    queues: Sequence[QueueContents] = ()
    """Contents of the queues, for the archive."""


def prove(copy: MarkCopy) -> Proof:
    """Read every row of a copy. Takes seconds; call it in a thread of its own.

    Raises OSError for errors that do not concern the rows, such as a lack of memory or files.
    """
    mark = copy.mark
    try:
        queues = [_contents(*rows) for rows in copy.queue_rows]
        # Open read-only: a full disk must not be taken for unreadable rows.
        database = open_database(copy.folder, cache_bytes=COPY_CACHE_BYTES, is_read_only=True)
        state = RocksState(database)
        try:
            kept, index = state.applied.digest, state.applied.index
            digest = state.computed_digest()
        finally:
            state.close()
    except UNREADABLE_ROW as error:
        return Proof(UNREADABLE, False, f"a row cannot be read: {error}")
    finally:
        shutil.rmtree(copy.folder, ignore_errors=True)
    if copy.damage:
        return Proof(UNREADABLE, False, copy.damage)
    if digest != kept or index < mark.index:
        return Proof(digest_bytes(digest), False, "the rows do not give the digest that was kept")
    return Proof(mark.kept, True, queues=queues)


def copied(mark: Mark, folder: Path) -> MarkCopy:
    """Return the input of `prove`: the copy in a folder, and the pinned queue rows of the mark."""
    try:
        stats = dict(mark.pinned.rows(Table.QUEUE_STATS))
        rows = [(row, stats.get(key)) for key, row in mark.pinned.rows(Table.QUEUE)]
    except UNREADABLE_ROW as error:
        return MarkCopy(mark, folder, (), f"a row cannot be read: {error}")
    return MarkCopy(mark, folder, rows)


def _contents(queue_row: bytes, stats_row: bytes | None) -> QueueContents:
    record = decode(Queue, queue_row)
    queue = QueueInHand(record, stats_row)
    messages = queue.count() + queue.hidden
    return QueueContents(
        record.queue_id, record.pathname, messages, queue.total_bytes, record.quota
    )
