"""What becomes due with cluster time: deadlines, leases, memories (DESIGN section 4, Time).

Deadlines lie in an index ordered by time; each tick reads a bounded number from its start.
"""

from collections.abc import Callable, Sequence
from typing import Final

from qm.model.arrivals.duplicates import Duplicates
from qm.model.messages.endings import Endings
from qm.model.messages.returns import Returns
from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import ClockTick
from qm.model.values.effects import Outcome
from qm.model.values.rows import (
    DEADLINE_KEY,
    LEASE_KEY,
    POSITION_KEY,
    LeaseKind,
    PositionFlag,
    PositionState,
)
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
_TIME_BYTES: Final = 8
"""Both indexes begin with a time."""
DEADLINES_PER_TICK_MAX: Final = 256
LEASES_PER_TICK_MAX: Final = 1
"""Clients or transactions at a time: each may touch thousands of positions."""


class Expiry:
    """Applies ClockTick."""

    def __init__(
        self, ledger: Ledger, endings: Endings, returns: Returns, duplicates: Duplicates
    ) -> None:
        self._ledger = ledger
        self._endings = endings
        self._returns = returns
        self._duplicates = duplicates
        self.on_lease: dict[LeaseKind, Callable[[bytes], None]] = {}
        """Functions that settle a due lease, by kind; each gets the owner from the lease's key."""

    def apply_clock_tick(self, command: ClockTick) -> Outcome:
        """Settle what is due; the value says whether more is left."""
        if not 1 <= command.count <= DEADLINES_PER_TICK_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        deadlines = self._expire(command.count)
        leases = self._leases() if deadlines < command.count else 0
        forgotten = self._duplicates.forget_due(command.count)
        is_left = deadlines == command.count or leases > 0 or forgotten >= command.count
        return Outcome(MQ_OK, value=is_left)

    def _expire(self, count: int) -> int:
        ledger, counters = self._ledger, self._ledger.counters
        low, high = counters.deadlines_from_ms, ledger.now_ms + 1
        due = ledger.state.scan(
            Table.DEADLINE, DEADLINE_KEY.pack(low, 0, 0), DEADLINE_KEY.pack(high, 0, 0), count
        )
        counters.deadlines_from_ms = _settled_upto(due, count, high)
        for index_key, _ in due:
            ledger.state.delete(Table.DEADLINE, index_key)
            _, queue_id, key = DEADLINE_KEY.unpack(index_key)
            queue = ledger.queue(queue_id)
            row = ledger.state.get(Table.POSITION, POSITION_KEY.pack(queue_id, key))
            if queue is None or row is None:
                continue
            position = ledger.position(queue_id, key)
            assert position is not None
            if position.state != PositionState.AVAILABLE:
                if self._returns.end_delay(queue, key, position):
                    continue
                position.flags |= PositionFlag.EXPIRY_DUE
                ledger.put_position(queue_id, key, position)
            elif not is_purge_pending(queue, key):
                self._endings.expire(queue, key, position)
        return len(due)

    def _leases(self) -> int:
        ledger, counters = self._ledger, self._ledger.counters
        low, high = counters.leases_from_ms, ledger.now_ms + 1
        due = ledger.state.scan(
            Table.LEASE, LEASE_KEY.pack(low, 0), LEASE_KEY.pack(high, 0), LEASES_PER_TICK_MAX
        )
        counters.leases_from_ms = _settled_upto(due, LEASES_PER_TICK_MAX, high)
        for key, _ in due:
            ledger.state.delete(Table.LEASE, key)
            _, kind = LEASE_KEY.unpack_from(key)
            self.on_lease[LeaseKind(kind)](key[LEASE_KEY.size :])
        return len(due)


def _settled_upto(due: Sequence[tuple[bytes, bytes]], count: int, high_ms: int) -> int:
    """Return the time before which nothing is left once these first rows are settled."""
    if len(due) < count:
        return high_ms
    return int.from_bytes(due[-1][0][:_TIME_BYTES], "big")
