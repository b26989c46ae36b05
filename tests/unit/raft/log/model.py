"""What a log must be after each of its records: the obvious version, and its comparison."""

from dataclasses import dataclass, field, replace

from raft.log.log import Log
from raft.types import Entry, HardState, SnapshotMeta

READ_ALL = 1 << 30


@dataclass(frozen=True)
class State:
    """A log's meaning, between two records."""

    hard_state: HardState = field(default_factory=HardState)
    base: tuple[int, int] = (0, 0)
    """Index and term before the first entry, as far as entries are void: of the last reset."""
    entries: tuple[Entry, ...] = ()
    """All entries behind `base`, also those that were compacted."""
    meta: SnapshotMeta | None = None

    @property
    def last_index(self) -> int:
        return self.base[0] + len(self.entries)

    def term(self, index: int) -> int:
        at = index - self.base[0]
        return self.entries[at - 1].term if at else self.base[1]

    def between(self, low: int, high: int) -> tuple[Entry, ...]:
        """Entries from `low` to below `high`."""
        return self.entries[low - self.base[0] - 1 : high - self.base[0] - 1]


def after_append(
    state: State, hard_state: HardState | None, entries: tuple[Entry, ...]
) -> list[State]:
    """The states after each record of an append."""
    states = []
    if hard_state is not None and hard_state != state.hard_state:
        state = replace(state, hard_state=hard_state)
        states.append(state)
    if entries and entries[0].index <= state.last_index:
        state = replace(state, entries=state.between(state.base[0] + 1, entries[0].index))
        states.append(state)
    for entry in entries:
        state = replace(state, entries=(*state.entries, entry))
        states.append(state)
    return states


def after_reset(state: State, meta: SnapshotMeta) -> State:
    return replace(state, base=(meta.index, meta.term), entries=(), meta=meta)


def differences(log: Log, state: State) -> list[str]:
    """How a log differs from a state; it may have dropped what the meta replaces."""
    found = []
    first, last = log.first_index(), log.last_index()
    if log.hard_state != state.hard_state:
        found.append(f"{log.hard_state} instead of {state.hard_state}")
    if last != state.last_index:
        found.append(f"last index {last} instead of {state.last_index}")
    if not state.base[0] < first <= max(last, state.base[0]) + 1:
        found.append(f"first index {first} in a log from {state.base[0]} to {last}")
    if found:
        return found
    if first > 1 + (log.snapshot_meta.index if log.snapshot_meta else 0):
        found.append(f"first index {first} behind {log.snapshot_meta}")
    if log.entries(first, last + 1, READ_ALL) != state.between(first, last + 1):
        found.append("other entries")
    for index in {first - 1, first, last}:
        if index <= last and log.term(index) != state.term(index):
            found.append(f"term {log.term(index)} at {index} instead of {state.term(index)}")
    return found
