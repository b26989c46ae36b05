"""Reading a log back after a crash: what counts, what is cut, what is refused.

The rules are in docs/log.md, Recovery. In short: every segment is read alone; the newest floor,
which says which segments are retired, decides where the log begins; from there records must link
up; where they stop, the rest is cut, unless something in it proves that it had been synced.
"""

import msgspec

from raft.log.checksum import crc32
from raft.log.files import Directory, File
from raft.log.record import (
    LAST_ENTRY_KIND,
    RECORD_ALIGNMENT_BYTES,
    RECORD_HEADER_BYTES,
    Floor,
    Header,
    RecordKind,
    SegmentKeys,
    decode_floor,
    decode_hard_state,
    parse_header,
    record_bytes,
    segment_keys,
)
from raft.log.segment import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_MIN_BYTES,
    Segment,
    SegmentHeader,
    parse_segment_header,
    segment_name,
)
from raft.types import Entry, EntryKind, GroupId, HardState


class LogDamaged(Exception):
    """Bytes that were durable are not what was written.

    The node must not vote or acknowledge with this log: it rejoins under its next incarnation
    (raft.identity) and fetches everything from its peers.
    """

    def __init__(self, file: str, offset: int, index: int, reason: str) -> None:
        super().__init__(
            f"{file}: damaged at byte {offset} (entry {index}): {reason}; move this log away and "
            "rejoin under the next incarnation"
        )
        self.file = file
        """Name of the file in the log's directory."""
        self.offset = offset
        """First byte of the damaged record."""
        self.index = index
        """Index of the first entry that can no longer be trusted."""
        self.reason = reason


class Recovered(msgspec.Struct):
    """A log as found on disk."""

    segments: list[Segment]
    """Never empty; the last one is appended to."""
    discarded: list[int]
    """Incarnations of segments that are not part of the log: retired, or cut."""
    checksum: int
    """Checksum of the last record."""
    hard_state: HardState
    floor: Floor
    configuration_entries: list[Entry]
    last_index: int
    last_term: int
    synced_index: int
    """Highest index that the log itself records as synced."""
    synced_position: int


class _Scan:
    """One segment, read alone: its records up to the first that does not link up."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.checksum = segment.header.previous
        self.hard_state: HardState | None = None
        self.floor: Floor | None = None
        self.configuration_entries: list[Entry] = []
        self.void_above: int | None = None
        """Entries of earlier segments above this index are void."""
        self.last_index: int | None = None
        """Last index of the log after this segment; None when the segment does not tell."""
        self.synced_index = 0
        self.synced_position = 0
        self.reason = ""
        """Why reading stopped at `segment.end`."""
        self.proven_position = 0
        """Highest log position that any record in the file gives as synced."""

    def read(self, data: bytes) -> None:
        """Read the records of a segment whose bytes are `data`."""
        view = memoryview(data)
        segment = self.segment
        while True:
            start = segment.end
            header = parse_header(data, start, segment.keys)
            if header is None:
                self.reason = "there is no valid record header"
                break
            if header.previous != self.checksum:
                self.reason = "the record does not follow the one before it"
                break
            body = view[start + RECORD_HEADER_BYTES : start + RECORD_HEADER_BYTES + header.length]
            if len(body) != header.length or crc32(body) != header.data_checksum:
                self.reason = "the data do not match their checksum"
                break
            try:
                self._take(header, body)
            except ValueError as error:
                raise LogDamaged(segment.name, start, header.index, str(error)) from error
            self.checksum = header.checksum
            self.synced_index = header.synced_index
            self.synced_position = header.synced_position
            segment.end = start + record_bytes(header.length)
        behind = _proven_position(data, segment.end, segment.keys)
        self.proven_position = max(self.synced_position, behind)

    def _take(self, header: Header, body: memoryview) -> None:
        """Note the contents of a valid record."""
        kind = header.kind
        table = self.segment.table
        if kind <= LAST_ENTRY_KIND:
            if self.last_index is not None and header.index != self.last_index + 1:
                raise ValueError(f"entry {header.index} follows entry {self.last_index}")
            table.append(header.index, header.term, self.segment.end, header.length)
            self.last_index = header.index
            if kind == RecordKind.CONFIG:
                self.configuration_entries.append(
                    Entry(header.index, header.term, EntryKind.CONFIG, bytes(body))
                )
        elif kind == RecordKind.HARD_STATE:
            self.hard_state = decode_hard_state(header.term, bytes(body))
        elif kind == RecordKind.FLOOR:
            self.floor = decode_floor(bytes(body))
        elif kind == RecordKind.RESET:
            self._void(0)
            self.floor = decode_floor(bytes(body))
            self.last_index = header.index
        elif kind == RecordKind.TRUNCATE:
            self._void(header.index)
            self.last_index = header.index

    def _void(self, last_index: int) -> None:
        """Drop entries above `last_index` here and, when linked, in earlier segments."""
        self.segment.table.truncate(last_index)
        drop_above(self.configuration_entries, last_index)
        if self.void_above is None or last_index < self.void_above:
            self.void_above = last_index


class _Broken(msgspec.Struct):
    """A segment file without a valid segment header."""

    incarnation: int
    proven_position: int


def drop_above(entries: list[Entry], last_index: int) -> None:
    """Remove the entries above an index from the end of a list."""
    while entries and entries[-1].index > last_index:
        entries.pop()


def _proven_position(data: bytes, start: int, keys: SegmentKeys) -> int:
    """Return the highest mark in any record of this segment at or after `start`; 0 if none.

    A mark is true even if its record was cut: what was synced never moves, and what an unsynced
    tail once held at a position was synced only if it is still there.
    """
    highest = 0
    at = data.find(keys.tag, start)
    while at >= 0:
        if at % RECORD_ALIGNMENT_BYTES == 0:
            header = parse_header(data, at, keys)
            if header is not None:
                highest = max(highest, header.synced_position)
        at = data.find(keys.tag, at + 1)
    return highest


def _read(file: File, name: str, length: int) -> bytes:
    """Return the first bytes of a segment. Raises LogDamaged when the disk cannot read them."""
    try:
        return file.pread(length, 0)
    except OSError as error:
        raise LogDamaged(name, 0, 0, f"it cannot be read: {error}") from error


def _read_header(file: File, incarnation: int, group: GroupId) -> SegmentHeader | None:
    """Return a segment's header if it is whole and belongs to this incarnation."""
    name = segment_name(incarnation)
    try:
        header = parse_segment_header(_read(file, name, SEGMENT_HEADER_BYTES))
    except ValueError as error:
        raise LogDamaged(name, 0, 0, str(error)) from error
    # A recycled file has the header of its earlier use until the new one is written.
    if header is None or header.incarnation != incarnation:
        return None
    if header.group != group:
        reason = f"it belongs to group {header.group}, not to group {group}"
        raise LogDamaged(name, 0, 0, reason)
    return header


