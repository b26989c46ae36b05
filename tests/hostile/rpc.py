"""Attacks over the RPC ports: the endpoint mapper's 135, and that of the interfaces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from struct import pack

from typing_extensions import override

from qm.node.config.schema import MAPPER_PORT, RPC_PORT
from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.endpoint_mapper import MAPPER
from qm.rpc.interface import Fault, Interface
from qm.rpc.limits import STUB_MAX_BYTES
from qm.rpc.mgmt import MGMT
from qm.rpc.path_names import QMCOMM
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, Syntax, write_bind
from qm.rpc.pdu.call import request_head
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduFlag, PduType
from qm.rpc.pdu.header import Trailer, write_header, write_pdu
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.hostile.sessions import Raw, again_and_again
from tests.hostile.victim import Count, Victim

USER, PASSWORD = "mallory", "an account of its own"
_INTERFACES = (MAPPER, MGMT, REMOTE_READ, QMMGMT, QMCOMM)
_WHOLE = int(PduFlag.FIRST | PduFlag.LAST)
_FRAGMENT_BYTES = 5_000
_CONTEXTS = 4_000
_HOLDERS = 300
_FLOODS = 12
_HELD_S = 20.0
_PORTS = (MAPPER_PORT, RPC_PORT)
_HUGE = 0xFFFF_FFFF
_MIB = 1 << 20
_FAULTS = (Fault, RpcFailed)


def bind(
    chance: Random, *interfaces: Interface, call_id: int = 1, kind: PduType = PduType.BIND
) -> bytes:
    """Return a bind without security."""
    first = chance.randrange(1 << 15)
    proposals = tuple(
        Proposal(first + k, one.syntax, (NDR20,)) for k, one in enumerate(interfaces or (MAPPER,))
    )
    return write_bind(kind, call_id, Bind(5_840, 5_840, 0, proposals))


def plain_bind(*interfaces: Interface) -> bytes:
    """Return a bind whose contexts are numbered from 0."""
    proposals = tuple(Proposal(k, one.syntax, (NDR20,)) for k, one in enumerate(interfaces))
    return write_bind(PduType.BIND, 1, Bind(5_840, 5_840, 0, proposals))


def part(call_id: int, stub: bytes, flags: int, *, opnum: int = 2, hint: int = 0) -> bytes:
    """Return one fragment of a request."""
    return write_pdu(PduType.REQUEST, flags, call_id, request_head(0, opnum, hint) + stub)


def strange(chance: Random) -> bytes:
    """Return a PDU near a sound one."""
    match chance.randrange(8):
        case 0:  # claims far more than there is
            return write_header(PduType.REQUEST, _WHOLE, 7, 0xFFFF) + bytes(chance.randrange(64))
        case 1:  # its token would begin before it does
            return write_header(PduType.BIND, _WHOLE, 7, 80, 0xFFF0) + bytes(64)
        case 2:  # a hint, and a count inside, of 4 GiB
            stub = pack("<IIII", _HUGE, _HUGE, 0, _HUGE) * chance.choice((1, 50))
            return part(7, stub, _WHOLE, opnum=chance.randrange(8), hint=_HUGE)
        case 3:  # more contexts than a bind may have
            syntax = Syntax(chance.randbytes(16), 1)
            count = chance.choice((40, 200))
            proposals = tuple(Proposal(k, syntax, (NDR20,)) for k in range(count))
            return write_bind(PduType.BIND, 1, Bind(5_840, 5_840, 0, proposals))
        case 4:  # a level without what it needs
            trailer = Trailer(chance.choice((9, 10, 16, 68)), chance.randrange(8), 0, b"NTLMSSP\0")
            return write_pdu(PduType.REQUEST, _WHOLE, 7, request_head(0, 2, 4) + bytes(4), trailer)
        case 5:
            return write_pdu(PduType(chance.choice(list(PduType))), chance.randrange(256), 7, b"x")
        case 6:
            cut = bytearray(bind(chance, *_INTERFACES))
            cut[chance.randrange(len(cut))] ^= 1 << chance.randrange(8)
            return bytes(cut)
        case _:
            return chance.randbytes(chance.choice((1, 16, 24, 2_000)))


class Tampering(RpcClient):
    """A client with an account that repeats, reorders and changes what it sealed."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._said: list[bytes] = []
        self.tampers = False

    @override
    def _write(self, raw: bytes) -> None:
        if not self.tampers:
            super()._write(raw)
            return
        self._said.append(raw)
        match self._chance.randrange(4):
            case 0:
                super()._write(raw)
                super()._write(raw)
            case 1:  # kept for later, behind the next one
                return
            case 2:
                cut = bytearray(raw)
                cut[self._chance.randrange(16, len(cut))] ^= 1
                super()._write(bytes(cut))
            case _:
                for one in reversed(self._said[-3:]):
                    super()._write(one)


