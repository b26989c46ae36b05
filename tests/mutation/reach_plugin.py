"""The pytest plugin of the sound run: which test executes which line, and how long each takes.

With `--reach FOLDER`: FOLDER/lines is coverage data with one context for each test function,
FOLDER/tests.json what each took and whether it passed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

LINES = "lines"
TESTS = "tests.json"


def test_name(nodeid: str) -> str:
    """Return the function's node id, without the case of a parametrised test."""
    return nodeid.split("[", 1)[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --reach."""
    parser.addoption("--reach", type=Path, help="store executed lines per test in this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure, if asked."""
    folder: Path | None = config.getoption("--reach")
    if folder is not None:
        config.pluginmanager.register(Reach(folder), "reach")


class Reach:
    """Of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._took_s: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=str(folder / LINES), source=["qm", "raft"], config_file=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give each test its context."""
        self._coverage.switch_context(test_name(item.nodeid))
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what it took."""
        name = test_name(report.nodeid)
        self._took_s[name] = self._took_s.get(name, 0.0) + report.duration
        if report.failed:
            self._failed.add(name)

    def pytest_sessionfinish(self) -> None:
        """Write both files."""
        self._coverage.stop()
        self._coverage.save()
        tests = {"took_s": self._took_s, "failed": sorted(self._failed)}
        (self._folder / TESTS).write_text(json.dumps(tests), encoding="utf-8")
