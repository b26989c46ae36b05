"""Transport addresses: TA_ADDRESS [MS-MQMQ 2.2.4], its bodies, and MULTICAST_ID [2.2.10].

The order of an IPv4 address's octets is not specified; in both structures they are in the order of
the dotted text, while ports are little-endian integers (MQ-A4).
"""

from struct import Struct, error
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, take, truncated
from qm.wire.enums import AddressType
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid

_HEAD: Final = Struct("<HH")
_MULTICAST_ID: Final = Struct("<4sI")
_SECTION: Final = "MS-MQMQ 2.2.4"
_SECTION_IP: Final = "MS-MQMQ 2.2.4.1"
_SECTION_IPX: Final = "MS-MQMQ 2.2.4.2"
_SECTION_MULTICAST: Final = "MS-MQMQ 2.2.10"

IP_ADDRESS_SIZE_BYTES: Final = 4
IPX_NETNUM_SIZE_BYTES: Final = 4
IPX_NODENUM_SIZE_BYTES: Final = 6
IPX_ADDRESS_SIZE_BYTES: Final = IPX_NETNUM_SIZE_BYTES + IPX_NODENUM_SIZE_BYTES
MULTICAST_ID_SIZE_BYTES: Final = _MULTICAST_ID.size

QM_ADDRESSES_MAX: Final = 1024
"""Addresses of one queue manager in PROPID_QM_ADDRESS; no number is specified."""


class IpAddress(msgspec.Struct, frozen=True, gc=False):
    """An IPv4 address [MS-MQMQ 2.2.4.1]."""

    octets: bytes
    """Four bytes, in the order of the dotted text."""
    ras: bool = False
    """Whether the address belongs to a connection made through a remote access server."""


class IpxAddress(msgspec.Struct, frozen=True, gc=False):
    """A Novell address [MS-MQMQ 2.2.4.2]; Quorate reads it but never connects to it."""

    netnum: bytes
    """The network, four bytes."""
    nodenum: bytes
    """The node, six bytes."""


class ForeignAddress(msgspec.Struct, frozen=True, gc=False):
    """A connected network instead of an address [MS-MQMQ 2.2.4]."""

    guid: Guid
    """The connected network object, 16 raw bytes."""


TaAddress = IpAddress | IpxAddress | ForeignAddress


class MulticastId(msgspec.Struct, frozen=True, gc=False):
    """A group address and port [MS-MQMQ 2.2.10]."""

    octets: bytes
    """m_address: four bytes, in the order of the dotted text."""
    port: int
    """m_port: u32; ports above 65535 have no format name."""


_SIZE_OF_TYPE: Final = {
    AddressType.IP: IP_ADDRESS_SIZE_BYTES,
    AddressType.IP_RAS: IP_ADDRESS_SIZE_BYTES,
    AddressType.IPX: IPX_ADDRESS_SIZE_BYTES,
    AddressType.FOREIGN: GUID_SIZE_BYTES,
}


def ip_octets(text: str) -> bytes:
    """Return the four octets of dotted decimals, the first octet first (MQ-A4)."""
    parts = text.split(".", IP_ADDRESS_SIZE_BYTES)
    octets = [int(part) for part in parts if _is_octet(part)]
    if len(parts) != IP_ADDRESS_SIZE_BYTES or len(octets) != len(parts):
        raise ValueOutOfRange("IP_Address", _SECTION_IP, f"{text[:64]!r} is not four octets")
    return bytes(octets)


def ip_text(octets: bytes) -> str:
    """Return the dotted decimals of four octets (MQ-A4)."""
    return ".".join(map(str, octets))


def parse_ta_address(buffer: Buffer, offset: int, end: int) -> tuple[TaAddress, int]:
    """Read one TA_ADDRESS: 8, 14 or 20 bytes."""
    start = offset + _HEAD.size
    if start > end:
        raise truncated(offset, _HEAD.size, end, "TA_ADDRESS", _SECTION)
    length, number = _HEAD.unpack_from(buffer, offset)
    if number not in _SIZE_OF_TYPE:
        raise ProtocolError(
            offset + 2, "TA_ADDRESS.AddressType", _SECTION, f"0x{number:04X} is not an address type"
        )
    address_type = AddressType(number)
    if length != _SIZE_OF_TYPE[address_type]:
        raise ProtocolError(
            offset,
            "TA_ADDRESS.AddressLength",
            _SECTION,
            f"{length} bytes; {address_type.name} has {_SIZE_OF_TYPE[address_type]}",
        )
    stop = start + length
    if stop > end:
        raise truncated(start, length, end, "TA_ADDRESS.Address", _SECTION)
    raw = take(buffer, start, stop)
    if address_type is AddressType.FOREIGN:
        return ForeignAddress(raw), stop
    if address_type is AddressType.IPX:
        return IpxAddress(raw[:IPX_NETNUM_SIZE_BYTES], raw[IPX_NETNUM_SIZE_BYTES:]), stop
    return IpAddress(raw, address_type is AddressType.IP_RAS), stop


