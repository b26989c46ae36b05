"""What a node tells the others at an audit mark: a digest that the rows on its disk vouch for.

The digest that is kept along the way would not notice a byte that flipped on the disk, so the rows
are read again, in a thread, while apply goes on. They are read from a copy by hard links that is
taken soon after the mark, since a copy at the mark itself would flush the state with everybody
waiting. It has the digest that was kept up to it beside its rows: if they agree, so they did at the
mark, whose own digest was put down when it was applied.
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
ALARM_DIVERGED: Final = "diverged"
"""Members' states differ at an audit mark."""
UNREADABLE: Final = b"unreadable state"
"""What a node tells whose rows cannot be read: no digest is ever equal to it."""


UNREADABLE_ROW: Final = (DatabaseError, FatalDiskError, ValueError, struct.error)
"""What reading rows raises where they are not what was written: msgspec's errors are values'."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An audit mark that this node has applied."""

    number: int
    index: int
    kept: bytes
    """The digest that was kept along the way, 16 bytes."""
    pinned: PinnedRows
    """The state at the mark, until it is copied, or closed before."""


class MarkGone(Exception):
    """The state that a mark was applied to is closed, or another one came in its place."""


class QueueContents(NamedTuple):
    """What is in a queue at a mark, whatever its state: hidden and locked positions included."""

    queue_id: int
    name: str
    """As effects' rows have it."""
    messages: int
    size_bytes: int
    quota_kb: int


class MarkCopy(NamedTuple):
    """What `prove` reads."""

    mark: Mark
    folder: Path
    """A copy of the state at the mark or behind it; `prove` removes it."""
    queue_rows: Sequence[tuple[bytes, bytes | None]]
    """(QUEUE row, QUEUE_STATS row) at the mark, by ascending queue_id."""
    damage: str = ""
    """Why they could not be read."""


class Proof(msgspec.Struct, frozen=True, gc=False):
    """What `prove` found."""

    digest: bytes
    """To be told to all members."""
    is_sound: bool
    """Whether the rows gave the digest that was kept; if not, this node must stop."""
    reason: str = ""
    queues: Sequence[QueueContents] = ()
    """For the archive."""


def prove(copy: MarkCopy) -> Proof:
    """Read every row of a copy. Takes seconds; call it in a thread of its own.

    Raises OSError where that says nothing of the rows, such as for lack of memory or files.
    """
    mark = copy.mark
    try:
        queues = [_contents(*rows) for rows in copy.queue_rows]
        # For reading alone: a full disk must not pass for rows that cannot be read.
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
    """Return what `prove` reads: the copy in a folder, and what is pinned of the mark itself."""
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
