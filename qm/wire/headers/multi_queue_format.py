"""MultiQueueFormatHeader: all queues of a message with many destinations [MS-MQMQ 2.2.20.1-3].

Each list's elements are MQFFormatNameElement [2.2.18.1.4]; their type numbers are those of
QUEUE_FORMAT, not those of the UserHeader.
"""

from array import array
from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, aligned, take, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.limits import MQF_ADDRESS_HEADER_MIN_BYTES, MQF_ELEMENTS_MAX
from qm.wire.packing import guid_bytes, pack_fields
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PublicQueueFormatName,
)
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES, parse_wide_text, write_wide_text

SECTION_ADDRESS: Final = "MS-MQMQ 2.2.20.2"
SECTION_SIGNATURE: Final = "MS-MQMQ 2.2.20.3"
SECTION_ELEMENT: Final = "MS-MQMQ 2.2.18.1.4"

HEADER_ID_DESTINATION: Final = 0x0064
HEADER_ID_ADMIN: Final = 0x00C8
HEADER_ID_RESPONSE: Final = 0x012C
HEADER_ID_SIGNATURE: Final = 0x015E

FORMAT_TYPE_PUBLIC: Final = 0x0001
FORMAT_TYPE_PRIVATE: Final = 0x0002
FORMAT_TYPE_DIRECT: Final = 0x0003
FORMAT_TYPE_DISTRIBUTION: Final = 0x0006

_ADDRESS: Final = Struct("<IHHI")
_SIGNATURE: Final = Struct("<HHI")
_FORMAT_TYPE: Final = Struct("<H")
_PRIVATE: Final = Struct("<16sI")
_ELEMENT_MIN_BYTES: Final = 4
_FIXED_BODY_SIZES: Final = {
    FORMAT_TYPE_PUBLIC: GUID_SIZE_BYTES,
    FORMAT_TYPE_PRIVATE: _PRIVATE.size,
    FORMAT_TYPE_DISTRIBUTION: GUID_SIZE_BYTES,
}


class DistributionQueueFormatName(msgspec.Struct, frozen=True, gc=False):
    """MQFDistributionQueueFormatName: a distribution list [MS-MQMQ 2.2.18.1.4.2]."""

    distribution_list_identifier: Guid
    """16 raw bytes."""


FormatNameElement = (
    PublicQueueFormatName
    | PrivateQueueFormatName
    | DirectQueueFormatName
    | DistributionQueueFormatName
)


class MultiQueueFormatHeader(msgspec.Struct, frozen=True, gc=False):
    """Three lists of queues, possibly empty, and a signature; reserved fields are ignored."""

    destination: tuple[FormatNameElement, ...] = ()
    """Every queue that got a copy of the message."""
    administration: tuple[FormatNameElement, ...] = ()
    """Queues for acknowledgments."""
    response: tuple[FormatNameElement, ...] = ()
    """Queues for answers."""
    signature: bytes = b""
    """The signature over the message, empty when there is none."""


def parse_multi_queue_format_header(
    buffer: Buffer, offset: int, end: int
) -> tuple[MultiQueueFormatHeader, int]:
    """Read and check the four parts; the next offset is 4-aligned from `offset`."""
    destination, position = _parse_address(buffer, offset, end, HEADER_ID_DESTINATION)
    administration, position = _parse_address(buffer, position, end, HEADER_ID_ADMIN)
    response, position = _parse_address(buffer, position, end, HEADER_ID_RESPONSE)
    signature, position = _parse_signature(buffer, position, end)
    return MultiQueueFormatHeader(destination, administration, response, signature), position


