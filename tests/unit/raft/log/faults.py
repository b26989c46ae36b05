"""A disk in memory that loses, tears and reorders what was not synced, runs full and fails.

Each call that changes something is a boundary: `Disk.stop_at` raises `Stopped` before that one
takes effect, and everything after it as well, as if the power went. `Disk.after_crash` then says
what is found when it returns.
"""

import errno
from collections.abc import Sequence
from enum import Enum
from random import Random

from raft.log.files import Buffer, FatalDiskError

SECTOR_BYTES = 512


class Stopped(Exception):
    """The machine is off."""


class Loss(Enum):
    """What becomes of unsynced writes in a crash."""

    NOTHING_SURVIVES = 0
    EVERYTHING_SURVIVES = 1
    """The process died and the machine did not."""
    TORN = 2
    """Writes survive up to one that ends at some byte."""
    REORDERED = 3
    """Each sector has any of the contents it had since the last sync."""


class Inode:
    """The bytes of a file: as they are read now, and as they are on the platter."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.unsynced: list[tuple[int, bytes]] = []
        self.times: list[int] = []
        """When each of them was written."""
        self.is_unreadable = False

    def write(self, offset: int, data: bytes, time: int) -> None:
        """Change the bytes that are read."""
        self.unsynced.append((offset, data))
        self.times.append(time)
        overwrite(self.data, offset, data)

    def sync(self, missed: range) -> None:
        """Make durable what was written, but for what was written at the `missed` times."""
        durable = bytearray(self.durable)
        for time, (offset, data) in zip(self.times, self.unsynced, strict=True):
            if time not in missed:
                overwrite(durable, offset, data)
        self.durable = bytes(durable)
        kept = [at for at, time in enumerate(self.times) if time in missed]
        self.unsynced = [self.unsynced[at] for at in kept]
        self.times = [self.times[at] for at in kept]

    def after_crash(self, loss: Loss, random: Random) -> bytes:
        """Return what is found."""
        if loss is Loss.EVERYTHING_SURVIVES:
            return bytes(self.data)
        found = bytearray(self.durable)
        if loss is Loss.TORN and self.unsynced:
            kept = random.randrange(len(self.unsynced))
            for offset, data in self.unsynced[:kept]:
                overwrite(found, offset, data)
            offset, data = self.unsynced[kept]
            overwrite(found, offset, data[: random.randint(0, len(data))])
        if loss is Loss.REORDERED:
            self._reorder(found, random)
        return bytes(found)

    def _reorder(self, found: bytearray, random: Random) -> None:
        versions: dict[int, list[tuple[int, bytes]]] = {}
        for offset, data in self.unsynced:
            at = offset
            while at < offset + len(data):
                sector = at // SECTOR_BYTES
                end = min((sector + 1) * SECTOR_BYTES, offset + len(data))
                versions.setdefault(sector, []).append((at, data[at - offset : end - offset]))
                at = end
        for pieces in versions.values():
            for offset, data in pieces[: random.randint(0, len(pieces))]:
                overwrite(found, offset, data)


def overwrite(target: bytearray, offset: int, data: bytes) -> None:
    """Write into a bytearray, with zeros in a gap after its end."""
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


class Disk:
    """What all files and folders of one machine share."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.operations = 0
        self.stop_at: int | None = None
        self.capacity_bytes = capacity_bytes
        self.write_budget_bytes: int | None = None
        """Writes that exceed it fail with ENOSPC, half done: a disk without preallocation."""
        self.fails_to_sync = False
        self.fails_to_read = False
        self.syncs = 0
        self.write_outs = 0
        self.missed = range(0)
        """Operations that went on while a sync ran in the background: it does not cover them."""
        self.root = FaultyDirectory(self)

    def step(self) -> None:
        """Pass a boundary, or stop before it."""
        if self.stop_at is not None and self.operations >= self.stop_at:
            raise Stopped
        self.operations += 1

    def used_bytes(self) -> int:
        """Return the sum of all files' sizes."""
        return self.root.used_bytes()

    def after_crash(self, loss: Loss, random: Random) -> "Disk":
        """Return the disk as it is found when the machine is on again."""
        disk = Disk(self.capacity_bytes)
        self.root.copy_after_crash(disk.root, loss, random)
        return disk


