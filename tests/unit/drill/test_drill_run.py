"""Rounds one after the other, and what is left of those that have no verdict."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from qm.cli.drills import drill_run
from qm.cli.drills.drill_run import Done, resumed, run_turns, write_report
from qm.client.errors import ClientError, Unavailable
from qm.drill.report.rounds_file import RoundsFile, this_build
from qm.drill.runner import Round, Settings
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.scenarios.scenario import Scenario
from qm.drill.soak import Turn
from qm.drill.targets.target import NodeEnded, Target, TargetFailed
from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent


class Cluster:
    """A target that is made and ended."""

    def __init__(self) -> None:
        self.ups = 0
        self.is_up = False

    async def up(self) -> None:
        self.ups += 1
        self.is_up = True

    async def down(self) -> None:
        self.is_up = False


def verdict_of_nothing_lost() -> Any:
    kinds = (EventKind.SENT, EventKind.ACKNOWLEDGED, EventKind.RECEIVED)
    return judge(
        HistoryEvent(at, "s", kind, queue="q", message="s/0/1") for at, kind in enumerate(kinds)
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    async def run_round(_: Target, scenario: Scenario, settings: Settings, __: Any) -> Round:
        if scenario.name == "power-failure":
            raise NodeEnded("n1 ended by itself, exit code 74: the log is damaged")
        if scenario.name == "drain":
            raise TargetFailed("nobody leads")
        if scenario.name == "lost-disk":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        if scenario.name == "restart-all":
            raise Unavailable("nobody answers")
        if scenario.name == "one-way":
            raise ClientError("no such handle")
        return Round(scenario.name, settings.seed, verdict_of_nothing_lost(), True, 20.0)

    monkeypatch.setattr(drill_run, "run_round", run_round)
    return Cluster()


@pytest.fixture
def file(tmp_path: Path) -> RoundsFile:
    return RoundsFile(tmp_path / "rounds.jsonl", "dev", 50)


def run(
    cluster: Cluster, file: RoundsFile, *names: str, resume: bool = False, for_s: float = 60
) -> Done:
    turns = [Turn(SCENARIOS[name], seed) for name in names for seed in (1, 2)]
    done = resumed(file) if resume else Done()
    asyncio.run(run_turns(cast(Target, cluster), turns, 50, file, done, for_s=for_s))
    return done


def test_a_node_that_ends_by_itself_fails_its_scenario(
    cluster: Cluster, file: RoundsFile, tmp_path: Path
) -> None:
    done = run(cluster, file, "power-failure", "kill-leader")
    assert (done.holds, cluster.ups, cluster.is_up) == (False, 2, False)
    write_report(done, "dev", 50, tmp_path, tmp_path / "drills.json")
    found = json.loads((tmp_path / "drills.json").read_text())
    assert found["power-failure"]["verdict"] == "FAIL"
    assert "the log is damaged" in found["power-failure"]["why"]
    assert (found["kill-leader"]["runs"], found["kill-leader"]["verdict"]) == (2, "pass")
    assert (found["kill-leader"]["seeds"], found["kill-leader"]["target"]) == ([1, 2], "dev")


def test_what_was_not_carried_out_proves_nothing(
    cluster: Cluster, file: RoundsFile, tmp_path: Path
) -> None:
    done = run(cluster, file, "kill-leader", "drain")
    assert not done.holds
    write_report(done, "dev", 50, tmp_path, tmp_path / "drills.json")
    found = json.loads((tmp_path / "drills.json").read_text())
    assert found["drain"]["verdict"] == "not carried out"


def test_what_was_done_before_an_interruption_is_reported(
    cluster: Cluster, file: RoundsFile
) -> None:
    done = run(cluster, file, "kill-leader", "lost-disk")
    assert (len(done.rounds["kill-leader"]), list(done.rounds)) == (2, ["kill-leader"])
    assert (done.is_interrupted, done.holds, cluster.is_up) == (True, False, False)


def test_an_answer_that_cannot_be_is_a_failure_and_silence_proves_nothing(
    cluster: Cluster, file: RoundsFile
) -> None:
    done = run(cluster, file, "one-way", "restart-all")
    assert (list(done.failed), list(done.not_carried_out)) == (["one-way"], ["restart-all"])


def test_all_that_was_run_must_pass_and_something_must_be_run(
    cluster: Cluster, file: RoundsFile, tmp_path: Path
) -> None:
    assert run(cluster, file, "kill-leader").holds
    assert not run(cluster, file).holds
    done = run(cluster, file, "kill-leader")
    write_report(done, "dev", 50, tmp_path, tmp_path / "drills.json")
    whole = json.loads((tmp_path / "report.json").read_text())
    assert (whole["target"], whole["seeds"]) == ("dev", "1, 2")
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_a_run_goes_on_with_what_is_left(cluster: Cluster, file: RoundsFile) -> None:
    first = run(cluster, file, "kill-leader", "drain", for_s=-1)
    assert (first.rounds, first.is_interrupted, first.holds) == ({}, True, False)
    run(cluster, file, "kill-leader")
    again = run(cluster, file, "kill-leader", "pause-leader", resume=True)
    assert {name: len(rounds) for name, rounds in again.rounds.items()} == {
        "kill-leader": 2,
        "pause-leader": 2,
    }
    assert again.builds == {this_build()}
    assert len(file.standing()) == 4


def test_a_scenario_that_failed_begins_anew(cluster: Cluster, file: RoundsFile) -> None:
    run(cluster, file, "kill-leader", "slow-disk")
    file.failed("kill-leader", 3, "n1 ended by itself")
    assert {entry.scenario for entry in file.standing()} == {"slow-disk"}
    assert len(run(cluster, file, "kill-leader", resume=True).rounds["kill-leader"]) == 2


def test_rounds_at_another_rate_do_not_count(
    cluster: Cluster, file: RoundsFile, tmp_path: Path
) -> None:
    run(cluster, file, "kill-leader")
    assert RoundsFile(tmp_path / "rounds.jsonl", "dev", 400).standing() == []
    assert RoundsFile(tmp_path / "rounds.jsonl", "netns", 50).standing() == []
