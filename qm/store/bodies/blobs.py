"""Blob files: bodies whose entries the log has dropped, one row per entry.

Files are append-only. The row of an entry says where its packets begin and how long each is, so
that moving an entry costs one write and one row, and removing a body neither. A file without live
bytes is removed once a flushed state does not name it; a sparse one is emptied first.
"""

import contextlib
import errno
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final

from qm.model.state.tables import Table
from qm.model.values.columns import IntArray
from qm.store.liveness import ENTRY_KEY
from qm.store.rocks import RocksState
from raft.log.files import Buffer, Directory, File

BLOB_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file that exceeds this size is not appended to."""
SPARSE_SHARE: Final = 0.25
"""A file with a smaller share of live bytes is emptied into the current one."""
SPARSE_BYTES_PER_STEP: Final = 4 * 1024 * 1024
FILES_OPEN_MAX: Final = 256
ORDINALS_IN_HAND_MAX: Final = 1 << 20
"""Ordinals of the entries whose rows are cached decoded, four bytes each."""

PLACE: Final = Struct("<IQ")
"""file u32, offset u64 of the first packet; then u32 per ordinal, and one for the end: bytes of
packets before it. A body that was dead when its entry was moved has no bytes."""
FILE_KEY: Final = Struct(">I")
FILE_ROW: Final = Struct("<QQQQ")
"""live bytes u64, written bytes u64, lowest and highest index of its entries u64."""
FILE_NAME: Final = "blob-{:08d}"
_PREFIX: Final = "blob-"
_UNREADABLE: Final = (errno.EIO, errno.ENOENT)
_FILES_MAX: Final = 1 << 20
_SCAN_ROWS: Final = 256
_LAST_KEY: Final = b"\xff" * 9


class MovedEntry:
    """The places of an entry's packets."""

    __slots__ = ("file", "offset", "starts")

    def __init__(self, file: int, offset: int, starts: IntArray) -> None:
        self.file = file
        self.offset = offset
        """Offset of the first packet in the file."""
        self.starts = starts
        """Bytes before each ordinal's packet, and before the end."""

    def span(self, ordinal: int) -> tuple[int, int]:
        """Return (offset in the file, length); (0, 0) for an ordinal without a packet here."""
        starts = self.starts
        if ordinal + 1 >= len(starts):
            return 0, 0
        return self.offset + starts[ordinal], starts[ordinal + 1] - starts[ordinal]

    def bytes_of(self, ordinals: Iterable[int]) -> int:
        """Return the total length of these packets."""
        starts = self.starts
        return sum([starts[ordinal + 1] - starts[ordinal] for ordinal in ordinals])


def moved_entry(file: int, offset: int, lengths: Iterable[int]) -> MovedEntry:
    """Return the places of packets that were written one after the other.

    `lengths`: by ordinal, 0 for a packet that was left out.
    """
    return MovedEntry(file, offset, array("I", accumulate(lengths, initial=0)))


def pack_entry(entry: MovedEntry) -> bytes:
    """Return the BLOB row."""
    return PLACE.pack(entry.file, entry.offset) + _little_endian(entry.starts).tobytes()


def unpack_entry(row: bytes) -> MovedEntry:
    """Return the places in a BLOB row."""
    file, offset = PLACE.unpack_from(row)
    starts = array("I")
    starts.frombytes(row[PLACE.size :])
    return MovedEntry(file, offset, _little_endian(starts))


def _little_endian(column: IntArray) -> IntArray:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column


class FileUse:
    """How much of a file is alive, and the range of its entries."""

    __slots__ = ("first", "last", "live", "written")

    def __init__(self, live: int = 0, written: int = 0, first: int = 0, last: int = 0) -> None:
        self.live = live
        self.written = written
        self.first = first
        self.last = last

    def add(self, index: int, size: int) -> None:
        """Note that the packets of an entry were appended."""
        self.live += size
        self.first = min(self.first, index) if self.written else index
        self.last = max(self.last, index)
        self.written += size

    def pack(self) -> bytes:
        """Return the BLOB_FILE row."""
        return FILE_ROW.pack(self.live, self.written, self.first, self.last)


