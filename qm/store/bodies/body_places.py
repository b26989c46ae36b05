"""Where packets are: in the log as long as it has their entry, then in blob files.

A body is (index, ordinal), the same on every node; its place is local to the node (DESIGN section
3, Bodies). When the log is about to drop a segment, its live bodies are copied to the current blob
file, and the copies are durable before the segment is dropped.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import add
from typing import Final, NamedTuple

import msgspec
from zlib_ng.zlib_ng import crc32

from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, Table
from qm.model.values import records
from qm.model.values.records import SyntheticPacket
from qm.model.values.rows import BODY_KEY
from qm.store.bodies.blobs import BlobRemoval, Blobs, BlobSync
from qm.store.codec import packet_spans
from qm.store.rocks import RocksState
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.packets.peek import sizes_in
from qm.wire.packets.user_message import parse_user_message, write_user_message
from raft.log.files import Directory
from raft.log.recovery import LogDamaged
from raft.log_view import LogViewError
from raft.machine import LogReader

MOVED_AHEAD_BYTES: Final = 512 * 1024
"""Bytes moved in one step: about a millisecond, and as long for the disk to sync."""
LOOKED_AHEAD_ENTRIES: Final = 1_024
"""Entries with live bodies looked at in one step; after a start most were moved before it."""
SUSPECTS_MAX: Final = 4_096
"""Entries that were found damaged by chance and wait to be healed; scrubbing finds the others."""


class BodyDamaged(Exception):
    """The bytes of a body differ from those that were stored: this node must not serve them."""

    def __init__(self, text: str, place: "BodyPlace | None" = None) -> None:
        super().__init__(text)
        self.place = place
        """Where it should be; None for a packet that the state holds itself."""


class BodyUnopened(BodyDamaged):
    """A sealed body that this node has no key for; another node may have it."""


Opener = Callable[[bytes], bytes]
"""Returns the plain form of a stored packet. Raises BodyDamaged."""


class BodyPlace(msgspec.Struct, frozen=True, gc=False):
    """The body that a position, a result or an outbox row refers to."""

    index: int
    offset: int
    length: int
    ordinal: int
    crc32: int


class BodyPlaces(NamedTuple):
    """Places of several bodies as columns of equal length, one for each field."""

    indexes: Sequence[int]
    offsets: Sequence[int]
    lengths: Sequence[int]
    ordinals: Sequence[int]
    checksums: Sequence[int]

    def at(self, k: int) -> BodyPlace:
        """Return one place."""
        return BodyPlace(*[column[k] for column in self])


class Packets(NamedTuple):
    """Raw packets, one after the other."""

    block: bytes
    lengths: Sequence[int]


class Bodies:
    """Reads bodies, and moves them before the log drops their entries."""

    def __init__(
        self,
        state: RocksState,
        log: LogReader,
        directory: Directory,
        settle: Callable[[], None],
    ) -> None:
        """`settle` writes what was applied: commits made here must not split it, and liveness must
        be up to date.
        """
        self._settle = settle
        self._state = state
        self._log = log
        self._blobs = Blobs(state, directory)
        self._ahead = log.retirable(0)
        """Up to here no entry has live bodies without a copy; `restore` may have copied others."""
        self._recorded_ahead: deque[tuple[int, int]] = deque()
        """(record, what `_ahead` was when it was made), both ascending."""
        self._secured_at = 0
        """The entry of which `retire` made the state durable last."""
        self.suspects: dict[tuple[int, int], BodyPlace | None] = {}
        """By entry and ordinal: bodies that could not be read; None for an entry of the log that
        could not be moved.
        """

    # Reading -----------------------------------------------------------------------------

    def read(self, place: BodyPlace, opened: Opener | None = None) -> bytes:
        """Return the packet, as it is stored unless `opened` is given. Raises BodyDamaged."""
        if place.ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            return self._synthetic(place.index, place.ordinal, opened)
        packet = self.copy(place)
        if packet is None:
            self._suspect(place.index, place.ordinal, place)
            raise _damaged(place)
        return packet if opened is None else opened(packet)

    def copy(self, place: BodyPlace) -> bytes | None:
        """Return the raw packet of a body that entries brought; None if no copy here is whole."""
        try:
            packet = self._log.read(place.index, place.offset, place.length)
        except (LogViewError, LogDamaged, ValueError):
            pass
        else:
            if is_body(packet, place):
                return packet
        moved = self._blobs.read(place.index, place.ordinal)
        return moved if moved is not None and is_body(moved, place) else None

    def _suspect(self, index: int, ordinal: int, place: BodyPlace | None) -> None:
        if len(self.suspects) < SUSPECTS_MAX:
            self.suspects[index, ordinal] = place

    # Scrubbing ---------------------------------------------------------------------------

    @property
    def live_bytes(self) -> int:
        """The bytes of all live bodies in blob files."""
        return self._blobs.live_bytes

    @property
    def blob_directory(self) -> Directory:
        """The folder of the blob files."""
        return self._blobs.directory

    def copy_place(self, place: BodyPlace) -> tuple[str, int] | None:
        """Return file and offset of a body's copy in a blob file; None where it has none."""
        found = self._blobs.place(place.index, place.ordinal)
        return None if found is None else found[:2]

    def is_logged(self, index: int) -> bool:
        """Whether the log holds an entry, perhaps damaged."""
        try:
            self._log.read(index, 0, 0)
        except LogViewError:
            return False
        except LogDamaged:
            pass
        return True

    def is_damaged(self, place: BodyPlace) -> bool:
        """Whether a body is needed and no copy of it here is whole."""
        self._settle()
        if not self._state.liveness.live_ordinals(place.index).count(place.ordinal):
            return False
        return self.copy(place) is None

    def restore(self, index: int, packets: Mapping[int, bytes]) -> bool:
        """Write bodies of an entry, by ordinal, in place of damaged copies; return whether that was
        done. The others of the entry are copied as they are. Like other moves it is durable after
        `begin_sync` and `end_sync`.

        Does nothing if a copy of the entry waits for its sync, or if there is none yet and not all
        live bodies are given: the entry would count as moved.
        """
        self._settle()
        blobs, wanted = self._blobs, self._state.liveness.live_ordinals(index)
        if not wanted or blobs.is_placed(index):
            return False
        whole = {ordinal: packets[ordinal] for ordinal in wanted if ordinal in packets}
        entry = blobs.entry(index)
        for ordinal in wanted:
            if ordinal not in whole and entry is not None:
                length = entry.span(ordinal)[1]
                whole[ordinal] = (blobs.read(index, ordinal) or b"").ljust(length, b"\0")
        if len(whole) < len(wanted):
            return False
        blobs.replace(index, whole)
        return True

    def read_all(self, places: BodyPlaces, opened: Opener | None = None) -> Packets:
        """Return packets as `read`; neighbours in the log are read at once. Raises BodyDamaged."""
        blocks: list[bytes] = []
        lengths: list[int] = []
        for begin, end in _neighbours(places):
            self._read_neighbours(places, begin, end, blocks, lengths, opened)
        return Packets(b"".join(blocks), lengths)

    def _read_neighbours(
        self,
        places: BodyPlaces,
        begin: int,
        end: int,
        blocks: list[bytes],
        lengths: list[int],
        opened: Opener | None,
    ) -> None:
        """Append the packets of places begin ... end - 1, and their lengths."""
        if end - begin > 1:
            offset, own = places.offsets[begin], places.lengths[begin:end]
            try:
                block = self._log.read(places.indexes[begin], offset, sum(own))
            except (LogViewError, LogDamaged, ValueError):
                block = b""
            if _are_whole(block, places, begin, end):
                _append(block, own, opened, blocks, lengths)
                return
        for k in range(begin, end):
            packet = self.read(places.at(k), opened)
            blocks.append(packet)
            lengths.append(len(packet))

    def _synthetic(self, index: int, ordinal: int, opened: Opener | None) -> bytes:
        row = self._state.get(Table.SYNTHETIC, BODY_KEY.pack(index, ordinal))
        if row is None:
            raise BodyDamaged(f"packet {ordinal} of entry {index} is missing from the state")
        synthetic = records.decode(SyntheticPacket, row)
        if synthetic.body_of is None:
            return synthetic.packet
        return _with_body(synthetic.packet, self.read(BodyPlace(*synthetic.body_of), opened))

    # Moving ------------------------------------------------------------------------------

    def retire(self, first: int, last: int) -> None:
        """Copy the live bodies of these entries; durable, including the state, on return. Does
        nothing if they were moved ahead and a flush followed `end_sync`. Raises LogDamaged: the log
        must keep the entries until the one that is damaged has been healed.
        """
        self._settle()
        copied = 0
        applied = self._state.applied.index
        for index, ordinals in list(self._state.liveness.live(first, last)):
            copied += self._move(index, ordinals)
        is_secured = self._secured_at == applied and self._blobs.is_durable
        if copied or not (self._is_durable(last) or is_secured):
            self._blobs.secure()
            self._secured_at = applied

    def _is_durable(self, index: int) -> bool:
        """Whether in a flushed state every entry up to an index has its places or no live bodies:
        without the removals since, a state that a power cut brings back misses bodies.
        """
        for recorded, ahead in self._recorded_ahead:
            if ahead >= index:
                return recorded <= self._blobs.durable
        return False

    def move_ahead(self, upto: int) -> bool:
        """Copy some of the bodies that `retire` will have to copy when the log drops all it can up
        to `upto`; return whether there are more.

        Repeat it between other work, then call `begin_sync` and `end_sync` and flush the state, so
        that `retire` has nothing left to do.
        """
        last, copied, looked = self._log.retirable(upto), 0, 0
        if last <= self._ahead:
            return False
        self._settle()
        for index, ordinals in self._state.liveness.live(self._ahead + 1, last):
            try:
                copied += self._move(index, ordinals)
            except LogDamaged:
                return False  # what follows waits until the entry has been healed
            self._ahead, looked = index, looked + 1
            if copied >= MOVED_AHEAD_BYTES or looked >= LOOKED_AHEAD_ENTRIES:
                return True
        self._ahead = last
        return False

    def _move(self, index: int, ordinals: Sequence[int]) -> int:
        """Copy bodies of an entry unless they were copied already; return their bytes."""
        if self._blobs.entry(index) is not None:
            return 0
        try:
            data = bytes(self._log.read_entry(index))
        except LogDamaged:
            self._suspect(index, 0, None)
            raise
        spans = packet_spans(index, data)
        if len(ordinals) == len(spans):
            lengths = [length for _, length in spans]
        else:
            lengths = [0] * len(spans)
            for ordinal in ordinals:
                lengths[ordinal] = spans[ordinal][1]
        self._blobs.append(index, _packets(data, spans, ordinals), lengths)
        return sum(lengths)

    def begin_sync(self) -> BlobSync:
        """Return a sync of the copies; `run` it in any thread, then call `end_sync`."""
        return self._blobs.begin_sync()

    def end_sync(self, sync: BlobSync) -> None:
        """Note that the sync ran: write the new places to the state, for its next flush."""
        self._settle()
        blobs, marks = self._blobs, self._recorded_ahead
        blobs.end_sync(sync)
        if not marks or marks[-1][1] < self._ahead:
            marks.append((blobs.recorded, self._ahead))
        while len(marks) > 1 and marks[1][0] <= blobs.durable:
            marks.popleft()

    def empty_sparse(self) -> int:
        """Copy a limited number of bodies out of sparse blob files; return of how many entries.
        Call `begin_sync` and `end_sync` before the next step.
        """
        self._settle()
        return self._blobs.empty_sparse()

    def empty_all_sparse(self, share: float) -> None:
        """Empty all files with a smaller share of live bytes, even new ones; not for a serving
        node.
        """
        self._settle()
        self._blobs.begin_file()
        while self._blobs.empty_sparse(share):
            self._blobs.settle()

    def settle(self) -> None:
        """Make copies and state durable, then remove files that nothing references."""
        self._settle()
        self._blobs.settle()

    def begin_removal(self) -> BlobRemoval:
        """Return the removal of files that nothing references; `run` it in any thread."""
        return self._blobs.begin_removal()

    @property
    def recorded(self) -> int:
        """Number of the last record of changes in the state; for `flushed`."""
        return self._blobs.recorded

    def flushed(self, recorded: int) -> None:
        """Note that a flush made durable what was `recorded` when it began."""
        self._blobs.flushed(recorded)

    def close(self) -> None:
        """Close the files."""
        self._blobs.close()


