"""Our own core keeps every promise that the baseline breaks (docs/raftos.md)."""

from pathlib import Path

import pytest

from tests.baseline.quorate_cluster import QuorateCluster
from tests.baseline.scenarios import SCENARIOS, Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "raftos.md"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_quorate_holds(scenario: Scenario) -> None:
    assert scenario.run(QuorateCluster(scenario.machines)) == ""


def test_the_page_names_every_scenario() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    assert [row.split("`")[1] for row in rows] == [scenario.name for scenario in SCENARIOS]
