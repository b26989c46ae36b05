"""`qm demo` as a user runs it: three processes, the leader killed, the verdict by exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qm.load.checker import judge
from qm.load.history import EventKind, read_history
from tests.cluster.harness import free_network

LIMIT_S = 150


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "qm", "demo"),
            *("--folder", str(folder / "demo"), "--report", str(folder / "demo.json")),
            *("--network", free_network(), *options),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.timeout(LIMIT_S + 10)
def test_the_demo_holds_its_verdict_over_the_death_of_the_leader(tmp_path: Path) -> None:
    result = demo(tmp_path, "--seconds", "4", "--rate", "200")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "SIGKILL" in result.stdout
    assert "The verdict holds." in result.stdout
    report = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert report["holds"]
    assert report["sent"] == report["acknowledged"] == report["received"] > 100
    assert [fault["detail"].split()[0] for fault in report["faults"]] == ["SIGKILL"]
    # The verdict is what the clients' histories say, and nothing else.
    history = read_history(tmp_path / "demo" / "history.jsonl")
    verdict = judge(history)
    assert (verdict.holds, verdict.received) == (True, report["received"])
    kinds = {event.delivery for event in history if event.kind is EventKind.SENT}
    assert kinds == {"express", "recoverable", "transactional"}
    assert report["reconnects"] == 0


def test_a_demo_that_cannot_start_says_so(tmp_path: Path) -> None:
    result = demo(tmp_path, "--network", "192.0.2")
    assert result.returncode == 1
    assert "Error:" in result.stderr
    said = result.stdout + result.stderr
    assert said.count("cannot listen on 192.0.2.11, port 1801") == 1
