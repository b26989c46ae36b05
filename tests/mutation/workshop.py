"""A copy of the tree, in which one break at a time is made and judged."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tests.mutation.reach import Reach

ROOT: Final = Path(__file__).resolve().parents[2]
NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "__pycache__", "*_cache", ".hypothesis", ".coverage*"
)
SUITE: Final = (
    *(
        f"tests/unit/{name}"
        for name in ("raft", "store", "model", "session", "edge", "node", "api", "client")
    ),
    *("tests/unit/archive", "tests/unit/load", "tests/sim/test_cases.py"),
    *("tests/sim/test_machine.py", "tests/sim/test_machine_store.py", "tests/sim/test_seeds.py"),
    *(
        str(path.relative_to(ROOT))
        for part in ("model", "edge", "outgoing", "session", "store")
        for path in sorted((ROOT / "tests/conformance").glob(f"test_{part}_*.py"))
    ),
)
"""Tests that run the durable code in their own process: what coverage can tell apart."""
UNIMPORTABLE: Final = "the import"
HANGING: Final = "tests that hang"
TEST_MAX_S: Final = 40
BREAK_MAX_S: Final = 240
"""Of one run of tests or seeds."""
SUITE_MAX_S: Final = 1_800
PASSED: Final = 0
FAILED: Final = 1
NOT_FOUND: Final = 4
"""Status of pytest when a test that was named is not there, or its module cannot be imported."""
SEEDS: Final = (
    (("raft/",), ("tests.sim", "--seeds", "0:60", "--steps", "1000", "--first")),
    (("raft/", "qm/"), ("tests.sim.nodes", "--seeds", "5,6,10", "--faults", "all", "--first")),
    (("raft/", "qm/store/"), ("tests.sim.nodes", "--seeds", "2,8", "--faults", "disk", "--first")),
)
"""Files by how their path begins, and the seeds that judge what no test noticed."""


class Fate(StrEnum):
    """What became of a break."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True)
class Verdict:
    """What became of one, and what noticed it."""

    fate: Fate
    by: str


