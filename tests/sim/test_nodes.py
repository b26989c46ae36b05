"""Whole nodes run clean, and a seed is the same world every time; each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.nodes.mutants.planted import PLANTED, Planted
from tests.sim.nodes.report import figures, replay_command

ROOT = Path(__file__).resolve().parents[2]
CLEAN = (
    ("--seeds", "1000:1100", "--seconds", "1", "--processes", "2"),
    ("--seeds", "5,6", "--faults", "all"),
    ("--seeds", "49", "--faults", "rot"),
)
"""A hundred short seeds as they are drawn, and whole ones. `make sim MACHINE=node` runs more."""
REPLAYED = (
    ("--seed", "5", "--faults", "all"),
    ("--seed", "21001", "--seconds", "1"),
)
"""The second one has archivers."""
SEEDS_MAX_S = 580
"""A hundred take two minutes of two idle cores."""


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", "--machine", "node", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SEEDS_MAX_S,
        check=False,
    )


@pytest.mark.timeout(SEEDS_MAX_S + 20)
@pytest.mark.parametrize("arguments", CLEAN)
def test_seeds_run_clean(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["failed"] == 0
    assert report["acknowledged_total"] > 0
    assert report["received_total"] >= report["acknowledged_total"]


@pytest.mark.parametrize("arguments", REPLAYED)
def test_a_seed_is_the_same_world_in_another_process(arguments: tuple[str, ...]) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        done = run(*arguments, PYTHONHASHSEED=hash_seed)
        assert done.returncode == 0, done.stdout
        traces.append(json.loads(done.stdout))
    one, other = traces
    assert one["trace"] == other["trace"]
    assert one["events"] == other["events"] > 10_000


def test_a_failure_says_how_it_is_replayed() -> None:
    results = [
        {"seed": 3, "findings": [], "faults": {"kill": 2}, "sent": 5},
        {"seed": 4, "findings": ["lost: 1: a message"], "faults": {"kill": 1, "cut": 1}},
    ]
    report = figures(results, 10.0, "none")
    assert report["failed_seeds"] == [4]
    assert report["first_failure"] == "lost: 1: a message"
    assert report["faults_injected_kill_count"] == 3
    assert report["seeds_per_hour"] == 720
    assert replay_command(4, "disk").endswith("--machine node --seed 4 --faults disk -v")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.mutant.name)
def test_what_a_planted_bug_replaces_is_in_the_source_once(planted: Planted) -> None:
    for file, old, new in planted.mutant.patches:
        assert (ROOT / file).read_text().count(old) == 1
        assert new != old


def test_an_unknown_fault_is_refused() -> None:
    done = run("--seeds", "0:1", "--faults", "flood")
    assert done.returncode == 2
    assert "flood" in done.stderr