class _Attacker:
    """Attacks of one process."""

    def __init__(self, victim: Victim, chance: Random, count: Count) -> None:
        self._victim, self._chance, self._count = victim, chance, count

    async def run(self) -> None:
        """Attack for ever."""
        await asyncio.gather(
            *self._many(self._endless, 3 * _FLOODS),
            *self._many(self._contexts, 3),
            *self._many(self._odd, _FLOODS),
            *self._many(self._half, _HOLDERS),
            *self._many(self._flood, _FLOODS),
            *self._many(self._wrong_level, 6),
            *self._many(self._replay, 6),
        )

    def _to(
        self, number: int, port: int, receive_bytes: int = 0
    ) -> contextlib.AbstractAsyncContextManager[Raw]:
        where = (self._victim.host(number), port, self._victim.source(number))
        return Raw.to(*where, receive_bytes=receive_bytes)

    async def _endless(self, number: int) -> None:
        """Calls that begin and never end, up to what a stub may have; then silence."""
        async with self._to(number, MAPPER_PORT) as raw:
            await raw.send(plain_bind(MAPPER))
            stub = bytes(_FRAGMENT_BYTES)
            for k in range(STUB_MAX_BYTES // _FRAGMENT_BYTES - 1):
                await raw.send(part(2, stub, 0 if k else int(PduFlag.FIRST), hint=_HUGE))
                self._count(1)
            await raw.until_closed(_HELD_S)

    async def _contexts(self, number: int) -> None:
        async with self._to(number, self._chance.choice(_PORTS)) as raw:
            await raw.send(plain_bind(MGMT))
            for k in range(_CONTEXTS):
                await raw.send(bind(self._chance, MGMT, call_id=k + 2, kind=PduType.ALTER_CONTEXT))
                self._count(1)
            await raw.until_closed(1)

    async def _odd(self, number: int) -> None:
        async with self._to(number, self._chance.choice(_PORTS)) as raw:
            if self._chance.random() < 0.7:
                await raw.send(plain_bind(*_INTERFACES[: self._chance.randrange(1, 5)]))
            for _ in range(self._chance.choice((1, 10))):
                await raw.send(strange(self._chance))
                self._count(1)
            await raw.until_closed(self._chance.choice((0.05, 0.5)))

    async def _half(self, number: int) -> None:
        """A PDU byte by byte, and then nothing."""
        async with self._to(number, self._chance.choice(_PORTS)) as raw:
            whole = bind(self._chance, *_INTERFACES)
            for at in range(self._chance.randrange(1, 24)):
                await raw.send(whole[at : at + 1])
                await asyncio.sleep(0.2)
            self._count(1)
            await raw.until_closed(_HELD_S)

    async def _flood(self, number: int) -> None:
        """Questions as fast as they go, without reading the answers in half of the cases."""
        is_deaf = self._chance.random() < 0.5
        async with self._to(number, self._chance.choice(_PORTS), 2_048 if is_deaf else 0) as raw:
            await raw.send(plain_bind(MGMT))
            for k in range(20_000):
                flags = _WHOLE
                await asyncio.wait_for(raw.send(part(k + 2, b"", flags, opnum=0)), _HELD_S)
                self._count(1)
                if not is_deaf and k % 64 == 63:
                    await raw.until_closed(0.01)

    async def _wrong_level(self, number: int) -> None:
        """Interfaces that want protection, called with less of it, or with a wrong password."""
        client = await RpcClient().connect(self._victim.host(number), RPC_PORT)
        try:
            one = self._chance.choice((REMOTE_READ, QMMGMT, QMCOMM))
            if self._chance.random() < 0.3:
                provider = NtlmClient(USER, "wrong", "", self._chance.randbytes)
                await client.bind(
                    one, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
                )
            else:
                await client.bind(one)
            for opnum in range(8):
                with contextlib.suppress(Fault):
                    await client.raw_call(one, opnum, self._chance.randbytes(200), 2.0)
                self._count(1)
        finally:
            client.close()

    async def _replay(self, number: int) -> None:
        client = Tampering(self._chance)
        await client.connect(self._victim.host(number), RPC_PORT)
        try:
            provider = NtlmClient(USER, PASSWORD, "", self._chance.randbytes)
            await client.bind(
                REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
            )
            await client.raw_call(REMOTE_READ, 0, b"", 2.0)
            client.tampers = True
            for _ in range(8):
                self._count(1)
                with contextlib.suppress(Fault):
                    await client.raw_call(REMOTE_READ, self._chance.choice((0, 2)), bytes(64), 0.5)
        finally:
            client.close()

    def _many(self, once: Callable[[int], Awaitable[None]], number: int) -> list[Awaitable[None]]:
        return [_stubborn(partial(once, k)) for k in range(number)]


async def rpc(victim: Victim, chance: Random, count: Count) -> None:
    """Fragments without end, thousands of contexts, claims, halves, floods, wrong levels,
    replays.
    """
    await _Attacker(victim, chance, count).run()


async def _stubborn(once: Callable[[], Awaitable[None]]) -> None:
    async def attempt() -> None:
        with contextlib.suppress(*_FAULTS):
            await once()
        await asyncio.sleep(0)

    await again_and_again(attempt)
