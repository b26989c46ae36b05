"""Frames: what was put in comes out, and any other bytes raise FrameError alone."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import types
from raft.pb.peer_pb2 import Frame
from raft.transport.wire_format import (
    FRAME_ENVELOPES_MAX,
    FRAME_MAX_ENTRIES,
    FrameDecoder,
    FrameEncoder,
    FrameError,
    FrameFault,
    size_bytes,
)
from raft.types import (
    Append,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    Heartbeat,
    InstallSnapshot,
    SnapshotMeta,
    TimeoutNow,
)

CLUSTER = bytes(range(16))
A, B = "a.1", "b.12"
NUMBERS = st.integers(0, (1 << 64) - 1)
IDS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), max_size=5)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    prev_index = draw(st.integers(0, 1 << 63))
    contents = draw(
        st.lists(st.tuples(NUMBERS, st.sampled_from(EntryKind), st.binary()), max_size=5)
    )
    entries = tuple(
        Entry(prev_index + 1 + position, term, kind, data)
        for position, (term, kind, data) in enumerate(contents)
    )
    return Append(prev_index, draw(NUMBERS), draw(NUMBERS), entries, draw(NUMBERS))


def snapshots() -> st.SearchStrategy[InstallSnapshot]:
    configurations = st.builds(Configuration, IDS.map(tuple), IDS.map(tuple), IDS.map(tuple))
    return st.builds(
        InstallSnapshot, st.builds(SnapshotMeta, NUMBERS, NUMBERS, configurations, NUMBERS)
    )


def fixed(body: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    values = {int: NUMBERS, bool: st.booleans()}
    fields = {f.name: values[f.type] for f in msgspec.structs.fields(body)}
    return st.builds(body, **fields)


VARIABLE = (Append, InstallSnapshot)
BODIES = st.one_of(
    appends(),
    snapshots(),
    *(fixed(body) for body in types.Body.__args__ if body not in VARIABLE),
)
ENVELOPES = st.builds(
    Envelope, st.integers(0, (1 << 32) - 1), st.just(A), st.just(B), NUMBERS, BODIES
)


def encode(*envelopes: Envelope) -> bytes:
    return FrameEncoder(CLUSTER, A).encode(envelopes)


def decode(frame: bytes) -> list[Envelope]:
    return FrameDecoder(CLUSTER, A, B).decode(frame)


def entries(first: int, count: int, size: int) -> tuple[Entry, ...]:
    return tuple(Entry(first + n, 3, EntryKind.DATA, bytes(size)) for n in range(count))


def replicate(prev_index: int, some: tuple[Entry, ...], to: str = B, term: int = 3) -> Envelope:
    return Envelope(1, A, to, term, Append(prev_index, 3, 0, some))


class TestFrames:
    @given(st.lists(ENVELOPES, max_size=6))
    def test_what_was_put_in_comes_out(self, envelopes: list[Envelope]) -> None:
        assert decode(encode(*envelopes)) == envelopes

    @given(st.lists(ENVELOPES, max_size=3))
    def test_a_frame_is_the_protobuf_message_of_peer_proto(self, envelopes: list[Envelope]) -> None:
        frame = encode(*envelopes)
        assert Frame(envelopes=Frame.FromString(frame).envelopes).SerializeToString() == frame

    def test_every_body_of_the_core_has_a_layout(self) -> None:
        fields = [f.type for body in types.Body.__args__ for f in msgspec.structs.fields(body)]
        assert set(fields) == {int, bool, tuple[Entry, ...], SnapshotMeta}

    def test_a_frame_with_the_same_entries_is_built_once(self) -> None:
        encoder = FrameEncoder(CLUSTER, A)
        some = entries(10, 3, 1000)
        first = encoder.encode([replicate(9, some, to="b.12")])
        assert encoder.encode([replicate(9, tuple(some), to="c.1")]) is first
        assert encoder.encode([replicate(9, some, to="d.1", term=4)]) is not first
        assert decode(encoder.encode([replicate(9, some, term=5)]))[0].term == 5

    def test_the_queue_counts_what_an_envelope_carries(self) -> None:
        small = size_bytes(Envelope(1, A, B, 1, TimeoutNow()))
        assert size_bytes(replicate(0, entries(1, 4, 1000))) >= small + 4000


class TestHostileBytes:
    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        with pytest.raises(FrameError):
            decode(data)

    @given(st.binary(max_size=200))
    def test_any_envelopes(self, data: bytes) -> None:
        head = Frame.FromString(encode()).envelopes
        frame = Frame(envelopes=head + data).SerializeToString()
        try:
            decoded = decode(frame)
        except FrameError as error:
            assert error.fault is FrameFault.MALFORMED
        else:
            assert encode(*decoded) is not None

    @given(st.lists(ENVELOPES, min_size=1, max_size=3), st.data())
    def test_a_flipped_byte(self, envelopes: list[Envelope], data: st.DataObject) -> None:
        frame = bytearray(encode(*envelopes))
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(FrameError):
            decode(bytes(frame))

    def test_every_truncation(self) -> None:
        whole = Frame.FromString(encode(replicate(9, entries(10, 2, 50)))).envelopes
        head = len(Frame.FromString(encode()).envelopes)
        for length in range(head + 1, len(whole)):
            with pytest.raises(FrameError):
                decode(Frame(envelopes=whole[:length]).SerializeToString())

    def test_a_node_without_a_name(self) -> None:
        meta = SnapshotMeta(7, 3, Configuration(("nameless",)), 100)
        whole = Frame.FromString(encode(Envelope(1, A, B, 3, InstallSnapshot(meta)))).envelopes
        changed = whole.replace(b"\x08nameless", b"\x00")
        assert len(changed) == len(whole) - len("nameless")
        with pytest.raises(FrameError):
            decode(Frame(envelopes=changed).SerializeToString())

    def test_another_cluster(self) -> None:
        frame = FrameEncoder(CLUSTER[::-1], A).encode([])
        with pytest.raises(FrameError) as caught:
            decode(frame)
        assert caught.value.fault is FrameFault.FOREIGN_CLUSTER

    def test_another_sender(self) -> None:
        frame = FrameEncoder(CLUSTER, "a.2").encode([])
        with pytest.raises(FrameError, match=r"a\.2") as caught:
            decode(frame)
        assert caught.value.fault is FrameFault.FORGED_SENDER

    def test_another_layout_version(self) -> None:
        frame = bytearray(encode())
        frame[2] += 1
        with pytest.raises(FrameError, match="version") as caught:
            decode(bytes(frame))
        assert caught.value.fault is FrameFault.MALFORMED

    def test_more_envelopes_than_the_limit(self) -> None:
        beat = Envelope(1, A, B, 1, Heartbeat(0, 0))
        assert len(decode(encode(*[beat] * FRAME_ENVELOPES_MAX))) == FRAME_ENVELOPES_MAX
        with pytest.raises(FrameError):
            decode(encode(*[beat] * (FRAME_ENVELOPES_MAX + 1)))

    def test_more_entries_than_the_limit(self) -> None:
        half = replicate(0, entries(1, FRAME_MAX_ENTRIES // 2, 0))
        one = replicate(0, entries(1, 1, 0))
        assert len(decode(encode(half, half))) == 2
        with pytest.raises(FrameError):
            decode(encode(half, half, one))

    def test_entries_beyond_the_last_index(self) -> None:
        last = (1 << 64) - 1
        body = Append(last, 3, 0, (Entry(0, 3, EntryKind.NOOP, b""),))
        with pytest.raises(FrameError):
            decode(encode(Envelope(1, A, B, 3, body)))

    def test_an_empty_message(self) -> None:
        with pytest.raises(FrameError):
            decode(b"")


class TestOwnMistakes:
    def test_a_cluster_id_has_sixteen_bytes(self) -> None:
        with pytest.raises(ValueError, match="16 bytes"):
            FrameEncoder(b"short", A)

    @pytest.mark.parametrize("node", ["", "n" * 256])
    def test_a_node_id_has_a_length(self, node: str) -> None:
        with pytest.raises(ValueError, match="1 to 255"):
            FrameEncoder(CLUSTER, node)
