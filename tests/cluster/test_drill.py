"""The short list of drills, on processes of this machine."""

import json
from pathlib import Path

from click.testing import CliRunner

from qm.cli.drills.drill import drill


def test_the_short_list_passes(tmp_path: Path) -> None:
    report = tmp_path / "drills.json"
    arguments = ["run", "--short", "--rate", "50", "--folder", str(tmp_path / "drill")]
    result = CliRunner().invoke(drill, [*arguments, "--report", str(report)])
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())
    assert found.keys() == {"kill-leader", "leader-transfer"}
    for outcome in found.values():
        assert (outcome["lost"], outcome["duplicated"], outcome["verdict"]) == (0, 0, "pass")