def write_multi_queue_format_header(header: MultiQueueFormatHeader) -> bytes:
    """Return the four parts, each padded to 4 bytes with zeros that its size counts (MQ-A14)."""
    signature = pack_fields(
        _SIGNATURE,
        "MQFSignatureHeader",
        SECTION_SIGNATURE,
        HEADER_ID_SIGNATURE,
        0,
        len(header.signature),
    )
    padding = bytes(aligned(len(header.signature)) - len(header.signature))
    return b"".join(
        (
            _write_address(header.destination, HEADER_ID_DESTINATION),
            _write_address(header.administration, HEADER_ID_ADMIN),
            _write_address(header.response, HEADER_ID_RESPONSE),
            signature,
            header.signature,
            padding,
        )
    )


def write_format_name_list(elements: tuple[FormatNameElement, ...]) -> bytes:
    """Return the elements of one list, without the padding after the last of them."""
    names = bytearray()
    for element in elements:
        format_type, body = _write_element(element)
        names += _FORMAT_TYPE.pack(format_type)
        if format_type != FORMAT_TYPE_DIRECT:
            # The list itself starts on a boundary, so its own length gives the padding.
            names += bytes(aligned(len(names)) - len(names))
        names += body
    return bytes(names)


def _parse_address(
    buffer: Buffer, offset: int, end: int, header_id: int
) -> tuple[tuple[FormatNameElement, ...], int]:
    if offset + _ADDRESS.size > end:
        raise truncated(offset, _ADDRESS.size, end, "MQFAddressHeader", SECTION_ADDRESS)
    size, found_id, _, count = _ADDRESS.unpack_from(buffer, offset)
    if found_id != header_id:
        raise ProtocolError(
            offset + 4,
            "MQFAddressHeader.HeaderID",
            SECTION_ADDRESS,
            f"0x{found_id:04X} instead of 0x{header_id:04X}",
        )
    # MQ-A14: the size may or may not count the padding; what follows is on the next boundary.
    after = offset + aligned(size)
    if size < MQF_ADDRESS_HEADER_MIN_BYTES or after > end:
        raise ProtocolError(
            offset,
            "MQFAddressHeader.HeaderSize",
            SECTION_ADDRESS,
            f"{size} bytes is not {MQF_ADDRESS_HEADER_MIN_BYTES} to {end - offset}",
        )
    if count > min(MQF_ELEMENTS_MAX, (size - _ADDRESS.size) // _ELEMENT_MIN_BYTES):
        raise ProtocolError(
            offset + 8,
            "MQFAddressHeader.ElementCount",
            SECTION_ADDRESS,
            f"{count} elements in {size} bytes, at most {MQF_ELEMENTS_MAX}",
        )
    elements, position = _parse_elements(buffer, offset, offset + size, count)
    if offset + aligned(position - offset) != after:
        raise ProtocolError(
            position,
            "MQFAddressHeader.FormatNameList",
            SECTION_ADDRESS,
            f"{after - position} bytes after the last of {count} elements",
        )
    return elements, after


def _parse_elements(
    buffer: Buffer, header: int, stop: int, count: int
) -> tuple[tuple[FormatNameElement, ...], int]:
    """Read `count` elements of the list whose header starts at `header`."""
    position = header + _ADDRESS.size
    # Direct names have no length. One pass over WCHARs keeps the search for their NULs linear.
    units = array("H")
    units.frombytes(memoryview(buffer)[position : stop - (stop - position) % WCHAR_SIZE_BYTES])
    first = position
    elements: list[FormatNameElement] = []
    for _ in range(count):
        start = position + _FORMAT_TYPE.size
        if start > stop:
            raise _element_error(position, "FormatType", "the list ends before it")
        (format_type,) = _FORMAT_TYPE.unpack_from(buffer, position)
        if format_type == FORMAT_TYPE_DIRECT:
            try:
                nul = units.index(0, (start - first) // WCHAR_SIZE_BYTES)
            except ValueError:
                raise _element_error(start, "FormatName", "no NUL before the list ends") from None
            position = first + (nul + 1) * WCHAR_SIZE_BYTES
            name = parse_wide_text(
                buffer, start, position, "MQFDirectQueueFormatName", "MS-MQMQ 2.2.18.1.4.1"
            )
            elements.append(DirectQueueFormatName(name))
            continue
        size = _FIXED_BODY_SIZES.get(format_type)
        if size is None:
            raise _element_error(
                position, "FormatType", f"0x{format_type:04X}, only 1, 2, 3 and 6 exist"
            )
        # MQ-A15: bodies that start with a GUID are 4-aligned, the public one among them.
        start = header + aligned(start - header)
        position = start + size
        if position > stop:
            raise _element_error(start, "FormatName", f"needs {size} bytes, the list ends before")
        elements.append(_parse_fixed_body(buffer, start, format_type))
    return tuple(elements), position


def _parse_fixed_body(buffer: Buffer, start: int, format_type: int) -> FormatNameElement:
    if format_type == FORMAT_TYPE_PRIVATE:
        return PrivateQueueFormatName(*_PRIVATE.unpack_from(buffer, start))
    guid = bytes(buffer[start : start + GUID_SIZE_BYTES])
    if format_type == FORMAT_TYPE_PUBLIC:
        return PublicQueueFormatName(guid)
    return DistributionQueueFormatName(guid)


def _parse_signature(buffer: Buffer, offset: int, end: int) -> tuple[bytes, int]:
    start = offset + _SIGNATURE.size
    if start > end:
        raise truncated(offset, _SIGNATURE.size, end, "MQFSignatureHeader", SECTION_SIGNATURE)
    found_id, _, size = _SIGNATURE.unpack_from(buffer, offset)
    if found_id != HEADER_ID_SIGNATURE:
        raise ProtocolError(
            offset,
            "MQFSignatureHeader.ID",
            SECTION_SIGNATURE,
            f"0x{found_id:04X} instead of 0x{HEADER_ID_SIGNATURE:04X}",
        )
    after = start + aligned(size)
    if after > end:
        raise ProtocolError(
            offset + 4,
            "MQFSignatureHeader.Size",
            SECTION_SIGNATURE,
            f"{size} bytes and padding, {end - start} are left",
        )
    return take(buffer, start, start + size), after


def _write_address(elements: tuple[FormatNameElement, ...], header_id: int) -> bytes:
    if len(elements) > MQF_ELEMENTS_MAX:
        raise ValueOutOfRange(
            "MQFAddressHeader.ElementCount",
            SECTION_ADDRESS,
            f"{len(elements)} elements, at most {MQF_ELEMENTS_MAX}",
        )
    names = write_format_name_list(elements)
    names += bytes(aligned(len(names)) - len(names))
    return _ADDRESS.pack(_ADDRESS.size + len(names), header_id, 0, len(elements)) + names


def _write_element(element: FormatNameElement) -> tuple[int, bytes]:
    match element:
        case DirectQueueFormatName(direct_format_name=text):
            return FORMAT_TYPE_DIRECT, write_wide_text(
                text, "MQFDirectQueueFormatName", "MS-MQMQ 2.2.18.1.4.1"
            )
        case PublicQueueFormatName(public_queue_identifier=guid):
            return FORMAT_TYPE_PUBLIC, guid_bytes(
                guid, "PublicQueueFormatName", "MS-MQMQ 2.2.18.1.7.1"
            )
        case DistributionQueueFormatName(distribution_list_identifier=guid):
            return FORMAT_TYPE_DISTRIBUTION, guid_bytes(
                guid, "MQFDistributionQueueFormatName", "MS-MQMQ 2.2.18.1.4.2"
            )
        case PrivateQueueFormatName(source_queue_manager=guid, private_queue_identifier=number):
            field, section = "PrivateQueueFormatName", "MS-MQMQ 2.2.18.1.7.2"
            host = guid_bytes(guid, field, section)
            return FORMAT_TYPE_PRIVATE, pack_fields(_PRIVATE, field, section, host, number)


def _element_error(offset: int, name: str, reason: str) -> ProtocolError:
    return ProtocolError(offset, f"MQFFormatNameElement.{name}", SECTION_ELEMENT, reason)
