"""Builds side by side (qm/drill/targets/builds.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

from qm.drill.targets.ability import Refused
from qm.drill.targets.builds import Builds, make_next_build
from qm.model.values.limits import APPLY_VERSION

ASK = "from qm.model.values.limits import APPLY_VERSION; print(APPLY_VERSION)"


def test_the_next_build_knows_one_apply_version_more(tmp_path: Path) -> None:
    make_next_build(tmp_path / "next")
    told = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path / "next", capture_output=True, check=True
    )
    assert int(told.stdout) == APPLY_VERSION + 1


def test_a_folder_without_a_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="holds no build"):
        Builds(tmp_path / "made", tmp_path)
