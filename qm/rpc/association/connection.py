"""One connection of a server: PDUs in, answers and calls out. No I/O, no clock.

    receive(bytes) -> events: a call to execute, a call to cancel or to forget
    respond / fault -> bytes in `take_output`, to be written in this order

After a protocol error it answers what the specification says, and `is_closing` is set: write the
output, then close.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from qm.rpc.association.calls import IncomingCall, OutOfOrder, Partial, Reassembly
from qm.rpc.association.groups import Association, Associations
from qm.rpc.association.presentations import Presentation, Presentations
from qm.rpc.association.security import (
    LegRefused,
    NoExchange,
    SecurityContext,
    SecurityContexts,
    UnknownAuthType,
)
from qm.rpc.association.shared import Shared
from qm.rpc.interface import Interface
from qm.rpc.limits import (
    BIND_MAX_BYTES,
    FRAGMENT_MAX_BYTES,
    FRAGMENT_MIN_BYTES,
)
from qm.rpc.pdu.bind import (
    Bind,
    Proposal,
    features_of,
    parse_bind,
    write_bind_ack,
    write_bind_nak,
)
from qm.rpc.pdu.call import (
    CALL_HEADER_SIZE_BYTES,
    RequestPart,
    parse_request,
    response_head,
    write_fault,
)
from qm.rpc.pdu.codes import (
    NO_AUTHENTICATION,
    AuthLevel,
    BindNakReason,
    FaultStatus,
    PduFlag,
    PduType,
)
from qm.rpc.pdu.header import (
    TRAILER_SIZE_BYTES,
    MalformedPdu,
    Pdu,
    Trailer,
    WrongVersion,
    call_id_at_start,
    fragment_length,
    parse_pdu,
    write_header,
    write_trailer,
)
from qm.rpc.security.provider import Buffers, Providers, SecurityRefused
from qm.wire.guid import Guid

_STUB_ALIGNMENT_BYTES: Final = 16
"""Of every fragment but the last of a protected answer, and of its trailer (RP-A2)."""
_FRAGMENT_ALIGNMENT_BYTES: Final = 8
_KIND_AT: Final = 2
_WHOLE: Final = PduFlag.FIRST | PduFlag.LAST


class Cancelled(msgspec.Struct, frozen=True):
    """The client asked to end a call; it still expects an answer."""

    call_id: int


class Orphaned(msgspec.Struct, frozen=True):
    """The client no longer waits for a call's answer."""

    call_id: int


Event = IncomingCall | Cancelled | Orphaned


class Served(msgspec.Struct, frozen=True):
    """What a listening port offers."""

    interfaces: Mapping[tuple[Guid, int], Interface]
    """By UUID and major version."""
    providers: Providers
    associations: Associations
    shared: Shared = msgspec.field(default_factory=Shared)
    """Of all ports."""
    levels: Mapping[Guid, AuthLevel] = {}
    """Least protection by interface, where it is more or less than the interface's own."""
    anonymous: frozenset[Guid] = frozenset()
    """Interfaces that are also open to callers without any security context."""


