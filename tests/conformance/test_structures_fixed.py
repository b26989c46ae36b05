"""Structures of fixed layout: addresses and identifiers (MS-MQMQ 2.2.4 to 2.2.10, 2.2.18.1.8)."""

from collections.abc import Callable

import pytest

from qm.wire.enums import AddressType
from qm.wire.errors import ProtocolError
from qm.wire.rpc.address import (
    ForeignAddress,
    IpAddress,
    IpxAddress,
    MulticastId,
    TaAddress,
    ip_octets,
    ip_text,
    parse_multicast_id,
    parse_ta_address,
    write_multicast_id,
    write_ta_address,
)
from qm.wire.structures.identifiers import (
    ObjectId,
    SequenceInfo,
    XactUow,
    parse_object_id,
    parse_sequence_info,
    parse_xactuow,
    write_object_id,
    write_sequence_info,
    write_xactuow,
)

GUID = bytes(range(0xA0, 0xB0))


def refused(parse: Callable[[bytes, int, int], object], raw: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        parse(raw, 0, len(raw))
    return caught.value.field


@pytest.mark.parametrize(
    ("address", "raw"),
    [
        (IpAddress(b"\x0a\x00\x00\x05"), "0400 0100 0a000005"),
        (IpAddress(b"\x0a\x00\x00\x05", ras=True), "0400 0200 0a000005"),
        (
            IpxAddress(b"\x00\x00\x00\x12", b"\x00\xa0\x23\x4f\x75\x00"),
            "0a00 0300 00000012 00a0234f7500",
        ),
        (ForeignAddress(GUID), "1000 0500" + GUID.hex()),
    ],
)
@pytest.mark.spec("MQ-2.2.4-01", "MQ-2.2.4-04", "MQ-2.2.4.1-01", "MQ-2.2.4.2-01")
def test_transport_addresses(address: TaAddress, raw: str) -> None:
    data = bytes.fromhex(raw)
    assert len(data) in (8, 14, 20)
    assert write_ta_address(address) == data
    assert parse_ta_address(b"\xff" + data + b"\xff", 1, 1 + len(data)) == (address, 1 + len(data))
    for size in range(len(data)):
        refused(parse_ta_address, data[:size])


@pytest.mark.spec("MQ-2.2.4.1-01")
def test_an_ip_address_is_four_octets_in_the_order_of_its_text() -> None:
    assert ip_octets("10.0.0.5") == b"\x0a\x00\x00\x05"
    assert ip_text(b"\x0a\x00\x00\x05") == "10.0.0.5"


@pytest.mark.spec("MQ-2.2.4-02", "MQ-2.2.4-03")
def test_each_address_type_has_its_length() -> None:
    sizes = {1: 4, 2: 4, 3: 10, 5: 16}
    assert {member.name: member.value for member in AddressType} == {
        "IP": 1,
        "IP_RAS": 2,
        "IPX": 3,
        "FOREIGN": 5,
    }
    for number in range(0x10):
        for length in range(0x18):
            raw = bytes((length, 0, number, 0)) + bytes(0x18)
            if sizes.get(number) == length:
                address, after = parse_ta_address(raw, 0, len(raw))
                assert after == 4 + length
                assert write_ta_address(address) == raw[:after]
            else:
                wrong = "AddressLength" if number in sizes else "AddressType"
                assert refused(parse_ta_address, raw) == f"TA_ADDRESS.{wrong}"


@pytest.mark.spec("MQ-2.2.5-01")
def test_sequence_info() -> None:
    info = SequenceInfo(seq_id=-2, seq_no=7, prev_no=0xFFFF_FFFE)
    raw = bytes.fromhex("feffffffffffffff 07000000 feffffff")
    assert write_sequence_info(info) == raw
    assert parse_sequence_info(b"\0" + raw, 1, 17) == (info, 17)
    assert refused(parse_sequence_info, raw[:15]) == "SEQUENCE_INFO"


@pytest.mark.spec("MQ-2.2.8-01")
def test_object_id() -> None:
    raw = GUID + bytes.fromhex("0f000080")
    value = ObjectId(lineage=GUID, uniquifier=0x8000_000F)
    assert write_object_id(value) == raw
    assert parse_object_id(b"\0" + raw, 1, 21) == (value, 21)
    assert refused(parse_object_id, raw[:19]) == "OBJECTID"


@pytest.mark.spec("MQ-2.2.10-01")
def test_multicast_id() -> None:
    raw = bytes.fromhex("ea010203 411f0000")
    value = MulticastId(octets=ip_octets("234.1.2.3"), port=8001)
    assert write_multicast_id(value) == raw
    assert parse_multicast_id(b"\0" + raw, 1, 9) == (value, 9)
    assert refused(parse_multicast_id, raw[:7]) == "MULTICAST_ID"


@pytest.mark.spec("MQ-2.2.18.1.8-01")
def test_xactuow() -> None:
    assert write_xactuow(XactUow(GUID)) == GUID
    assert parse_xactuow(b"\0" + GUID, 1, 17) == (XactUow(GUID), 17)
    assert refused(parse_xactuow, GUID[:15]) == "XACTUOW"