def _scan_all(files: dict[int, File], group: GroupId) -> list[_Scan | _Broken]:
    """Read every segment alone."""
    headers = {number: _read_header(file, number, group) for number, file in files.items()}
    salts = [header.salt for header in headers.values() if header is not None]
    if not salts:
        # The first segment gets its name only when its header is durable.
        raise LogDamaged(segment_name(min(files)), 0, 1, "no segment has a valid header")
    return [
        _scan(file, n, headers[n], segment_keys(group, salts[0], n)) for n, file in files.items()
    ]


def _scan(
    file: File, incarnation: int, header: SegmentHeader | None, keys: SegmentKeys
) -> _Scan | _Broken:
    """Read a segment alone."""
    name = segment_name(incarnation)
    data = _read(file, name, file.size())
    if len(data) < (header.size_bytes if header else SEGMENT_MIN_BYTES):
        # A file's length is durable before it becomes a segment.
        raise LogDamaged(name, len(data), 0, f"the file has been shortened to {len(data)} bytes")
    if header is None:
        return _Broken(incarnation, _proven_position(data, SEGMENT_HEADER_BYTES, keys))
    scan = _Scan(Segment(file, header, first_index=0))
    scan.read(data)
    return scan


def read_alone(
    file: File, name: str, data: bytes, group: GroupId
) -> tuple[SegmentKeys, int, int] | None:
    """Return the keys of a segment, the offset at which its records stop linking up, and the
    checksum of the record before that; None without a header.
    """
    header = parse_segment_header(data)
    if header is None or header.group != group or name != segment_name(header.incarnation):
        return None
    scan = _Scan(Segment(file, header, first_index=0))
    scan.read(data)
    return scan.segment.keys, scan.segment.end, scan.checksum


