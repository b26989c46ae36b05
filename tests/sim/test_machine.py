"""The real state machine in the simulated world: clean, the same every time, and watched closely
enough that a planted fault of apply is found.
"""

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from qm.model.arrivals.incoming_streams import History
from qm.model.clients.clients import Clients
from qm.model.clients.transactions import Transactions
from qm.model.machine import Machine
from qm.model.messages import enqueue
from qm.model.messages.endings import Endings
from qm.model.state.ledger import Ledger
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.values.effects import EffectKind
from tests.sim.__main__ import replay_command
from tests.sim.checkers import Violation
from tests.sim.machine_model import QueueModel
from tests.sim.machine_rows import QueueMachine
from tests.sim.machine_world import QUEUES
from tests.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(8)
"""`make sim MACHINE=model` runs as many as are asked for."""
STEPS = 2_000
SEEDS_TO_FIND_MAX = 25


@cache
def run(seed: int, steps: int = STEPS) -> World:
    world = World(seed, workload=QUEUES)
    try:
        world.run(steps)
    except Exception as error:
        error.add_note(f"replay with: {replay_command(seed, steps, 'model')}")
        raise
    return world


def counts_of(world: World) -> Counter[str]:
    model = world.checker.model
    assert isinstance(model, QueueModel)
    return model.account.counts


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_runs_clean(seed: int) -> None:
    run(seed)


def test_the_workload_reaches_what_it_is_for() -> None:
    """Over a few seeds everything has happened: what never happens is not checked."""
    total: Counter[str] = Counter()
    for seed in SEEDS:
        world = run(seed)
        total += counts_of(world)
        total["crashes"] += world.faults.crashes
        total["snapshots"] += world.network.snapshots_done
        total["reads"] += world.clients.reads_served
        for host in world.hosts.values():
            assert isinstance(host.machine, QueueMachine)
            assert type(host.machine.machine) is Machine
    wanted = {"ACCEPTED", "DUPLICATE", "ARRIVED", "PENDING", "RECEIVED", "MOVED_IN", "EXPIRED"}
    wanted |= {"PURGED", "DEAD_LETTERED", "ROLLED_BACK", "UNLOCKED", "TxCommit", "TxAbort"}
    wanted |= {"acknowledgements", "DELIVERED", "FAILED", "JOURNALED", "QUEUE_DELETED"}
    assert not {name for name in wanted | {"crashes", "snapshots", "reads"} if not total[name]}


def test_the_same_seed_is_the_same_run() -> None:
    hashes = {run(2).transcript_hash()}
    for hash_seed in ("0", "77"):
        command = [sys.executable, "-m", "tests.sim", "--machine", "model", "--seed", "2"]
        done = subprocess.run(
            [*command, "--steps", str(STEPS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        hashes.add(done.stdout.split()[-1])
    assert len(hashes) == 1


# Faults of apply -----------------------------------------------------------------------------


def forget_arrivals(patch: pytest.MonkeyPatch) -> None:
    is_known = History.is_known

    def look_away(self: History, sent_time: int, ordinal: int) -> bool:
        return is_known(self, sent_time, ordinal) and False

    patch.setattr(History, "is_known", look_away)


def forget_results(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clients, "result", lambda *_: None)
    patch.setattr(Clients, "results", lambda *_: [])


def publish_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    def roll_back(self: Any, queue: Any, key: int, position: Any) -> None:
        self._ledger.unlock(queue, key, position, EffectKind.ARRIVED)

    patch.setattr(Endings, "roll_back", roll_back)


def commit_all_but_one(patch: pytest.MonkeyPatch) -> None:
    whole = Transactions._take_operations

    def take(self: Any, *arguments: Any) -> list[Any]:
        return whole(self, *arguments)[:1]

    patch.setattr(Transactions, "_take_operations", take)


def ignore_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue, "lookup_identifier", lambda _, sequential: 4 << 56 | sequential)


def drop_unconfirmed_results(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clients, "_dead_letter", lambda *_: None)


def keep_state_beside_the_rows(patch: pytest.MonkeyPatch) -> None:
    begin = Ledger.begin

    def count(self: Any, index: int, now_ms: int, version: int = 1) -> None:
        begin(self, index, now_ms, version)
        self.version += 1
        self.counters.usn = self.version

    patch.setattr(Ledger, "begin", count)


def leave_the_source_behind(patch: pytest.MonkeyPatch) -> None:
    unlink = Ledger.unlink

    def keep(self: Any, queue: Any, key: int, position: Any, kind: EffectKind, why: int) -> None:
        if kind is not EffectKind.MOVED_OUT:
            unlink(self, queue, key, position, kind, why)

    patch.setattr(Ledger, "unlink", keep)


def number_anew_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutgoingQueues, "number", lambda *_: None)


@pytest.mark.parametrize(
    "plant",
    [
        number_anew_each_time,
        forget_arrivals,
        forget_results,
        publish_what_was_aborted,
        commit_all_but_one,
        ignore_priority,
        drop_unconfirmed_results,
        keep_state_beside_the_rows,
        leave_the_source_behind,
    ],
)
def test_a_planted_fault_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        search()


def search() -> None:
    for seed in range(SEEDS_TO_FIND_MAX):
        World(seed, workload=QUEUES).run(STEPS)
