"""Loads a queue's rows into its OutgoingMessageTable, a page at a time.

Transactional messages enter the table in the order of their numbers, which are committed before
(QB-A1); the others by priority, in the order of the queue. A message can become ready before others
that are loaded, because its transaction committed late. `arrived` must be called for each.
"""

from array import array
from collections.abc import Callable

from qm.edge.outgoing import rows
from qm.edge.outgoing.limits import (
    PAGE_ROWS_MAX,
    READ_AHEAD_MAX,
    TABLE_ENTRIES_MAX,
)
from qm.model.state.ledger import LEVELS
from qm.model.state.tables import State
from qm.model.values.columns import IntArray
from qm.session import OutgoingTable


class Backlog:
    """The part of an outgoing queue that is not in its table yet."""

    def __init__(self, queue_id: int, table: OutgoingTable, is_over: Callable[[int], bool]) -> None:
        """`is_over`: whether a key's end is known and not committed yet."""
        self._queue_id = queue_id
        self._is_over = is_over
        self._table = table
        self._next_keys = [level << rows.LEVEL_SHIFT for level in range(LEVELS)]
        """By priority level: positions from here on have not been read. A level never causes
        another one's deleted positions to be scanned again, which is slow."""
        self._next_number = 0
        """Numbers of the live sequence from here on have not been read."""
        self._unnumbered: dict[int, None] = {}
        """Transactional positions without a number, in order."""
        self._is_assigning = False

    @property
    def has_unnumbered(self) -> bool:
        """Whether a position was found that waits for its number."""
        return bool(self._unnumbered)

    def arrived(self, key: int) -> None:
        """A position became ready; it may lie before what was read."""
        level = key >> rows.LEVEL_SHIFT
        self._next_keys[level] = min(self._next_keys[level], key)

    def left(self, key: int) -> None:
        """A position is gone."""
        self._unnumbered.pop(key, None)

    def load(self, state: State, watermark: int) -> bool:
        """Read one page; return whether it should be called again now."""
        is_more = self._load_numbered(state, watermark)
        for level, first in enumerate(self._next_keys):
            if not self._has_room or len(self._unnumbered) >= READ_AHEAD_MAX:
                return is_more and self._has_room
            if first >> rows.LEVEL_SHIFT == level:
                self._load_level(level, state, watermark)
                return True
        return is_more

    def _load_level(self, level: int, state: State, watermark: int) -> None:
        page, self._next_keys[level] = rows.sendables(
            state, self._queue_id, self._next_keys[level], watermark, PAGE_ROWS_MAX
        )
        for key, position in page:
            if key in self._table or self._is_over(key):
                continue
            if not rows.is_transactional(position):
                self._table.add(key, priority=LEVELS - 1 - level)
                continue
            numbers = rows.numbers(state, self._queue_id, key)
            if numbers is not None and not numbers.sequence_number:
                self._unnumbered[key] = None

    def take_unnumbered(self) -> IntArray | None:
        """Return keys to be numbered now, None if there are none or some are in progress."""
        if self._is_assigning or not self._unnumbered:
            return None
        self._is_assigning = True
        return array("Q", self._unnumbered)

    def assigned(self, keys: IntArray, is_committed: bool) -> None:
        """`take_unnumbered`'s keys have numbers if committed; else they will be returned again."""
        self._is_assigning = False
        if is_committed:
            for key in keys:
                self._unnumbered.pop(key, None)

    @property
    def _has_room(self) -> bool:
        table = self._table
        return table.waiting < READ_AHEAD_MAX and len(table) < TABLE_ENTRIES_MAX

    def _load_numbered(self, state: State, watermark: int) -> bool:
        """Read a page of the live sequence; return whether there is more and room for it."""
        table, queue_id = self._table, self._queue_id
        sequence = rows.sequence(state, queue_id)
        identifier, last = sequence.sequence_identifier, sequence.next_number - 1
        if identifier != table.sequence:
            if table.has_transactional:
                return False  # `left` has not been called yet for those that ended
            table.start_sequence(identifier)
            self._next_number = 1
        if not sequence.pending_count:
            # Positions with a number have arrived, and only wait for their final ack.
            self._next_number = last + 1
        if self._next_number > last or not self._has_room:
            return False
        page = rows.numbered(state, queue_id, identifier, self._next_number, last, PAGE_ROWS_MAX)
        for number, key in page:
            is_sendable = rows.sendable(state, queue_id, key, watermark) is not None
            if is_sendable and not self._is_over(key):
                table.add(key, number)
        is_last = len(page) < PAGE_ROWS_MAX
        self._next_number = last + 1 if is_last else page[-1][0] + 1
        return not is_last and self._has_room
