import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.rpc.address import (
    QM_ADDRESSES_MAX,
    ForeignAddress,
    IpAddress,
    IpxAddress,
    MulticastId,
    TaAddress,
    ip_octets,
    ip_text,
    parse_multicast_id,
    parse_qm_addresses,
    parse_ta_address,
    write_multicast_id,
    write_qm_addresses,
    write_ta_address,
)
from tests.unit.wire.structures.codec_check import (
    check_codec,
    check_refused,
    check_whole,
    value_or_error,
)

ta_addresses = st.one_of(
    st.builds(IpAddress, st.binary(min_size=4, max_size=4), st.booleans()),
    st.builds(IpxAddress, st.binary(min_size=4, max_size=4), st.binary(min_size=6, max_size=6)),
    st.builds(ForeignAddress, st.binary(min_size=16, max_size=16)),
)


@given(ta_addresses)
def test_an_address_reads_back(address: TaAddress) -> None:
    check_codec(parse_ta_address, write_ta_address, address, write_ta_address(address))


@given(st.lists(ta_addresses, max_size=8).map(tuple))
def test_packed_addresses_read_back(addresses: tuple[TaAddress, ...]) -> None:
    raw = b"".join(map(write_ta_address, addresses))
    check_whole(parse_qm_addresses, write_qm_addresses, addresses, raw)


@given(st.binary(max_size=64))
def test_any_bytes_end_in_addresses_or_the_protocol_error(raw: bytes) -> None:
    addresses = value_or_error(parse_qm_addresses, raw)
    if not isinstance(addresses, ProtocolError):
        assert write_qm_addresses(addresses) == raw


@pytest.mark.parametrize("address_type", [0, 4, 6, 0xFFFF])
def test_an_unknown_type_is_refused(address_type: int) -> None:
    raw = b"\x04\x00" + address_type.to_bytes(2, "little") + b"\x0a\x00\x00\x05"
    assert check_refused(parse_ta_address, raw).field == "TA_ADDRESS.AddressType"


@pytest.mark.parametrize(("address_type", "length"), [(1, 10), (2, 3), (3, 4), (5, 4), (1, 0xFFFF)])
def test_a_length_that_is_not_its_types_is_refused(address_type: int, length: int) -> None:
    raw = length.to_bytes(2, "little") + address_type.to_bytes(2, "little") + bytes(16)
    assert check_refused(parse_ta_address, raw).field == "TA_ADDRESS.AddressLength"


def test_the_number_of_addresses_is_limited() -> None:
    address = IpAddress(b"\x0a\x00\x00\x05")
    many = (address,) * QM_ADDRESSES_MAX
    assert parse_qm_addresses(write_qm_addresses(many), 0, 8 * QM_ADDRESSES_MAX)[0] == many
    check_refused(parse_qm_addresses, write_qm_addresses(many) + write_ta_address(address))
    with pytest.raises(ValueOutOfRange):
        write_qm_addresses((*many, address))


@given(st.ip_addresses(v=4).map(str))
def test_octets_stand_as_in_the_text(text: str) -> None:
    octets = ip_octets(text)
    assert list(octets) == [int(part) for part in text.split(".")]
    assert ip_text(octets) == text


@pytest.mark.parametrize(
    "text", ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.-4", "a.b.c.d", "١.2.3.4"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueOutOfRange):
        ip_octets(text)


@given(st.binary(min_size=4, max_size=4), st.integers(0, 0xFFFF_FFFF))
def test_multicast_id(octets: bytes, port: int) -> None:
    check_codec(
        parse_multicast_id,
        write_multicast_id,
        MulticastId(octets, port),
        octets + port.to_bytes(4, "little"),
    )


def test_a_value_without_an_encoding_is_refused() -> None:
    for address in (IpAddress(b"123"), IpxAddress(b"123", b"1234567"), ForeignAddress(b"")):
        with pytest.raises(ValueOutOfRange):
            write_ta_address(address)
    for multicast in (MulticastId(b"123", 1), MulticastId(b"1234", -1)):
        with pytest.raises(ValueOutOfRange):
            write_multicast_id(multicast)
