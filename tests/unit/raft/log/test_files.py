"""The rules of `raft.log.files`, held by the real disk, the tests' own and the simulator's."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from raft.log.disk import BUFFERS_PER_CALL, DiskDirectory, ReadOnlyDirectory
from raft.log.files import Directory, FatalDiskError
from raft.log.segment import may_pass
from tests.sim.disk import SimDisk
from tests.unit.raft.log.faults import Disk, Loss, Stopped


def real(tmp_path: Path) -> Directory:
    return DiskDirectory(tmp_path / "folder")


def faulty(_: Path) -> Directory:
    return Disk().root


def simulated(_: Path) -> Directory:
    return SimDisk(Random(0), sector_bytes=512).directory()


@pytest.fixture(params=[real, faulty, simulated])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    make: Callable[[Path], Directory] = request.param
    return make(tmp_path)


class TestDirectory:
    def test_a_file_must_exist_or_be_created(self, directory: Directory) -> None:
        with pytest.raises(FileNotFoundError):
            directory.open("a")
        directory.open("a", create=True).close()
        directory.open("a").close()
        assert directory.names() == ["a"]

    def test_creating_again_keeps_the_bytes(self, directory: Directory) -> None:
        directory.open("a", create=True).pwrite(b"kept", 0)
        assert directory.open("a", create=True).pread(9, 0) == b"kept"

    def test_rename_replaces_and_keeps_files_open(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        directory.open("b", create=True).pwrite(b"old", 0)
        directory.rename("a", "b")
        file.pwrite(b"new", 0)
        assert directory.names() == ["b"]
        assert directory.open("b").pread(9, 0) == b"new"

    def test_what_is_not_there_cannot_be_renamed_or_removed(self, directory: Directory) -> None:
        with pytest.raises(FileNotFoundError):
            directory.rename("a", "b")
        with pytest.raises(FileNotFoundError):
            directory.unlink("a")

    def test_a_removed_file_stays_readable_while_open(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        file.pwrite(b"bytes", 0)
        directory.unlink("a")
        assert directory.names() == []
        assert file.pread(5, 0) == b"bytes"

    def test_names_are_sorted_and_name_files_only(self, directory: Directory) -> None:
        directory.subdirectory("folder")
        for name in ("c", "a", "b"):
            directory.open(name, create=True)
        assert directory.names() == ["a", "b", "c"]

    def test_a_subdirectory_is_one_folder_of_its_own(self, directory: Directory) -> None:
        directory.subdirectory("x").open("a", create=True).pwrite(b"1", 0)
        assert directory.subdirectory("x").open("a").pread(1, 0) == b"1"
        assert directory.names() == []

    def test_free_bytes_and_sync(self, directory: Directory) -> None:
        assert directory.free_bytes() > 0
        directory.sync()


class TestDirectoryTree:
    def test_folders_are_sorted_and_go_whole(self, tmp_path: Path) -> None:
        tree = DiskDirectory(tmp_path / "tree")
        for name in ("g-2", "g-1"):
            tree.subdirectory(name).subdirectory("below").open("a", create=True)
        tree.open("file", create=True)
        assert tree.folders() == ["g-1", "g-2"]
        tree.sync_tree("g-1")
        tree.remove_tree("g-1")
        assert tree.folders() == ["g-2"]
        with pytest.raises(FileNotFoundError):
            tree.remove_tree("g-1")

    def test_one_for_reading_refuses(self, tmp_path: Path) -> None:
        DiskDirectory(tmp_path / "tree").subdirectory("below")
        tree = ReadOnlyDirectory(tmp_path / "tree")
        assert tree.folders() == ["below"]
        for change in (tree.remove_tree, tree.sync_tree):
            with pytest.raises(OSError, match="Read-only"):
                change("below")


class TestFile:
    def test_reads_end_with_the_file(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        file.pwrite(b"0123456789", 0)
        assert file.pread(4, 2) == b"2345"
        assert file.pread(9, 8) == b"89"
        assert file.pread(9, 10) == b""
        assert file.pread(9, 99) == b""
        assert file.size() == 10

    def test_what_is_written_out_is_read_and_synced_as_before(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        file.pwrite(b"one", 0)
        file.write_out()
        file.pwrite(b"two", 2)
        file.write_out()
        file.fdatasync()
        assert file.pread(9, 0) == b"ontwo"

    def test_a_gap_reads_as_zeros(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        file.pwrite(memoryview(b"x"), 3)
        assert file.pread(9, 0) == b"\0\0\0x"

    @pytest.mark.parametrize("count", [0, 1, 3, BUFFERS_PER_CALL, 2 * BUFFERS_PER_CALL + 7])
    def test_pwritev_writes_the_concatenation(self, directory: Directory, count: int) -> None:
        file = directory.open("a", create=True)
        buffers = [bytes([n % 251]) * (n % 5) for n in range(count)]
        file.pwritev(buffers, 2)
        whole = b"".join(buffers)
        assert file.pread(len(whole), 2) == whole
        assert file.size() == (2 + len(whole) if whole else 0)

    def test_allocate_gives_zeros_and_keeps_bytes(self, directory: Directory) -> None:
        file = directory.open("a", create=True)
        file.pwrite(b"abc", 0)
        file.allocate(5000)
        assert file.size() == 5000
        assert file.pread(5000, 0) == b"abc" + bytes(4997)
        file.fdatasync()
        file.close()


def test_real_disk_takes_no_short_write_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal or a nearly full disk may cut a write, and a read, short."""
    pwrite, pwritev, pread = os.pwrite, os.pwritev, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [b"".join(parts)[:5]], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 4), at))
    file = DiskDirectory(tmp_path).open("a", create=True)
    file.pwritev([b"0123", b"456789"], 0)
    file.pwrite(b"abcdefg", 10)
    assert file.pread(99, 0) == b"0123456789abcdefg"


