"""The bytes of records and segment headers."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.log.record import (
    RECORD_ALIGNMENT_BYTES,
    RECORD_HEADER_BYTES,
    Floor,
    RecordKind,
    decode_floor,
    decode_hard_state,
    decode_meta,
    encode_floor,
    encode_hard_state,
    encode_header,
    encode_meta,
    padding,
    parse_header,
    record_bytes,
    segment_keys,
)
from raft.log.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    Table,
    encode_segment_header,
    parse_segment_header,
    segment_name,
    segment_numbers,
    spare_name,
    spare_numbers,
)
from raft.types import Configuration, HardState, SnapshotMeta
from tests.unit.raft.log.faults import Disk

KEYS = segment_keys(group=7, salt=99, incarnation=3)
U64 = st.integers(0, 2**64 - 1)
NODES = st.lists(st.text(min_size=1, max_size=20), max_size=4).map(tuple)
METAS = st.builds(SnapshotMeta, U64, U64, st.builds(Configuration, NODES, NODES, NODES), U64)


def header(data: bytes = b"data") -> bytes:
    return encode_header(KEYS, RecordKind.DATA, 5, 17, data, (12, 3456), 0xABCD)[0]


class TestHeader:
    def test_it_comes_back(self) -> None:
        encoded, checksum = encode_header(KEYS, RecordKind.DATA, 5, 17, b"data", (12, 3456), 0xABCD)
        assert len(encoded) == RECORD_HEADER_BYTES
        found = parse_header(b"before" + encoded, 6, KEYS)
        assert found is not None
        assert (found.kind, found.length, found.term, found.index) == (RecordKind.DATA, 4, 5, 17)
        assert (found.synced_index, found.synced_position) == (12, 3456)
        assert (found.previous, found.checksum) == (0xABCD, checksum)
        assert found.data_checksum == crc32(b"data")

    def test_its_bytes_are_these(self) -> None:
        """The format on disk changes with a version, not by accident."""
        keys = segment_keys(group=1, salt=2, incarnation=3)
        encoded, checksum = encode_header(keys, 1, 4, 5, b"six", (7, 8), 9)
        fields = struct.pack("<BxxxIIQQQQIIxxxx", 1, 1, 3, 4, 5, 7, 8, 9, crc32(b"six"))
        assert encoded == keys.tag + fields + struct.pack("<I", checksum)
        assert checksum == crc32(keys.tag + fields, keys.seed)
        assert (keys.tag.hex(), keys.seed) == ("6989c509", 3299692490)

    def test_a_flipped_bit_is_seen(self) -> None:
        for bit in range(RECORD_HEADER_BYTES * 8):
            damaged = bytearray(header())
            damaged[bit // 8] ^= 1 << bit % 8
            assert parse_header(damaged, 0, KEYS) is None, bit

    def test_it_must_be_whole(self) -> None:
        for length in range(RECORD_HEADER_BYTES):
            assert parse_header(header()[:length], 0, KEYS) is None

    @pytest.mark.parametrize(
        "other",
        [
            segment_keys(group=8, salt=99, incarnation=3),
            segment_keys(group=7, salt=98, incarnation=3),
            segment_keys(group=7, salt=99, incarnation=4),
        ],
    )
    def test_it_belongs_to_one_segment_of_one_log(self, other: object) -> None:
        assert isinstance(other, type(KEYS))
        assert parse_header(header(), 0, other) is None

    def test_an_unknown_kind_is_no_record(self) -> None:
        encoded, _ = encode_header(KEYS, 99, 5, 17, b"", (0, 0), 0)
        assert parse_header(encoded, 0, KEYS) is None

    def test_keys_differ_in_tag_and_seed(self) -> None:
        keys = [segment_keys(1, salt, number) for salt in range(30) for number in range(30)]
        assert len({key.tag for key in keys}) > 890
        assert len({key.seed for key in keys}) == 900
        assert all(key.tag[0] for key in keys)

    @given(st.integers(0, 100_000))
    def test_records_are_aligned(self, length: int) -> None:
        size = record_bytes(length)
        assert size % RECORD_ALIGNMENT_BYTES == 0
        assert size == RECORD_HEADER_BYTES + length + len(padding(length))
        assert set(padding(length)) <= {0}


class TestBodies:
    @given(st.builds(HardState, U64, st.none() | st.text(min_size=1, max_size=50), U64))
    def test_hard_state_comes_back(self, state: HardState) -> None:
        assert decode_hard_state(state.term, encode_hard_state(state)) == state

    @given(st.builds(Floor, U64, U64, U64, st.none() | METAS))
    def test_floor_comes_back(self, floor: Floor) -> None:
        assert decode_floor(encode_floor(floor)) == floor

    @given(METAS)
    def test_meta_comes_back(self, meta: SnapshotMeta) -> None:
        assert decode_meta(encode_meta(meta)) == meta

    @given(st.binary(max_size=60))
    def test_other_bytes_are_refused_in_one_way(self, data: bytes) -> None:
        for decode in (lambda: decode_hard_state(1, data), lambda: decode_floor(data)):
            try:
                decode()
            except ValueError:
                continue


class TestSegmentHeader:
    HEADER = SegmentHeader(7, 3, 4096, 8192, 2**64 - 1, 0xFFFFFFFF)

    def test_it_comes_back(self) -> None:
        encoded = encode_segment_header(self.HEADER)
        assert len(encoded) == SEGMENT_HEADER_BYTES
        assert parse_segment_header(encoded) == self.HEADER

    def test_a_flipped_bit_is_seen_or_harmless(self) -> None:
        for bit in range(SEGMENT_HEADER_BYTES * 8):
            damaged = bytearray(encode_segment_header(self.HEADER))
            damaged[bit // 8] ^= 1 << bit % 8
            assert parse_segment_header(bytes(damaged)) in (None, self.HEADER), bit

    def test_it_must_be_whole(self) -> None:
        assert parse_segment_header(encode_segment_header(self.HEADER)[:-1]) is None

    def test_another_version_is_named(self) -> None:
        fields = bytearray(encode_segment_header(self.HEADER)[:48])
        fields[7] = 2
        with pytest.raises(ValueError, match="format is 2"):
            parse_segment_header(bytes(fields) + struct.pack("<I", crc32(fields)) + bytes(12))

    def test_names_are_numbers_and_nothing_else_is_touched(self) -> None:
        folder = Disk().root
        for name in (segment_name(10), segment_name(9), spare_name(1), "x.segment", "1.segment"):
            folder.open(name, create=True)
        assert segment_numbers(folder) == [9, 10]
        assert spare_numbers(folder) == [1]


class TestTable:
    @given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9)), max_size=40))
    def test_it_is_a_list_that_is_cut_and_continued(self, steps: list[tuple[int, int]]) -> None:
        table = Table(1)
        plain: list[tuple[int, int, int]] = []
        term = 0
        for number, (cut, count) in enumerate(steps):
            keep = max(0, len(plain) - cut)
            table.truncate(keep)
            del plain[keep:]
            term += number % 2
            for _ in range(count):
                table.append(len(plain) + 1, term, number, cut)
                plain.append((term, number, cut))
            assert len(table) == table.last_index == len(plain)
            assert [(table.term(i), *table.place(i)) for i in range(1, len(plain) + 1)] == plain

    def test_gaps_are_refused(self) -> None:
        table = Table(1)
        table.append(5, 1, 0, 0)
        with pytest.raises(ValueError, match="does not follow"):
            table.append(7, 1, 0, 0)

    def test_ten_million_entries_fit_a_small_node(self) -> None:
        """8 bytes for each entry: a hundredth of the entries, a hundredth of the limit."""
        table = Table(1)
        for index in range(1, 100_001):
            table.append(index, 1, index * 80, 20)
        assert table.size_bytes() < 100_000 * 10
