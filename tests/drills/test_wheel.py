"""A rolling upgrade to a wheel: this tree with the next apply version, built and put in by pip."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qm.drill.runner import Settings, run_round
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.builds import raise_apply_version
from qm.drill.targets.process_target import ProcessTarget

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "127.0.47"
RATE_PER_S = 50.0
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "qm", "raft", "spark")


def quiet(text: str) -> None:
    del text


def built(folder: Path) -> Path:
    """Return a folder in which the next version's wheel is installed."""
    tree, wheels, installed = folder / "tree", folder / "wheels", folder / "installed"
    tree.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree)
    raise_apply_version(tree)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(tree)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(installed), wheel], check=True)
    return installed


@pytest.mark.timeout(900)  # drills wait as long as a busy machine makes them
def test_a_cluster_is_upgraded_to_a_wheel_and_grows_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        other = await asyncio.to_thread(built, tmp_path)
        target = ProcessTarget("dev", tmp_path / "drill", NETWORK, quiet, other)
        try:
            for name in ("rolling-upgrade", "grow-and-shrink"):
                settings = Settings(1, RATE_PER_S)
                done = await run_round(target, SCENARIOS[name], settings, lambda _: None)
                assert done.holds, done
        finally:
            await target.down()

    # As the command does: uvloop forks where gRPC's threads run.
    asyncio.run(scenario())
