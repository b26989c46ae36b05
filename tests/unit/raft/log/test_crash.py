"""Power cuts at every boundary of a run: what was synced is found, and nothing but a prefix
of what was written after it, however the disk tore and reordered the rest.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from raft.log.log import Log, LogConfig
from raft.types import Entry, HardState
from tests.unit.raft.log.faults import Disk, Loss, Stopped
from tests.unit.raft.log.model import State, after_append, after_reset, differences
from tests.unit.raft.log.test_log import entries, meta, sync

CONFIG = LogConfig(group=7, salt=0x1234, segment_bytes=4096, recycled_segments_max=3)


class Run:
    """A log in use, and the states that a crash may leave it in."""

    def __init__(self, disk: Disk, state: State) -> None:
        self.disk = disk
        self.states = [state]
        """The first one is promised, the last one is what was asked for most recently."""
        self.log: Log | None = None

    def open(self) -> Log:
        self.log = Log.open(self.disk.root, CONFIG)
        self._promise(self.state)
        return self.log

    @property
    def state(self) -> State:
        return self.states[-1]

    def append(self, hard_state: HardState | None, batch: tuple[Entry, ...]) -> None:
        assert self.log
        self.states += after_append(self.state, hard_state, batch)
        self.log.append(hard_state, batch)
        assert differences(self.log, self.state) == []

    def sync(self, while_it_runs: Callable[[], None] = lambda: None) -> None:
        assert self.log
        state = self.state
        token = self.log.begin_sync()
        before = self.disk.operations
        while_it_runs()
        self.disk.missed = range(before + 1, self.disk.operations + 1)
        token.run()
        self.disk.missed = range(0)
        self.log.end_sync(token)
        self._promise(state)
        if self.log.durable_index % 2:
            self.log.mark_synced()

    def compact(self, upto: int) -> None:
        assert self.log
        self.log.compact(meta(upto, self.state.term(upto)))

    def reset(self, index: int, term: int) -> None:
        assert self.log
        self.states.append(after_reset(self.state, meta(index, term)))
        self.log.reset(meta(index, term))
        self._promise(self.state)

    def close(self) -> None:
        assert self.log
        self.log.close()
        self._promise(self.state)

    def _promise(self, state: State) -> None:
        place = max(at for at, candidate in enumerate(self.states) if candidate is state)
        del self.states[:place]


def script(run: Run) -> None:
    """Everything that a log does, with small segments."""
    run.open()
    run.append(HardState(1, "n1.1", 0), entries(1, 6))
    run.sync()
    run.append(HardState(1, "n1.1", 3), entries(6, 9))
    run.sync(lambda: run.append(None, entries(9, 12, size=700)))
    run.append(None, entries(12, 14, size=2000))
    run.sync()
    run.append(HardState(2, None, 5), entries(11, 14, 2, size=1500))
    run.append(HardState(2, "n2.1", 5), ())
    run.sync(lambda: run.append(None, entries(13, 16, 3, size=900)))
    run.compact(10)
    run.append(None, entries(16, 26, 3, size=900))
    run.sync()
    run.compact(20)
    run.sync()
    for low in range(26, 50, 6):
        run.append(HardState(3, "n3.1", low), entries(low, low + 6, 3, size=900))
        run.sync()
        run.compact(low)
    run.append(None, entries(45, 60, 4, size=900))
    run.compact(44)
    run.sync(lambda: run.append(None, entries(50, 62, 5, size=300)))
    run.append(None, entries(62, 70, 5, size=900))
    run.sync(lambda: run.compact(49))
    run.append(None, entries(70, 75, 5, size=900))
    run.reset(80, 6)
    run.append(None, entries(81, 88, 6, size=900))
    run.append(HardState(6, None, 80), entries(81, 83, 7, size=900))
    run.compact(80)
    run.append(None, entries(83, 90, 7, size=900))
    run.close()
    run.open()
    run.append(None, entries(90, 93, 7))
    run.sync()


def resend(run: Run, lost: State) -> None:
    """What a leader does next: it sends again, byte for byte, what the crash took."""
    run.open()
    following = run.state.last_index + 1
    for index in range(following, min(following + 2, lost.last_index + 1)):
        if index > lost.base[0]:
            run.append(None, lost.between(index, index + 1))
    run.sync()
    run.append(None, entries(run.state.last_index + 1, run.state.last_index + 3, 9, size=900))


def stopped(run: Run, act: Callable[[], None], stop_at: int) -> None:
    """Act until the machine stops."""
    run.disk.stop_at = stop_at
    try:
        act()
    except Stopped:
        return
    run.disk.stop_at = run.disk.operations


def recovered(run: Run, loss: Loss, seed: int) -> Run:
    """Switch the machine on again and check what is found."""
    found = run.disk.after_crash(loss, Random(seed))
    image = found.after_crash(Loss.EVERYTHING_SURVIVES, Random(0))
    log = Log.open(found.root, CONFIG)
    matching = [state for state in run.states if differences(log, state) == []]
    assert matching, differences(log, run.states[0])
    assert log.durable_index == log.last_index()
    # The next run starts from the same image: recovery itself is part of it.
    return Run(image, matching[-1])


def boundaries() -> int:
    disk = Disk()
    script(Run(disk, State()))
    return disk.operations


BOUNDARIES = boundaries()
CRASHES = [
    *((loss, 0) for loss in (Loss.NOTHING_SURVIVES, Loss.EVERYTHING_SURVIVES)),
    *((loss, seed) for loss in (Loss.TORN, Loss.REORDERED) for seed in range(4)),
]


def test_the_script_passes_every_kind_of_boundary() -> None:
    assert BOUNDARIES > 150


@pytest.mark.parametrize("part", range(8))
def test_everything_synced_is_found_and_nothing_returns(part: int) -> None:
    for stop_at in range(part, BOUNDARIES + 1, 8):
        for loss, seed in CRASHES:
            first = Run(Disk(), State())
            stopped(first, partial(script, first), stop_at)
            second = recovered(first, loss, seed)
            random = Random(f"{stop_at} {loss} {seed}")
            stopped(second, partial(resend, second, first.state), random.randrange(25))
            recovered(second, random.choice(list(Loss)), random.randrange(1 << 30))


def test_a_sync_of_nothing_does_not_claim_the_idle_mark() -> None:
    """The mark behind an idle log waits for the next sync that covers its file; only then may a
    further segment that links to it be all that is synced.
    """
    disk = Disk()
    log = Log.open(disk.root, CONFIG)
    log.append(None, entries(1, 2, size=3300))
    sync(log)
    log.mark_synced()
    token = log.begin_sync()
    log.append(None, entries(2, 3, size=3300))
    token.run()
    assert log.end_sync(token) == 1
    log.close()
    found = Log.open(disk.after_crash(Loss.NOTHING_SURVIVES, Random(0)).root, CONFIG)
    assert differences(found, State(entries=entries(1, 3, size=3300))) == []