def write_ta_address(address: TaAddress) -> bytes:
    """Return the bytes of one TA_ADDRESS."""
    if isinstance(address, ForeignAddress):
        address_type, raw = AddressType.FOREIGN, address.guid
    elif isinstance(address, IpxAddress):
        address_type, raw = AddressType.IPX, _ipx_bytes(address)
    else:
        address_type = AddressType.IP_RAS if address.ras else AddressType.IP
        raw = address.octets
    if len(raw) != _SIZE_OF_TYPE[address_type]:
        raise ValueOutOfRange(
            "TA_ADDRESS.Address",
            _SECTION,
            f"{len(raw)} bytes; {address_type.name} has {_SIZE_OF_TYPE[address_type]}",
        )
    return _HEAD.pack(len(raw), address_type) + raw


def parse_qm_addresses(buffer: Buffer, offset: int, end: int) -> tuple[tuple[TaAddress, ...], int]:
    """Read the packed TA_ADDRESSes of PROPID_QM_ADDRESS up to `end` [MS-MQMQ 2.3.2.5]."""
    addresses: list[TaAddress] = []
    while offset < end:
        if len(addresses) == QM_ADDRESSES_MAX:
            raise ProtocolError(
                offset, "PROPID_QM_ADDRESS", "MS-MQMQ 2.3.2.5", f"more than {QM_ADDRESSES_MAX}"
            )
        address, offset = parse_ta_address(buffer, offset, end)
        addresses.append(address)
    return tuple(addresses), offset


def write_qm_addresses(addresses: tuple[TaAddress, ...]) -> bytes:
    """Return the value of PROPID_QM_ADDRESS."""
    if len(addresses) > QM_ADDRESSES_MAX:
        raise ValueOutOfRange(
            "PROPID_QM_ADDRESS",
            "MS-MQMQ 2.3.2.5",
            f"{len(addresses)} addresses; {QM_ADDRESSES_MAX} are allowed",
        )
    return b"".join(map(write_ta_address, addresses))


def parse_multicast_id(buffer: Buffer, offset: int, end: int) -> tuple[MulticastId, int]:
    """Read the 8 bytes of a MULTICAST_ID."""
    stop = offset + _MULTICAST_ID.size
    if stop > end:
        raise truncated(offset, _MULTICAST_ID.size, end, "MULTICAST_ID", _SECTION_MULTICAST)
    return MulticastId(*_MULTICAST_ID.unpack_from(buffer, offset)), stop


def write_multicast_id(multicast: MulticastId) -> bytes:
    """Return the 8 bytes of a MULTICAST_ID."""
    if len(multicast.octets) != IP_ADDRESS_SIZE_BYTES:
        raise ValueOutOfRange(
            "MULTICAST_ID.m_address", _SECTION_MULTICAST, f"{len(multicast.octets)} bytes, not 4"
        )
    try:
        return _MULTICAST_ID.pack(multicast.octets, multicast.port)
    except error as overflow:
        raise ValueOutOfRange("MULTICAST_ID.m_port", _SECTION_MULTICAST, str(overflow)) from None


def _ipx_bytes(address: IpxAddress) -> bytes:
    sizes = (len(address.netnum), len(address.nodenum))
    if sizes != (IPX_NETNUM_SIZE_BYTES, IPX_NODENUM_SIZE_BYTES):
        raise ValueOutOfRange(
            "TA_ADDRESS.Address", _SECTION_IPX, f"{sizes[0]} and {sizes[1]} bytes, not 4 and 6"
        )
    return address.netnum + address.nodenum


def _is_octet(part: str) -> bool:
    return len(part) <= 3 and part.isascii() and part.isdigit() and int(part) <= 0xFF
