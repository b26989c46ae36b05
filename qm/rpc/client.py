"""A client of DCE/RPC over TCP: for our tools, and to try any server, Windows included."""

import asyncio
from typing import Any, Final, cast

from typing_extensions import override

from qm.rpc.interface import Fault, Interface
from qm.rpc.limits import FRAGMENT_MAX_BYTES
from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.bind import (
    NDR20,
    Bind,
    BindAck,
    Proposal,
    parse_bind_ack,
    write_bind,
)
from qm.rpc.pdu.call import CALL_HEADER_SIZE_BYTES, parse_fault, parse_response, request_head
from qm.rpc.pdu.codes import AuthLevel, PduFlag, PduType
from qm.rpc.pdu.header import (
    TRAILER_SIZE_BYTES,
    MalformedPdu,
    Pdu,
    Trailer,
    WrongVersion,
    fragment_length,
    parse_pdu,
    write_header,
    write_pdu,
    write_trailer,
)
from qm.rpc.security.provider import Buffers, Provider, SecurityRefused
from qm.wire.guid import Guid

CALL_TIMEOUT_S: Final = 30.0
FRAGMENT_LEAST_BYTES: Final = 1_432
"""What every implementation receives [C706 12.6.3.1]."""
ANSWER_MAX_BYTES: Final = 16 << 20
"""Of one call's fragments together: several of the largest messages."""
_PAD_BYTES: Final = 16
_WHOLE: Final = PduFlag.FIRST | PduFlag.LAST
_AUTH_CONTEXT_ID: Final = 1


class RpcFailed(Exception):
    """The server refused, or went away; says what was tried."""


class NoAnswer(RpcFailed):
    """The server has the request, as far as is known, and has not answered in time."""