def _damaged(place: BodyPlace) -> BodyDamaged:
    return BodyDamaged(
        f"body {place.ordinal} of entry {place.index} is missing here or does not match its"
        " checksum; it is restored as soon as another member gives it",
        place,
    )


def is_body(packet: bytes, place: BodyPlace) -> bool:
    """Whether bytes are the body that was stored."""
    return len(packet) == place.length and crc32(packet) == place.crc32


def _are_whole(block: bytes, places: BodyPlaces, begin: int, end: int) -> bool:
    view, at = memoryview(block), 0
    columns = zip(places.lengths[begin:end], places.checksums[begin:end], strict=True)
    for length, checksum in columns:
        if crc32(view[at : at + length]) != checksum:
            return False
        at += length
    return at == len(block)


def _append(
    block: bytes,
    stored: Sequence[int],
    opened: Opener | None,
    blocks: list[bytes],
    lengths: list[int],
) -> None:
    """Append stored packets in their plain form, and the lengths of these."""
    if opened is None or sizes_in(block, stored) == stored:  # then none is sealed
        blocks.append(block)
        lengths += stored
        return
    at = 0
    for length in stored:
        packet = opened(block[at : at + length])
        blocks.append(packet)
        lengths.append(len(packet))
        at += length


def _neighbours(places: BodyPlaces) -> Iterator[tuple[int, int]]:
    """Yield the places in order as ranges (begin, end); those that are adjacent in an entry share a
    range.
    """
    indexes, offsets, ordinals = places.indexes, places.offsets, places.ordinals
    if not indexes:
        return
    ends = [*map(add, offsets, places.lengths)]
    breaks = {
        k
        for k, (before, index, end, offset) in enumerate(
            zip(indexes, indexes[1:], ends, offsets[1:], strict=False), 1
        )
        if before != index or end != offset
    }
    if max(ordinals) >= BODY_ORDINAL_SYNTHETIC_FIRST:
        for k, ordinal in enumerate(ordinals):
            if ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
                breaks |= {k, k + 1} - {0, len(ordinals)}
    yield from pairwise((0, *sorted(breaks), len(indexes)))


def _packets(
    data: bytes, spans: Sequence[tuple[int, int]], ordinals: Sequence[int]
) -> list[memoryview]:
    """Return the packets of these ordinals, adjacent ones as one view."""
    view = memoryview(data)
    (begin, _), (last, length) = spans[ordinals[0]], spans[ordinals[-1]]
    if last + length - begin == sum([spans[ordinal][1] for ordinal in ordinals]):
        return [view[begin : last + length]]
    runs: list[memoryview] = []
    begin = end = 0
    for ordinal in ordinals:
        offset, length = spans[ordinal]
        if offset != end:
            if end > begin:
                runs.append(view[begin:end])
            begin = offset
        end = offset + length
    runs.append(view[begin:end])
    return runs


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
