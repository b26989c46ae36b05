import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.errors import ValueOutOfRange
from qm.wire.structures.identifiers import (
    MessageIdentifier,
    ObjectId,
    TxSequenceId,
    parse_message_identifier,
    parse_object_id,
    write_message_identifier,
    write_object_id,
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
def test_a_sequence_is_one_integer_of_64_bits(time_stamp: int, ordinal: int) -> None:
    sequence = TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)
    assert sequence.to_int() == time_stamp << 32 | ordinal
    assert TxSequenceId.from_int(sequence.to_int()) == sequence


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_sequences_compare_as_unsigned_64_bit_integers(first: int, second: int) -> None:
    pair = TxSequenceId.from_int(first), TxSequenceId.from_int(second)
    assert (pair[0] < pair[1]) == (first < second)
    assert (pair[0] >= pair[1]) == (first >= second)


def test_a_value_without_an_encoding_is_refused() -> None:
    with pytest.raises(ValueOutOfRange, match="QueueManagerGuid"):
        write_message_identifier(MessageIdentifier(GUID[:15], 1))
    with pytest.raises(ValueOutOfRange, match="MessageIdentifier"):
        write_message_identifier(MessageIdentifier(GUID, 2**32))
    with pytest.raises(ValueOutOfRange, match="OBJECTID"):
        write_object_id(ObjectId(GUID, -1))
