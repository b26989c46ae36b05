"""How nodes are started so that their disks and clocks can be tampered with."""

import errno
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.ability import Ability
from qm.drill.targets.fault_layer import FILE_VARIABLE
from qm.drill.targets.tampered_node import FAULTS_FILE, Faults
from qm.drill.targets.tampering import CLOCK_FILE, Tampering

CONFIG = Path("n1.toml")


@pytest.fixture
def tampering(tmp_path: Path) -> Tampering:
    return Tampering(tmp_path / "tampering", lambda node: tmp_path / node)


def faults(tmp_path: Path, node: str) -> Faults:
    data = (tmp_path / "tampering" / node / FAULTS_FILE).read_bytes()
    return msgspec.json.decode(data, type=Faults)


def test_a_node_is_what_ships_unless_it_is_to_be_tampered_with(tampering: Tampering) -> None:
    assert tampering.arguments("n1", CONFIG)[:4] == ["-m", "qm", "node", "run"]
    tampering.enable("n1")
    assert FILE_VARIABLE not in tampering.environment("n2")
    assert "faketime" not in tampering.environment("n1").get("LD_PRELOAD", "")
    assert not tampering.is_enabled("n1", with_clock=True)
    assert "qm.drill.targets.tampered_node" in tampering.arguments("n1", CONFIG)
    assert tampering.arguments("n2", CONFIG)[:4] == ["-m", "qm", "node", "run"]


def test_a_clock_is_tampered_with_only_where_it_is_asked_for(tampering: Tampering) -> None:
    tampering.enable("n1", with_clock=True)
    assert tampering.is_enabled("n1")
    assert tampering.is_enabled("n1", with_clock=True)
    has_clocks = Ability.CLOCKS in tampering.abilities
    found = tampering.environment("n1")
    assert ("faketime" in found.get("LD_PRELOAD", "")) == has_clocks
    # Threads spin without it: a drill under load would never settle.
    assert not has_clocks or found["FAKETIME_FORCE_MONOTONIC_FIX"] == "0"
    tampering.end()
    assert not tampering.is_enabled("n1")


def test_faults_are_written_where_the_node_looks_and_end_together(
    tampering: Tampering, tmp_path: Path
) -> None:
    for node in ("n1", "n2"):
        tampering.enable(node)
    tampering.slow_syncs("n1", 0.3)
    tampering.hold_syncs("n2")
    tampering.set_clock("n2", -600)
    assert faults(tmp_path, "n1") == Faults(sync_delay_s=0.3)
    assert faults(tmp_path, "n2") == Faults(holds_syncs=True)
    clock = tmp_path / "tampering" / "n2" / CLOCK_FILE
    assert clock.read_text() == "-600\n"
    tampering.relieve()
    assert faults(tmp_path, "n1") == faults(tmp_path, "n2") == Faults()
    assert clock.read_text() == "+0\n"


def test_files_fail_as_a_process_without_knowledge_of_it_is_told(
    tampering: Tampering, tmp_path: Path
) -> None:
    (tmp_path / "n1").mkdir()
    tampering.enable("n1")
    if Ability.DISK_ERRORS not in tampering.abilities:
        assert "LD_PRELOAD" not in tampering.environment("n1")
        return
    tampering.fail_syncs("n1", ".segment")
    program = f"""
import os
for name, act in (("a.sst", os.fsync), ("a.segment", os.fdatasync), ("b.segment", os.fdatasync)):
    file = os.open({str(tmp_path / "n1")!r} + "/" + name, os.O_CREAT | os.O_RDWR)
    try:
        os.write(file, b"x")
        act(file)
        print("whole")
    except OSError as error:
        print(error.errno)
"""
    environment = tampering.environment("n1")

    def told() -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

    assert told() == ["whole", str(errno.EIO), "whole"]
    assert tampering.errors("n1") == 1
    tampering.fail_writes("n1", ".sst")
    assert told() == [str(errno.EIO), "whole", "whole"]
    tampering.relieve()
    assert told() == ["whole"] * 3


def test_a_folder_is_set_back_to_its_copy(tampering: Tampering, tmp_path: Path) -> None:
    data = tmp_path / "n1"
    (data / "store").mkdir(parents=True)
    (data / "store" / "old").write_text("old")
    tampering.copy_folder("n1")
    (data / "store" / "old").write_text("new")
    (data / "newer").write_text("new")
    tampering.set_folder_back("n1")
    assert [path.name for path in data.rglob("*")] == ["store", "old"]
    assert (data / "store" / "old").read_text() == "old"


def test_every_scenario_of_disks_and_clocks_has_its_nodes_prepared() -> None:
    for scenario in SCENARIOS.values():
        if scenario.needs & {Ability.SYNCS, Ability.CLOCKS, Ability.SMALL_DISKS}:
            assert scenario.prepare is not None


def test_what_ships_knows_nothing_of_tampering() -> None:
    source = Path(sys.modules["qm"].__path__[0])
    for part in ("node", "store", "edge", "api", "model"):
        for path in (source / part).rglob("*.py"):
            assert "qm.drill" not in path.read_text(encoding="utf-8"), path