def blob_files(state: RocksState) -> list[str]:
    """Return the names of the files in which the committed state has bodies. They remain until a
    flushed state no longer names them.
    """
    rows = state.scan(Table.BLOB_FILE, b"", _LAST_KEY, _FILES_MAX)
    return [FILE_NAME.format(FILE_KEY.unpack(key)[0]) for key, _ in rows]


class BlobSync:
    """A sync of blob files."""

    def __init__(self, files: list[tuple[int, File, int]], directory: Directory) -> None:
        self.files: Final = files
        """(number, file, bytes written when the sync began)."""
        self._directory = directory

    def run(self) -> None:
        """Make the files durable."""
        for _, file, _ in self.files:
            file.fdatasync()
        if self.files:
            self._directory.sync()


class BlobRemoval:
    """The removal of files that no state names, even after a crash."""

    def __init__(self, files: list[str], directory: Directory) -> None:
        self.files: Final = files
        self._directory = directory

    def run(self) -> None:
        """Remove the files; a large one takes a disk tens of milliseconds."""
        for name in self.files:
            self._directory.unlink(name)


class Blobs:
    """The blob files, and how much of each is alive."""

    def __init__(self, state: RocksState, directory: Directory) -> None:
        self._state = state
        self._directory = directory
        self._files: dict[int, File] = {}
        self._entries: dict[int, MovedEntry | None] = {}
        self._ordinals_in_hand = 0
        self._placed: dict[int, MovedEntry] = {}
        """Entries whose bytes are written and not yet synced, so that they have no row yet."""
        self._vacated: dict[int, tuple[int, int]] = {}
        """By entry: the file from which it was copied, and the bytes that stay alive there until
        the copy is durable."""
        self._synced: dict[int, int] = {}
        """By file: the bytes that the last sync covered."""
        self._recorded = self._durable = 0
        self._emptied: deque[tuple[int, int]] = deque()
        """(number of the record that no longer names the file, file)."""
        self._usage: dict[int, FileUse] = {}
        for key, row in state.scan(Table.BLOB_FILE, b"", _LAST_KEY, _FILES_MAX):
            self._usage[FILE_KEY.unpack(key)[0]] = FileUse(*FILE_ROW.unpack(row))
        self._current = max(self._usage, default=0)
        self._remove_strangers()
        last = state.scan(Table.BLOB, b"", _LAST_KEY, 1, backward=True)
        # No entry above it has a row.
        self._moved_upto = ENTRY_KEY.unpack(last[0][0])[0] if last else 0
        state.liveness.on_dead = self._died

    def read(self, index: int, ordinal: int) -> bytes | None:
        """Return a packet, or None when no file has it."""
        entry = self.entry(index)
        return None if entry is None else self._packet(entry, ordinal)

    def _packet(self, entry: MovedEntry, ordinal: int) -> bytes | None:
        """Return a packet as it is on the disk; None where there is none or it cannot be read."""
        offset, length = entry.span(ordinal)
        if not length:
            return None
        try:
            return self._file(entry.file).pread(length, offset)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            return None

    def place(self, index: int, ordinal: int) -> tuple[str, int, int] | None:
        """Return (file, offset, length) of a packet; None when no file has it."""
        entry = self.entry(index)
        offset, length = (0, 0) if entry is None else entry.span(ordinal)
        return (FILE_NAME.format(entry.file), offset, length) if entry and length else None

    @property
    def live_bytes(self) -> int:
        """The bytes of all live packets."""
        return sum(use.live for use in self._usage.values())

    @property
    def directory(self) -> Directory:
        """The folder of the files."""
        return self._directory

    def replace(self, index: int, packets: Mapping[int, bytes]) -> None:
        """Write the live packets of an entry once more, by ordinal, in place of copies that are
        damaged or missing. Like `append` it counts from the next `record` on.
        """
        entry = self.entry(index)
        size = max(packets) + 1 if entry is None else len(entry.starts) - 1
        lengths = [len(packets.get(ordinal, b"")) for ordinal in range(size)]
        self.append(index, [packets[ordinal] for ordinal in sorted(packets)], lengths)
        if entry is not None:
            self._vacated[index] = entry.file, entry.bytes_of(packets)

    def is_placed(self, index: int) -> bool:
        """Whether an entry was copied and the copy is not recorded yet."""
        return index in self._placed

    def entry(self, index: int) -> MovedEntry | None:
        """Return the places of an entry's packets; None when they are in no file."""
        entry = self._entries.get(index) or self._placed.get(index)
        if entry is None and index <= self._moved_upto:
            row = self._state.get(Table.BLOB, ENTRY_KEY.pack(index))
            if row is not None:
                entry = self._entries[index] = unpack_entry(row)
                self._ordinals_in_hand += len(entry.starts)
        return entry

    def append(self, index: int, packets: Sequence[Buffer], lengths: Sequence[int]) -> None:
        """Write the packets of an entry.

        `packets` together have the bytes of all packets; `lengths` is by ordinal, 0 for a packet
        that is left out.
        """
        number, use, file = self._to_append_to()
        entry = moved_entry(number, use.written, lengths)
        file.pwritev(packets, use.written)
        file.write_out()
        # Count bytes only after the write, which a full disk may refuse. The next write then
        # overwrites whatever part of it was written.
        use.add(index, entry.starts[-1])
        self._usage[number] = use
        self._current = number
        self._placed[index] = entry
        self._entries.pop(index, None)
        self._moved_upto = max(self._moved_upto, index)

    def _to_append_to(self) -> tuple[int, FileUse, File]:
        """Return number, use and file of the one to append to. A new one is registered only after
        the write.
        """
        use = self._usage.get(self._current)
        if use is not None and use.written < BLOB_FILE_BYTES:
            with contextlib.suppress(FileNotFoundError):  # then all its bodies wait to be restored
                return self._current, use, self._file(self._current)
        number = self._current + 1
        if number not in self._files:
            self._files[number] = self._directory.open(FILE_NAME.format(number), create=True)
        return number, FileUse(), self._files[number]

    def _died(self, dead: Mapping[int, Sequence[int]]) -> None:
        """Note that these bodies are no longer referenced."""
        freed: dict[int, int] = {}
        for index, ordinals in dead.items():
            entry = self.entry(index)
            if entry is None:
                continue
            freed[entry.file] = freed.get(entry.file, 0) + entry.bytes_of(ordinals)
            if not self._state.liveness.is_any_live(index):
                self._state.delete(Table.BLOB, ENTRY_KEY.pack(index))
                self._entries.pop(index, None)
                self._placed.pop(index, None)
        for file, length in freed.items():
            self._free(file, length)
        if self._ordinals_in_hand > ORDINALS_IN_HAND_MAX:
            self._entries.clear()
            self._ordinals_in_hand = 0

    def _free(self, file: int, length: int) -> None:
        self._usage[file].live -= length
        self._put_use(file)

    def begin_file(self) -> None:
        """Close the current file for appending, so that it can be emptied, too."""
        if self._current in self._usage:
            self._current += 1

    def empty_sparse(self, share: float = SPARSE_SHARE) -> int:
        """Copy bodies out of files with a smaller share of live bytes, up to a limit of bytes;
        return of how many entries. Call `end_sync` or `settle` before the next step.

        Raises what reading and writing files raises.
        """
        moved = copied = 0
        for file, use in list(self._usage.items()):
            if file == self._current or not 0 < use.live < use.written * share:
                continue
            low, high = ENTRY_KEY.pack(use.first), ENTRY_KEY.pack(use.last + 1)
            while copied < SPARSE_BYTES_PER_STEP:
                rows = self._state.scan(Table.BLOB, low, high, _SCAN_ROWS)
                for key, row in rows:
                    (index,) = ENTRY_KEY.unpack(key)
                    if (
                        copied < SPARSE_BYTES_PER_STEP
                        and PLACE.unpack_from(row)[0] == file
                        and index not in self._placed  # copied already, but not yet in its row
                    ):
                        size = self._move(index, unpack_entry(row))
                        copied += size
                        moved += size > 0
                if len(rows) < _SCAN_ROWS:
                    break
                low = rows[-1][0] + b"\0"
        return moved

    def _move(self, index: int, entry: MovedEntry) -> int:
        """Copy the live packets of a moved entry into the current file; return their bytes."""
        packets = {
            ordinal: self._packet(entry, ordinal)
            for ordinal in self._state.liveness.live_ordinals(index)
        }
        whole = {ordinal: packet for ordinal, packet in packets.items() if packet is not None}
        if len(whole) == len(packets):
            self.replace(index, whole)
            return sum(map(len, whole.values()))
        return 0  # it is moved once it has been healed

    # Durability --------------------------------------------------------------------------

    def begin_sync(self) -> "BlobSync":
        """Return a sync of the copies so far; `run` it in any thread, then call `end_sync`."""
        numbers = sorted({entry.file for entry in self._placed.values()})
        files = [(number, self._file(number), self._usage[number].written) for number in numbers]
        return BlobSync(files, self._directory)

    def end_sync(self, sync: "BlobSync") -> None:
        """Note that the sync ran: the state may name the new places and drop empty files."""
        self._synced |= {number: size for number, _, size in sync.files}
        self.record()

    @property
    def recorded(self) -> int:
        """Number of the last `record` of changes in the state; see `flushed`."""
        return self._recorded

    @property
    def durable(self) -> int:
        """The `recorded` number up to which a flushed state contains the changes."""
        return self._durable

    @property
    def is_durable(self) -> bool:
        """Whether a flushed state names all copies."""
        return not self._placed and self._recorded <= self._durable

    def flushed(self, recorded: int) -> None:
        """Note that a flush made durable what was `recorded` when it began."""
        self._durable = max(self._durable, recorded)

    def secure(self) -> None:
        """Make copies and state durable."""
        self.record()
        self._state.flush()
        self._durable = self._recorded

    def settle(self) -> None:
        """Make copies and state durable, then remove files that nothing references."""
        self.secure()
        self.begin_removal().run()

    def begin_removal(self) -> BlobRemoval:
        """Close files that the flushed state does not name; `run` removes them, in any thread."""
        files = []
        while self._emptied and self._emptied[0][0] <= self._durable:
            _, number = self._emptied.popleft()
            file = self._files.pop(number, None)
            if file is not None:
                file.close()
            files.append(FILE_NAME.format(number))
        return BlobRemoval(files, self._directory)

    def record(self) -> None:
        """Commit the new places, after a sync of what no `begin_sync` covered."""
        sync = self.begin_sync()
        if any(self._synced.get(number) != size for number, _, size in sync.files):
            sync.run()
            self._synced |= {number: size for number, _, size in sync.files}
        for index, entry in self._placed.items():
            self._state.put(Table.BLOB, ENTRY_KEY.pack(index), pack_entry(entry))
            self._put_use(entry.file)
        for number, size in self._vacated.values():
            self._free(number, size)
        has_changes = bool(self._placed)
        self._placed.clear()
        self._vacated.clear()
        empty = [n for n, use in self._usage.items() if use.live == 0 and n != self._current]
        for number in empty:
            self._state.delete(Table.BLOB_FILE, FILE_KEY.pack(number))
        if has_changes or empty:
            self._state.commit(self._state.applied.index, self._state.applied.term)
        self._recorded += 1
        for number in empty:
            del self._usage[number]
            self._synced.pop(number, None)
        self._emptied += [(self._recorded, number) for number in empty]

    def _put_use(self, number: int) -> None:
        self._state.put(Table.BLOB_FILE, FILE_KEY.pack(number), self._usage[number].pack())

    def _remove_strangers(self) -> None:
        """Remove files that the state does not name and a crash left."""
        known = {FILE_NAME.format(number) for number in self._usage}
        for name in self._directory.names():
            if name.startswith(_PREFIX) and name not in known:
                self._directory.unlink(name)

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            if len(self._files) >= FILES_OPEN_MAX:
                self._close_some()
            file = self._files[number] = self._directory.open(FILE_NAME.format(number))
        return file

    def _close_some(self) -> None:
        """Close the files that were opened first."""
        busy = {self._current, *(entry.file for entry in self._placed.values())}
        for number in list(self._files)[: FILES_OPEN_MAX // 2]:
            if number not in busy:
                self._files.pop(number).close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._directory.close()
