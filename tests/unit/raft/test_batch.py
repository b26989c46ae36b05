"""Batches: what went in comes out, one payload is found alone, hostile bytes raise one error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.batch import (
    BATCH_PAYLOADS_MAX,
    BATCH_SOFT_MAX_BYTES,
    PREFIX_BYTES,
    BatchBuilder,
    BatchError,
    header_bytes,
    locate,
    split,
    total_bytes,
)

PAYLOADS = st.lists(st.binary(max_size=40), max_size=20)


def build(payloads: list[bytes]) -> bytes:
    """Return the batch of these payloads."""
    builder = BatchBuilder()
    assert [builder.add(payload) for payload in payloads] == list(range(len(payloads)))
    return builder.build()


@given(PAYLOADS)
def test_a_batch_gives_back_its_payloads(payloads: list[bytes]) -> None:
    """In order, as views."""
    assert [bytes(payload) for payload in split(build(payloads))] == payloads


@given(PAYLOADS)
def test_each_payload_is_found_from_the_header(payloads: list[bytes]) -> None:
    """Without the bytes of the others."""
    data = build(payloads)
    header = data[: header_bytes(data[:PREFIX_BYTES])]
    assert total_bytes(header) == len(data)
    for ordinal, payload in enumerate(payloads):
        offset, length = locate(header, ordinal)
        assert data[offset : offset + length] == payload
    for ordinal in (-1, len(payloads)):
        with pytest.raises(BatchError):
            locate(header, ordinal)


def test_views_are_taken_and_given() -> None:
    """Payloads are copied once, into the batch."""
    builder = BatchBuilder()
    builder.add(memoryview(b"abc")[1:])
    data = builder.build()
    (view,) = split(data)
    assert view.obj is data
    assert bytes(view) == b"bc"


def test_a_builder_is_empty_after_building() -> None:
    """It counts from 0 again."""
    builder = BatchBuilder()
    builder.add(b"abc")
    assert (len(builder), builder.size_bytes) == (1, 3)
    builder.build()
    assert (len(builder), builder.size_bytes) == (0, 0)
    assert builder.add(b"x") == 0
    assert [bytes(p) for p in split(builder.build())] == [b"x"]


def test_a_prologue_stands_before_the_payloads() -> None:
    """An empty one does too; without one nothing comes before them."""
    for prologue in (b"stamp", b""):
        builder = BatchBuilder()
        builder.add(b"abc")
        assert [bytes(payload) for payload in split(builder.build(prologue))] == [prologue, b"abc"]


def test_a_batch_closes_at_its_soft_limit() -> None:
    """One payload may exceed it, alone."""
    builder = BatchBuilder()
    assert builder.offer(bytes(10 * BATCH_SOFT_MAX_BYTES)) == 0
    assert builder.offer(b"") == -1
    builder.build()
    assert builder.offer(bytes(BATCH_SOFT_MAX_BYTES - 1)) == 0
    assert builder.offer(b"xy") == -1
    assert builder.offer(b"x") == 1
    assert [len(payload) for payload in split(builder.build())] == [BATCH_SOFT_MAX_BYTES - 1, 1]


def test_a_batch_closes_at_its_count() -> None:
    """BATCH_PAYLOADS_MAX, however small they are, with the prologue."""
    builder = BatchBuilder()
    for ordinal in range(BATCH_PAYLOADS_MAX - 1):
        assert builder.offer(b"") == ordinal
    assert builder.offer(b"") == -1
    assert len(split(builder.build(b"prologue"))) == BATCH_PAYLOADS_MAX


@given(st.binary(max_size=200))
def test_any_bytes_raise_one_error(data: bytes) -> None:
    """BatchError or a list; nothing else, and no memory for what is not there."""
    for bytes_ in (data, b"QB\0\0" + data):
        try:
            payloads = split(bytes_)
        except BatchError:
            continue
        assert sum(map(len, payloads)) <= len(bytes_)


@given(PAYLOADS.filter(bool), st.data())
def test_a_damaged_batch_raises_or_stays_within_itself(
    payloads: list[bytes], data: st.DataObject
) -> None:
    """Cut, longer, or with a byte changed."""
    whole = build(payloads)
    with pytest.raises(BatchError):
        split(whole + b"x")
    with pytest.raises(BatchError):
        split(whole[: data.draw(st.integers(0, len(whole) - 1))])
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = split(bytes(damaged))
    except BatchError:
        return
    assert sum(map(len, found)) <= len(whole)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"QB",
        b"XX\0\0" + struct.pack("<I", 0),
        b"QB\1\0" + struct.pack("<I", 0),
        b"QB\0\0" + struct.pack("<I", BATCH_PAYLOADS_MAX + 1),
        b"QB\0\0" + struct.pack("<I", 1),
        b"QB\0\0" + struct.pack("<III", 2, 9, 3),
    ],
)
def test_hostile_headers_raise_one_error(header: bytes) -> None:
    """The same holds for `locate`."""
    with pytest.raises(BatchError):
        locate(header, 1)


def test_a_header_that_is_cut_has_no_total() -> None:
    """The batch has payloads."""
    header = build([b"a", b"b"])
    with pytest.raises(BatchError):
        total_bytes(header[:12])
