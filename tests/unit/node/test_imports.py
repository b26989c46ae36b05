"""What a node loads: memory and a start are paid by every node, whatever it is for."""

import subprocess
import sys

import pytest

HEAVY = ["matplotlib", "numpy", "pandas", "pyarrow", "pyspark"]


@pytest.mark.parametrize("module", ["qm.node.process", "qm.cli.main"])
def test_heavy_libraries_are_loaded_by_those_who_use_them(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
