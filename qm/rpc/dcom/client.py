"""A client of DCOM: for event sinks, our tools and tests, and to try any server.

Objects that it holds for longer than three ping periods without a ping are the server's again.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from qm.rpc.client import CALL_TIMEOUT_S, RpcClient, RpcFailed
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.activation import IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.objref import Bindings, Objref, parse_objref, parse_standard
from qm.rpc.dcom.runtime.orpc import OrpcThis
from qm.rpc.dcom.runtime.properties import Wanted, parse_reply, write_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, InterfaceRef
from qm.rpc.dcom.runtime.resolver import COMPLEX_PING, IOBJECTEXPORTER, RESOLVE_2, SIMPLE_PING
from qm.rpc.interface import Interface
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.security.provider import Provider
from qm.wire.guid import Guid

RESOLVER_PORT: Final = 135
_CREATE: Final = 4
_GET_CLASS: Final = 3
_TCP: Final = 7
_FAILURE: Final = 0x8000_0000
_BINDING: Final = re.compile(r"(?P<host>[^\[\]]+)\[(?P<port>\d{1,5})\]")
_CAUSALITY_BYTES: Final = 16
_FIRST_OF_SET: Final = 1
"""Sequence number of the ping that makes a set."""


class Logon(msgspec.Struct, frozen=True):
    """How a client logs on."""

    provider: Callable[[], Provider | None]
    """A new exchange for each connection; None for an anonymous one."""
    auth_type: int = AuthType.NTLM
    level: AuthLevel = AuthLevel.PRIVACY


class Server:
    """A server's resolver and its object exporter."""

    def __init__(self, host: str, resolver_port: int, logon: Logon, only_host: str = "") -> None:
        """`only_host`: connect to no other one, whatever the server's bindings say."""
        self._only_host = only_host
        self._host = host
        self._port = resolver_port
        self._logon = logon
        self._resolver: RpcClient | None = None
        self._objects: RpcClient | None = None
        self._causality = secrets.token_bytes(_CAUSALITY_BYTES)
        self._ping_set = 0
        self.ipid_rem_unknown: Guid = b""

    @property
    def is_reached(self) -> bool:
        """Whether there is a connection to the exporter, or was one until now."""
        return self._objects is not None

    async def _connected(self, host: str, port: int, *interfaces: Interface) -> RpcClient:
        client = await RpcClient().connect(host, port)
        logon = self._logon
        provider = logon.provider()
        try:
            await client.bind(
                *interfaces,
                provider=provider,
                auth_type=0 if provider is None else logon.auth_type,
                level=AuthLevel.NONE if provider is None else logon.level,
            )
        except BaseException:
            client.close()
            raise
        return client

    def this(self) -> OrpcThis:
        """Return the head of a request."""
        return OrpcThis(self._causality)

    async def resolver(self) -> RpcClient:
        """Return the connection to the resolver. Raises RpcFailed."""
        if self._resolver is None:
            self._resolver = await self._connected(
                self._host, self._port, IREMOTESCMACTIVATOR, IOBJECTEXPORTER
            )
        return self._resolver

    # Objects -------------------------------------------------------------------------------

    async def create(self, clsid: Guid, *iids: Guid) -> list[Objref]:
        """Have an object made; return its interfaces. Raises ComError, Fault, RpcFailed."""
        return await self._activated(_CREATE, [self.this(), None], Wanted(clsid, iids))

    async def class_object(self, clsid: Guid, *iids: Guid) -> list[Objref]:
        """Return interfaces of a class factory. Raises ComError, Fault, RpcFailed."""
        return await self._activated(_GET_CLASS, [self.this()], Wanted(clsid, iids))

    async def _activated(self, opnum: int, head: list[Any], wanted: Wanted) -> list[Objref]:
        client = await self.resolver()
        given = [*head, write_wanted(wanted)]
        _, blob, status = await client.call(IREMOTESCMACTIVATOR, opnum, given)
        if status & _FAILURE:
            raise ComError(status)
        reply = parse_reply(blob)
        await self.reach(reply.bindings, reply.ipid_rem_unknown)
        found = []
        for status, pointer in zip(reply.statuses, reply.pointers, strict=True):
            if pointer is None:
                raise ComError(status)
            found.append(_standard(pointer))
        return found

    async def resolve(self, oxid: int) -> None:
        """Find the exporter of an OXID. Raises ComError, Fault, RpcFailed."""
        bindings, ipid, _, _, status = await self._ask(RESOLVE_2, [oxid, 1, [_TCP]])
        if status:
            raise ComError(status)
        await self.reach(bindings, ipid)

    async def _ask(self, opnum: int, given: list[Any]) -> list[Any]:
        """Ask the resolver; over another connection next time if this one fails, or is waited for
        no more.
        """
        client = await self.resolver()
        try:
            return list(await client.call(IOBJECTEXPORTER, opnum, given))
        except (RpcFailed, asyncio.CancelledError):
            client.close()
            if self._resolver is client:
                self._resolver = None
            raise

    async def reach(self, bindings: Bindings, ipid_rem_unknown: Guid) -> None:
        """Connect to an exporter, at its first binding that answers. Raises RpcFailed."""
        self.ipid_rem_unknown = ipid_rem_unknown
        if self._objects is not None:
            return
        failed: Exception = RpcFailed("the exporter has no binding with a port")
        for host, port in places_of(bindings):
            try:
                place = self._only_host or host
                self._objects = await self._connected(place, port, IREMUNKNOWN)
            except RpcFailed as error:
                failed = error
            else:
                return
        raise failed

    async def call(
        self,
        ipid: Guid,
        interface: Interface,
        opnum: int,
        values: Sequence[Any],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[Any]:
        """Call a method of an object; return what it gives, the HRESULT last.

        Raises Fault, RpcFailed; not for an HRESULT.
        """
        client = self._objects
        if client is None:
            raise RpcFailed("there is no connection to an exporter")
        if not client.has(interface):
            await client.add(interface)
        given = [self.this(), *values]
        answer = await client.call(interface, opnum, given, timeout_s, ipid)
        return list(answer[1:])

    async def query(self, ipid: Guid, *iids: Guid, refs: int = 1) -> list[Objref | int]:
        """Return other interfaces of an object, or why there is none."""
        given = (ipid, refs, len(iids), list(iids))
        results, _ = await self.call(self.ipid_rem_unknown, IREMUNKNOWN, 3, given)
        if len(results) != len(iids):
            raise RpcFailed(f"{len(results)} answers about {len(iids)} interfaces")
        return [
            status if status & _FAILURE else parse_standard(raw, iid)
            for iid, (status, raw) in zip(iids, results, strict=True)
        ]

    async def release(self, *refs: Objref) -> None:
        """Give references back."""
        given = [InterfaceRef(one.ipid, one.public_refs, 0) for one in refs]
        await self.call(self.ipid_rem_unknown, IREMUNKNOWN, 5, (len(given), given))

    async def ping(self, oid: int) -> None:
        """Keep an object alive: once in a ping period [MS-DCOM 3.2.6.1].

        A resolver that was started anew does not know the set, and is given another one. Raises
        ComError for an object that is gone, Fault, RpcFailed.
        """
        if self._ping_set:
            (status,) = await self._ask(SIMPLE_PING, [self._ping_set])
            if not status:
                return
        given = [0, _FIRST_OF_SET, 1, 0, [oid], None]
        self._ping_set, _, status = await self._ask(COMPLEX_PING, given)
        if status:
            raise ComError(status)

    async def unping(self, oid: int) -> None:
        """Have an object kept alive no more. Raises Fault, RpcFailed."""
        number, self._ping_set = self._ping_set, 0
        if number:
            await self._ask(COMPLEX_PING, [number, _FIRST_OF_SET + 1, 0, 1, None, [oid]])

    def leave(self) -> None:
        """Close the connection to the exporter: `resolve` makes another one."""
        if self._objects is not None:
            self._objects.close()
            self._objects = None

    def close(self) -> None:
        """Close the connections."""
        for client in (self._resolver, self._objects):
            if client is not None:
                client.close()
        self._resolver = self._objects = None


def places_of(bindings: Bindings) -> list[tuple[str, int]]:
    """Return hosts and ports of an exporter's bindings."""
    found = []
    for address in bindings.addresses:
        match = _BINDING.fullmatch(address)
        if match is not None and 0 < int(match["port"]) < 1 << 16:
            found.append((match["host"], int(match["port"])))
    return found


def _standard(raw: bytes) -> Objref:
    found = parse_objref(raw)
    if not isinstance(found, Objref):
        raise RpcFailed("an object that travels by value")
    return found
