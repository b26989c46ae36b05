"""Where packets are: in the log as long as it holds their entry, then in blob files.

A body is (index, ordinal), the same on every node; where it lies is this node's matter (DESIGN
section 3, Bodies). When the log is about to drop a segment, what is alive in it is copied to the
current blob file, and the copies are durable before the segment goes. Blob files are append-only; a
file without live bytes is removed after the next flush of the state, a sparse one is emptied first.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from qm.model import records
from qm.model.records import SyntheticPacket
from qm.model.rows import BODY_KEY
from qm.model.state import BODY_ORDINAL_SYNTHETIC_FIRST, Table
from qm.store.codec import packet_spans
from qm.store.rocks import RocksState
from qm.wire.message_properties import MessagePropertiesHeader
from qm.wire.user_message import parse_user_message, write_user_message
from raft import batch
from raft.files import Buffer, Directory, File
from raft.log_view import Compacted
from raft.machine import LogReader

BLOB_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file is closed for writing beyond this size."""
SPARSE_SHARE: Final = 0.25
"""A file with a smaller share of live bytes is emptied into the current one."""
SPARSE_ROWS_PER_STEP: Final = 1_024
SCAN_ROWS: Final = 256
"""Rows of one look into the state."""

PLACE: Final = Struct("<IQI")
"""file u32, offset u64, length u32."""
FILE_KEY: Final = Struct(">I")
FILE_ROW: Final = Struct("<QQ")
"""live bytes u64, written bytes u64."""
FILE_NAME: Final = "blob-{:08d}"


class BodyDamaged(Exception):
    """The bytes of a body are not those that were stored: this node must not serve them."""


class BodyPlace:
    """What a position, a result or an outbox row knows of its body."""

    __slots__ = ("crc32", "index", "length", "offset", "ordinal")

    def __init__(self, index: int, offset: int, length: int, ordinal: int, crc32: int) -> None:
        self.index = index
        self.offset = offset
        self.length = length
        self.ordinal = ordinal
        self.crc32 = crc32


