"""A machine's disk: real files on tmpfs, and what of them no sync has covered.

Each write notes what it replaced; `fdatasync` forgets the notes of its file. A power loss undoes,
last first, what luck does not keep: nothing, everything, a prefix of each file torn at a sector, or
for each sector some version that it had. Names likewise, by prefix of each folder's changes; what
was unlinked is kept for that. A sync that failed moves its notes to what the next death of any kind
takes: readable until then, as the page cache of Linux has it. A second sync of that file is a
finding of its own.

A process lives in a folder of its own (`life3`); the next life's is made of what survived.
RocksDB opens its files itself: what a death leaves of them is what MANIFEST names, for memtables
have no WAL here.
"""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from raft.log.disk import DiskDirectory, DiskFile
from raft.log.files import Buffer, FatalDiskError
from tests.sim.nodes.world import ProcessDied, World, end_process

SECTOR_BYTES: Final = 512
ROOM_BYTES: Final = 1 << 36
"""Of a disk that never fills."""
STATE_FOLDER: Final = "state"
KEPT_FOLDER: Final = "unlinked"
COPY_FOLDER: Final = "copy"
FIRST_GENERATION: Final = "g-00000001"


class Inode:
    """Of a file: the writes that no sync has covered."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._fd = os.dup(descriptor)
        self.writes: list[tuple[int, bytes, int, int]] = []
        """(offset, bytes that were there, size of the file then, length of the write)."""

    def note(self, offset: int, length: int) -> None:
        """A write is about to be made."""
        size = os.fstat(self._fd).st_size
        self.writes.append((offset, os.pread(self._fd, length, offset), size, length))

    def undo(self, keep: int, torn_at: int = 0) -> int:
        """Take back all writes but the first `keep`, and so many bytes of the next."""
        for number in range(len(self.writes) - 1, keep - 1, -1):
            offset, before, size, length = self.writes[number]
            skip = min(torn_at, length) if number == keep else 0
            os.pwrite(self._fd, before[skip:], offset + skip)
            if offset + length > size:
                os.ftruncate(self._fd, max(size, offset + skip if skip else 0))
        return len(self.writes) - keep

    def undo_sectors(self, version: Callable[[int], int]) -> int:
        """Give every sector what it had after so many of the writes."""
        versions: dict[int, int] = {}
        for number in range(len(self.writes) - 1, -1, -1):
            offset, before, _, length = self.writes[number]
            low = offset
            while low < offset + length:
                sector = low // SECTOR_BYTES
                high = min(offset + length, (sector + 1) * SECTOR_BYTES)
                kept = versions.get(sector)
                if kept is None:
                    kept = versions[sector] = version(len(self.writes))
                if number >= kept:
                    part = before[low - offset : high - offset]
                    os.pwrite(self._fd, part.ljust(high - low, b"\0"), low)
                low = high
        return len(self.writes)

    def close(self) -> None:
        """Nothing is to be undone any more."""
        os.close(self._fd)


class Disk:
    """Outlives processes; `life` is the one that may touch it."""

    def __init__(self, world: World, name: str, base: Path) -> None:
        self.world = world
        self.name = name
        self.base = base
        self.life = 0
        self.free_bytes = ROOM_BYTES
        self.dies_in = 0
        """Boundaries until the process dies in one; 0: it does not."""
        self.is_gone = False
        """The process of this life has died and was not taken away yet."""
        self.failing: list[str] = []
        """Parts of names: the next sync of such a file fails, once for each."""
        self.refusing: list[str] = []
        """Parts of names: such files have no space, whatever the others have."""
        self.refused: dict[str, int] = {}
        """Errors of files that the product opens itself, by class (`foreign`)."""
        self.findings: list[str] = []
        """What no process may do to a disk."""
        self.syncs = 0
        self.log_durable = 0
        """Index up to which the log is durable here, as far as was seen, or was on a lost disk."""
        self.on_space: Callable[[], None] = lambda: None
        """Called when the free space changed."""
        self._chance = world.chance(f"disk of {name}")
        self._inodes: dict[int, Inode] = {}
        self._names: list[tuple[Path, Callable[[], None]]] = []
        """(folder below `data`, what undoes the change of a name in it), by age."""
        self._failed: set[int] = set()
        """Inodes that a sync failed on."""
        self._kept = 0
        self._copied_index = 0
        """`log_durable` when the copy was taken."""
        self._synced_trees = {FIRST_GENERATION}
        """Generations that are durable; RocksDB and its own syncs made the first one."""
        for folder in (base, base / KEPT_FOLDER, self.data):
            folder.mkdir()

    @property
    def data(self) -> Path:
        """The data folder of the present life."""
        return self.base / f"life{self.life}"

    # What a process does to it -----------------------------------------------------------------

    def gate(self, life: int, what: str) -> None:
        """Pass a place at which the process may die."""
        if life != self.life or self.is_gone:
            raise ProcessDied("a dead process touched its disk")
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                self.is_gone = True
                end_process(self.world, f"armed: died at {what}")

    def inode(self, descriptor: int, name: str) -> Inode:
        """Return the notes of an open file."""
        number = os.fstat(descriptor).st_ino
        found = self._inodes.get(number)
        if found is None:
            found = self._inodes[number] = Inode(descriptor, name)
        return found

    def take(self, name: str, growth: int) -> int:
        """Return how many of so many bytes of a file the disk can still hold, and take them."""
        if growth > 0 and any(part in name for part in self.refusing):
            return 0
        if self.free_bytes == ROOM_BYTES or growth <= 0:
            return max(growth, 0)
        taken = min(growth, self.free_bytes)
        self.free_bytes -= taken
        self.on_space()
        return taken

    def give_back(self, size: int) -> None:
        """So many bytes are free again."""
        if self.free_bytes != ROOM_BYTES:
            self.free_bytes += size
            self.on_space()

    def fill(self, free_bytes: int) -> None:
        """Leave so much."""
        self.free_bytes = free_bytes
        self.on_space()

    def synced(self, descriptor: int, name: str) -> None:
        """A file's writes are durable. Raises FatalDiskError if that was to fail."""
        number = os.fstat(descriptor).st_ino
        self.syncs += 1
        for part in self.failing:
            if part in name:
                self.failing.remove(part)
                self._failed.add(number)
                self.inode(descriptor, name)
                self.world.say("eio", self.name, name)
                raise FatalDiskError(f"{name} cannot be synced: EIO (simulated)")
        if number in self._failed:
            self.findings.append(
                f"{self.name}: {name} is synced again after a sync of it failed:"
                " what that lost is taken for durable"
            )
            return
        found = self._inodes.pop(number, None)
        if found is not None:
            found.close()

    def renamed(self, folder: Path, undo: Callable[[], None]) -> None:
        """A name in a folder changed."""
        self._names.append((folder.relative_to(self.data), undo))

    def keep(self, path: Path) -> Path:
        """Return another name of a file or a folder that is about to be removed."""
        self._kept += 1
        return self.base / KEPT_FOLDER / f"{self._kept}-{path.name}"

    def tree_synced(self, folder: Path) -> None:
        """All that is in a folder is durable. Raises FatalDiskError if that was to fail."""
        for part in self.failing:
            if part in folder.name:
                self.failing.remove(part)
                self.world.say("eio", self.name, folder.name)
                raise FatalDiskError(f"{folder.name} cannot be synced: EIO (simulated)")
        self._synced_trees.add(folder.name)

    def names_synced(self, folder: Path) -> None:
        """The names in a folder are durable."""
        below = folder.relative_to(self.data)
        self._names = [change for change in self._names if change[0] != below]

    # Death -------------------------------------------------------------------------------------

    def crash(self, *, power: bool) -> int:
        """Make the next life's folder of what survives; return how many writes were lost."""
        lost = 0
        if power or self._failed:
            lost = self._lose(is_partial=not power)
        old, self.life = self.data, self.life + 1
        self.dies_in = 0
        self.is_gone = False
        self.data.mkdir()
        for each in sorted(old.iterdir()):
            if each.name != "store":
                each.rename(self.data / each.name)
        if (old / "store").exists():
            _copy_store(old / "store", self.data / "store", _move)
        return lost

    def copy(self) -> None:
        """Take a copy of everything, as a snapshot of the volume."""
        target = self.base / COPY_FOLDER
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for each in sorted(self.data.iterdir()):
            if each.name != "store":
                _copy(each, target / each.name)
        if (self.data / "store").exists():
            _copy_store(self.data / "store", target / "store", _copy)
        self._copied_index = self.log_durable

    @property
    def has_copy(self) -> bool:
        """Whether there is a copy that the disk was not set back to yet."""
        return (self.base / COPY_FOLDER).exists()

    def set_back(self) -> None:
        """Put the copy in the place of everything, between two lives."""
        self._drop_notes()
        self.log_durable = self._copied_index
        self.data.rename(self.keep(self.data))
        (self.base / COPY_FOLDER).rename(self.data)

    def replace(self) -> None:
        """Put an empty disk in the place of this one, between two lives."""
        self._failed.clear()
        self._drop_notes()
        self._synced_trees = {FIRST_GENERATION}
        self.life += 1
        self.data.mkdir()

    def _drop_notes(self) -> None:
        for inode in self._inodes.values():
            inode.close()
        self._inodes.clear()
        self._names.clear()

    def _lose(self, *, is_partial: bool) -> int:
        """Undo. `is_partial`: only the files that a sync failed on, all of it."""
        mode = self._chance.randrange(4)
        lost = 0
        for number, inode in list(self._inodes.items()):
            if is_partial and number not in self._failed:
                continue
            lost += self._undo(inode, 0 if number in self._failed else mode)
            inode.close()
            del self._inodes[number]
        self._failed.clear()
        if not is_partial:
            self._undo_names(mode)
            lost += self._tear_trees()
        return lost

    def _tear_trees(self) -> int:
        """Generations that no sync has covered lose what luck says; return how many did."""
        lost = 0
        for tree in sorted((self.data / "store").glob("g-*")):
            if tree.name in self._synced_trees or self._chance.random() < 0.25:
                continue
            lost += 1
            for file in sorted(each for each in tree.rglob("*") if each.is_file()):
                size = file.stat().st_size
                os.truncate(file, self._chance.choice((0, size, size // 2)))
        return lost

    def _undo(self, inode: Inode, mode: int) -> int:
        count = len(inode.writes)
        if mode == 0:
            return inode.undo(0)
        if mode == 1:
            return 0
        if mode == 3:
            return inode.undo_sectors(lambda high: self._chance.randint(0, high))
        keep = self._chance.randint(0, count)
        torn_at = 0
        if keep < count:
            torn_at = SECTOR_BYTES * self._chance.randint(0, inode.writes[keep][3] // SECTOR_BYTES)
        return inode.undo(keep, torn_at)

    def _undo_names(self, mode: int) -> None:
        counts: dict[Path, int] = {}
        for folder, _ in self._names:
            counts[folder] = counts.get(folder, 0) + 1
        kept = {
            folder: 0 if mode == 0 else count if mode == 1 else self._chance.randint(0, count)
            for folder, count in counts.items()
        }
        for folder, undo in reversed(self._names):
            counts[folder] -= 1
            # A folder that was removed durably has no names.
            if counts[folder] >= kept[folder] and (self.data / folder).is_dir():
                undo()
        self._names.clear()


def _move(old: Path, new: Path) -> None:
    old.rename(new)


def _copy(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.copytree(old, new)
    else:
        shutil.copyfile(old, new)


def _copy_store(old: Path, new: Path, take: Callable[[Path, Path], None]) -> None:
    """Make what a crash leaves of a store: RocksDB's files are never opened in two lives under
    one path, since an old object flushes when it is freed.
    """
    new.mkdir()
    for each in sorted(old.iterdir()):
        if not each.is_dir() or each.name == "pinned":
            if each.is_file():
                take(each, new / each.name)
            continue
        (new / each.name).mkdir()
        for part in sorted(each.iterdir()):
            if part.name == STATE_FOLDER:
                _copy_database(part, new / each.name / STATE_FOLDER)
            else:
                take(part, new / each.name / part.name)


def _copy_database(old: Path, new: Path) -> None:
    new.mkdir()
    for file in sorted(old.iterdir()):
        if file.suffix == ".sst":
            (new / file.name).hardlink_to(file)
        elif file.name != "LOCK" and not file.name.startswith("LOG"):
            shutil.copyfile(file, new / file.name)


class SimFile(DiskFile):
    """An open file. Implements `raft.log.files.File`."""

    def __init__(self, disk: Disk, path: Path, flags: int) -> None:
        super().__init__(path, flags)
        self._disk = disk
        self._life = disk.life

    def pread(self, length: int, offset: int) -> bytes:
        if self._life != self._disk.life:
            raise ProcessDied("a dead process touched its disk")
        return super().pread(length, offset)

    def pwrite(self, data: Buffer, offset: int) -> None:
        self.pwritev((data,), offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        disk, name = self._disk, self._path.name
        disk.gate(self._life, f"a write to {name}")
        data = b"".join(buffers)
        disk.world.mark("write", disk.name, name, offset, len(data))
        growth = offset + len(data) - self.size()
        fits = len(data) - max(growth, 0) + disk.take(name, growth)
        if fits > 0:
            disk.inode(self._fd, name).note(offset, fits)
            super().pwrite(data[:fits], offset)
        if fits < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def write_out(self) -> None:
        """Luck decides anyway what a power loss keeps."""

    def allocate(self, length: int) -> None:
        disk, name, growth = self._disk, self._path.name, length - self.size()
        disk.gate(self._life, f"an allocation of {name}")
        if growth > 0:
            taken = disk.take(name, growth)
            if taken < growth:
                disk.give_back(taken)
                raise OSError(errno.ENOSPC, "No space left on device")
            disk.inode(self._fd, name).note(length - growth, growth)
        super().allocate(length)

    def fdatasync(self) -> None:
        self._disk.gate(self._life, f"a sync of {self._path.name}")
        self._disk.synced(self._fd, self._path.name)


class SimDirectory(DiskDirectory):
    """A folder. Implements `raft.log.files.Directory`."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._life = disk.life
        if not path.is_dir():
            disk.gate(self._life, "a new folder")
        super().__init__(path)
        self.path: Final = path

    def open(self, name: str, *, create: bool = False) -> SimFile:
        self._gate(f"the opening of {name}")
        path = self._path / name
        is_new = create and not path.exists()
        file = SimFile(self._disk, path, os.O_RDWR | (os.O_CREAT if create else 0))
        if is_new:
            present = self._present(name)
            self._disk.renamed(self._path, lambda: present().unlink(missing_ok=True))
        return file

    def rename(self, old: str, new: str) -> None:
        self._gate(f"the renaming of {old}")
        target = self._path / new
        kept = self._disk.keep(target) if target.exists() else None
        if kept is not None:
            kept.hardlink_to(target)
        super().rename(old, new)
        before, after = self._present(old), self._present(new)

        def undo() -> None:
            after().rename(before())
            if kept is not None:
                kept.rename(after())

        self._disk.renamed(self._path, undo)

    def unlink(self, name: str) -> None:
        self._gate(f"the removal of {name}")
        path = self._path / name
        size = path.stat().st_size
        kept = self._disk.keep(path)
        path.rename(kept)
        if kept.stat().st_nlink == 1:
            self._disk.give_back(size)
        present = self._present(name)
        self._disk.renamed(self._path, lambda: void(kept.rename(present())))

    def _present(self, name: str) -> Callable[[], Path]:
        """Return where a name is in whichever life."""
        disk, below = self._disk, self._path.relative_to(self._disk.data) / name
        return lambda: disk.data / below

    def subdirectory(self, name: str) -> "SimDirectory":
        return SimDirectory(self._disk, self._path / name)

    def remove_tree(self, name: str) -> None:
        self._gate(f"the removal of {name}")
        kept = self._disk.keep(self._path / name)
        (self._path / name).rename(kept)
        present = self._present(name)

        def undo() -> None:
            if present().exists():
                # A folder of this name was made since, and its name is not durable either.
                present().rename(self._disk.keep(present()))
            kept.rename(present())

        self._disk.renamed(self._path, undo)

    def sync_tree(self, name: str) -> None:
        self._gate(f"a sync of {name}")
        self._disk.tree_synced(self._path / name)

    def sync(self) -> None:
        self._gate("a sync of names")
        self._disk.names_synced(self._path)

    def free_bytes(self) -> int:
        return self._disk.free_bytes

    def _gate(self, what: str) -> None:
        self._disk.gate(self._life, what)


def void(_: object) -> None:
    """Take a result that nobody wants."""
