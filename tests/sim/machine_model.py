"""The queue manager that the committed log, taken alone, leads to; see `tests.sim.machine_account`.

Its machine forgets everything derived after each entry, and takes entries one by one: replicas,
which keep their caches and take entries in runs, across restarts and snapshots, must compute the
same.
"""

from bisect import bisect_right

from qm.model.machine import Machine
from qm.store.codec import decode_entry
from qm.store.effects.chain import EntryChain
from raft.types import Entry
from tests.sim.checkers import Model, Violation
from tests.sim.machine_account import Account
from tests.sim.machine_rows import SummedState, answers_of, summaries
from tests.sim.slots import Result

KEYS = 12
"""Queues that are read: more than there are system queues."""


class QueueModel(Model):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = SummedState()
        self.machine = Machine(self.rows)
        self._chain = EntryChain(self.rows)
        self.account = Account(self.rows, self.machine.view)
        self._seen: dict[int, list[tuple[int, Result]]] = {key: [] for key in range(KEYS)}

    def _apply_data(self, entry: Entry) -> None:
        batch = decode_entry(entry.index, entry.data)
        applied = self.machine.apply(batch)
        self._chain.advance(entry.term, entry.data, batch)
        self._chain.settle()
        self.machine.forget()
        self.account.entry(batch, applied)
        if self.rows.digest() != self.rows.computed_digest():
            raise Violation(f"the digest kept along the way is not that of the rows: {entry.index}")
        found = summaries(self.machine.view)
        for key, seen in self._seen.items():
            now = found[key] if key < len(found) else ()
            if not seen or seen[-1][1] != now:
                seen.append((entry.index, now))
        self._note(entry, answers_of(applied), self.rows.digest())

    def value(self, key: int, index: int) -> Result:
        seen = self._seen[key]
        place = bisect_right(seen, index, key=lambda one: one[0])
        return seen[place - 1][1] if place else ()
