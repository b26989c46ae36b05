"""Payloads from submission to result: the open batch, waiting batches, proposed entries.

All payloads submitted at one moment share one batch, one entry and one future; callers find their
results by ordinal. So a message costs no task and no future of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from raft.batch import BatchBuilder
from raft.core.core import Busy, NotLeader
from raft.step import AppliedEntry
from raft.types import NodeId

Prologue = Callable[[Sequence[bytes | memoryview]], bytes]
ResultT = TypeVar("ResultT")

WAITING_MAX_BYTES = 64 << 20
"""Payloads that wait to be proposed; beyond this, `Busy`."""
BATCHES_IN_FLIGHT_MAX = 2
"""Entries proposed and not yet applied here. Two keep the disk busy while the network works; with
more, entries would be smaller and cost more."""
OVERLAP_MIN_BYTES = 256 << 10
"""Once so many bytes wait, they do not wait for the entry in flight. Up to about this size an
entry's cost is fixed, so a smaller one would gain nothing and slow down the one in flight."""


ENTRY_WEIGHT_MAX = 1 << 16
"""Total weight of the payloads of one entry, in units of the state machine's owner."""


class ProposalLost(Exception):
    """Another leader's entry took its index: nothing happened, it may be proposed again."""


class CommitUnknown(Exception):
    """Leadership ended, or this node stops, before the outcome was seen: it may still happen.

    Callers that propose again need their own way to recognize what was done already.
    """


class Pending(Generic[ResultT]):
    """The outcome of one entry, shared by all callers that wait for it."""

    __slots__ = ("_error", "_value", "future", "index", "is_known", "term")

    def __init__(self) -> None:
        self.index = 0
        self.term = 0
        self.is_known = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the outcome is known, or when one of the waiting tasks was cancelled."""
        self._value: ResultT | None = None
        self._error: Callable[[], Exception] | None = None

    def resolve(self, value: ResultT | None) -> None:
        """Give all callers the result."""
        self._value = value
        self._end()

    def fail(self, error: Callable[[], Exception]) -> None:
        """Raise an error in all callers; `error` makes a separate instance for each."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_known = True
        if not self.future.done():
            self.future.set_result(None)

    async def wait(self) -> ResultT:
        """Return the result, or raise. Cancelling one caller does not affect the others."""
        while not self.is_known:
            try:
                await self.future
            except asyncio.CancelledError:
                self.outlive_cancellation()
        return self.value()

    def value(self) -> ResultT:
        """Return the result, which must be known, or raise."""
        if self._error is not None:
            raise self._error()
        return self._value  # type: ignore[return-value]  # None only where ResultT has it

    def outlive_cancellation(self) -> None:
        """Raise CancelledError if the caller was cancelled. If another caller was, and with it the
        future that all share, make a new future to wait for.
        """
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise asyncio.CancelledError
        if self.future.done() and not self.is_known:
            self.future = asyncio.get_running_loop().create_future()


