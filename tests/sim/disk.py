"""A disk that behaves as badly as POSIX allows, behind the interfaces of `raft.log.files`.

What a process reads is the page cache: every write is visible at once. What a power cut leaves
is another matter:

- A write survives by `fdatasync` of its file, or by luck, sector by sector. A sector holds one
  of the versions it had since the last sync, never a mixture: drives write sectors whole.
- A name (creation, rename, removal) survives by `sync` of its folder, or by luck; the names of
  one folder survive in the order in which they were made (journalling file systems).
- `kill -9` loses nothing of the cache, and makes nothing of it durable either. The next process
  reads bytes that a power cut may still take.
- A background `fdatasync` covers the writes that were issued before it began, no later ones.
- A failed `fdatasync` leaves its writes undecided for ever; the process ends, and the machine is
  started again from what the platter holds.

A process may be made to die at any of these boundaries: before or after each call, or with a
write half done.
"""

import copy
import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from raft.log.files import Buffer, FatalDiskError

CAPACITY_BYTES = 1 << 40
"""Of a disk that never fills."""


EARLY_SECTORS = 8
"""Half of all torn writes are torn among the first so many."""


class ProcessDied(BaseException):
    """The simulated process ends at this instruction. Not an Exception: product code that
    catches everything must not catch its own death.
    """


