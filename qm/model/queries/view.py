"""The interface through which queries read the state."""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

from qm.model.management.directory import Directory
from qm.model.state.ledger import META_COUNTERS, Ledger, QueueInHand
from qm.model.state.registry import Registry
from qm.model.state.tables import State, Table
from qm.model.values.records import Counters, decode

PAGE_ITEMS_MAX: Final = 1_000
"""Items of one answer, however many the caller requests."""
SCANNED_ROWS_MAX: Final = 4_096
"""Rows that one query reads: a page of a filtered list may be short and still have a next one."""

_CHUNK_ROWS_MIN: Final = 64
_CHUNK_ROWS_MAX: Final = 1_024

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")


class Page(msgspec.Struct, Generic[ItemT, KeyT], frozen=True):
    """Some items in order, and where the next page begins."""

    items: list[ItemT]
    next: KeyT | None
    """Value to pass as `after`; None: there is no more."""


class View:
    """What queries read: the state, through the machine's caches if there is a machine.

    A machine's own view (`Machine.view`) knows the heads of its queues; a view of a bare state
    finds them by scans, which are slow where much was removed since the last compaction.
    """

    def __init__(
        self, ledger: Ledger, registry: Registry, directory: Directory | None = None
    ) -> None:
        self.ledger: Final = ledger
        self.registry: Final = registry
        self.directory: Final = directory or Directory(ledger)

    @classmethod
    def of(cls, state: State) -> "View":
        """Return a view of a bare state, valid until the next entry is applied to it."""
        ledger = Ledger(state)
        return cls(ledger, Registry(ledger))

    def queue(self, queue_id: int) -> QueueInHand | None:
        """Return a queue, None for ids without a queue; the result must not be changed."""
        return self.ledger.queue(queue_id) if 0 < queue_id < 1 << 32 else None

    def counters(self) -> Counters:
        """Return the counters as of the last entry."""
        row = self.ledger.state.get(Table.META, META_COUNTERS)
        return Counters() if row is None else decode(Counters, row)

    def rows_after(
        self, table: Table, low: bytes, high: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return at most `limit` rows of [low, high), and whether there are more."""
        rows = self.ledger.state.scan(table, low, high, limit + 1)
        return rows[:limit], len(rows) > limit


class Walk:
    """The rows of [low, high) in order or backward, fetched on demand.

    At most SCANNED_ROWS_MAX; `is_cut` tells afterwards whether there may be more.
    """

    def __init__(
        self, state: State, table: Table, low: bytes, high: bytes, *, backward: bool = False
    ) -> None:
        self._state = state
        self._table = table
        self._low = low
        self._high = high
        self._backward = backward
        self.is_cut = False

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        chunk, left = _CHUNK_ROWS_MIN, SCANNED_ROWS_MAX
        while left:
            rows = self._state.scan(
                self._table, self._low, self._high, min(chunk, left), backward=self._backward
            )
            yield from rows
            left -= len(rows)
            if len(rows) < chunk:
                self.is_cut = not left
                return
            if self._backward:
                self._high = rows[-1][0]
            else:
                self._low = rows[-1][0] + b"\0"
            chunk = min(2 * chunk, _CHUNK_ROWS_MAX)
        self.is_cut = True


def page_size(limit: int) -> int:
    """Return how many items a caller gets that requests `limit`."""
    return min(max(limit, 1), PAGE_ITEMS_MAX)