class Connection:
    """The state of one connection."""

    def __init__(self, served: Served, address: str, port: int) -> None:
        """`address`: the client's, without port. `port`: the local one, told in bind_ack."""
        self._served = served
        self._address = address
        self._port = port
        self._buffer = bytearray()
        self._output: list[bytes] = []
        self._events: list[Event] = []
        self._security = SecurityContexts(
            served.providers, address, served.shared.security_contexts
        )
        self._presentations = Presentations(served.interfaces)
        self._reassembly = Reassembly()
        self._in_progress: dict[int, IncomingCall] = {}
        self._size = FRAGMENT_MAX_BYTES
        self._is_multiplexed = False
        """Whether PFC_CONC_MPX was negotiated."""
        self._has_failed_to_log_on = False
        """A last leg in auth3, which has no answer: the next request gets the fault (RP-A10)."""
        self.association: Association | None = None
        """None before the bind."""
        self.is_closing = False
        self._is_closed = False
        self._minor = 0
        """Of the protocol version that the client's last PDU had."""
        self.closing_reason = ""
        self.refusals: list[str] = []
        """What was refused for its security, for the log; the I/O side empties it."""

    # In ----------------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Size of what has arrived of a call that is not whole."""
        return self._reassembly.received_bytes

    @property
    def receiving(self) -> int | None:
        """Number of that call."""
        return self._reassembly.receiving

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes of the client; return what is to be done."""
        self._buffer += data
        while not self.is_closing:
            pdu = None
            try:
                length = fragment_length(self._buffer)
                if not length:
                    break
                self._check_length(length)
                if len(self._buffer) < length:
                    break
                pdu = parse_pdu(bytes(self._buffer[:length]))
                del self._buffer[:length]
                self._take(pdu)
            except WrongVersion as error:
                self._refuse_version(error)
            except MalformedPdu as error:
                self._malformed(str(error), pdu)
        events, self._events = self._events, []
        return events

    def _malformed(self, text: str, pdu: Pdu | None) -> None:
        """End the connection because of a PDU; None: the one at the head of the buffer."""
        if pdu is None:
            call_id = call_id_at_start(self._buffer)
            is_call = self._buffer[_KIND_AT : _KIND_AT + 1] == bytes((PduType.REQUEST,))
        else:
            call_id, is_call = pdu.call_id, pdu.kind is PduType.REQUEST
        if self.association is None:
            version = BindNakReason.PROTOCOL_VERSION
            self._output.append(write_bind_nak(call_id, version))
            self._close(text)
        else:
            self._protocol_error(call_id, text, is_executed=is_call)

    def _check_length(self, length: int) -> None:
        kind = self._buffer[_KIND_AT]
        is_bind = kind in (PduType.BIND, PduType.ALTER_CONTEXT, PduType.AUTH3)
        longest = BIND_MAX_BYTES if is_bind else FRAGMENT_MAX_BYTES
        if length > longest:
            raise MalformedPdu(f"frag_length {length}; {longest} are allowed")

    def _take(self, pdu: Pdu) -> None:
        self._minor = pdu.minor
        if pdu.kind is PduType.BIND:
            self._on_bind(pdu)
        elif self.association is None:
            self._protocol_error(pdu.call_id, f"{pdu.kind.name} before bind")
        elif pdu.kind is PduType.REQUEST:
            self._on_request(pdu)
        elif pdu.kind is PduType.ALTER_CONTEXT:
            self._on_alter(pdu)
        elif pdu.kind is PduType.AUTH3:
            self._on_auth3(pdu)
        elif pdu.kind in (PduType.CO_CANCEL, PduType.ORPHANED):
            self._on_end_of_wait(pdu)
        elif pdu.kind is not PduType.SHUTDOWN:
            self._protocol_error(pdu.call_id, f"{pdu.kind.name} from a client")

    # Bind and alter ----------------------------------------------------------------------

    def _on_bind(self, pdu: Pdu) -> None:
        if self.association is not None:
            self._bind_nak(pdu, BindNakReason.NOT_SPECIFIED, "a second bind")
            return
        try:
            bind = parse_bind(pdu)
        except MalformedPdu as error:
            self._bind_nak(pdu, BindNakReason.NOT_SPECIFIED, str(error))
            return
        if not _is_complete(bind) or sum(map(_proposes_features, bind.proposals)) > 1:
            self._bind_nak(pdu, BindNakReason.NOT_SPECIFIED, "a bind without contexts")
            return
        try:
            token = self._leg(pdu)
        except UnknownAuthType as error:
            self._bind_nak(pdu, BindNakReason.AUTHENTICATION_TYPE, str(error))
            return
        except SecurityRefused as error:
            self.refusals.append(str(error))
            self._bind_nak(pdu, BindNakReason.NOT_SPECIFIED, str(error))
            return
        association = self._served.associations.join(bind.group_id, self._address)
        if association is None:
            text = f"association {bind.group_id} is not of this address and node"
            self._bind_nak(pdu, BindNakReason.NOT_SPECIFIED, text)
            return
        self.association = association
        self._size = _agreed_size(bind)
        self._is_multiplexed = bool(pdu.flags & PduFlag.CONC_MPX)
        flags = _WHOLE | pdu.flags & (PduFlag.CONC_MPX | PduFlag.SUPPORT_HEADER_SIGN)
        self._security.signs_header = bool(pdu.flags & PduFlag.SUPPORT_HEADER_SIGN)
        self._answer_bind(PduType.BIND_ACK, pdu, bind, flags, str(self._port), token)

    def _on_alter(self, pdu: Pdu) -> None:
        try:
            bind = parse_bind(pdu)
        except MalformedPdu as error:
            self._protocol_error(pdu.call_id, str(error))
            return
        trailer = pdu.trailer
        if trailer is not None and trailer.auth_type == NO_AUTHENTICATION:
            self._refuse_leg(pdu, FaultStatus.ACCESS_DENIED, "a token of no provider")
            self._close("")
            return
        if not _is_complete(bind):
            self._protocol_error(pdu.call_id, "alter_context without contexts")
            return
        if self._presentations.contradicts(bind.proposals):
            self._protocol_error(pdu.call_id, "alter_context changes a presentation context")
            return
        try:
            token = self._leg(pdu)
        except UnknownAuthType as error:
            self._refuse_leg(pdu, FaultStatus.ACCESS_DENIED, str(error))
            return
        except LegRefused as error:
            self._refuse_leg(pdu, error.status, str(error))
            self._close("")
            return
        flags = _WHOLE | pdu.flags & PduFlag.SUPPORT_HEADER_SIGN
        if pdu.flags & PduFlag.SUPPORT_HEADER_SIGN:
            self._security.signs_header = True
        self._answer_bind(PduType.ALTER_CONTEXT_RESPONSE, pdu, bind, flags, "", token)

    def _refuse_leg(self, pdu: Pdu, status: int, reason: str) -> None:
        self.refusals.append(reason)
        self._write_fault(pdu.call_id, 0, status, is_executed=False)

    def _leg(self, pdu: Pdu) -> bytes | None:
        return None if pdu.trailer is None else self._security.leg(pdu.trailer)

    def _answer_bind(
        self, kind: PduType, pdu: Pdu, bind: Bind, flags: int, address: str, token: bytes | None
    ) -> None:
        assert self.association is not None
        answers = self._presentations.judge(bind.proposals)
        trailer = None
        if pdu.trailer is not None and token is not None:
            given = pdu.trailer
            trailer = Trailer(given.auth_type, given.level, given.context_id, token)
        number = self.association.number
        self._output.append(
            write_bind_ack(kind, pdu, flags, self._size, number, address, answers, trailer)
        )

    def _on_auth3(self, pdu: Pdu) -> None:
        trailer = pdu.trailer
        if trailer is None:
            self._protocol_error(pdu.call_id, "auth3 without a token")
        elif trailer.pad_length:
            self._write_fault(pdu.call_id, 0, FaultStatus.REMOTE_NO_MEMORY, is_executed=False)
            self._close("auth3 with padding")
        else:
            try:
                self._security.last_leg(trailer)
            except NoExchange as error:
                self._protocol_error(pdu.call_id, str(error))
            except SecurityRefused as error:
                self.refusals.append(str(error))
                self._has_failed_to_log_on = True

    # Requests ----------------------------------------------------------------------------

    def _on_request(self, pdu: Pdu) -> None:
        if self._reassembly.is_late(pdu):
            return
        head = parse_request(pdu)
        partial = self._reassembly.partial
        if self._has_failed_to_log_on:
            self._deny(pdu.call_id, head.context_id, "a request after a logon that failed")
        elif partial is not None:
            self._on_next_fragment(pdu, head, partial)
        elif pdu.is_first or self._is_multiplexed:
            self._on_first_fragment(pdu, head)
        else:
            self._out_of_order(pdu.call_id, 0, "a fragment of no call")

    def _on_first_fragment(self, pdu: Pdu, head: RequestPart) -> None:
        presentation = self._presentations.get(head.context_id)
        if presentation is None:
            self._write_fault(pdu.call_id, 0, FaultStatus.UNKNOWN_INTERFACE, is_executed=False)
            self._reassembly.ignore(pdu.call_id)
            return
        try:
            context = self._security.of(pdu.trailer)
        except SecurityRefused as error:
            self._deny(pdu.call_id, head.context_id, str(error))
            return
        if context is not None and not context.is_ready:
            self._refuse_context(pdu, head.context_id, context)
            return
        try:
            partial = self._reassembly.begin(pdu, head, context, self._in_progress.keys())
        except OutOfOrder as error:
            self._out_of_order(pdu.call_id, head.context_id, str(error))
            return
        self._add(pdu, head, partial)

    def _on_next_fragment(self, pdu: Pdu, head: RequestPart, partial: Partial) -> None:
        """Take a fragment while a call is being received, and none but its own may come.

        It is judged by that call's context; context id, opnum and trailer of its own say nothing.
        Where calls are not multiplexed, whatever is wrong ends the call that is being received.
        """
        if pdu.call_id != partial.call_id:
            ids = (pdu.call_id, 0) if self._is_multiplexed else partial.ids
            self._out_of_order(*ids, "a fragment of another call")
        elif (pdu.trailer is None) != (partial.security is None):
            self._out_of_order(*partial.ids, "a call is protected in part")
        else:
            self._add(pdu, head, partial)

    def _add(self, pdu: Pdu, head: RequestPart, partial: Partial) -> None:
        stub = pdu.body[head.stub_at :]
        if partial.security is not None:
            try:
                stub = self._security.unprotect(pdu, head.stub_at, partial.security)
            except SecurityRefused as error:
                self.refusals.append(str(error))
                self._write_fault(*partial.ids, FaultStatus.SECURITY_PACKAGE)
                self._close(str(error))
                return
        if pdu.is_first and partial.has_begun:
            self._out_of_order(*partial.ids, "a call begins while another is being received")
        elif not self._reassembly.add(stub):
            self._write_fault(*partial.ids, FaultStatus.ACCESS_DENIED)
        elif pdu.is_last:
            self._complete(pdu, partial)

    def _out_of_order(self, call_id: int, context_id: int, reason: str) -> None:
        self._write_fault(call_id, context_id, FaultStatus.PROTOCOL_ERROR)
        self._close(reason)

    def _refuse_context(self, pdu: Pdu, context_id: int, context: SecurityContext) -> None:
        """Answer a request under a context whose exchange failed (RP-A10) or goes on."""
        if context.has_failed:
            self._deny(pdu.call_id, context_id, "a request under a context that failed")
        else:
            self._protocol_error(pdu.call_id, "a request before its security context is complete")

    def _deny(self, call_id: int, context_id: int, reason: str) -> None:
        self.refusals.append(reason)
        self._write_fault(call_id, context_id, FaultStatus.ACCESS_DENIED)
        self._close(reason)

    def _complete(self, pdu: Pdu, partial: Partial) -> None:
        """Have a whole request executed, unless it may not be."""
        stub = self._reassembly.take()
        context_id, opnum, context = partial.context_id, partial.opnum, partial.security
        interface = self._presentations[context_id].interface
        operation = interface.operations.get(opnum)
        status = 0
        if not self._is_protected(interface, context):
            status = FaultStatus.ACCESS_DENIED
            self.refusals.append(f"a call of {interface.name} below its level of protection")
        elif operation is None:
            status = FaultStatus.OPERATION_RANGE
        elif not self._served.shared.calls.take(len(self._in_progress)):
            status = FaultStatus.SERVER_TOO_BUSY
        if status or operation is None:
            self._write_fault(pdu.call_id, context_id, status, is_executed=False)
            self._reassembly.ignore(pdu.call_id)
            return
        call = IncomingCall(
            pdu.call_id,
            context_id,
            interface,
            opnum,
            operation,
            partial.object_uuid,
            stub,
            pdu.order,
            pdu.header[4:8],
            pdu.minor,
            self._security.identity(context),
            context,
            partial.is_maybe,
        )
        assert self.association is not None
        self._in_progress[call.call_id] = call
        self.association.calls += 1
        self._events.append(call)

    def _is_protected(self, interface: Interface, context: SecurityContext | None) -> bool:
        uuid = interface.syntax.uuid
        if context is None and uuid in self._served.anonymous:
            return True
        least = self._served.levels.get(uuid, interface.level)
        return (AuthLevel.NONE if context is None else context.level) >= least

    def presentation_of(self, call: IncomingCall) -> Presentation:
        """Return the presentation context of a call."""
        return self._presentations[call.context_id]

    @property
    def signs_header(self) -> bool:
        """Whether the client asked for header signing in its bind."""
        return self._security.signs_header

    def _on_end_of_wait(self, pdu: Pdu) -> None:
        if pdu.call_id in self._in_progress:
            is_cancel = pdu.kind is PduType.CO_CANCEL
            self._events.append(Cancelled(pdu.call_id) if is_cancel else Orphaned(pdu.call_id))

    # Out ---------------------------------------------------------------------------------

    @property
    def calls_in_progress(self) -> int:
        """How many calls have no answer yet."""
        return len(self._in_progress)

    def is_in_progress(self, call: IncomingCall) -> bool:
        """Whether a call still waits for its answer."""
        return self._in_progress.get(call.call_id) is call

    def respond(self, call: IncomingCall, stub: bytes) -> None:
        """Answer a call with its results, unless it was answered or forgotten."""
        if not self._end(call):
            return
        context = call.security
        token_size = 0
        if context is not None and context.level >= AuthLevel.PACKET:
            token_size = context.provider.signature_size(context.level)
        room = self._size - CALL_HEADER_SIZE_BYTES
        if token_size:
            room -= TRAILER_SIZE_BYTES + token_size
            room -= room % _STUB_ALIGNMENT_BYTES
        else:
            room -= room % _FRAGMENT_ALIGNMENT_BYTES
        for at in range(0, max(len(stub), 1), room):
            flags = (PduFlag.FIRST if at == 0 else 0) | (
                PduFlag.LAST if at + room >= len(stub) else 0
            )
            self._write_response(call, flags, len(stub) - at, stub[at : at + room], token_size)

    def _write_response(
        self, call: IncomingCall, flags: int, left: int, part: bytes, token_size: int
    ) -> None:
        head = response_head(call.context_id, left)
        if not token_size:
            length = CALL_HEADER_SIZE_BYTES + len(part)
            header = write_header(PduType.RESPONSE, flags, call.call_id, length, 0, call.minor)
            self._output += (header, head, part)
            return
        context = call.security
        assert context is not None
        pad = -len(part) % _STUB_ALIGNMENT_BYTES
        length = CALL_HEADER_SIZE_BYTES + len(part) + pad + TRAILER_SIZE_BYTES + token_size
        header = write_header(PduType.RESPONSE, flags, call.call_id, length, token_size, call.minor)
        trailer = write_trailer(context.auth_type, context.level, pad, context.number)
        try:
            body, token = context.provider.protect(
                context.level,
                Buffers(header + head, part + bytes(pad), trailer),
                signs_header=self._security.signs_header,
            )
        except SecurityRefused as error:
            self._close(str(error))
            return
        self._output += (header, head, body, trailer, token)

    def fault(self, call: IncomingCall, status: int) -> None:
        """Answer a call with a fault, unless it was answered or forgotten."""
        if self._end(call):
            self._write_fault(call.call_id, call.context_id, status)

    def forget(self, call: IncomingCall) -> None:
        """Let a call end without an answer."""
        self._end(call, is_answered=False)

    def _end(self, call: IncomingCall, *, is_answered: bool = True) -> bool:
        """Note that a call has ended; whether its answer is to be written."""
        if not self.is_in_progress(call):
            return False
        del self._in_progress[call.call_id]
        left = len(self._in_progress)
        self._served.shared.calls.give_back(left + 1, left)
        self._reassembly.ignore(call.call_id)
        association = self.association
        assert association is not None
        association.calls -= 1
        self._served.associations.settle(association)
        return is_answered and not call.is_maybe and not self._is_closed

    def take_output(self) -> bytes:
        """Return what is to be written now."""
        output, self._output = b"".join(self._output), []
        return output

    def close(self) -> None:
        """Note that the connection is gone; its calls end when their implementation ends them."""
        self.is_closing = self._is_closed = True
        self._output.clear()
        self._security.close()
        if self.association is not None:
            self._served.associations.leave(self.association)

    # Refusals ----------------------------------------------------------------------------

    def _write_fault(
        self, call_id: int, context_id: int, status: int, *, is_executed: bool = True
    ) -> None:
        self._output.append(
            write_fault(call_id, context_id, status, is_executed=is_executed, minor=self._minor)
        )

    def _bind_nak(self, pdu: Pdu, reason: BindNakReason, text: str) -> None:
        self._output.append(write_bind_nak(pdu.call_id, reason, pdu.minor))
        self._close(text)

    def _refuse_version(self, error: WrongVersion) -> None:
        self._output.append(write_bind_nak(error.call_id, BindNakReason.PROTOCOL_VERSION))
        self._close(str(error))

    def _protocol_error(self, call_id: int, text: str, *, is_executed: bool = False) -> None:
        if self.association is None:
            self._output.append(write_bind_nak(call_id, BindNakReason.NOT_SPECIFIED, self._minor))
        else:
            status = FaultStatus.PROTOCOL_ERROR
            self._write_fault(call_id, 0, status, is_executed=is_executed)
        self._close(text)

    def _close(self, reason: str) -> None:
        self.is_closing = True
        self.closing_reason = reason
        self._reassembly.drop()


def _proposes_features(proposal: Proposal) -> bool:
    """Whether it stands for features: their syntax comes first."""
    return features_of(proposal.transfers[0]) is not None


def _is_complete(bind: Bind) -> bool:
    """Whether a bind has contexts, each with a transfer syntax."""
    return bool(bind.proposals) and all(one.transfers for one in bind.proposals)


def _agreed_size(bind: Bind) -> int:
    """Return the bytes of fragments in both directions, of a bind's two wishes."""
    wanted = min(bind.max_transmit, bind.max_receive)
    size = min(FRAGMENT_MAX_BYTES, max(FRAGMENT_MIN_BYTES, wanted))
    return size - size % _FRAGMENT_ALIGNMENT_BYTES
