"""The page of drills says where each scenario runs, as the command does."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from qm.cli.drills.drill import drill
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.ability import Ability
from qm.drill.targets.hosts_file import load_hosts
from qm.drill.targets.reasons import HOSTS, REASONS, refusals

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| `([a-z-]+)` \| (yes|-) \| (yes|-) \| (yes|-) \| (yes|-) \| ", re.MULTILINE)


def table() -> dict[str, list[bool]]:
    return {
        name: [not refusals(kind, scenario.needs) for kind in REASONS]
        for name, scenario in SCENARIOS.items()
    }


def test_the_page_has_the_table() -> None:
    text = (ROOT / "docs" / "drills.md").read_text(encoding="utf-8")
    found = {name: [cell == "yes" for cell in cells] for name, *cells in ROW.findall(text)}
    assert found == table()


def test_the_list_is_the_table() -> None:
    rows = json.loads(CliRunner().invoke(drill, ["list", "-o", "json"]).output)
    assert {row["name"]: [row[kind] for kind in REASONS] for row in rows} == table()
    lines = CliRunner().invoke(drill, ["list"]).output.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", *table()]


def test_the_example_of_hosts_tells_how_all_is_done_but_growth_and_a_proxy() -> None:
    hosts = load_hosts(ROOT / "deploy" / "drills" / "hosts.toml")
    never = set(REASONS[HOSTS]) | {Ability.SCALE, Ability.PROXY}
    assert hosts.abilities == set(Ability) - never
