"""What a node tells the others at an audit mark: a digest of the rows as its disk has them.

The digest that is kept along the way would not notice a byte that flipped on the disk, so the rows
are read again, from a copy that is taken at the mark by hard links, in a thread, while apply goes
on.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from qm.model.ledger import QueueInHand
from qm.model.records import Queue, decode
from qm.model.state import State, Table
from qm.store.digest import digest_bytes
from qm.store.rocks import RocksState, open_database

_QUEUES_PER_SCAN: Final = 1_000
_QUEUE_END: Final = b"\xff" * 5
COPY_CACHE_BYTES: Final = 8 * 1024 * 1024
ALARM_DIVERGED: Final = "diverged"
"""Members' states differ at an audit mark."""
UNREADABLE: Final = b"unreadable state"
"""What a node tells whose rows cannot be read: no digest is ever equal to it."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An audit mark that this node has applied."""

    number: int
    index: int
    kept: bytes
    """The digest that was kept along the way, 16 bytes."""
    copy: Path
    """The state at the mark; `prove` removes it."""


class QueueContents(NamedTuple):
    """What is in a queue at a mark, whatever its state: hidden and locked positions included."""

    queue_id: int
    name: str
    """As effects' rows have it."""
    messages: int
    size_bytes: int
    quota_kb: int


class Proof(msgspec.Struct, frozen=True, gc=False):
    """What `prove` found."""

    digest: bytes
    """To be told to all members."""
    is_sound: bool
    """Whether the rows gave the digest that was kept; if not, this node must stop."""
    reason: str = ""
    queues: Sequence[QueueContents] = ()
    """For the archive."""


def prove(mark: Mark) -> Proof:
    """Read every row of the state at a mark. Takes seconds; call it in a thread of its own."""
    try:
        state = RocksState(open_database(mark.copy, cache_bytes=COPY_CACHE_BYTES))
        try:
            digest = digest_bytes(state.computed_digest())
            queues = queue_contents(state)
        finally:
            state.close()
    except Exception as error:  # rocksdict has no error type of its own
        return Proof(UNREADABLE, False, f"a row cannot be read: {error}")
    finally:
        shutil.rmtree(mark.copy, ignore_errors=True)
    if digest != mark.kept:
        return Proof(digest, False, "the rows do not give the digest that was kept")
    return Proof(digest, True, queues=queues)


def queue_contents(state: State) -> list[QueueContents]:
    """Return what is in each queue, by ascending queue_id."""
    found: list[QueueContents] = []
    low = b""
    while True:
        rows = state.scan(Table.QUEUE, low, _QUEUE_END, _QUEUES_PER_SCAN)
        for key, row in rows:
            queue = QueueInHand(decode(Queue, row), state.get(Table.QUEUE_STATS, key))
            record = queue.record
            messages = queue.count() + queue.hidden
            found.append(
                QueueContents(
                    record.queue_id, record.pathname, messages, queue.total_bytes, record.quota
                )
            )
        if len(rows) < _QUEUES_PER_SCAN:
            return found
        low = rows[-1][0] + b"\0"
