"""Spans of the cost sheet: exclusive times, and the way of an entry over three nodes."""

import os
from pathlib import Path
from time import thread_time_ns

import pytest

from tests.bench import spans
from tests.bench.entry_sheet import PATH, sheet
from tests.bench.spans import STEPS, Recorder, Report

MESSAGES = 10


def work(ns: int) -> None:
    end_ns = thread_time_ns() + ns
    while thread_time_ns() < end_ns:
        pass


def test_a_span_does_not_count_what_is_inside_another() -> None:
    recorder = Recorder()
    inner = recorder.span("inner", lambda: work(4_000_000))

    def outer() -> None:
        work(1_000_000)
        inner()
        inner()

    recorder.span("outer", outer)()
    assert recorder.spans["inner"][0] == 2
    assert recorder.spans["inner"][1] >= 8_000_000
    assert 1_000_000 <= recorder.spans["outer"][1] < 4_000_000


def test_an_error_ends_a_span() -> None:
    recorder = Recorder()
    failing = recorder.span("failing", lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing()
    assert recorder.spans["failing"][0] == 2


def test_a_node_tells_what_it_recorded_since_it_was_told_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.FOLDER, str(tmp_path))
    recorder, pid = Recorder(), os.getpid()
    spans.serve(recorder, spans.socket_of(pid))
    step = recorder.span("step", lambda: None)
    step()
    recorder.mark("point", 7)
    spans.begin(pid)
    step()
    recorder.mark("point", 8, 1_000)
    report = spans.report(pid)
    assert report.spans["step"][0] == 1
    assert report.marks == {"point": [(8, 1_000)]}


def reports() -> dict[str, Report]:
    """One entry whose every part takes a microsecond more than the one before."""
    names = {"leader": "n1.1", "front": "n2.1"}
    marks: dict[str, dict[str, list[tuple[int, int]]]] = {"n1": {}, "n2": {}, "n3": {}}
    at_ns = 5_000
    marks["n1"]["read"] = [(9, at_ns)]
    for number, (_, role, mark) in enumerate(PATH, 1):
        at_ns += 1_000 * number
        marks[names[role][:2]][mark.format(**names)] = [(8, 1), (9, at_ns)]
    counts = {"n1": 4, "n2": 2, "n3": 1}
    return {
        node: Report({step: (count, 1_000 * MESSAGES) for step, _, _ in STEPS}, marks[node])
        for node, count in counts.items()
    }


def test_the_sheet_follows_an_entry_over_the_follower_that_it_waits_for() -> None:
    cpu_s = dict.fromkeys(("n1", "n2", "n3"), (len(STEPS) + 2) * MESSAGES / 1e6)
    found = sheet(reports(), "n1", cpu_s, MESSAGES)
    assert found.roles == {"leader": "n1", "front": "n2", "rear": "n3"}
    assert found.entries == 1
    assert list(found.wait_us.values()) == list(range(1, len(PATH) + 1))
    assert found.cpu_us["log: append"] == {"leader": 1.0, "front": 1.0, "rear": 1.0}
    assert found.cpu_us["event loop, futures, gRPC, all else"]["rear"] == pytest.approx(2.0)
    figures = found.figures()
    assert figures["path_wall_us"] == sum(range(1, len(PATH) + 1))
    assert figures["log_append_front_cpu_us"] == 1.0
    assert "fdatasync" in found.table()
