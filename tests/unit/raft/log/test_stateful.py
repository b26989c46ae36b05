"""A log against a plain list: any calls, in any order, with crashes in between."""

from random import Random

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from raft.log.group_commit import Sync
from raft.log.hold import Hold
from raft.log.log import Log, LogConfig
from raft.types import Entry, EntryKind, HardState, SnapshotMeta
from tests.unit.raft.log.faults import Disk, Loss
from tests.unit.raft.log.model import READ_ALL, State, after_append, after_reset, differences
from tests.unit.raft.log.test_log import MEMBERS

KINDS = st.sampled_from([EntryKind.DATA, EntryKind.DATA, EntryKind.NOOP, EntryKind.CONFIG])
SIZES = st.sampled_from([0, 1, 20, 300, 1500, 6000])


class LogMachine(RuleBasedStateMachine):
    """`states` are what a crash may leave: from the durable one to the newest."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.states = [State()]
        self.sync: Sync | None = None
        self.sync_state = self.states[0]
        self.holds: list[Hold] = []
        self.retired = 0
        self.term = 1

    @initialize(size=st.sampled_from([4096, 8192]), recycled=st.integers(1, 4))
    def begin(self, size: int, recycled: int) -> None:
        self.config = LogConfig(group=3, salt=5, segment_bytes=size, recycled_segments_max=recycled)
        self.open()

    def open(self) -> None:
        self.log = Log.open(self.disk.root, self.config)
        self.log.on_retire(self.retire)
        self.retired = self.log.first_index() - 1
        self.sync = None
        self.holds = []

    def retire(self, first: int, last: int) -> None:
        assert first == self.retired + 1
        assert last >= first
        assert all(hold.index > last for hold in self.holds)
        state = self.states[-1]
        assert self.log.entries(first, last + 1, READ_ALL) == state.between(first, last + 1)
        self.retired = last

    def promise(self, state: State) -> None:
        place = max(at for at, other in enumerate(self.states) if other is state)
        del self.states[:place]

    @rule(
        back=st.sampled_from([0, 0, 0, 1, 5, 30]),
        sizes=st.lists(SIZES, max_size=8),
        kind=KINDS,
        vote=st.none() | st.sampled_from(["n1.1", "n2.1"]),
    )
    def append(self, back: int, sizes: list[int], kind: EntryKind, vote: str | None) -> None:
        state = self.states[-1]
        final = self.log.snapshot_meta.index if self.log.snapshot_meta else 0
        first = max(state.last_index + 1 - back, final + 1)
        self.term += back > 0
        entries = tuple(
            Entry(index, self.term, kind, bytes([index % 251]) * size)
            for index, size in enumerate(sizes, start=first)
        )
        hard_state = HardState(self.term, vote, final) if vote else None
        self.states += after_append(state, hard_state, entries)
        self.log.append(hard_state, entries)

    @precondition(lambda self: self.sync is None)
    @rule()
    def begin_sync(self) -> None:
        self.sync = self.log.begin_sync()
        self.sync_state = self.states[-1]

    @precondition(lambda self: self.sync is not None)
    @rule()
    def end_sync(self) -> None:
        assert self.sync is not None
        self.sync.run()
        durable = self.log.end_sync(self.sync)
        self.sync = None
        assert durable <= self.states[-1].last_index
        if any(state is self.sync_state for state in self.states):
            self.promise(self.sync_state)

    @rule()
    def mark(self) -> None:
        self.log.mark_synced()

    @rule(share=st.integers(0, 100))
    def compact(self, share: int) -> None:
        low, high = self.log.first_index() - 1, self.log.durable_index
        index = low + (high - low) * share // 100
        if index <= high:
            self.log.compact(SnapshotMeta(index, self.log.term(index), MEMBERS, 0))
            assert self.log.first_index() == self.retired + 1

    @rule(ahead=st.integers(1, 50))
    def reset(self, ahead: int) -> None:
        meta = SnapshotMeta(self.states[-1].last_index + ahead, self.term, MEMBERS, 9)
        self.states.append(after_reset(self.states[-1], meta))
        self.log.reset(meta)
        self.promise(self.states[-1])
        self.retired = meta.index
        self.holds = []

    @rule(share=st.integers(0, 100))
    def hold(self, share: int) -> None:
        first, last = self.log.first_index(), self.log.last_index()
        index = max(first, first + (last - first) * share // 100)
        self.holds.append(self.log.hold(index))

    @precondition(lambda self: self.holds)
    @rule(which=st.randoms(use_true_random=False))
    def release(self, which: Random) -> None:
        self.holds.pop(which.randrange(len(self.holds))).release()

    @precondition(lambda self: self.sync is None)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.promise(self.states[-1])
        self.open()
        assert differences(self.log, self.states[-1]) == []

    @rule(loss=st.sampled_from(Loss), seed=st.integers(0, 1 << 30))
    def crash(self, loss: Loss, seed: int) -> None:
        self.disk = self.disk.after_crash(loss, Random(seed))
        self.open()
        found = [state for state in self.states if differences(self.log, state) == []]
        assert found, differences(self.log, self.states[0])
        self.states = [found[-1]]
        self.term += 1

    @invariant()
    def it_is_what_was_asked_for(self) -> None:
        if hasattr(self, "log"):
            state = self.states[-1]
            assert differences(self.log, state) == []
            first, last = self.log.first_index(), self.log.last_index()
            for index in {first, (first + last) // 2, last}:
                if first <= index <= last:
                    data = state.between(index, index + 1)[0].data
                    assert self.log.read(index, 0, len(data)) == data
            config = [e for e in state.between(first, last + 1) if e.kind == EntryKind.CONFIG]
            assert list(self.log.config_entries()) == config


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