class Workshop:
    """One copy. Two may work side by side."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
        self._sound_seeds: dict[tuple[str, ...], bool] = {}
        self._sound_tests: dict[str, bool] = {}
        """Whether they pass on sound code."""

    def measure(self, folder: Path) -> Reach:
        """Run the whole suite on sound code. Raises SystemExit if it does not run."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = ("-p", "tests.mutation.reach_plugin", "--reach", str(folder))
        done, text = self._run(self._pytest(*options, *SUITE), SUITE_MAX_S)
        if done is None or done > 1:
            raise SystemExit(f"the tests do not run on sound code:\n{text[-3000:]}")
        return Reach(folder, self.root)

    def judge(
        self, found: dict[str, Any], tests: list[str], slow: frozenset[str], *, by_seeds: bool
    ) -> Verdict:
        """Make the break, run tests and then seeds until one notices.

        `slow`: tests that wait for clocks or sockets. One of them that fails has to pass on sound
        code once more, as the machine may be busy.
        """
        file = self.root / found["file"]
        sound = file.read_text(encoding="utf-8")
        file.write_text(found["source"], encoding="utf-8")
        try:
            verdict = self._by_tests(tests)
            if verdict.fate is Fate.SURVIVED and by_seeds:
                verdict = self._by_seeds(found["file"], file, sound)
        finally:
            file.write_text(sound, encoding="utf-8")
        if verdict.by == UNIMPORTABLE:
            self._find(tests)
        elif verdict.fate is Fate.KILLED and verdict.by in slow:
            return self._confirmed(verdict)
        elif verdict.by == HANGING:
            return self._hung(tests)
        return verdict

    def is_noticed(self, found: dict[str, Any], test: str) -> bool:
        """Make the break; return whether a test fails that passes on sound code."""
        file = self.root / found["file"]
        sound = file.read_text(encoding="utf-8")
        file.write_text(found["source"], encoding="utf-8")
        options = ("-x", "--timeout", str(TEST_MAX_S), "--spec-mutant", test)
        try:
            status, _ = self._run(self._pytest(*options), BREAK_MAX_S)
        finally:
            file.write_text(sound, encoding="utf-8")
        if status == FAILED and test not in self._sound_tests:
            status_of_sound, _ = self._run(self._pytest(*options), BREAK_MAX_S)
            self._sound_tests[test] = status_of_sound == PASSED
        return status == FAILED and self._sound_tests[test]

    def _by_tests(self, tests: list[str]) -> Verdict:
        if not tests:
            return Verdict(Fate.SURVIVED, "no test executes it")
        record = self.root / "mutation-tests.json"
        record.unlink(missing_ok=True)
        options = ("-x", "--timeout", str(TEST_MAX_S), "--spec-mutant")
        chosen = self.root / "mutation-tests.txt"
        chosen.write_text("\n".join(tests), encoding="utf-8")
        status, text = self._run(
            self._pytest(*options, "-p", "tests.mutation.first_failure", f"@{chosen}"), BREAK_MAX_S
        )
        if status is None:
            return Verdict(Fate.TIMED_OUT, HANGING)
        if status == PASSED:
            return Verdict(Fate.SURVIVED, "")
        if status == NOT_FOUND:
            return Verdict(Fate.KILLED, UNIMPORTABLE)
        by = json.loads(record.read_text(encoding="utf-8")) if record.exists() else ""
        return Verdict(Fate.KILLED, by or f"status {status}: {text.strip()[-200:]}")

    def _find(self, tests: list[str]) -> None:
        """Raise LookupError if sound code has no such tests either."""
        status, text = self._run(self._pytest("--collect-only", *tests), BREAK_MAX_S)
        if status != PASSED:
            raise LookupError(f"pytest does not know these tests:\n{text[-2000:]}")

    def _confirmed(self, verdict: Verdict) -> Verdict:
        """Return it if the test passes on sound code."""
        options = ("-x", "--timeout", str(TEST_MAX_S))
        status, _ = self._run(self._pytest(*options, verdict.by), BREAK_MAX_S)
        if status == PASSED:
            return verdict
        return Verdict(Fate.TIMED_OUT, f"{verdict.by} fails on sound code, too")

    def _hung(self, tests: list[str]) -> Verdict:
        """Return that the break was noticed if its tests pass on sound code in the same time."""
        status, _ = self._run(self._pytest("--timeout", str(TEST_MAX_S), *tests), BREAK_MAX_S)
        return Verdict(Fate.KILLED if status == PASSED else Fate.TIMED_OUT, HANGING)

    def _by_seeds(self, name: str, file: Path, sound: str) -> Verdict:
        for prefixes, arguments in SEEDS:
            if not name.startswith(prefixes):
                continue
            status, _ = self._run([sys.executable, "-m", *arguments], BREAK_MAX_S)
            if status is None:
                return Verdict(Fate.TIMED_OUT, " ".join(arguments))
            if status != PASSED and self._passes(arguments, file, sound):
                return Verdict(Fate.KILLED, " ".join(arguments))
        return Verdict(Fate.SURVIVED, "")

    def _passes(self, arguments: tuple[str, ...], file: Path, sound: str) -> bool:
        if arguments not in self._sound_seeds:
            broken = file.read_text(encoding="utf-8")
            file.write_text(sound, encoding="utf-8")
            status, _ = self._run([sys.executable, "-m", *arguments], BREAK_MAX_S)
            self._sound_seeds[arguments] = status == PASSED
            file.write_text(broken, encoding="utf-8")
        return self._sound_seeds[arguments]

    def _pytest(self, *options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider"]
        return [*command, "--rootdir", str(self.root), *options]

    def _run(self, command: list[str], limit_s: float) -> tuple[int | None, str]:
        """Return its status, None if it took too long, and what it printed."""
        environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            text, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        return process.returncode, text