def test_real_disk_reports_a_failed_sync_as_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "delayed allocation failed")

    directory = DiskDirectory(tmp_path)
    file = directory.open("a", create=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "fsync", fail)
    for sync in (file.fdatasync, directory.sync):
        with pytest.raises(FatalDiskError) as caught:
            sync()
        assert caught.value.errno == errno.EIO


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_link_is_no_file_of_a_real_folder(tmp_path: Path) -> None:
    """Whoever copies a folder for a backup, or counts what it holds, follows no way out of it."""
    directory = DiskDirectory(tmp_path)
    directory.open("a", create=True).close()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "a")
    assert directory.names() == ["a"]


def test_a_real_folder_is_synced_without_a_further_descriptor(tmp_path: Path) -> None:
    """Too many open files must not end the process: what can wait waits, what was begun ends."""
    directory = DiskDirectory(tmp_path)
    directory.open("a", create=True).close()
    with no_descriptors():
        directory.rename("a", "b")
        directory.sync()
        fresh = DiskDirectory(tmp_path)
        with pytest.raises(OSError, match="Too many open files") as caught:
            fresh.unlink("b")
        assert may_pass(caught.value)
    assert directory.names() == ["b"]


def test_a_real_folder_that_was_replaced_is_synced_as_it_is_now(tmp_path: Path) -> None:
    """The names in the old one are nobody's."""
    directory = DiskDirectory(tmp_path / "folder")
    directory.open("a", create=True).close()
    (tmp_path / "folder").rename(tmp_path / "old")
    (tmp_path / "folder").mkdir()
    synced = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
        directory.sync()
    assert synced == [(tmp_path / "folder").stat().st_ino]


def test_a_real_folder_keeps_no_descriptor_when_it_is_let_go(tmp_path: Path) -> None:
    """Snapshots come and go."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        DiskDirectory(tmp_path).open("a", create=True).close()
    assert len(os.listdir("/proc/self/fd")) == before


def write(disk: Disk) -> Disk:
    """Two synced sectors of `a`, then an unsynced overwrite; and an unsynced name."""
    file = disk.root.open("a", create=True)
    file.pwrite(b"a" * 1024, 0)
    file.fdatasync()
    disk.root.sync()
    file.pwrite(b"b" * 1024, 0)
    disk.root.rename("a", "b")
    return disk


def found(disk: Disk, loss: Loss, seed: int) -> tuple[str, bytes]:
    root = disk.after_crash(loss, Random(seed)).root
    (name,) = root.names()
    return name, root.open(name).pread(4096, 0)


def test_faults_are_what_they_are_called() -> None:
    disk = write(Disk())
    assert found(disk, Loss.NOTHING_SURVIVES, 0) == ("a", b"a" * 1024)
    assert found(disk, Loss.EVERYTHING_SURVIVES, 0) == ("b", b"b" * 1024)
    torn = {found(disk, Loss.TORN, seed) for seed in range(200)}
    assert {name for name, _ in torn} == {"a", "b"}
    assert all(data == b"b" * data.count(b"b") + b"a" * data.count(b"a") for _, data in torn)
    assert len(torn) > 50
    reordered = {found(disk, Loss.REORDERED, seed)[1] for seed in range(50)}
    assert reordered == {x * 512 + y * 512 for x in (b"a", b"b") for y in (b"a", b"b")}


def test_faults_stop_at_every_boundary() -> None:
    count = write(Disk()).operations
    for stop_at in range(count):
        disk = Disk()
        disk.stop_at = stop_at
        with pytest.raises(Stopped):
            write(disk)
        assert disk.operations == stop_at


def test_a_full_disk_is_full() -> None:
    disk = Disk(capacity_bytes=1000)
    file = disk.root.open("a", create=True)
    with pytest.raises(OSError, match="no space") as caught:
        file.allocate(2000)
    assert caught.value.errno == errno.ENOSPC
    assert disk.root.free_bytes() == 0
    disk.root.unlink("a")
    assert disk.root.free_bytes() == 1000
