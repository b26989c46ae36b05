import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.errors import ValueOutOfRange
from qm.wire.structures.identifiers import (
    MessageIdentifier,
    ObjectId,
    SequenceInfo,
    TxSequenceId,
    XactUow,
    parse_message_identifier,
    parse_object_id,
    parse_sequence_info,
    parse_tx_sequence_id,
    parse_xactuow,
    write_message_identifier,
    write_object_id,
    write_sequence_info,
    write_tx_sequence_id,
    write_xactuow,
)
from tests.unit.wire.structures.codec_check import check_codec

guids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 0xFFFF_FFFF)
GUID = bytes(range(16))


@given(guids, u32)
def test_message_identifier(guid: bytes, ordinal: int) -> None:
    check_codec(
        parse_message_identifier,
        write_message_identifier,
        MessageIdentifier(guid, ordinal),
        guid + ordinal.to_bytes(4, "little"),
    )


@given(guids, u32)
def test_object_id(guid: bytes, number: int) -> None:
    check_codec(
        parse_object_id,
        write_object_id,
        ObjectId(guid, number),
        guid + number.to_bytes(4, "little"),
    )


@given(u32, u32)
def test_tx_sequence_id(time_stamp: int, ordinal: int) -> None:
    sequence = TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)
    check_codec(
        parse_tx_sequence_id,
        write_tx_sequence_id,
        sequence,
        ordinal.to_bytes(4, "little") + time_stamp.to_bytes(4, "little"),
    )
    assert TxSequenceId.from_int(sequence.to_int()) == sequence


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_sequences_compare_as_unsigned_64_bit_integers(first: int, second: int) -> None:
    pair = TxSequenceId.from_int(first), TxSequenceId.from_int(second)
    assert (pair[0] < pair[1]) == (first < second)
    assert (pair[0] >= pair[1]) == (first >= second)
    raw = first.to_bytes(8, "little")
    assert write_tx_sequence_id(pair[0]) == raw


@given(st.integers(-(2**63), 2**63 - 1), u32, u32)
def test_sequence_info(seq_id: int, seq_no: int, prev_no: int) -> None:
    check_codec(
        parse_sequence_info,
        write_sequence_info,
        SequenceInfo(seq_id, seq_no, prev_no),
        seq_id.to_bytes(8, "little", signed=True)
        + seq_no.to_bytes(4, "little")
        + prev_no.to_bytes(4, "little"),
    )


@given(guids)
def test_xactuow(guid: bytes) -> None:
    check_codec(parse_xactuow, write_xactuow, XactUow(guid), guid)


def test_a_value_without_an_encoding_is_refused() -> None:
    with pytest.raises(ValueOutOfRange, match="QueueManagerGuid"):
        write_message_identifier(MessageIdentifier(GUID[:15], 1))
    with pytest.raises(ValueOutOfRange, match="MessageIdentifier"):
        write_message_identifier(MessageIdentifier(GUID, 2**32))
    with pytest.raises(ValueOutOfRange, match="OBJECTID"):
        write_object_id(ObjectId(GUID, -1))
    with pytest.raises(ValueOutOfRange, match="TxSequenceID"):
        write_tx_sequence_id(TxSequenceId.from_int(2**64))
    with pytest.raises(ValueOutOfRange, match="SEQUENCE_INFO"):
        write_sequence_info(SequenceInfo(2**63, 0, 0))
    with pytest.raises(ValueOutOfRange, match="XACTUOW"):
        write_xactuow(XactUow(GUID * 2))