class Bodies:
    """Reads bodies, and moves them when the log goes on without them."""

    def __init__(self, state: RocksState, log: LogReader, directory: Directory) -> None:
        self._state = state
        self._log = log
        self._directory = directory
        self._files: dict[int, File] = {}
        self._usage: dict[int, tuple[int, int]] = {}
        for key, row in state.scan(Table.BLOB_FILE, b"", b"\xff" * 5, 1 << 20):
            live, written = FILE_ROW.unpack(row)
            self._usage[FILE_KEY.unpack(key)[0]] = (live, written)
        self._current = max(self._usage, default=0)
        self._remove_strangers()
        moved = state.scan(Table.BLOB, b"", b"\xff" * 11, 1, backward=True)
        state.liveness.on_dead = self._died
        state.liveness.dead_upto = BODY_KEY.unpack(moved[0][0])[0] if moved else 0

    # Reading -----------------------------------------------------------------------------

    def read(self, place: BodyPlace) -> bytes:
        """Return the raw packet. Raises BodyDamaged."""
        if place.ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            return self._synthetic(place.index, place.ordinal)
        try:
            packet = self._log.read(place.index, place.offset, place.length)
        except Compacted:
            packet = self._from_blob(place.index, place.ordinal)
        if len(packet) != place.length or crc32(packet) != place.crc32:
            raise BodyDamaged(
                f"body {place.ordinal} of entry {place.index} does not match its checksum;"
                " stop this node and let it rejoin from its peers"
            )
        return packet

    def _synthetic(self, index: int, ordinal: int) -> bytes:
        row = self._state.get(Table.SYNTHETIC, BODY_KEY.pack(index, ordinal))
        if row is None:
            raise BodyDamaged(f"packet {ordinal} of entry {index} is missing from the state")
        synthetic = records.decode(SyntheticPacket, row)
        if synthetic.body_of is None:
            return synthetic.packet
        return _with_body(synthetic.packet, self._any(*synthetic.body_of))

    def _any(self, index: int, ordinal: int) -> bytes:
        """Return a packet by its name alone."""
        if ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            return self._synthetic(index, ordinal)
        try:
            data = self._entry(index)
        except Compacted:
            return self._from_blob(index, ordinal)
        offset, length = packet_spans(index, data)[ordinal]
        return data[offset : offset + length]

    def _entry(self, index: int) -> bytes:
        prefix = self._log.read(index, 0, batch.PREFIX_BYTES)
        header = self._log.read(index, 0, batch.header_bytes(prefix))
        return self._log.read(index, 0, batch.total_bytes(header))

    def _from_blob(self, index: int, ordinal: int) -> bytes:
        row = self._state.get(Table.BLOB, BODY_KEY.pack(index, ordinal))
        if row is None:
            raise BodyDamaged(f"body {ordinal} of entry {index} is neither in log nor blobs")
        file, offset, length = PLACE.unpack(row)
        return self._file(file).pread(length, offset)

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = self._directory.open(FILE_NAME.format(number))
        return file

    # Moving ------------------------------------------------------------------------------

    def retire(self, first: int, last: int) -> None:
        """Copy what is alive in these entries; durable, state included, on return."""
        moved = self._moved(first, last)
        for index, ordinals in list(self._state.liveness.live(first, last)):
            keys = [BODY_KEY.pack(index, ordinal) for ordinal in ordinals]
            wanted = [k for k, key in enumerate(keys) if key not in moved]
            if not wanted:
                continue
            data = self._entry(index)
            spans, view = packet_spans(index, data), memoryview(data)
            packets = {}
            for k in wanted:
                offset, length = spans[ordinals[k]]
                packets[keys[k]] = view[offset : offset + length]
            self._append(packets)
        self._state.liveness.dead_upto = max(self._state.liveness.dead_upto, last)
        self.settle()

    def _moved(self, first: int, last: int) -> set[bytes]:
        """Return which bodies an earlier, interrupted move has copied already."""
        low, high = BODY_KEY.pack(first, 0), BODY_KEY.pack(last + 1, 0)
        moved: set[bytes] = set()
        while True:
            rows = self._state.scan(Table.BLOB, low, high, SCAN_ROWS)
            moved.update(key for key, _ in rows)
            if len(rows) < SCAN_ROWS:
                return moved
            low = rows[-1][0] + b"\0"

    def settle(self) -> None:
        """Make copies and state durable, then remove files that nothing refers to."""
        for number in sorted(self._files):
            if number in self._usage:
                self._files[number].fdatasync()
        self._directory.sync()
        self._put_usage()
        self._state.commit(self._state.applied.index, self._state.applied.term)
        self._state.flush()
        self._remove_strangers()

    def _append(self, packets: Mapping[bytes, Buffer]) -> None:
        """Write packets, by key, one behind the other."""
        live, written = self._usage.get(self._current, (0, 0))
        if self._current == 0 or written >= BLOB_FILE_BYTES:
            self._current += 1
            self._files[self._current] = self._directory.open(
                FILE_NAME.format(self._current), create=True
            )
            live, written = 0, 0
        run = b"".join(packets.values())
        self._file(self._current).pwrite(run, written)
        rows: dict[bytes, bytes] = {}
        at = written
        for key, packet in packets.items():
            rows[key] = PLACE.pack(self._current, at, len(packet))
            at += len(packet)
        self._state.put_rows(Table.BLOB, rows)
        self._usage[self._current] = (live + len(run), at)

    def _died(self, index: int, ordinals: Sequence[int]) -> None:
        """Nothing refers to these bodies any more."""
        keys: list[bytes] = []
        freed: dict[int, int] = {}
        for ordinal in ordinals:
            key = BODY_KEY.pack(index, ordinal)
            row = self._state.get(Table.BLOB, key)
            if row is not None:
                file, _, length = PLACE.unpack(row)
                keys.append(key)
                freed[file] = freed.get(file, 0) + length
        self._state.delete_rows(Table.BLOB, keys)
        for file, length in freed.items():
            live, written = self._usage[file]
            self._usage[file] = (live - length, written)
            row = FILE_ROW.pack(live - length, written)
            self._state.put(Table.BLOB_FILE, FILE_KEY.pack(file), row)

    def empty_sparse(self) -> int:
        """Copy bodies out of sparse files, a bounded number; return how many were copied."""
        sparse = {
            file
            for file, (live, written) in self._usage.items()
            if file != self._current and 0 < live < written * SPARSE_SHARE
        }
        if not sparse:
            return 0
        moved = 0
        low = b""
        while moved < SPARSE_ROWS_PER_STEP:
            rows = self._state.scan(Table.BLOB, low, b"\xff" * 11, SCAN_ROWS)
            for key, row in rows:
                file, offset, length = PLACE.unpack(row)
                if file in sparse:
                    packet = self._file(file).pread(length, offset)
                    live, written = self._usage[file]
                    self._usage[file] = (live - length, written)
                    self._append({key: packet})
                    moved += 1
            if len(rows) < SCAN_ROWS:
                break
            low = rows[-1][0] + b"\0"
        self.settle()
        return moved

    def _put_usage(self) -> None:
        for file, (live, written) in list(self._usage.items()):
            key = FILE_KEY.pack(file)
            if live == 0 and file != self._current:
                self._state.delete(Table.BLOB_FILE, key)
                del self._usage[file]
            else:
                self._state.put(Table.BLOB_FILE, key, FILE_ROW.pack(live, written))

    def _remove_strangers(self) -> None:
        """Remove files that the durable state does not know: left by a crash, or emptied."""
        known = {FILE_NAME.format(number) for number in self._usage}
        for name in self._directory.names():
            if name.startswith("blob-") and name not in known:
                number = int(name.removeprefix("blob-"))
                file = self._files.pop(number, None)
                if file is not None:
                    file.close()
                self._directory.unlink(name)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _with_body(packet: bytes, original: bytes) -> bytes:
    """Return a negative acknowledgement with the body that it returns ([MS-MQQB] 3.1.7.15)."""
    acknowledgement, _ = parse_user_message(packet, 0, len(packet))
    returned, _ = parse_user_message(original, 0, len(original))
    own, theirs = acknowledgement.properties, returned.properties
    properties = MessagePropertiesHeader(
        message_body=theirs.message_body,
        label=own.label,
        message_class=own.message_class,
        flags=own.flags,
        correlation_id=own.correlation_id,
        body_type=theirs.body_type,
        application_tag=own.application_tag,
    )
    whole = type(acknowledgement)(
        acknowledgement.user_header, properties, priority=acknowledgement.priority
    )
    return write_user_message(whole)
