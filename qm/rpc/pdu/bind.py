"""bind, alter_context and their answers [C706 12.6.4.3 to .5; MS-RPCE 2.2.2.4 to .9]."""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, Literal

import msgspec

from qm.names.guid import GUID_SIZE_BYTES, guid_from_text
from qm.rpc.limits import CONTEXTS_PER_BIND_MAX, SYNTAXES_PER_CONTEXT_MAX
from qm.rpc.pdu.codes import BindNakReason, ContextResult, PduFlag, PduType
from qm.rpc.pdu.header import (
    VERSION_MAJOR,
    VERSIONS_MINOR,
    MalformedPdu,
    Pdu,
    Trailer,
    write_pdu,
)
from qm.wire.guid import Guid

_HEAD: Final = {order: Struct(order + "HHIBBH") for order in ("<", ">")}
_ELEMENT: Final = {order: Struct(order + "HBB") for order in ("<", ">")}
_SYNTAX_SIZE_BYTES: Final = 20
_RESULT: Final = Struct("<HH16sI")
_ACK: Final = Struct("<HHIH")
_BYTES_OF_VERSION: Final = 4
_NAME_OF_ORDER: Final[dict[str, Literal["little", "big"]]] = {"<": "little", ">": "big"}


def _guid(text: str) -> Guid:
    raw = guid_from_text(text)
    assert raw is not None, text
    return raw


class Syntax(msgspec.Struct, frozen=True, gc=False):
    """An interface, or a transfer syntax, with its version."""

    uuid: Guid
    """16 bytes, as on the wire in little-endian PDUs."""
    major: int
    minor: int = 0

    @property
    def raw(self) -> bytes:
        """The 20 bytes of it: p_syntax_id_t."""
        return self.uuid + (self.major | self.minor << 16).to_bytes(_BYTES_OF_VERSION, "little")


NDR20: Final = Syntax(_guid("8a885d04-1ceb-11c9-9fe8-08002b104860"), 2)
NDR64: Final = Syntax(_guid("71710533-beba-4937-8319-b5dbef9ccc36"), 1)
FEATURE_PREFIX: Final = _guid("6cb71c2c-9812-4540-0000-000000000000")[:8]
"""Of a transfer syntax that proposes features instead [MS-RPCE 2.2.2.14]."""
FEATURE_VERSION: Final = (1, 0)


