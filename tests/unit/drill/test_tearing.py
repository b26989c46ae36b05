"""Disks that are tampered with: what is torn was never synced, and what is held waits."""

import random
import threading
from pathlib import Path

import msgspec
import pytest

from qm.drill.targets.tampered_node import FAULTS_FILE, WRITES_FILE, Faults, Tamperer, tampered
from qm.drill.targets.tearing import tear, unsynced
from raft.log.disk import DiskDirectory, DiskFile

WAIT_S = 10.0


def wrong(folder: Path, faults: Faults) -> None:
    """As `Tampering` does: replaced, so that it is never read half written."""
    fresh = folder / "new"
    fresh.write_bytes(msgspec.json.encode(faults))
    fresh.replace(folder / FAULTS_FILE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wrong(tmp_path, Faults())
    return tmp_path


def directory(folder: Path) -> DiskDirectory:
    return tampered(Tamperer(folder))(folder / "data")


def opened(folder: Path) -> DiskFile:
    return directory(folder).open("a", create=True)


def test_what_no_sync_covers_is_at_stake(folder: Path) -> None:
    file = opened(folder)
    file.pwrite(b"x" * 100, 0)
    file.fdatasync()
    file.pwrite(b"y" * 10, 100)
    file.pwritev([b"z" * 5, b"z" * 6], 110)
    path = folder / "data" / "a"
    assert unsynced(folder / WRITES_FILE) == {path: [(100, 10), (110, 11)]}
    file.fdatasync()
    assert unsynced(folder / WRITES_FILE) == {}


def test_a_file_is_followed_to_its_new_name(folder: Path) -> None:
    data = directory(folder)
    data.open("old", create=True).pwrite(b"x", 7)
    data.rename("old", "new")
    assert unsynced(folder / WRITES_FILE) == {folder / "data" / "new": [(7, 1)]}


def test_a_cut_last_line_is_left_out(folder: Path) -> None:
    opened(folder).pwrite(b"x", 0)
    with (folder / WRITES_FILE).open("a") as ledger:
        ledger.write("W 2 1")
    assert list(unsynced(folder / WRITES_FILE).values()) == [[(0, 1)]]


@pytest.mark.parametrize("seed", range(20))
def test_only_unsynced_bytes_are_torn_and_by_whole_sectors(folder: Path, seed: int) -> None:
    file = opened(folder)
    file.pwrite(b"s" * 700, 0)
    file.fdatasync()
    file.pwrite(b"u" * 2000, 700)
    torn = tear(folder / WRITES_FILE, random.Random(seed))
    data = (folder / "data" / "a").read_bytes()
    assert data[:700] == b"s" * 700
    assert (len(data), torn.unsynced_bytes) == (2700, 2000)
    assert data[700:].count(0) == torn.lost_bytes
    for start in range(0, 2700, 512):
        assert len(set(data[max(700, start) : start + 512])) <= 1


def test_a_held_sync_waits_until_it_is_released(folder: Path) -> None:
    file = opened(folder)
    file.pwrite(b"x", 0)
    wrong(folder, Faults(holds_syncs=True))
    done = threading.Event()

    def sync() -> None:
        file.fdatasync()
        done.set()

    thread = threading.Thread(target=sync)
    thread.start()
    assert not done.wait(0.1)
    assert unsynced(folder / WRITES_FILE)
    wrong(folder, Faults())
    assert done.wait(WAIT_S)
    thread.join()
    assert not unsynced(folder / WRITES_FILE)


def test_subdirectories_are_tampered_with_as_well(folder: Path) -> None:
    directory(folder).subdirectory("blobs").open("b", create=True).pwrite(b"x", 0)
    assert unsynced(folder / WRITES_FILE) == {folder / "data" / "blobs" / "b": [(0, 1)]}
