"""The world runs clean, runs the production code, and runs the same way every time."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import raft
from raft import replica, snapshot, step
from raft.core import core
from raft.log import group_commit, log, recovery
from tests.sim.__main__ import replay_command
from tests.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
REGRESSIONS = Path(__file__).with_name("regressions.txt")
SEEDS = range(6)
"""`make sim` runs two hundred, `make sim-long` two thousand."""
STEPS = 2_000


def regressions() -> list[tuple[int, int]]:
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    found = [line.split(maxsplit=2) for line in lines if line and not line.startswith("#")]
    return [(int(seed), int(steps)) for seed, steps, _ in found]


def run(seed: int, steps: int) -> World:
    world = World(seed)
    try:
        world.run(steps)
    except Exception as error:
        error.add_note(f"replay with: {replay_command(seed, steps)}")
        raise
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_runs_clean(seed: int) -> None:
    run(seed, STEPS)


@pytest.mark.parametrize(("seed", "steps"), regressions())
def test_what_failed_once_runs_clean(seed: int, steps: int) -> None:
    run(seed, steps)


def test_two_seeds_of_three_crash() -> None:
    crashing = [seed for seed in range(30) if World(seed).knobs.has_crashes]
    assert len(crashing) * 3 == 30 * 2
    world = World(crashing[0])
    world.run(STEPS)
    assert world.faults.crashes


def test_the_world_runs_production_code() -> None:
    """The objects that run in a world are those of the product, unchanged and not subclassed."""
    world = World(0)
    world.found()
    for host in world.hosts.values():
        assert type(host.replica) is replica.Replica
        assert type(host.log) is log.Log
    product = Path(raft.__file__).parent
    for module in (core, group_commit, log, recovery, replica, snapshot, step):
        assert Path(inspect.getfile(module)).is_relative_to(product)
        for name, member in vars(module).items():
            if inspect.isclass(member) or inspect.isfunction(member):
                assert not member.__module__.startswith("tests."), f"{module.__name__}.{name}"


def hash_in_a_process(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--steps", str(STEPS)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()[-1]


@pytest.mark.parametrize("seed", [2, 4])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    hashes = {hash_in_a_process(seed, hash_seed) for hash_seed in ("0", "1", "77")}
    assert hashes == {run(seed, STEPS).transcript_hash()}