class FaultyFile:
    """Implements `raft.log.files.File`."""

    def __init__(self, disk: Disk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.is_closed = False

    def pread(self, length: int, offset: int) -> bytes:
        """See `File.pread`."""
        self._check_open()
        if self._disk.fails_to_read or self._inode.is_unreadable:
            raise OSError(errno.EIO, "the sector cannot be read")
        return bytes(self._inode.data[offset : offset + length])

    def pwrite(self, data: Buffer, offset: int) -> None:
        """See `File.pwrite`."""
        self._check_open()
        if not data:
            return
        self._disk.step()
        budget = self._disk.write_budget_bytes
        if budget is not None:
            self._disk.write_budget_bytes = max(0, budget - len(data))
            if len(data) > budget:
                self._inode.write(offset, bytes(data[:budget]), self._disk.operations)
                raise OSError(errno.ENOSPC, "no space for these bytes")
        growth = max(0, offset + len(data) - len(self._inode.data))
        if self._disk.used_bytes() + growth > self._disk.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space for a longer file")
        self._inode.write(offset, bytes(data), self._disk.operations)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """See `File.pwritev`."""
        self.pwrite(b"".join(buffers), offset)

    def write_out(self) -> None:
        """See `File.write_out`: any subset of the writes may survive anyway."""
        self._check_open()
        self._disk.write_outs += 1

    def fdatasync(self) -> None:
        """See `File.fdatasync`."""
        self._check_open()
        self._disk.step()
        if self._disk.fails_to_sync:
            raise FatalDiskError("the disk does not take it")
        self._disk.syncs += 1
        self._inode.sync(self._disk.missed)

    def allocate(self, length: int) -> None:
        """See `File.allocate`. A full disk leaves a part of it behind."""
        self._check_open()
        self._disk.step()
        missing = length - len(self._inode.data)
        room = self._disk.capacity_bytes - self._disk.used_bytes()
        zeros = bytes(max(0, min(missing, room)))
        self._inode.write(len(self._inode.data), zeros, self._disk.operations)
        if missing > room:
            raise OSError(errno.ENOSPC, "no space to allocate")

    def size(self) -> int:
        """See `File.size`."""
        return len(self._inode.data)

    def close(self) -> None:
        """See `File.close`."""
        self.is_closed = True

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError("the file is closed")


class FaultyDirectory:
    """Implements `raft.log.files.Directory`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names: dict[str, Inode] = {}
        self._history: list[tuple[int, dict[str, Inode]]] = [(0, {})]
        """The names after each change since the last sync and when, the durable ones first."""
        self._folders: dict[str, FaultyDirectory] = {}

    def open(self, name: str, *, create: bool = False) -> FaultyFile:
        """See `Directory.open`."""
        if name not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            self._disk.step()
            self._names[name] = Inode()
            self._note_change()
        return FaultyFile(self._disk, self._names[name])

    def names(self) -> list[str]:
        """See `Directory.names`."""
        return sorted(self._names)

    def rename(self, old: str, new: str) -> None:
        """See `Directory.rename`."""
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._disk.step()
        self._names[new] = self._names.pop(old)
        self._note_change()

    def unlink(self, name: str) -> None:
        """See `Directory.unlink`."""
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self._disk.step()
        del self._names[name]
        self._note_change()

    def subdirectory(self, name: str) -> "FaultyDirectory":
        """See `Directory.subdirectory`."""
        return self._folders.setdefault(name, FaultyDirectory(self._disk))

    def sync(self) -> None:
        """See `Directory.sync`."""
        self._disk.step()
        if self._disk.fails_to_sync:
            raise FatalDiskError("the disk does not take it")
        while len(self._history) > 1 and self._history[1][0] not in self._disk.missed:
            del self._history[0]

    def close(self) -> None:
        """Nothing is kept open."""

    def free_bytes(self) -> int:
        """See `Directory.free_bytes`."""
        return self._disk.capacity_bytes - self._disk.used_bytes()

    def used_bytes(self) -> int:
        """Return the sum of all files' sizes, here and below."""
        own = sum(len(inode.data) for inode in self._names.values())
        return own + sum(folder.used_bytes() for folder in self._folders.values())

    def make_unreadable(self, name: str) -> None:
        """Have the sectors of a file fail to be read."""
        self._names[name].is_unreadable = True

    def bytes_of(self, name: str) -> bytearray:
        """Return a file's bytes as they are read, to look at or to damage."""
        return self._names[name].data

    def copy_after_crash(self, target: "FaultyDirectory", loss: Loss, random: Random) -> None:
        """Fill an empty folder with what a crash leaves of this one."""
        kept = {
            Loss.NOTHING_SURVIVES: 0,
            Loss.EVERYTHING_SURVIVES: len(self._history) - 1,
        }.get(loss, random.randrange(len(self._history)))
        for name, inode in self._history[kept][1].items():
            target._names[name] = Inode(inode.after_crash(loss, random))
        target._history = [(0, dict(target._names))]
        for name, folder in self._folders.items():
            folder.copy_after_crash(target.subdirectory(name), loss, random)

    def _note_change(self) -> None:
        self._history.append((self._disk.operations, dict(self._names)))