class _Linked:
    """The log so far: segments that each continue the previous one."""

    def __init__(self) -> None:
        self.scans: list[_Scan] = []
        self.hard_state = HardState()
        self.floor = Floor()
        self.configuration_entries: list[Entry] = []
        self.last_index = 0

    def add(self, scan: _Scan | _Broken) -> bool:
        """Append a segment to the log; return False if it does not link up."""
        if isinstance(scan, _Broken):
            return False
        if self.scans:
            last = self.scans[-1]
            header = last.segment.header
            base_position = header.base_position + header.size_bytes
            if (scan.segment.header.previous, scan.segment.header.base_position) != (
                last.checksum,
                base_position,
            ):
                return False
        if scan.void_above is not None:
            for earlier in self.scans:
                earlier.segment.table.truncate(scan.void_above)
            drop_above(self.configuration_entries, scan.void_above)
        self.configuration_entries += scan.configuration_entries
        self.hard_state = scan.hard_state or self.hard_state
        self.floor = scan.floor or self.floor
        if scan.last_index is not None:
            self.last_index = scan.last_index
        if not len(scan.segment.table):
            scan.segment.table.first_index = self.last_index + 1
        self.scans.append(scan)
        return True

    def check_beginning(self) -> None:
        """Refuse a log whose first segment is missing. Raises LogDamaged."""
        first = self.scans[0].segment
        retired_below = self.floor.retired_below
        is_whole = (
            first.header.base_position == 0
            if retired_below == 0
            else any(scan.segment.header.incarnation == retired_below for scan in self.scans)
        )
        if not is_whole:
            name = segment_name(retired_below or 1)
            raise LogDamaged(name, 0, self.floor.base_index + 1, "the file is missing")

    def check_end(self, rest: list[_Scan | _Broken]) -> None:
        """Refuse a log that breaks off before what is known to be synced. Raises LogDamaged."""
        last = self.scans[-1]
        segment = last.segment
        proven = max(scan.proven_position for scan in (last, *rest))
        index = self.last_index + 1
        successor = segment.header.successor
        if successor and (not rest or _incarnation(rest[0]) > successor):
            raise LogDamaged(segment_name(successor), 0, index, "the file is missing")
        if not successor and proven <= segment.end_position:
            return
        if rest and isinstance(rest[0], _Broken):
            next_base = segment.header.base_position + segment.header.size_bytes
            if successor or proven > next_base:
                name = segment_name(rest[0].incarnation)
                raise LogDamaged(name, 0, index, "the header of the segment is not valid")
        raise LogDamaged(segment.name, segment.end, index, last.reason)

    def check_entries(self) -> None:
        """Refuse a log whose entries have gaps. Raises LogDamaged."""
        following = self.floor.base_index + 1
        for scan in self.scans:
            table = scan.segment.table
            if len(table):
                if table.first_index != following:
                    reason = f"its first entry is {table.first_index} instead of {following}"
                    raise LogDamaged(scan.segment.name, SEGMENT_HEADER_BYTES, following, reason)
                following = table.last_index + 1
        if following != self.last_index + 1:
            segment = self.scans[-1].segment
            reason = f"the log ends at entry {following - 1} instead of {self.last_index}"
            raise LogDamaged(segment.name, segment.end, following, reason)

    def drop_retired(self) -> None:
        """Drop segments that were retired and whose files still existed."""
        retired_below = self.floor.retired_below
        self.scans = [
            scan for scan in self.scans if scan.segment.header.incarnation >= retired_below
        ]
        base_index = self.floor.base_index
        self.configuration_entries = [
            entry for entry in self.configuration_entries if entry.index > base_index
        ]

    def last_term(self) -> int:
        """Return the term of the last entry, or of the base when there is none."""
        for scan in reversed(self.scans):
            if len(scan.segment.table):
                return scan.segment.table.term(self.last_index)
        return self.floor.base_term


def _incarnation(scan: _Scan | _Broken) -> int:
    """Return the number in the file's name."""
    return scan.incarnation if isinstance(scan, _Broken) else scan.segment.header.incarnation


def _link(scans: list[_Scan | _Broken]) -> tuple[_Linked, list[_Scan | _Broken]]:
    """Return the log, and the segments after its end."""
    linked = _Linked()
    for at, scan in enumerate(scans):
        if not linked.add(scan):
            return linked, scans[at:]
    return linked, []


def _recover(files: dict[int, File], group: GroupId) -> Recovered:
    """Recover from open files, oldest first."""
    scans = _scan_all(files, group)
    linked, rest = _link(scans)
    retired_below = max(
        (scan.floor.retired_below for scan in scans if isinstance(scan, _Scan) and scan.floor),
        default=0,
    )
    last = linked.scans[-1].segment.header.incarnation if linked.scans else 0
    if rest and last < retired_below:
        # The break is among retired segments. They were whole and synced before a floor was
        # written above them, so their files have been reused already.
        linked, rest = _link([scan for scan in scans if _incarnation(scan) >= retired_below])
    if not linked.scans:
        name = segment_name(_incarnation(rest[0]) if rest else retired_below)
        raise LogDamaged(name, 0, 1, "the header of the log's first segment is not valid")
    linked.check_beginning()
    linked.check_end(rest)
    linked.drop_retired()
    linked.check_entries()
    newest = linked.scans[-1]
    kept = {scan.segment.header.incarnation for scan in linked.scans}
    return Recovered(
        segments=[scan.segment for scan in linked.scans],
        discarded=[number for number in files if number not in kept],
        checksum=newest.checksum,
        hard_state=linked.hard_state,
        floor=linked.floor,
        configuration_entries=linked.configuration_entries,
        last_index=linked.last_index,
        last_term=linked.last_term(),
        synced_index=newest.synced_index,
        synced_position=newest.synced_position,
    )


def recover(directory: Directory, incarnations: list[int], group: GroupId) -> Recovered:
    """Recover a log from the segments with these incarnations (ascending, at least one).

    Changes nothing on disk. The files of `discarded` are closed. Raises LogDamaged, OSError.
    """
    files: dict[int, File] = {}
    try:
        for number in incarnations:
            files[number] = directory.open(segment_name(number))
        recovered = _recover(files, group)
    except (OSError, LogDamaged):
        for file in files.values():
            file.close()
        raise
    for number in recovered.discarded:
        files[number].close()
    return recovered
