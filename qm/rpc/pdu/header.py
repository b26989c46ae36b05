"""The header of every PDU, the security trailer at its end, and how PDUs are cut from a stream."""

from struct import Struct
from typing import Final

import msgspec

from qm.rpc.pdu.codes import PduFlag, PduType

HEADER_SIZE_BYTES: Final = 16
TRAILER_SIZE_BYTES: Final = 8
VERSION_MAJOR: Final = 5
VERSIONS_MINOR: Final = (0, 1)
DREP_LITTLE: Final = b"\x10\0\0\0"
_SHAPES: Final = {order: Struct(order + "BBBB4sHHI") for order in ("<", ">")}
_TRAILERS: Final = {order: Struct(order + "BBBBI") for order in ("<", ">")}
_LENGTHS: Final = {order: Struct(order + "H") for order in ("<", ">")}
_LENGTH_AT: Final = 8
_DREP_AT: Final = 4
_CALL_ID_AT: Final = 12
_UNPADDED_BYTES: Final = 8
"""Of a body: sizes of a bind, head of a request. Padding cannot reach into them."""


class MalformedPdu(Exception):
    """The bytes are not a PDU; says what is wrong. The connection cannot go on."""


class Trailer(msgspec.Struct, frozen=True, gc=False):
    """sec_trailer with its token [MS-RPCE 2.2.2.11]."""

    auth_type: int
    level: int
    context_id: int
    """auth_context_id: which of the connection's security contexts."""
    token: bytes
    pad_length: int = 0
    """Bytes between the stub and this trailer."""
    raw: bytes = b""
    """Its eight bytes, as they were read."""


class Pdu(msgspec.Struct, frozen=True, gc=False):
    """A PDU whose header and trailer are read; `body` is what lies between them."""

    kind: PduType
    flags: int
    call_id: int
    order: str
    """"<" or ">", for `struct`: drep's byte order."""
    minor: int
    header: bytes
    """16 bytes."""
    body: bytes
    """With padding in front of the trailer."""
    trailer: Trailer | None = None

    @property
    def is_first(self) -> bool:
        """Whether it begins a call."""
        return bool(self.flags & PduFlag.FIRST)

    @property
    def is_last(self) -> bool:
        """Whether it ends a call."""
        return bool(self.flags & PduFlag.LAST)


class WrongVersion(Exception):
    """A PDU of a protocol version that is not 5.0 or 5.1. `call_id` is that of the PDU."""

    def __init__(self, call_id: int) -> None:
        super().__init__("only DCE/RPC 5.0 and 5.1 are spoken here")
        self.call_id = call_id


def fragment_length(buffer: bytes | bytearray | memoryview) -> int:
    """Return frag_length of the PDU at the start of `buffer`, or 0 while too little is there."""
    if len(buffer) < HEADER_SIZE_BYTES:
        return 0
    order = _order(buffer[_DREP_AT])
    length: int = _LENGTHS[order].unpack_from(buffer, _LENGTH_AT)[0]
    if length < HEADER_SIZE_BYTES:
        raise MalformedPdu(f"frag_length {length} is shorter than a header")
    return length


def call_id_at_start(buffer: bytes | bytearray) -> int:
    """Return the call id of a PDU that is not read any further, as far as its header is there."""
    is_big = buffer[_DREP_AT : _DREP_AT + 1] < DREP_LITTLE[:1]
    raw = buffer[_CALL_ID_AT:HEADER_SIZE_BYTES]
    return int.from_bytes(raw, "big" if is_big else "little")


def parse_pdu(raw: bytes) -> Pdu:
    """Read one whole PDU. Raises MalformedPdu, WrongVersion."""
    order = _order(raw[_DREP_AT])
    major, minor, number, flags, drep, length, auth_length, call_id = _SHAPES[order].unpack_from(
        raw
    )
    if major != VERSION_MAJOR or minor not in VERSIONS_MINOR:
        raise WrongVersion(call_id)
    if drep[0] & 0x0F or drep[1]:
        raise MalformedPdu(f"drep {drep.hex()}: only ASCII and IEEE numbers are read")
    if length != len(raw):
        raise MalformedPdu(f"frag_length {length} and {len(raw)} bytes")
    try:
        kind = PduType(number)
    except ValueError:
        raise MalformedPdu(f"PTYPE {number} is not a PDU of this protocol") from None
    header = raw[:HEADER_SIZE_BYTES]
    if not auth_length:
        return Pdu(kind, flags, call_id, order, minor, header, raw[HEADER_SIZE_BYTES:])
    at = length - auth_length - TRAILER_SIZE_BYTES
    if at < HEADER_SIZE_BYTES:
        raise MalformedPdu(f"auth_length {auth_length} in a fragment of {length} bytes")
    auth_type, level, pad_length, _, context_id = _TRAILERS[order].unpack_from(raw, at)
    body = raw[HEADER_SIZE_BYTES:at]
    if pad_length > max(len(body) - _UNPADDED_BYTES, 0) and kind is not PduType.AUTH3:
        raise MalformedPdu(f"auth_pad_length {pad_length} in a body of {len(body)} bytes")
    trailer = Trailer(
        auth_type,
        level,
        context_id,
        raw[at + TRAILER_SIZE_BYTES :],
        pad_length,
        raw[at : at + TRAILER_SIZE_BYTES],
    )
    return Pdu(kind, flags, call_id, order, minor, header, body, trailer)


def write_header(
    kind: PduType, flags: int, call_id: int, length: int, auth_length: int = 0, minor: int = 0
) -> bytes:
    """Return the 16 bytes of a header; `length` counts the whole PDU."""
    return _SHAPES["<"].pack(
        VERSION_MAJOR, minor, kind, flags, DREP_LITTLE, length, auth_length, call_id
    )


def write_trailer(auth_type: int, level: int, pad_length: int, context_id: int) -> bytes:
    """Return the 8 bytes of a sec_trailer."""
    return _TRAILERS["<"].pack(auth_type, level, pad_length, 0, context_id)


def write_pdu(
    kind: PduType,
    flags: int,
    call_id: int,
    body: bytes,
    trailer: Trailer | None = None,
    minor: int = 0,
) -> bytes:
    """Return a whole PDU without protection of its body, such as a bind or its answer."""
    if trailer is None:
        return write_header(kind, flags, call_id, HEADER_SIZE_BYTES + len(body), minor=minor) + body
    pad = -len(body) % 4
    head = write_trailer(trailer.auth_type, trailer.level, pad, trailer.context_id)
    length = HEADER_SIZE_BYTES + len(body) + pad + TRAILER_SIZE_BYTES + len(trailer.token)
    header = write_header(kind, flags, call_id, length, len(trailer.token), minor)
    return b"".join((header, body, bytes(pad), head, trailer.token))


def _order(drep: int) -> str:
    if drep >> 4 > 1:
        raise MalformedPdu(f"drep {drep:02x}: only little- and big-endian integers are read")
    return "<" if drep >> 4 else ">"
