"""Attacks on objects over DCOM, by accounts that may create them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any, Final

from qm.node.config.schema import MAPPER_PORT
from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.dcom.automation.dispatch import DISPID_PROPERTYPUT, IDISPATCH, Arguments, InvokeFlag
from qm.rpc.dcom.automation.type_interfaces import ITYPECOMP, ITYPEINFO, ITYPELIB
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import (
    OBJECTS_PER_CALLER_MAX,
    REFERENCES_PER_CALL_MAX,
)
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.exporter import NODE_SHIFT
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import Objref, parse_objref, write_objref
from qm.rpc.dcom.runtime.orpc import ORPC_THIS, Listed
from qm.rpc.dcom.runtime.properties import Wanted, write_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, InterfaceRef
from qm.rpc.dcom.runtime.resolver import COMPLEX_PING, IOBJECTEXPORTER, SIMPLE_PING
from qm.rpc.interface import Fault, Interface
from qm.rpc.pdu.codes import AuthLevel, AuthType, FaultStatus
from qm.rpc.security.ntlm import NtlmClient
from tests.hostile import variants
from tests.hostile.rpc import PASSWORD, USER
from tests.hostile.sessions import again_and_again
from tests.hostile.victim import Count, Victim

OTHER, HOARDER = "malvolio", "harpagon"
"""Accounts whose objects USER is after, and that never releases one; passwords as of USER."""
_QUERY, _ADD_REF, _RELEASE = 3, 4, 5
_CREATE: Final = 4
_NAMES: Final = 5
_INVOKE: Final = 6
_COPIES: Final = {
    "references": 4,
    "foreign": 4,
    "invoke": 8,
    "values": 8,
    "mutated": 8,
    "types": 4,
    "strangers": 8,
    "hoard": 3,
    "pings": 8,
    "waits": 3,
}
"""Attackers of each kind."""
_CALLS = 100
"""Of one attempt."""
_ATTRIBUTES, _TYPE_INFO, _CONTAINER = 3, 4, 18
_COMP, _FIND, _BIND = 8, 11, 3
_FLAGS = (*InvokeFlag, 0, 3, 12, 0x000F_000F, 0xFFFF_FFFF)
_MAX = 0xFFFF_FFFF
_WAITING = 300
_HELD_S = 20.0
_ANSWER_S = 30.0
"""A node under attack may take its time."""
_FAILED = (Fault, RpcFailed, ComError)


def clsid(name: str) -> bytes:
    return next(one.guid for one in definitions().coclasses if one.name == name)


def interface_of(name: str) -> Interface:
    return object_interfaces()[definitions().named(name).guid]


def expect(is_so: object, what: object) -> None:
    """End the attacker, and so the run, if a promise is broken."""
    if not is_so:
        raise AssertionError(what)


class _Attacker:
    """Attacks of one process."""

    def __init__(self, victim: Victim, chance: Random, count: Count) -> None:
        self._victim, self._chance, self._count = victim, chance, count

    async def run(self) -> None:
        """Attack for ever."""
        await asyncio.gather(
            *(
                _stubborn(partial(getattr(self, f"_{kind}"), number))
                for kind, copies in _COPIES.items()
                for number in range(copies)
            )
        )

    @contextlib.asynccontextmanager
    async def _server(self, number: int, user: str = USER) -> AsyncIterator[_Objects]:
        def provider() -> NtlmClient:
            return NtlmClient(user, PASSWORD, "", self._chance.randbytes)

        made = _Objects(Server(self._victim.host(number), MAPPER_PORT, Logon(provider)))
        try:
            yield made
        finally:
            with contextlib.suppress(*_FAILED):
                await made.release()
            made.server.close()

    async def _references(self, number: int) -> None:
        """References below zero and beyond all bounds, of pointers that are and are not."""
        async with self._server(number) as objects:
            ref = await objects.create("MSMQMessage")
            for _ in range(_CALLS):
                ipid = self._chance.choice((ref.ipid, ref.ipid, self._chance.randbytes(16)))
                counts = (self._chance.choice((0, 1, 6, _MAX)) for _ in range(2))
                given = [InterfaceRef(ipid, *counts)] * self._chance.choice((1, 2, 300))
                opnum = self._chance.choice((_ADD_REF, _RELEASE))
                await objects.rem_unknown(opnum, (len(given), given))
                # Another number of them than there are, and interfaces without end.
                await objects.rem_unknown(opnum, (len(given) + 1, given))
                iids = [self._chance.randbytes(16)] * self._chance.choice((1, 64))
                await objects.rem_unknown(_QUERY, (ipid, _MAX, len(iids), iids))
                self._count(3)
            await objects.rem_unknown(_RELEASE, (1, [InterfaceRef(ref.ipid, _MAX, _MAX)]))
            status = await objects.invoke(ref.ipid, 0, 0, Arguments())
            expect(status == Hresult.RPC_E_DISCONNECTED, f"a released object: {status:08X}")

    async def _foreign(self, number: int) -> None:
        """Pointers of another account: called, released, pinged and passed as arguments."""
        async with self._server(number, OTHER) as others, self._server(number) as objects:
            its = await others.create("MSMQMessage")
            mine = await objects.create("MSMQMessage")
            for _ in range(_CALLS // 4):
                self._count(5)
                status = await objects.invoke(its.ipid, 0, InvokeFlag.PROPERTYGET, Arguments())
                expect(status == Hresult.E_ACCESSDENIED, f"another's object: {status:08X}")
                status = await objects.invoke(self._chance.randbytes(16), 0, 1, Arguments())
                expect(status == Hresult.RPC_E_DISCONNECTED, f"nobody's object: {status:08X}")
                release = (1, [InterfaceRef(its.ipid, _MAX, _MAX)])
                await objects.rem_unknown(_RELEASE, release)
                await objects.rem_unknown(_QUERY, (its.ipid, 1, 1, [IID_IUNKNOWN]))
                target = Variant(VarType.DISPATCH, write_objref(its))
                await objects.invoke(mine.ipid, 4, InvokeFlag.METHOD, Arguments([target]))
                await objects.ping(COMPLEX_PING, [0, 1, 1, 0, [its.oid], None])
                # Its own calls alone keep it, for the time that a ping would.
                status = await others.invoke(its.ipid, 0, InvokeFlag.PROPERTYGET, Arguments())
                expect(not status & 0x8000_0000, f"its own object: {status:08X}")

    async def _invoke(self, number: int) -> None:
        """Any member, with any number of arguments of any type and name."""
        name = self._chance.choice([one.name for one in definitions().coclasses])
        async with self._server(number) as objects:
            ref = await objects.create(name)
            for _ in range(_CALLS):
                chance = self._chance
                values = [variants.strange(chance) for _ in range(chance.choice((0, 1, 2, 6, 64)))]
                names = [chance.randrange(-5, 9) for _ in range(chance.randrange(3))]
                arguments = Arguments(values, names[: len(values)])
                dispid = chance.choice((0, -1, -4, _signed(chance), *range(1, 40)))
                await objects.invoke(ref.ipid, dispid, chance.choice(_FLAGS), arguments)
                self._count(1)

    async def _values(self, number: int) -> None:
        """Bodies that contain themselves, or say that they are gigabytes."""
        interface = interface_of("IMSMQMessage4")
        put = next(
            one
            for one in definitions().methods("IMSMQMessage4")
            if one.name == "Body" and one.kind == "put"
        )
        async with self._server(number) as objects:
            ref = await objects.create("MSMQMessage", interface.syntax.uuid)
            for make in variants.HOSTILE * 4:
                stub = objects.this() + variants.pointed(make(self._chance))
                status = await objects.raw(ref.ipid, interface, put.opnum, stub)
                expect(status & 0xFFFF_FFFF, f"{make.__name__} was taken")
                self._count(1)

    async def _mutated(self, number: int) -> None:
        """Sound calls with some of their bytes changed, or cut."""
        async with self._server(number) as objects:
            ref = await objects.create("MSMQMessage")
            arguments = Arguments([variants.sound(k) for k in range(6)])
            given = [objects.server.this(), 4, NULL, 0, 1, arguments, 0, [], []]
            sound = IDISPATCH.operations[_INVOKE].takes.marshal(given)
            for _ in range(_CALLS):
                stub = variants.mutated(self._chance, sound)
                await objects.raw(ref.ipid, IDISPATCH, _INVOKE, stub)
                self._count(1)

    async def _types(self, number: int) -> None:
        """Type information of any place, number and name, and stubs that are no questions."""
        chance = self._chance
        name = chance.choice([one.name for one in definitions().coclasses])
        async with self._server(number) as objects:
            ref = await objects.create(name)
            info = await objects.pointer(ref, IDISPATCH, _TYPE_INFO, [0, 0])
            library = await objects.pointer(info, ITYPEINFO, _CONTAINER, [])
            comp = await objects.pointer(library, ITYPELIB, _COMP, [])
            places = ((info, ITYPEINFO), (library, ITYPELIB), (comp, ITYPECOMP))
            names = ("Label", "msmqqueue", "\u0130", "x" * 256, "", "MQACCESS")
            for _ in range(_CALLS):
                at, interface = chance.choice(places)
                opnum = chance.choice(list(interface.operations))
                word = chance.choice(
                    (chance.randbytes(4), b"\xff" * 4, bytes([chance.randrange(99), 0, 0, 0]))
                )
                stub = objects.this() + word * chance.randrange(10)
                status = await objects.raw(at.ipid, interface, opnum, stub)
                expect(status != Hresult.E_UNEXPECTED, f"{interface.name} {opnum}: {status:08X}")
                given = [
                    chance.choice(names),
                    chance.getrandbits(32),
                    chance.choice((0, 1, 0xFFFF)),
                ]
                await objects.ask(library, ITYPELIB, _FIND, given)
                await objects.ask(comp, ITYPECOMP, _BIND, given)
                status = await objects.raw(info.ipid, ITYPEINFO, _ATTRIBUTES, objects.this())
                expect(not status, f"the type's attributes: {status:08X}")
                self._count(4)

    async def _strangers(self, number: int) -> None:
        """Activations without logging on, with a wrong password or too little protection, and
        with properties that are none.
        """
        chance, client = self._chance, RpcClient()
        await client.connect(self._victim.host(number), MAPPER_PORT)
        kind = chance.choice(("nobody", "wrong", "connect", "blob"))
        level = AuthLevel.CONNECT if kind == "connect" else AuthLevel.PRIVACY
        password = "wrong" if kind == "wrong" else PASSWORD
        # Wrong passwords have an account of their own, whose logons are refused for a while then.
        user = "nobody" if kind == "wrong" else USER
        provider = NtlmClient(user, password, "", chance.randbytes)
        try:
            if kind == "nobody":
                await client.bind(IREMOTESCMACTIVATOR)
            else:
                await client.bind(
                    IREMOTESCMACTIVATOR, provider=provider, auth_type=AuthType.NTLM, level=level
                )
            server = _Objects(Server("", 0, Logon(lambda: None)))
            blob = write_wanted(Wanted(clsid("MSMQMessage"), (IID_IDISPATCH,)))
            for _ in range(8):
                self._count(1)
                given = variants.mutated(chance, blob) if kind == "blob" else blob
                values = [server.server.this(), None, given]
                try:
                    *_, status = await client.call(IREMOTESCMACTIVATOR, _CREATE, values)
                except Fault as fault:
                    is_denied = fault.status == FaultStatus.ACCESS_DENIED
                    expect(is_denied or kind == "blob", f"{kind}: {fault.status:08X}")
                else:
                    expect(kind == "blob", f"{kind} activates: {status:08X}")
        finally:
            client.close()

    async def _hoard(self, number: int) -> None:
        """All objects that one may have, and more."""
        async with self._server(number, HOARDER) as objects:
            with contextlib.suppress(ComError):
                while True:
                    await objects.create("MSMQTransactionDispenser")
                    self._count(1)
            expect(len(objects.refs) <= OBJECTS_PER_CALLER_MAX, len(objects.refs))
            await asyncio.sleep(_HELD_S)

    async def _pings(self, number: int) -> None:
        """Pings without end: of sets and objects that nobody has, here or at other nodes."""
        async with self._server(number) as objects:
            ref = await objects.create("MSMQMessage")
            numbers = [0]
            for _ in range(_CALLS):
                chance = self._chance
                anywhere = chance.randrange(6) << NODE_SHIFT | chance.getrandbits(NODE_SHIFT)
                oids = [anywhere, ref.oid, chance.getrandbits(64)] * chance.choice((1, 5_000))
                wanted = chance.choice((*numbers, anywhere))
                given = [wanted, chance.getrandbits(16), len(oids), len(oids), oids, oids]
                found = await objects.ping(COMPLEX_PING, given)
                if found and len(numbers) < _CALLS:
                    numbers.append(found[0])
                await objects.ping(SIMPLE_PING, [chance.choice((wanted, anywhere))])
                self._count(2)

    async def _waits(self, number: int) -> None:
        """Reads that wait for ever, more than one may have, of objects that are released."""
        async with self._server(number) as objects:
            info = await objects.create("MSMQQueueInfo")
            path = f".\\{self._victim.queue}.empty"
            await objects.put(info, "PathName", path)
            await objects.call(info, "Create")
            queue = await objects.call(info, "Open", 1, 0)
            if queue is None:
                return
            calls = [asyncio.ensure_future(objects.call(queue, "Receive")) for _ in range(_WAITING)]
            self._count(len(calls))
            try:
                await asyncio.sleep(self._chance.choice((0.1, 2.0)))
                if self._chance.random() < 0.5:
                    await objects.release()
            finally:
                objects.server.close()
                await asyncio.gather(*calls, return_exceptions=True)


class _Objects:
    """A connection to a node's objects, and those made over it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.refs: list[Objref] = []

    async def create(self, name: str, iid: bytes = IID_IDISPATCH) -> Objref:
        """Have an object made. Raises ComError, Fault, RpcFailed."""
        (ref,) = await self.server.create(clsid(name), iid)
        self.refs.append(ref)
        return ref

    async def release(self) -> None:
        """Release all that was made."""
        refs, self.refs = self.refs, []
        for at in range(0, len(refs), REFERENCES_PER_CALL_MAX):
            await self.server.release(*refs[at : at + REFERENCES_PER_CALL_MAX])

    def this(self) -> bytes:
        """Return the head of a request as bytes."""
        return Listed((ORPC_THIS,)).marshal([self.server.this()])

    async def _settled(self, ipid: bytes, interface: Interface, opnum: int, values: Any) -> Any:
        """Return what a call gives; the status of a fault alone. Raises RpcFailed."""
        try:
            return await self.server.call(ipid, interface, opnum, values, _ANSWER_S)
        except Fault as fault:
            return [fault.status]

    async def ask(self, of: Objref, interface: Interface, opnum: int, values: Any) -> None:
        """Make a call; the references that it gives stay the caller's. Raises RpcFailed."""
        await self._settled(of.ipid, interface, opnum, values)

    async def rem_unknown(self, opnum: int, values: Any) -> int:
        """Call IRemUnknown; return the status."""
        found = await self._settled(self.server.ipid_rem_unknown, IREMUNKNOWN, opnum, values)
        return int(found[-1])

    async def invoke(self, ipid: bytes, dispid: int, flags: int, arguments: Arguments) -> int:
        """Invoke; return the status."""
        values = [dispid, NULL, 0x409, flags, arguments, 0, [], []]
        return int((await self._settled(ipid, IDISPATCH, _INVOKE, values))[-1])

    async def pointer(self, of: Objref, interface: Interface, opnum: int, values: Any) -> Objref:
        """Return the interface that a call gives first. Raises Fault, RpcFailed."""
        raw, *_ = await self.server.call(of.ipid, interface, opnum, values, _ANSWER_S)
        found = parse_objref(raw)
        assert isinstance(found, Objref)
        self.refs.append(found)
        return found

    async def raw(self, ipid: bytes, interface: Interface, opnum: int, stub: bytes) -> int:
        """Make a call with a stub; return the status. Raises RpcFailed."""
        client = self.server._objects
        assert client is not None
        if not client.has(interface):
            await client.add(interface)
        try:
            answer = await client.raw_call(interface, opnum, stub, _ANSWER_S, ipid)
        except Fault as fault:
            return fault.status
        return int.from_bytes(answer[-4:], "little")

    async def ping(self, opnum: int, values: Any) -> Any:
        """Call the resolver; None if it refuses."""
        client = await self.server.resolver()
        with contextlib.suppress(Fault):
            return await client.call(IOBJECTEXPORTER, opnum, values, _ANSWER_S)
        return None

    async def put(self, ref: Objref, name: str, value: str) -> None:
        """Put a property by name."""
        arguments = Arguments([Variant(VarType.BSTR, value)], [DISPID_PROPERTYPUT])
        number = await self._number(ref, name)
        await self.invoke(ref.ipid, number, InvokeFlag.PROPERTYPUT, arguments)

    async def call(self, ref: Objref, name: str, *numbers: int) -> Objref | None:
        """Call a method by name; return the object that it gives, if it does."""
        values = [Variant(VarType.I4, number) for number in reversed(numbers)]
        arguments = Arguments(values)
        given = [await self._number(ref, name), NULL, 0x409, 1, arguments, 0, [], []]
        result, *_ = await self._settled(ref.ipid, IDISPATCH, _INVOKE, given)
        if not isinstance(result, Variant) or not isinstance(result.value, bytes):
            return None
        found = parse_objref(result.value)
        return found if isinstance(found, Objref) else None

    async def _number(self, ref: Objref, name: str) -> int:
        given = [NULL, [name], 1, 0x409]
        found, _ = await self.server.call(ref.ipid, IDISPATCH, _NAMES, given, _ANSWER_S)
        return int(found[0])


def _signed(chance: Random) -> int:
    return chance.getrandbits(32) - (1 << 31)


async def dcom(victim: Victim, chance: Random, count: Count) -> None:
    """References below zero, pointers of others, wrong calls and values, hoards, pings, waits."""
    await _Attacker(victim, chance, count).run()


async def _stubborn(once: Callable[[], Awaitable[None]]) -> None:
    async def attempt() -> None:
        with contextlib.suppress(*_FAILED):
            await once()
        await asyncio.sleep(0)

    await again_and_again(attempt)
