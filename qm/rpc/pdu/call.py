"""request, response and fault [C706 12.6.4.7 to .10], and the verification trailer of requests."""

from struct import Struct, error
from typing import Final

import msgspec

from qm.rpc.pdu.bind import Syntax, swapped_uuid
from qm.rpc.pdu.codes import PduFlag, PduType
from qm.rpc.pdu.header import HEADER_SIZE_BYTES, MalformedPdu, Pdu, write_header
from qm.wire.guid import Guid

_REQUEST: Final = {order: Struct(order + "IHH") for order in ("<", ">")}
_RESPONSE: Final = Struct("<IHBB")
_FAULT: Final = Struct("<IHBBII")
CALL_HEADER_SIZE_BYTES: Final = HEADER_SIZE_BYTES + _RESPONSE.size
"""Of a request without object UUID, and of a response."""
_UUID_SIZE: Final = 16
_CONTEXT_MASK: Final = 0xFF
"""Responses give only the low byte of a context id, as Windows does; faults give all of it."""

VERIFICATION_MAGIC: Final = bytes.fromhex("8ae3137102f43671")
_COMMAND: Final = Struct("<HH")
_IS_LAST: Final = 0x4000
_MUST_UNDERSTAND: Final = 0x8000
_COMMAND_MASK: Final = 0x3FFF
_BITMASK, _PCONTEXT, _HEADER2_NUMBER = 1, 2, 3
_HEADER2: Final = Struct("<BBH4sIHH")
_COMMANDS_MAX: Final = 16


class RequestPart(msgspec.Struct, frozen=True, gc=False):
    """The head of one request fragment."""

    context_id: int
    opnum: int
    object_uuid: Guid | None
    stub_at: int
    """Where the stub begins in the body."""


def parse_request(pdu: Pdu) -> RequestPart:
    """Read the head of a request fragment. Raises MalformedPdu."""
    try:
        _, context_id, opnum = _REQUEST[pdu.order].unpack_from(pdu.body)
    except error:
        raise MalformedPdu("a request without its head") from None
    at = _REQUEST[pdu.order].size
    if not pdu.flags & PduFlag.OBJECT_UUID:
        return RequestPart(context_id, opnum, None, at)
    raw = pdu.body[at : at + _UUID_SIZE]
    if len(raw) < _UUID_SIZE:
        raise MalformedPdu("a request without the object UUID that its flags announce")
    if pdu.order == ">":
        raw = swapped_uuid(raw)
    return RequestPart(context_id, opnum, raw, at + _UUID_SIZE)


def request_head(context_id: int, opnum: int, stub_left: int) -> bytes:
    """Return the 8 bytes behind the header of a request; `stub_left` is its alloc_hint."""
    return _REQUEST["<"].pack(stub_left, context_id, opnum)


def response_head(context_id: int, stub_left: int, cancels: int = 0) -> bytes:
    """Return the 8 bytes behind the header of a response; `stub_left` is its alloc_hint."""
    return _RESPONSE.pack(stub_left, context_id & _CONTEXT_MASK, cancels, 0)


def parse_response(pdu: Pdu) -> tuple[int, int]:
    """Return (context id, where the stub begins in the body). Raises MalformedPdu."""
    try:
        _, context_id, _, _ = _RESPONSE.unpack_from(pdu.body)
    except error:
        raise MalformedPdu("a response without its head") from None
    return context_id, _RESPONSE.size


def write_fault(
    call_id: int, context_id: int, status: int, *, is_executed: bool = True, minor: int = 0
) -> bytes:
    """Return a fault, which never carries a trailer; `status` is not 0."""
    flags = PduFlag.FIRST | PduFlag.LAST
    if not is_executed:
        flags |= PduFlag.DID_NOT_EXECUTE
    size = HEADER_SIZE_BYTES + _FAULT.size
    body = _FAULT.pack(size, context_id, 0, 0, status, 0)
    header = write_header(PduType.FAULT, flags, call_id, HEADER_SIZE_BYTES + len(body), minor=minor)
    return header + body


def parse_fault(pdu: Pdu) -> int:
    """Return the status of a fault. Raises MalformedPdu."""
    try:
        status: int = _FAULT.unpack_from(pdu.body)[4]
    except error:
        raise MalformedPdu("a fault without its status") from None
    return status


def verify_trailer(
    stub: bytes,
    parameters_end: int,
    *,
    signs_header: bool,
    interface: Syntax,
    transfer: Syntax,
    pdu_head: tuple[int, bytes, int, int, int],
) -> bool:
    """Whether the verification trailer agrees with the call, or there is none (RP-A1).

    `pdu_head`: PTYPE, drep, call id, context id, opnum of the request, for command header2.
    """
    at = _trailer_at(stub, parameters_end)
    if at < 0:
        return True
    at += len(VERIFICATION_MAGIC)
    for _ in range(_COMMANDS_MAX):
        if at + _COMMAND.size > len(stub):
            return False
        number, length = _COMMAND.unpack_from(stub, at)
        at += _COMMAND.size
        value = stub[at : at + length]
        if len(value) < length:
            return False
        at += length
        command = number & _COMMAND_MASK
        if command == _BITMASK:
            # Bit 0 says that the client asked for header signing in its bind.
            if len(value) != 4 or (value[0] & 1 and not signs_header):
                return False
        elif command == _PCONTEXT:
            if value != interface.raw + transfer.raw:
                return False
        elif command == _HEADER2_NUMBER:
            if len(value) != _HEADER2.size:
                return False
            kind, _, _, *others = _HEADER2.unpack(value)
            if (kind, *others) != pdu_head:
                return False
        elif number & _MUST_UNDERSTAND:
            return False
        if number & _IS_LAST:
            return True
    return False


def _trailer_at(stub: bytes, begin: int) -> int:
    """Return where a verification trailer begins, at a multiple of four; -1 without one."""
    at = stub.find(VERIFICATION_MAGIC, begin)
    while at > 0 and at % 4:
        at = stub.find(VERIFICATION_MAGIC, at + 1)
    return at
