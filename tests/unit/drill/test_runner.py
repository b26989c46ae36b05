"""What drills make of histories, and what targets cannot do."""

import json
from pathlib import Path

from click.testing import CliRunner

from qm.cli.drills.drill import drill
from qm.drill.report.report import merge_results, report_html, report_json
from qm.drill.runner import Round, missing, result_of, surviving_gap_ms
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.soak import random_turns
from qm.drill.targets.ability import Ability
from qm.drill.targets.process_target import ProcessTarget, last_words
from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent

MS = 1_000_000
HOSTS = {"n1": "127.0.0.1", "n2": "127.0.0.2"}


def event(at_ms: int, client: str, kind: EventKind, **more: object) -> HistoryEvent:
    return HistoryEvent(at_ms * MS, client, kind, **more)  # type: ignore[arg-type]


def history() -> list[HistoryEvent]:
    """Sender 1 waits 3 s, sender 2 waits 40 ms for the fault at 1 s."""
    events = [event(1000, "runner", EventKind.FAULT, detail="n1 stands still")]
    for client, back_ms in (("sender-1", 4000), ("sender-2", 1030)):
        for number, at_ms in enumerate((0, 990), 1):
            name = f"{client}/{number}"
            done_ms = at_ms + 10 if number == 1 else back_ms
            events += [
                event(at_ms, client, EventKind.SENT, message=name, queue="q", number=number),
                event(done_ms, client, EventKind.ADVANCED, number=0),
                event(done_ms, client, EventKind.ACKNOWLEDGED, message=name),
                event(done_ms + 1, "receiver", EventKind.RECEIVED, message=name, queue="q"),
            ]
    return sorted(events, key=lambda e: e.time_ns)


def test_the_gap_that_counts_is_felt_at_nodes_that_were_not_struck() -> None:
    assert surviving_gap_ms(history(), HOSTS, [["n1"]]) == 40
    assert surviving_gap_ms(history(), HOSTS, [["n2"]]) == 3010
    assert surviving_gap_ms(history(), HOSTS, [["n1", "n2"]]) == 3010


def test_a_sender_that_moved_is_struck_where_it_is_now() -> None:
    moved = [
        event(500, "sender-1", EventKind.RECONNECTED, address=HOSTS["n2"]),
        event(501, "sender-2", EventKind.RECONNECTED, address=HOSTS["n1"]),
    ]
    events = sorted([*history(), *moved], key=lambda e: e.time_ns)
    assert surviving_gap_ms(events, HOSTS, [["n1"]]) == 3010
    assert surviving_gap_ms(events, HOSTS, [["n2"]]) == 40


def test_a_result_is_a_pass_only_if_every_round_is() -> None:
    verdict = judge(history())
    good = Round("kill-leader", 1, verdict, True, 40.0)
    late = Round("kill-leader", 2, verdict, False, 60.0)
    assert result_of([good]).verdict == "pass"
    result = result_of([good, late])
    assert (result.runs, result.lost, result.duplicated, result.verdict) == (2, 0, 0, "FAIL")
    assert (result.gap_median_ms, result.gap_p99_ms) == (50.0, 60.0)
    assert result.seeds == (1, 2)


def test_the_page_shows_every_round_with_its_fault() -> None:
    rounds = {"kill-leader": [Round("kill-leader", 7, judge(history()), True, 40.0)]}
    page = report_html(rounds, {"target": "dev", "seeds": "7"})
    assert "Seed 7" in page
    assert "n1 stands still" in page
    assert "all passed" in page
    assert page.count("<svg") == 1
    assert "src=" not in page
    assert 'href="http' not in page


def test_a_page_of_a_failed_round_says_what_is_wrong() -> None:
    lost = HistoryEvent(0, "sender-1", EventKind.SENT, message="sender-1/0/9", queue="q")
    acknowledged = HistoryEvent(1, "sender-1", EventKind.ACKNOWLEDGED, message="sender-1/0/9")
    verdict = judge([lost, acknowledged])
    rounds = {"kill-leader": [Round("kill-leader", 7, verdict, False, 40.0, "digests differ")]}
    page = report_html(rounds, {})
    for text in ("FAILED", "digests differ", "sender-1/0/9", "not everything was received"):
        assert text in page


def test_everything_on_the_page_is_there_for_machines() -> None:
    rounds = {"kill-leader": [Round("kill-leader", 7, judge(history()), True, 40.0)]}
    found = json.loads(report_json(rounds, {"target": "dev"}))
    (one,) = found["rounds"]["kill-leader"]
    assert (found["target"], one["seed"], one["rto_ms"], one["rpo_messages"]) == ("dev", 7, 40, 0)
    assert one["verdict"]["faults"][0]["detail"] == "n1 stands still"


def test_results_of_other_runs_stay(tmp_path: Path) -> None:
    path = tmp_path / "build" / "drills.json"
    merge_results(path, {"kill-leader": {"runs": 1}, "ratio": 2.0})
    merge_results(path, {"kill-leader": {"runs": 3}})
    assert json.loads(path.read_text()) == {"kill-leader": {"runs": 3}, "ratio": 2.0}


def test_a_soak_is_the_same_for_the_same_seed_and_ends_in_time() -> None:
    scenarios = list(SCENARIOS.values())

    def chosen(seed: int) -> list[tuple[str, int]]:
        times = iter(range(100))
        turns = random_turns(scenarios, seed, 20, lambda: float(next(times)))
        return [(turn.scenario.name, turn.seed) for turn in turns]

    assert chosen(1) == chosen(1) != chosen(2)
    assert len({seed for _, seed in chosen(1)}) == len(chosen(1)) == 19


def test_a_target_says_what_it_cannot_do(tmp_path: Path) -> None:
    target = ProcessTarget("dev", tmp_path, "127.0.15", print)
    assert missing(target, SCENARIOS["partition-leader"]) == [Ability.NETWORK]
    assert missing(target, SCENARIOS["kill-leader"]) == []
    result = CliRunner().invoke(
        drill, ["run", "partition-leader", "--folder", str(tmp_path), "--report", "x.json"]
    )
    assert result.exit_code == 2
    assert "cannot cut nodes and clients off" in result.output


def test_the_last_words_of_a_node_carry_its_error(tmp_path: Path) -> None:
    log = tmp_path / "n1.log"
    trace = "Traceback (most recent call last):\n  File\nraft.log.log.LogDamaged: entry 7 is gone"
    line = {"message": "this node cannot start", "exception": trace}
    log.write_text('{"message": "n1 runs"}\n' + json.dumps(line) + "\n")
    assert last_words(log) == "this node cannot start: raft.log.log.LogDamaged: entry 7 is gone"
    log.write_text("Killed\n")
    assert last_words(log) == "Killed"
    log.write_text("")
    assert last_words(log) == "nothing"


def test_scenarios_are_listed_by_name() -> None:
    result = CliRunner().invoke(drill, ["list"])
    assert result.exit_code == 0
    for name in SCENARIOS:
        assert name in result.output


def test_an_unknown_scenario_is_named() -> None:
    result = CliRunner().invoke(drill, ["run", "kil-leader"])
    assert result.exit_code == 2
    assert "kil-leader" in result.output


def test_a_soak_wants_a_cluster_of_its_own(tmp_path: Path) -> None:
    arguments = ["soak", "--target", "hosts.toml", "--folder", str(tmp_path)]
    result = CliRunner().invoke(drill, arguments)
    assert result.exit_code == 2
    assert "a cluster of its own" in result.output