def features_of(syntax: Syntax) -> int | None:
    """Return the proposed feature bits of a transfer syntax; None for a real one."""
    if syntax.uuid[:8] != FEATURE_PREFIX or (syntax.major, syntax.minor) != FEATURE_VERSION:
        return None
    return int.from_bytes(syntax.uuid[8:], "little")


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A presentation context that a client proposes."""

    context_id: int
    interface: Syntax
    transfers: tuple[Syntax, ...]


class Bind(msgspec.Struct, frozen=True, gc=False):
    """The body of a bind or alter_context."""

    max_transmit: int
    """Bytes, of the client's fragments."""
    max_receive: int
    group_id: int
    """assoc_group_id; 0 for a new association."""
    proposals: tuple[Proposal, ...]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of one proposal."""

    result: int
    reason: int = 0
    transfer: Syntax | None = None


def parse_bind(pdu: Pdu) -> Bind:
    """Read a bind or alter_context. Raises MalformedPdu."""
    order, body = pdu.order, pdu.body
    try:
        transmit, receive, group_id, count, _, _ = _HEAD[order].unpack_from(body)
        at = _HEAD[order].size
        if count > CONTEXTS_PER_BIND_MAX:
            raise MalformedPdu(f"{count} contexts; {CONTEXTS_PER_BIND_MAX} are allowed")
        proposals = []
        for _ in range(count):
            context_id, syntaxes, _ = _ELEMENT[order].unpack_from(body, at)
            if syntaxes > SYNTAXES_PER_CONTEXT_MAX:
                raise MalformedPdu(f"{syntaxes} transfer syntaxes in a context")
            at += _ELEMENT[order].size
            interface, at = _parse_syntax(order, body, at)
            transfers = []
            for _ in range(syntaxes):
                transfer, at = _parse_syntax(order, body, at)
                transfers.append(transfer)
            proposals.append(Proposal(context_id, interface, tuple(transfers)))
    except error:
        raise MalformedPdu("a bind that ends before its last context") from None
    return Bind(transmit, receive, group_id, tuple(proposals))


def write_bind(
    kind: PduType,
    call_id: int,
    bind: Bind,
    trailer: Trailer | None = None,
    flags: int = PduFlag.FIRST | PduFlag.LAST,
) -> bytes:
    """Return a bind or alter_context, for clients."""
    parts = [
        _HEAD["<"].pack(
            bind.max_transmit, bind.max_receive, bind.group_id, len(bind.proposals), 0, 0
        )
    ]
    for one in bind.proposals:
        parts.append(_ELEMENT["<"].pack(one.context_id, len(one.transfers), 0))
        parts.append(one.interface.raw)
        parts += [transfer.raw for transfer in one.transfers]
    return write_pdu(kind, flags, call_id, b"".join(parts), trailer)


def write_bind_ack(
    kind: PduType,
    pdu: Pdu,
    flags: int,
    size: int,
    group_id: int,
    address: str,
    answers: Sequence[Answer],
    trailer: Trailer | None,
) -> bytes:
    """Return bind_ack or alter_context_resp to `pdu`; `address`: the port, "" for an alter."""
    secondary = address.encode("ascii") + b"\0" if address else b""
    head = _ACK.pack(size, size, group_id, len(secondary)) + secondary
    head += bytes(-len(head) % 4)
    parts = [head, bytes((len(answers), 0, 0, 0))]
    for answer in answers:
        syntax = answer.transfer
        raw = (bytes(GUID_SIZE_BYTES), 0)
        if syntax is not None:
            raw = (syntax.uuid, syntax.major | syntax.minor << 16)
        parts.append(_RESULT.pack(answer.result, answer.reason, *raw))
    return write_pdu(kind, flags, pdu.call_id, b"".join(parts), trailer, pdu.minor)


class BindAck(msgspec.Struct, frozen=True, gc=False):
    """The body of bind_ack or alter_context_resp, for clients."""

    fragment_max: int
    """Bytes."""
    group_id: int
    address: str
    answers: tuple[Answer, ...]


def parse_bind_ack(pdu: Pdu) -> BindAck:
    """Read bind_ack or alter_context_resp. Raises MalformedPdu."""
    body = pdu.body
    try:
        size, _, group_id, length = _ACK.unpack_from(body)
        at = _ACK.size + length
        address = body[_ACK.size : at].rstrip(b"\0").decode("ascii", "replace")
        at += -at % 4
        (count, _, _, _) = Struct("4B").unpack_from(body, at)
        at += 4
        answers = []
        for _ in range(count):
            result, reason, uuid, version = _RESULT.unpack_from(body, at)
            at += _RESULT.size
            accepted = result == ContextResult.ACCEPTANCE
            transfer = Syntax(uuid, version & 0xFFFF, version >> 16) if accepted else None
            answers.append(Answer(result, reason, transfer))
    except error:
        raise MalformedPdu("a bind_ack that ends before its last result") from None
    return BindAck(size, group_id, address, tuple(answers))


def write_bind_nak(call_id: int, reason: BindNakReason, minor: int = 0) -> bytes:
    """Return a bind_nak with the version that is spoken, without a signature."""
    body = bytes((reason & 0xFF, reason >> 8, 1, VERSION_MAJOR, VERSIONS_MINOR[0]))
    body += bytes(-len(body) % 4)
    flags = PduFlag.FIRST | PduFlag.LAST
    return write_pdu(PduType.BIND_NAK, flags, call_id, body, minor=minor)


def _parse_syntax(order: str, body: bytes, at: int) -> tuple[Syntax, int]:
    """Read a UUID and its version; the first three parts of a UUID are integers, too."""
    end = at + _SYNTAX_SIZE_BYTES
    if len(body) < end:
        raise error("short")
    uuid = body[at : at + GUID_SIZE_BYTES]
    version = int.from_bytes(body[at + GUID_SIZE_BYTES : end], _NAME_OF_ORDER[order])
    if order == ">":
        uuid = swapped_uuid(uuid)
    return Syntax(uuid, version & 0xFFFF, version >> 16), end


def swapped_uuid(raw: bytes) -> bytes:
    """Return a UUID in the other byte order."""
    return raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]
