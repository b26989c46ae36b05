"""Security descriptors: self-relative form, both ways, and hostile bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.security.descriptor import (
    Ace,
    Acl,
    Control,
    SecurityDescriptor,
    parse_descriptor,
    write_descriptor,
)
from qm.security.sid import EVERYONE
from qm.wire.errors import ProtocolError, ValueOutOfRange
from tests.unit.security.test_sid import sids

decided = st.builds(
    Ace,
    st.sampled_from([0, 1, 2]),
    st.integers(0, 255),
    st.integers(0, (1 << 32) - 1),
    sids,
    st.binary(max_size=8),
)
carried = st.builds(
    Ace, st.integers(3, 255), st.integers(0, 255), st.just(0), st.just(b""), st.binary(max_size=40)
)
acls = st.builds(Acl, st.lists(decided | carried, max_size=6).map(tuple), st.sampled_from([2, 4]))
descriptors = st.builds(
    SecurityDescriptor,
    st.none() | sids,
    st.none() | sids,
    st.none() | acls,
    st.none() | acls,
    st.sampled_from([0, int(Control.OWNER_DEFAULTED | Control.DACL_DEFAULTED)]),
)


@given(descriptors)
def test_written_and_read_back(descriptor: SecurityDescriptor) -> None:
    written = write_descriptor(descriptor)
    assert parse_descriptor(written) == descriptor
    assert write_descriptor(parse_descriptor(written)) == written


@given(descriptors, st.data())
def test_every_truncation_and_flip_ends_in_a_value_or_a_protocol_error(
    descriptor: SecurityDescriptor, data: st.DataObject
) -> None:
    written = bytearray(write_descriptor(descriptor))
    cut = data.draw(st.integers(0, len(written)))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= data.draw(st.integers(0, 255))
    for hostile in (bytes(written), bytes(written[:cut])):
        try:
            parse_descriptor(hostile)
        except ProtocolError as error:
            assert error.section.startswith("MS-DTYP 2.4")


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_a_protocol_error(data: bytes) -> None:
    try:
        parse_descriptor(data)
    except ProtocolError as error:
        assert error.offset <= max(len(data), 1 << 32)


def test_null_dacl_differs_from_an_empty_one() -> None:
    empty = SecurityDescriptor(dacl=Acl(()))
    present_and_null = bytearray(write_descriptor(SecurityDescriptor()))
    present_and_null[2] |= Control.DACL_PRESENT
    assert parse_descriptor(write_descriptor(empty)) == empty
    assert parse_descriptor(present_and_null).dacl is None


def test_what_has_no_encoding_is_refused() -> None:
    many = Acl(tuple(Ace(0, 0, 1, EVERYONE) for _ in range(4000)))
    with pytest.raises(ValueOutOfRange):
        write_descriptor(SecurityDescriptor(dacl=many))
