"""The pytest plugin of a run on broken code: which test noticed, in mutation-tests.json."""

import json
from pathlib import Path

import pytest

from tests.mutation.reach_plugin import test_name

RECORD = Path("mutation-tests.json")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the first one that fails."""
    if report.failed and not RECORD.exists():
        RECORD.write_text(json.dumps(test_name(report.nodeid)), encoding="utf-8")