@dataclass(slots=True)
class Inode:
    """Contents of a file: the page cache, the platter, and the writes in between."""

    cached: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(disk sequence, offset, bytes); an extension is a write of zeros."""
    named_at: int = 0
    """Disk sequence of its present name."""


@dataclass(slots=True)
class Folder:
    """Names in the cache, names on the platter, and the operations in between."""

    path: str
    cached: "dict[str, Inode | Folder]" = field(default_factory=dict)
    synced: "dict[str, Inode | Folder]" = field(default_factory=dict)
    pending: list[tuple[int, str, str, "Inode | Folder | None"]] = field(default_factory=list)
    """(disk sequence, name, old name of a rename or "", what the name stands for)."""


class SimDisk:
    """The disk of one machine; it outlives processes."""

    def __init__(self, chance: random.Random, sector_bytes: int) -> None:
        self.chance = chance
        self.sector_bytes = sector_bytes
        self.capacity_bytes = CAPACITY_BYTES
        self.sequence = 0
        """Counts writes and name changes."""
        self.boundaries = 0
        """Counts the places at which the process might die."""
        self.dies_in = 0
        """Boundaries left until the process dies; 0: it does not."""
        self.fails_sync = False
        """The next fdatasync reports an I/O error."""
        self.uncovered = (0, 0)
        """During a background sync: writes above the first number and up to the second were
        issued while it ran, so that it need not cover them."""
        self.life = 0
        """Number of the process that owns the open files."""
        self.root = Folder("")

    def directory(self) -> "SimDirectory":
        """Return the top folder for the process that starts now."""
        self.life += 1
        self.dies_in = 0
        self.fails_sync = False
        return SimDirectory(self, self.root, self.life)

    # Faults

    def boundary(self, life: int) -> bool:
        """Pass a place at which the process may die; return True when it dies here."""
        if life != self.life:
            raise ProcessDied("a dead process touched its disk")
        self.boundaries += 1
        if not self.dies_in:
            return False
        self.dies_in -= 1
        return self.dies_in == 0

    def end_process(self) -> None:
        """Kill -9: open files become unusable, the cache stays."""
        self.life += 1

    def lose_power(self, *, in_last_write: bool = False) -> None:
        """Drop the cache; what was not synced survives in part, as the module says.

        `in_last_write`: all of it, but for each file's last write, which is torn.
        """
        self.life += 1
        mode = 4 if in_last_write else self.chance.randrange(4)
        self._fold_folder(self.root, mode)

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.life += 1
        self.root = Folder("")

    def copy(self) -> Folder:
        """Return a copy of everything, as a snapshot of the volume."""
        return copy.deepcopy(self.root)

    def set_back(self, root: Folder) -> None:
        """Replace the disk by a copy that was taken earlier."""
        self.life += 1
        self.root = root
        self._fold_folder(root, 1)

    def flip_bit(self, inode: Inode, offset: int) -> None:
        """Flip one bit of a byte, on the platter and in the cache."""
        mask = 1 << self.chance.randrange(8)
        inode.cached[offset] ^= mask
        if offset < len(inode.synced):
            inode.synced[offset] ^= mask

    def _fold_folder(self, folder: Folder, mode: int) -> None:
        survivors = self._survivors(len(folder.pending), 1 if mode == 4 else mode)
        for sequence, name, old, node in folder.pending[:survivors]:
            del sequence
            apply_name(folder.synced, name, old, node)
        folder.pending.clear()
        folder.cached = dict(folder.synced)
        for name in sorted(folder.cached):
            node = folder.cached[name]
            if isinstance(node, Folder):
                self._fold_folder(node, mode)
            else:
                self._fold_inode(node, mode)

    def _survivors(self, count: int, mode: int) -> int:
        """Return how many operations survive: none, all, or some first ones."""
        if mode == 0 or not count:
            return 0
        if mode == 4:
            return count - 1
        return count if mode == 1 else self.chance.randint(0, count)

    def _fold_inode(self, inode: Inode, mode: int) -> None:
        if inode.pending:
            if mode == 3:
                self._fold_scattered(inode)
            else:
                self._fold_prefix(inode, self._survivors(len(inode.pending), mode))
            inode.pending.clear()
        inode.cached = bytearray(inode.synced)

    def _fold_prefix(self, inode: Inode, survivors: int) -> None:
        """The first writes survive; the one behind them is torn at a sector."""
        for _, offset, data in inode.pending[:survivors]:
            put(inode.synced, offset, data)
        if survivors < len(inode.pending):
            _, offset, data = inode.pending[survivors]
            first = -offset % self.sector_bytes
            cuts = range(first, len(data), self.sector_bytes)
            if self.chance.random() < 0.5:
                cuts = cuts[:EARLY_SECTORS]  # what governs the entries after it is written first
            kept = self.chance.choice(cuts) if cuts else 0
            if kept:
                put(inode.synced, offset, data[:kept])

    def _fold_scattered(self, inode: Inode) -> None:
        """Every sector holds some version that it had since the last sync."""
        size = self.sector_bytes
        count = len(inode.pending)
        versions: dict[int, int] = {}
        for number, (_, offset, data) in enumerate(inode.pending):
            for sector in range(offset // size, (offset + len(data) + size - 1) // size):
                cut = versions.get(sector)
                if cut is None:
                    cut = versions[sector] = self.chance.randint(0, count)
                if number < cut:
                    low = max(offset, sector * size)
                    high = min(offset + len(data), (sector + 1) * size)
                    put(inode.synced, low, data[low - offset : high - offset])

    # What a checker may know

    def durable_sequence(self, suffix: str, folder: Folder | None = None) -> int:
        """Return the last sequence number up to which everything in files whose names end so
        would survive any power cut, and so would those names.
        """
        folder = self.root if folder is None else folder
        low = self.sequence + 1
        for sequence, name, _, node in folder.pending:
            if node is not None and sequence < low and name.endswith(suffix):
                low = sequence
        for name, node in folder.cached.items():
            if isinstance(node, Folder):
                low = min(low, self.durable_sequence(suffix, node) + 1)
            elif node.pending and name.endswith(suffix):
                # What was written under another name is nothing that this name promised.
                low = min(low, max(node.pending[0][0], node.named_at))
        return low - 1

    def files(self, suffix: str, folder: Folder | None = None) -> "list[tuple[str, Inode]]":
        """Return (name, file) of every file whose name ends so, by folder and name."""
        found: list[tuple[str, Inode]] = []
        names = (self.root if folder is None else folder).cached
        for name in sorted(names):
            node = names[name]
            if isinstance(node, Folder):
                found += self.files(suffix, node)
            elif name.endswith(suffix):
                found.append((name, node))
        return found

    def used_bytes(self, folder: Folder | None = None) -> int:
        """Return the sum of the lengths of the files."""
        nodes = (self.root if folder is None else folder).cached.values()
        return sum(
            self.used_bytes(node) if isinstance(node, Folder) else len(node.cached)
            for node in nodes
        )

    def fill(self, free_bytes: int) -> None:
        """Limit the remaining space to this."""
        self.capacity_bytes = self.used_bytes() + free_bytes

    def make_room(self) -> None:
        """The disk does not fill any more."""
        self.capacity_bytes = CAPACITY_BYTES

    def room(self, growth: int) -> int:
        """Return how much of `growth` the disk can still hold."""
        if self.capacity_bytes == CAPACITY_BYTES:
            return growth
        return max(0, min(growth, self.capacity_bytes - self.used_bytes()))


class SimDirectory:
    """`raft.log.files.Directory` on a simulated disk."""

    def __init__(self, disk: SimDisk, folder: Folder, life: int) -> None:
        self.disk = disk
        self.folder = folder
        self.life = life

    def open(self, name: str, *, create: bool = False) -> "SimFile":
        if self.life != self.disk.life:
            raise ProcessDied("a dead process touched its disk")
        node = self.folder.cached.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", name)
            node = Inode()
            self._change(name, "", node)
        assert isinstance(node, Inode)
        return SimFile(self.disk, node, self.life)

    def names(self) -> list[str]:
        cached = self.folder.cached
        return sorted(name for name, node in cached.items() if isinstance(node, Inode))

    def rename(self, old: str, new: str) -> None:
        if old not in self.folder.cached:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._change(new, old, self.folder.cached[old])

    def unlink(self, name: str) -> None:
        if name not in self.folder.cached:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self._change(name, "", None)

    def subdirectory(self, name: str) -> "SimDirectory":
        node = self.folder.cached.get(name)
        if node is None:
            node = Folder(f"{self.folder.path}/{name}")
            self._change(name, "", node)
            self.sync()
        assert isinstance(node, Folder)
        return SimDirectory(self.disk, node, self.life)

    def sync(self) -> None:
        dies = self.disk.boundary(self.life)
        if dies and self.disk.chance.random() < 0.5:
            raise ProcessDied("before the sync of a folder")
        self.folder.synced = dict(self.folder.cached)
        self.folder.pending.clear()
        if dies:
            raise ProcessDied("after the sync of a folder")

    def close(self) -> None:
        """Nothing is kept open."""

    def free_bytes(self) -> int:
        return max(0, self.disk.capacity_bytes - self.disk.used_bytes())

    def _change(self, name: str, old: str, node: Inode | Folder | None) -> None:
        dies = self.disk.boundary(self.life)
        if dies and self.disk.chance.random() < 0.5:
            raise ProcessDied("before a change of names")
        self.disk.sequence += 1
        apply_name(self.folder.cached, name, old, node)
        if isinstance(node, Inode):
            node.named_at = self.disk.sequence
        self.folder.pending.append((self.disk.sequence, name, old, node))
        if dies:
            raise ProcessDied("after a change of names")


class SimFile:
    """`raft.log.files.File` on a simulated disk."""

    __slots__ = ("disk", "inode", "life")

    def __init__(self, disk: SimDisk, inode: Inode, life: int) -> None:
        self.disk = disk
        self.inode = inode
        self.life = life

    def pread(self, length: int, offset: int) -> bytes:
        if self.life != self.disk.life:
            raise ProcessDied("a dead process touched its disk")
        return bytes(self.inode.cached[offset : offset + length])

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def pwrite(self, data: Buffer, offset: int) -> None:
        dies = self.disk.boundary(self.life)
        raw = bytes(data)
        if dies:
            raw = raw[: self.disk.chance.randint(0, len(raw))]
        growth = offset + len(raw) - len(self.inode.cached)
        if growth > 0 and (room := self.disk.room(growth)) < growth:
            self._write(raw[: max(0, len(raw) - growth + room)], offset)
            raise OSError(errno.ENOSPC, "no space left on device")
        self._write(raw, offset)
        if dies:
            raise ProcessDied("in a write")

    def _write(self, raw: bytes, offset: int) -> None:
        if raw:
            self.disk.sequence += 1
            put(self.inode.cached, offset, raw)
            self.inode.pending.append((self.disk.sequence, offset, raw))

    def write_out(self) -> None:
        """Do nothing: a crash keeps any of the pending writes anyway."""

    def fdatasync(self) -> None:
        dies = self.disk.boundary(self.life)
        if dies and self.disk.chance.random() < 0.5:
            raise ProcessDied("before an fdatasync")
        if self.disk.fails_sync:
            raise FatalDiskError("input/output error of an fdatasync")
        pending = self.inode.pending
        low, high = self.disk.uncovered
        if pending and low < pending[-1][0] <= high:
            covered = sum(sequence <= low for sequence, _, _ in pending)
        else:
            covered = len(pending)
        for _, offset, data in pending[:covered]:
            put(self.inode.synced, offset, data)
        del pending[:covered]
        if dies:
            raise ProcessDied("after an fdatasync")

    def allocate(self, length: int) -> None:
        dies = self.disk.boundary(self.life)
        growth = length - len(self.inode.cached)
        if growth > 0:
            room = self.disk.room(growth)
            if dies or room < growth:
                growth = self.disk.chance.randint(0, room)
            self._write(bytes(growth), len(self.inode.cached))
        if dies:
            raise ProcessDied("in an allocation")
        if len(self.inode.cached) < length:
            raise OSError(errno.ENOSPC, "no space left on device")

    def size(self) -> int:
        return len(self.inode.cached)

    def close(self) -> None:
        """Close; the dead may close what they held."""


def put(content: bytearray, offset: int, data: bytes) -> None:
    """Write into a file's bytes; a gap reads as zeros."""
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def apply_name(
    names: dict[str, Inode | Folder], name: str, old: str, node: Inode | Folder | None
) -> None:
    """Apply one change of names."""
    if old:
        names.pop(old, None)
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