class _Batch(Generic[ResultT]):
    __slots__ = ("builder", "data", "outcome", "size_bytes", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.builder = BatchBuilder()
        self.data = b""
        self.size_bytes = 0
        self.outcome: Pending[Sequence[ResultT]] = Pending()


class Proposals(Generic[ResultT]):
    """The proposals of one replica. An entry's result is a sequence with one result for each
    payload that was added, none for the prologue.
    """

    def __init__(
        self,
        waiting_bytes_max: int = WAITING_MAX_BYTES,
        in_flight_max: int = BATCHES_IN_FLIGHT_MAX,
        prologue: Prologue | None = None,
        overlap_bytes_min: int = OVERLAP_MIN_BYTES,
        entry_weight_max: int = ENTRY_WEIGHT_MAX,
        before_entry: Callable[[], None] | None = None,
    ) -> None:
        """`prologue` is called once for each entry, in their order, when its batch is closed.
        `before_entry` is called when no entry is in flight: what it adds need not wait for one.

        `entry_weight_max` limits the total weight of payloads that share an entry; a single
        payload may exceed it.
        """
        self._prologue = prologue
        self._before_entry = before_entry
        self._waiting_bytes_max = waiting_bytes_max
        self._in_flight_max = in_flight_max
        self._overlap_bytes_min = overlap_bytes_min
        self._entry_weight_max = entry_weight_max
        self._open: _Batch[ResultT] | None = None
        self._waiting: deque[_Batch[ResultT]] = deque()
        self._proposed: deque[Pending[Any]] = deque()
        self.waiting_bytes = 0
        """Bytes of payloads that are not proposed yet."""

    def __bool__(self) -> bool:
        """Return whether anything waits or is proposed."""
        return self._open is not None or bool(self._waiting) or bool(self._proposed)

    @property
    def has_in_flight(self) -> bool:
        """Whether an entry is proposed and not yet applied here."""
        return bool(self._proposed)

    def _may_submit(self, term: int) -> bool:
        if self._open is None and not self._waiting:
            return False
        if len(self._proposed) >= self._in_flight_max:
            return False
        if not self._proposed or self._proposed[-1].term < term:
            return True
        # A closed batch is full, by bytes or by weight.
        return bool(self._waiting) or self.waiting_bytes >= self._overlap_bytes_min

    def add(self, payload: bytes, weight: int = 1) -> tuple[Pending[Sequence[ResultT]], int]:
        """Add a payload; return the outcome of its entry and its ordinal there. Raises Busy."""
        waiting_bytes = self.waiting_bytes + len(payload)
        if waiting_bytes > self._waiting_bytes_max and self.waiting_bytes:
            raise Busy("too many proposals wait: WAITING_MAX_BYTES is reached")
        self.waiting_bytes = waiting_bytes
        batch = self._open
        if batch is not None:
            if batch.weight + weight <= self._entry_weight_max:
                ordinal = batch.builder.offer(payload)
                if ordinal >= 0:
                    batch.weight += weight
                    return batch.outcome, ordinal
            self._close_open()
        batch = self._open = _Batch(weight)
        return batch.outcome, batch.builder.add(payload)

    def submit(self, propose: Callable[[bytes], int], term: int) -> None:
        """Propose what waits, as far as the limits allow.

        On Busy it keeps waiting; without leadership everything that waits fails.
        """
        if self._before_entry is not None and not self._proposed:
            self._before_entry()
        while self._may_submit(term):
            batch = self._waiting[0] if self._waiting else self._close_open()
            if not batch.data:
                batch.size_bytes = batch.builder.size_bytes
                prologue = self._prologue and self._prologue(batch.builder.payloads)
                batch.data = batch.builder.build(prologue)
            try:
                index = propose(batch.data)
            except Busy:
                return
            except NotLeader as error:
                self.fail_waiting(error.leader)
                return
            except ValueError as error:  # a single payload, larger than an entry may be
                batch.outcome.fail(partial(ValueError, *error.args))
            else:
                self.proposed(batch.outcome, index, term)
            self._waiting.popleft()
            self.waiting_bytes -= batch.size_bytes

    def proposed(self, outcome: Pending[Any], index: int, term: int) -> None:
        """Note that `outcome` will be known when the entry at `index` is applied."""
        outcome.index, outcome.term = index, term
        # Entries of an older term of this node at this index or after it were truncated.
        while self._proposed and self._proposed[-1].index >= index:
            self._proposed.pop().fail(ProposalLost)
        self._proposed.append(outcome)

    def applied(self, run: Sequence[AppliedEntry[Sequence[ResultT]]]) -> None:
        """Hand out the results of applied entries."""
        proposed = self._proposed
        if not proposed:
            return
        for entry in run:
            while proposed and proposed[0].index <= entry.index:
                outcome = proposed.popleft()
                if (outcome.index, outcome.term) == (entry.index, entry.term):
                    outcome.resolve(entry.result)
                else:
                    outcome.fail(ProposalLost)

    def restored(self, index: int) -> None:
        """Note that a snapshot replaced everything up to `index`: these results are unknown."""
        while self._proposed and self._proposed[0].index <= index:
            self._proposed.popleft().fail(CommitUnknown)

    def fail_waiting(self, leader: NodeId | None) -> None:
        """Fail what is not proposed yet: this replica does not lead."""
        if self._open is not None:
            self._close_open()
        self.waiting_bytes = 0
        while self._waiting:
            self._waiting.popleft().outcome.fail(partial(NotLeader, leader))

    def fail_proposed(self, term: int) -> None:
        """Stop waiting for what was proposed in this term or before."""
        while self._proposed and self._proposed[0].term <= term:
            self._proposed.popleft().fail(CommitUnknown)

    def _close_open(self) -> _Batch[ResultT]:
        assert self._open is not None
        batch, self._open = self._open, None
        self._waiting.append(batch)
        return batch