class RpcClient(asyncio.Protocol):
    """One connection with one security context at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._parts: dict[int, bytearray] = {}
        self._next_call = 1
        self._contexts: dict[int, Interface] = {}
        self._provider: Provider | None = None
        self._auth_type = 0
        self._level = AuthLevel.NONE
        self._size = FRAGMENT_MAX_BYTES
        self.group_id = 0
        """Of the association, once bound; give it to another connection to join."""

    async def connect(self, host: str, port: int) -> "RpcClient":
        """Connect. Raises RpcFailed."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await loop.create_connection(lambda: self, host, port)
        except (OSError, TimeoutError) as error:
            raise RpcFailed(f"cannot connect to {host}:{port}: {error or 'no answer'}") from error
        return self

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    # Binding -----------------------------------------------------------------------------

    async def bind(
        self,
        *interfaces: Interface,
        provider: Provider | None = None,
        auth_type: int = 0,
        level: AuthLevel = AuthLevel.NONE,
        group_id: int = 0,
    ) -> None:
        """Bind interfaces, and log on with a provider. Raises RpcFailed."""
        proposals = tuple(Proposal(k, one.syntax, (NDR20,)) for k, one in enumerate(interfaces))
        bind = Bind(FRAGMENT_MAX_BYTES, FRAGMENT_MAX_BYTES, group_id, proposals)
        self._auth_type, self._level = auth_type, level
        token = b"" if provider is None else provider.step(b"")
        flags = _WHOLE | PduFlag.CONC_MPX | PduFlag.SUPPORT_HEADER_SIGN
        answer = await self._exchange(PduType.BIND, bind, token, flags)
        if answer.kind is not PduType.BIND_ACK:
            raise RpcFailed(f"the bind was refused: {answer.body[:2].hex()}")
        ack = _bind_ack(answer)
        self.group_id, self._size = ack.group_id, ack.fragment_max
        for k, (one, result) in enumerate(zip(interfaces, ack.answers, strict=False)):
            if result.result:
                raise RpcFailed(f"{one.name} is refused: {result.result}, {result.reason}")
            self._contexts[k] = one
        if provider is not None:
            await self._log_on(provider, bind, answer)
            self._provider = provider

    async def add(self, *interfaces: Interface) -> None:
        """Have further interfaces on the connection, under the same logon. Raises RpcFailed."""
        first = len(self._contexts)
        proposals = tuple(
            Proposal(k, one.syntax, (NDR20,)) for k, one in enumerate(interfaces, first)
        )
        bind = Bind(FRAGMENT_MAX_BYTES, FRAGMENT_MAX_BYTES, self.group_id, proposals)
        answer = await self._exchange(PduType.ALTER_CONTEXT, bind, b"", _WHOLE)
        if answer.kind is not PduType.ALTER_CONTEXT_RESPONSE:
            raise RpcFailed(f"the interfaces were refused: fault {parse_fault(answer):08X}")
        for k, (one, result) in enumerate(
            zip(interfaces, _bind_ack(answer).answers, strict=False), first
        ):
            if result.result:
                raise RpcFailed(f"{one.name} is refused: {result.result}, {result.reason}")
            self._contexts[k] = one

    def has(self, interface: Interface) -> bool:
        """Whether an interface is bound."""
        return any(one is interface for one in self._contexts.values())

    async def _log_on(self, provider: Provider, bind: Bind, answer: Pdu) -> None:
        """Go through the other legs: auth3 where the provider is done, else alter_context."""
        while True:
            token = b"" if answer.trailer is None else answer.trailer.token
            if provider.is_done and not token:
                return
            try:
                reply = provider.step(token)
            except SecurityRefused as error:
                raise RpcFailed(f"logging on failed: {error}") from error
            if provider.is_done:
                if reply:
                    trailer = Trailer(self._auth_type, self._level, _AUTH_CONTEXT_ID, reply)
                    self._write(write_pdu(PduType.AUTH3, _WHOLE, self._number(), bytes(4), trailer))
                return
            answer = await self._exchange(PduType.ALTER_CONTEXT, bind, reply, _WHOLE)
            if answer.kind is not PduType.ALTER_CONTEXT_RESPONSE:
                raise RpcFailed(f"logging on failed: fault {parse_fault(answer):08X}")

    async def _exchange(self, kind: PduType, bind: Bind, token: bytes, flags: int) -> Pdu:
        number = self._number()
        trailer = None
        if token:
            trailer = Trailer(self._auth_type, self._level, _AUTH_CONTEXT_ID, token)
        future = self._expect(number)
        self._write(write_bind(kind, number, bind, trailer, flags))
        return cast(Pdu, await self._wait(number, future))

    # Calls -------------------------------------------------------------------------------

    async def call(
        self,
        interface: Interface,
        opnum: int,
        values: Any,
        timeout_s: float = CALL_TIMEOUT_S,
        object_uuid: Guid | None = None,
    ) -> Any:
        """Make a call, of an object or not; return its results. Raises Fault, RpcFailed."""
        operation = interface.operations[opnum]
        stub = operation.takes.marshal(values)
        stub = await self.raw_call(interface, opnum, stub, timeout_s, object_uuid)
        try:
            return operation.gives.unmarshal(stub)[0]
        except BadStub as error:
            raise RpcFailed(f"the answer of {operation.name} cannot be read: {error}") from error

    async def raw_call(
        self,
        interface: Interface,
        opnum: int,
        stub: bytes,
        timeout_s: float = CALL_TIMEOUT_S,
        object_uuid: Guid | None = None,
    ) -> bytes:
        """Make a call with a stub; return the answer's. Raises Fault, RpcFailed."""
        context_id = next(k for k, one in self._contexts.items() if one is interface)
        number = self._number()
        future = self._expect(number)
        self._request(number, (context_id, opnum, object_uuid), stub)
        return bytes(await self._wait(number, future, timeout_s))

    def _request(self, number: int, target: tuple[int, int, Guid | None], stub: bytes) -> None:
        provider = self._provider
        token_size = 0 if provider is None else provider.signature_size(self._level)
        context_id, opnum, object_uuid = target
        uuid = object_uuid or b""
        head_size = CALL_HEADER_SIZE_BYTES + len(uuid)
        room = self._size - head_size
        if provider is not None:
            room -= TRAILER_SIZE_BYTES + token_size
        room -= room % _PAD_BYTES
        for at in range(0, max(len(stub), 1), room):
            part = stub[at : at + room]
            flags = (PduFlag.FIRST if at == 0 else 0) | (
                PduFlag.LAST if at + room >= len(stub) else 0
            )
            flags |= PduFlag.OBJECT_UUID if uuid else 0
            head = request_head(context_id, opnum, len(stub) - at) + uuid
            if provider is None:
                length = head_size + len(part)
                self._write(write_header(PduType.REQUEST, flags, number, length) + head + part)
                continue
            pad = -len(part) % _PAD_BYTES
            length = head_size + len(part) + pad + TRAILER_SIZE_BYTES + token_size
            header = write_header(PduType.REQUEST, flags, number, length, token_size)
            trailer = write_trailer(self._auth_type, self._level, pad, _AUTH_CONTEXT_ID)
            buffers = Buffers(header + head, part + bytes(pad), trailer)
            body, token = provider.protect(self._level, buffers, signs_header=True)
            self._write(b"".join((header, head, body, trailer, token)))

    # The connection ----------------------------------------------------------------------

    def _number(self) -> int:
        self._next_call += 1
        return self._next_call

    def _expect(self, number: int) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        return future

    async def _wait(
        self, number: int, future: "asyncio.Future[Any]", timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise NoAnswer(f"no answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
            self._parts.pop(number, None)

    def _write(self, raw: bytes) -> None:
        if self._transport is None:
            raise RpcFailed("the connection is closed")
        self._transport.write(raw)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(RpcFailed(f"the server closed the connection{f': {exc}' if exc else ''}"))

    def _fail(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (length := fragment_length(self._buffer)) and len(self._buffer) >= length:
                raw = bytes(self._buffer[:length])
                del self._buffer[:length]
                self._take(parse_pdu(raw))
        except (MalformedPdu, WrongVersion, SecurityRefused) as error:
            self._fail(RpcFailed(f"the server's answer cannot be read: {error}"))
            self.close()

    def _take(self, pdu: Pdu) -> None:
        if pdu.kind is PduType.RESPONSE:
            stub = self._stub(pdu)
            if pdu.call_id not in self._waiting:
                return  # nobody waits any more
            parts = self._parts.setdefault(pdu.call_id, bytearray())
            parts += stub
            if len(parts) > ANSWER_MAX_BYTES:
                raise MalformedPdu(f"more than {ANSWER_MAX_BYTES} bytes")
            if not pdu.is_last:
                return
            result: Any = self._parts.pop(pdu.call_id)
        elif pdu.kind is PduType.FAULT and self._contexts and self._provider_or_open(pdu):
            self._settle(pdu.call_id, error=Fault(parse_fault(pdu)))
            return
        else:
            result = pdu
        self._settle(pdu.call_id, result)

    def _provider_or_open(self, pdu: Pdu) -> bool:
        """Whether a fault answers a call, and not a leg of logging on."""
        return self._provider is not None or self._auth_type == 0

    def _settle(self, number: int, result: Any = None, error: Exception | None = None) -> None:
        self._parts.pop(number, None)
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _stub(self, pdu: Pdu) -> bytes:
        _, at = parse_response(pdu)
        head, body = pdu.body[:at], pdu.body[at:]
        trailer = pdu.trailer
        if self._provider is None or trailer is None:
            if self._provider is not None:
                raise SecurityRefused("an answer without protection")
            return body
        buffers = Buffers(pdu.header + head, body, trailer.raw)
        body = self._provider.unprotect(self._level, buffers, trailer.token, signs_header=True)
        return body[: len(body) - trailer.pad_length]


def _bind_ack(answer: Pdu) -> BindAck:
    try:
        ack = parse_bind_ack(answer)
    except MalformedPdu as error:
        raise RpcFailed(f"the answer to the bind cannot be read: {error}") from error
    if ack.fragment_max < FRAGMENT_LEAST_BYTES:
        raise RpcFailed(f"fragments of {ack.fragment_max} bytes; {FRAGMENT_LEAST_BYTES} is least")
    return ack
