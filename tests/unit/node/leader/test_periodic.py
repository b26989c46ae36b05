"""Work that is repeated: what may pass is tried again, what may not ends the process."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from qm.cluster.cluster import Unavailable
from qm.node.leader import periodic as rounds_module
from qm.node.leader.periodic import Rounds
from qm.node.replica.state_machine import AppliedStore
from qm.node.upkeep.housekeeping import Housekeeping
from qm.store.bodies.body_places import BodyDamaged
from qm.store.database import DatabaseDamaged, DatabaseFull
from raft.log.files import FatalDiskError
from tests.unit.model.world import packet
from tests.unit.store.faults import no_sync_for
from tests.unit.store.test_store import Node, arrivals, setup_commands

FULL = OSError(errno.ENOSPC, "no space")
QUOTA = OSError(errno.EDQUOT, "no space")
PERIOD_S = 0.05


class Outcome:
    """What came of a work that fails once."""

    def __init__(self) -> None:
        self.tries = 0
        self.deaths: list[str] = []
        self.times_full = 0

    def on_full(self) -> None:
        self.times_full += 1


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come about")


def run(error: BaseException, *, is_durable: bool) -> Outcome:
    """Repeat a work that fails at first; return when it was done, or ended the process."""
    outcome = Outcome()

    async def work() -> None:
        outcome.tries += 1
        if outcome.tries == 1:
            raise error

    async def scenario() -> None:
        failures = Counter("failed", "", ["work"], registry=CollectorRegistry())
        rounds = Rounds(failures, outcome.deaths.append, outcome.on_full)
        rounds.begin("it", 0.001, work, is_durable=is_durable)
        await until(lambda: outcome.tries > 1 or outcome.deaths)
        await rounds.stop()

    asyncio.run(scenario())
    return outcome


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "PATIENCE_S", 0.001)


@pytest.mark.parametrize("error", [FULL, QUOTA, DatabaseFull("no space")])
def test_durable_work_waits_for_space_and_says_that_it_does(error: Exception) -> None:
    outcome = run(error, is_durable=True)
    assert (outcome.tries > 1, outcome.deaths, outcome.times_full) == (True, [], 1)


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "descriptors"), DatabaseFull("descriptors", errno.ENFILE)]
)
def test_durable_work_waits_for_descriptors_and_keeps_the_reserve(error: Exception) -> None:
    outcome = run(error, is_durable=True)
    assert (outcome.tries > 1, outcome.deaths, outcome.times_full) == (True, [], 0)


def test_work_whose_call_is_cancelled_under_it_is_repeated_unless_it_is_durable() -> None:
    """A closed channel cancels its calls, not the task that reads them."""
    outcome = run(asyncio.CancelledError(), is_durable=False)
    assert (outcome.tries > 1, outcome.deaths) == (True, [])
    assert run(asyncio.CancelledError(), is_durable=True).deaths


@pytest.mark.parametrize(
    "error",
    [
        FatalDiskError("a sync"),
        OSError(errno.EIO, "a read"),
        DatabaseDamaged("a block"),
        BodyDamaged("a body"),
        RuntimeError("a bug"),
    ],
)
def test_any_other_error_of_durable_work_ends_the_process(error: Exception) -> None:
    outcome = run(error, is_durable=True)
    assert outcome.tries == 1
    (text,) = outcome.deaths
    assert "it failed" in text


def test_other_work_is_tried_again_unless_a_disk_failed_under_it() -> None:
    for error in (Unavailable("no leader"), OSError(errno.EIO, "a socket"), RuntimeError("a bug")):
        outcome = run(error, is_durable=False)
        assert (outcome.tries > 1, outcome.deaths, outcome.times_full) == (True, [], 0)
    assert run(FatalDiskError("a sync"), is_durable=False).deaths


def test_a_sync_of_bodies_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    """What the kernel could not write it may have dropped: the next sync succeeds over nothing."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    for n in range(40):
        node.put([arrivals(packet(1 + n, body=b"x" * 3_000))])
    deaths: list[str] = []

    async def scenario() -> None:
        machine = AppliedStore(
            node.store, lambda run: None, lambda: None, lambda text: None, deaths.append
        )
        keeping = Housekeeping(machine, lambda ahead_bytes: node.store.applied_index())
        failures = Counter("failed", "", ["work"], registry=CollectorRegistry())
        rounds = Rounds(failures, deaths.append)
        rounds.begin("bodies", 0.001, keeping.move_ahead, is_durable=True)
        await until(lambda: len(deaths) > 1)
        await rounds.stop()

    with no_sync_for("blob-") as asked:
        asyncio.run(scenario())
    assert len(asked) == 1
    assert "cannot be synced" in deaths[0]
    node.close()


class Idle:
    """Work that has nothing to do, at the loop times at which it began."""

    def __init__(self) -> None:
        self.began_s: list[float] = []
        self.is_idle = True

    async def work(self) -> None:
        self.began_s.append(asyncio.get_running_loop().time())


def test_what_has_the_same_period_begins_together() -> None:
    async def scenario() -> None:
        failures = Counter("failed", "", ["work"], registry=CollectorRegistry())
        phase_s = asyncio.get_running_loop().time()
        rounds, others = Rounds(failures, phase_s=phase_s), Rounds(failures, phase_s=phase_s)
        one, two = Idle(), Idle()
        rounds.begin("one", PERIOD_S, one.work)
        await asyncio.sleep(PERIOD_S / 3)
        others.begin("two", PERIOD_S, two.work)
        await until(lambda: len(two.began_s) > 4)
        await rounds.stop()
        await others.stop()
        late_s = sorted((at - phase_s) % PERIOD_S for at in (*one.began_s[1:], *two.began_s[1:]))
        assert late_s[len(late_s) // 2] < PERIOD_S / 2

    asyncio.run(scenario())


def test_idle_work_waits_for_an_entry() -> None:
    async def scenario() -> None:
        failures = Counter("failed", "", ["work"], registry=CollectorRegistry())
        rounds, idle = Rounds(failures), Idle()
        rounds.begin("it", 0.001, idle.work, is_idle=lambda: idle.is_idle)
        await until(lambda: idle.began_s)
        await asyncio.sleep(0.05)
        assert len(idle.began_s) == 1
        idle.is_idle = False
        rounds.on_restored(1)
        await until(lambda: len(idle.began_s) > 3)
        await rounds.stop()

    asyncio.run(scenario())


def test_idle_work_is_done_now_and_then_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "DOZE_S", 0.01)

    async def scenario() -> None:
        failures = Counter("failed", "", ["work"], registry=CollectorRegistry())
        rounds, idle = Rounds(failures), Idle()
        rounds.begin("it", 0.001, idle.work, is_idle=lambda: True)
        await until(lambda: len(idle.began_s) > 3)
        await rounds.stop()

    asyncio.run(scenario())
