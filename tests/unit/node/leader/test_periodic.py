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
