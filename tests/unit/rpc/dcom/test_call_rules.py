"""Rules that every call of an object keeps, whatever its interface is [MS-DCOM 3.1.1.5.4]."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

import pytest
from msgspec.structs import replace

from qm.pb import control_pb2 as pb
from qm.rpc.dcom.automation.dispatch import (
    DISPID_PROPERTYPUT,
    IDISPATCH,
    InvokeFlag,
    arguments_of,
)
from qm.rpc.dcom.automation.type_interfaces import ITYPEINFO
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IACTIVATION, ICLASSFACTORY, IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.identifiers import IID_ICLASSFACTORY, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import Objref, write_objref
from qm.rpc.dcom.runtime.orpc import ORPC_THIS, Extension, Listed, OrpcThis
from qm.rpc.dcom.runtime.properties import Wanted, parse_reply, write_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, IREMUNKNOWN2, InterfaceRef
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.interface import Fault, Interface
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    DENY_RECEIVE,
    OMITTED,
    PRIVATE,
    RECEIVE,
    SEND,
    DcomWorld,
    Late,
    Program,
    clsid,
    dcom_world,
    eventually,
    iid,
    opnum,
    play,
    play_in_world,
    pointed,
)
from tests.unit.rpc.reading import RPC_PORT

MESSAGE4 = object_interfaces()[iid("IMSMQMessage4")]
QUEUE4 = object_interfaces()[iid("IMSMQQueue4")]
GET, PUT = (opnum("IMSMQMessage4", "Label", kind) for kind in ("get", "put"))
SEND_MESSAGE = opnum("IMSMQMessage4", "Send")
ACCESS_DENIED, NO_INTERFACE = 0x80070005, 0x80004002
DISCONNECTED, VERSION_MISMATCH, INVALID_HEADER = 0x80010108, 0x80010110, 0x80010111
INVALID_OBJECT, INVALID_OBJREF, BAD_STUB = 0x80010114, 0x8001011D, 0x6F7
NOT_REGISTERED = 0x800401FB
MQ_ACCESS_DENIED, SHARING_VIOLATION = 0xC00E0025, 0xC00E0009


class Objects:
    """One object of each kind, and how it is called."""

    def __init__(self, program: Program, message: Objref, factory: Objref, info: Objref) -> None:
        self.server = program.server
        self.message, self.factory, self.info = message, factory, info
        self.ways: dict[str, Callable[[], Awaitable[Any]]] = {
            "vtable": lambda: self.server.call(message.ipid, MESSAGE4, GET, []),
            "class factory": lambda: self.server.call(factory.ipid, ICLASSFACTORY, 4, [1]),
            "type information": lambda: self.server.call(info.ipid, ITYPEINFO, 3, []),
        }

    async def remote(self, number: int, *values: Any) -> list[Any]:
        """Call IRemUnknown or, where it alone has the method, IRemUnknown2."""
        interface = IREMUNKNOWN2 if number == 6 else IREMUNKNOWN
        return await self.server.call(self.server.ipid_rem_unknown, interface, number, values)

    def unknown_ways(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """What is asked of the exporter about the message."""
        ipid = self.message.ipid
        one = [InterfaceRef(ipid, 1, 0)]
        return {
            "query": lambda: self.remote(3, ipid, 1, 1, [IID_IUNKNOWN]),
            "query of the second kind": lambda: self.remote(6, ipid, 1, [IID_IUNKNOWN]),
            "new references": lambda: self.remote(4, 1, one),
            "release": lambda: self.remote(5, 1, one),
        }


async def objects_of(program: Program) -> Objects:
    server = program.server
    (message,) = await server.create(clsid("MSMQMessage"), MESSAGE4.syntax.uuid)
    (factory,) = await server.class_object(clsid("MSMQMessage"), IID_ICLASSFACTORY)
    raw, status = await server.call(message.ipid, MESSAGE4, 4, [0, 0])
    assert status == 0
    return Objects(program, message, factory, pointed(raw))


async def fault_of(call: Awaitable[Any]) -> int:
    with pytest.raises(Fault) as refused:
        await call
    return refused.value.status


# Which object ----------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-01")
def test_an_ipid_that_nobody_has_is_disconnected_by_each_interface() -> None:
    async def scenario(program: Program) -> None:
        made = await objects_of(program)
        server, known = program.server, made.message.ipid
        one = [InterfaceRef(known, 1, 0)]
        nearly = known[:-1] + bytes((known[-1] ^ 1,))
        for unknown in (bytes(16), b"\1" * 16, nearly):
            for interface, number, values in (
                (MESSAGE4, GET, []),
                (IDISPATCH, 3, []),
                (ICLASSFACTORY, 3, [IID_IUNKNOWN]),
                (ICLASSFACTORY, 4, [1]),
                (ITYPEINFO, 3, []),
                (IREMUNKNOWN, 3, [known, 1, 1, [IID_IUNKNOWN]]),
                (IREMUNKNOWN, 4, [1, one]),
                (IREMUNKNOWN, 5, [1, one]),
                (IREMUNKNOWN2, 6, [known, 1, [IID_IUNKNOWN]]),
            ):
                found = await fault_of(server.call(unknown, interface, number, values))
                assert found == DISCONNECTED, (interface.name, number)
        # Nor is there an object in a request that names none.
        client = server._objects
        assert client is not None
        this = server.this()
        assert await fault_of(client.call(MESSAGE4, GET, [this])) == DISCONNECTED
        assert await fault_of(client.call(ICLASSFACTORY, 4, [this, 1])) == DISCONNECTED
        assert await made.ways["vtable"]() == ["", 0]

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-02")
def test_factories_and_objects_do_not_take_each_other_s_calls() -> None:
    async def scenario(program: Program) -> None:
        made = await objects_of(program)
        server = program.server
        (unknown,) = await server.query(made.message.ipid, IID_IUNKNOWN)
        (of_class,) = await server.query(made.factory.ipid, IID_IUNKNOWN)
        assert isinstance(unknown, Objref)
        assert isinstance(of_class, Objref)
        for ipid, interface, number, values in (
            (made.message.ipid, ICLASSFACTORY, 4, [1]),
            (made.info.ipid, ICLASSFACTORY, 4, [1]),
            (unknown.ipid, ICLASSFACTORY, 4, [1]),
            (unknown.ipid, ICLASSFACTORY, 3, [IID_IUNKNOWN]),
            (of_class.ipid, ICLASSFACTORY, 4, [1]),
            (of_class.ipid, ICLASSFACTORY, 3, [IID_IUNKNOWN]),
            (made.factory.ipid, MESSAGE4, GET, []),
            (made.factory.ipid, IDISPATCH, 3, []),
            (unknown.ipid, MESSAGE4, GET, []),
        ):
            found = await fault_of(server.call(ipid, interface, number, values))
            assert found == DISCONNECTED, interface.name
        for way in made.ways.values():
            assert (await way())[-1] == 0

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.1-01")
def test_a_query_of_an_unknown_object_is_about_an_invalid_one() -> None:
    async def scenario(program: Program) -> None:
        made = await objects_of(program)
        wanted = [IID_IUNKNOWN, iid("IMSMQMessage4")]
        for unknown in (bytes(16), b"\1" * 16, made.message.ipid[::-1]):
            assert await made.remote(3, unknown, 1, 2, wanted) == [None, INVALID_OBJECT]
            *_, pointers, status = await made.remote(6, unknown, 2, wanted)
            assert (pointers, status) == ([None, None], INVALID_OBJECT)
        # Of one that was there, too.
        await made.remote(5, 1, [InterfaceRef(made.message.ipid, 1_000, 0)])
        assert (await made.remote(3, made.message.ipid, 1, 2, wanted))[-1] == INVALID_OBJECT
        assert (await made.remote(6, made.message.ipid, 2, wanted))[-1] == INVALID_OBJECT

    play(scenario)


# Heads of requests -----------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-2.2.13.3-02", "RP-DCOM-1.7-02")
@pytest.mark.parametrize(
    ("this", "status"),
    [
        *((OrpcThis(bytes(16), flags=1 << bit), INVALID_HEADER) for bit in (0, 2, 8, 31)),
        (OrpcThis(bytes(16), 5, 8), VERSION_MISMATCH),
        (OrpcThis(bytes(16), 0, 7), VERSION_MISMATCH),
        (OrpcThis(bytes(16), 0x0105, 7), VERSION_MISMATCH),
    ],
)
def test_a_call_whose_head_is_refused_does_nothing(this: OrpcThis, status: int) -> None:
    async def scenario(program: Program) -> None:
        made = await objects_of(program)
        server, good = program.server, program.server.this
        ways = {**made.ways, **made.unknown_ways()}
        ways["put"] = lambda: server.call(made.message.ipid, MESSAGE4, PUT, ["changed"])
        ways["made"] = lambda: server.call(made.factory.ipid, ICLASSFACTORY, 3, [IID_IUNKNOWN])
        server.this = lambda: this  # type: ignore[method-assign]
        for name, way in ways.items():
            assert await fault_of(way()) == status, name
        if status == VERSION_MISMATCH:
            wanted = clsid("MSMQMessage"), IID_IUNKNOWN
            assert await fault_of(server.create(*wanted)) == status
            assert await fault_of(server.class_object(*wanted)) == status
            client = await server.resolver()
            await client.add(IACTIVATION)
            given = [this, wanted[0], None, None, 2, 0, 1, [IID_IUNKNOWN], 1, [7]]
            assert await fault_of(client.call(IACTIVATION, 0, given)) == status
        server.this = good  # type: ignore[method-assign]
        # It was neither changed nor released, and got no references.
        assert await made.ways["vtable"]() == ["", 0]
        await made.remote(5, 1, [InterfaceRef(made.message.ipid, 5, 0)])
        assert await fault_of(made.ways["vtable"]()) == DISCONNECTED

    play(scenario)


@pytest.mark.spec("RP-DCOM-2.2.13.1-01", "RP-DCOM-2.2.13.2-01")
def test_extensions_that_nobody_knows_change_no_call() -> None:
    async def scenario(program: Program) -> None:
        made = await objects_of(program)
        server = program.server
        extensions = [Extension(bytes([k]) * 16, b"hello, extent"[: 5 * k]) for k in range(3)]
        for count in (1, 2, 3):
            this = OrpcThis(b"c" * 16, extensions=extensions[:count])
            server.this = lambda this=this: this  # type: ignore[method-assign,misc]
            for name, way in {**made.ways, **made.unknown_ways()}.items():
                assert (await way())[-1] == 0, name
            (again,) = await server.create(clsid("MSMQMessage"), MESSAGE4.syntax.uuid)
            assert await server.call(again.ipid, MESSAGE4, GET, []) == ["", 0]
        # An array of another size than they need is no call at all.
        client = server._objects
        assert client is not None
        stub = Listed((ORPC_THIS,)).marshal([OrpcThis(bytes(16), extensions=extensions)])
        at = stub.index(pack("<II", 3, 0), 32)
        assert stub[at + 12 : at + 16] == pack("<I", 4), "three pointers and one to nothing"
        for size in (1, 2, 5, 6):
            wrong = stub[:at] + pack("<I", size) + stub[at + 4 :]
            given = client.raw_call(MESSAGE4, GET, wrong, object_uuid=made.message.ipid)
            assert await fault_of(given) == BAD_STUB, size
        found = await client.raw_call(MESSAGE4, GET, stub, object_uuid=made.message.ipid)
        assert found[-4:] == bytes(4)

    play(scenario)


# Who calls -------------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-04", "RP-DCOM-3.1.1.5.6.1.3-04")
def test_another_account_is_denied_and_changes_nothing() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        made, server = await objects_of(program), program.server
        bob = await world.program("bob")
        own = await bob.create("MSMQMessage")
        (ref,) = await server.query(made.message.ipid, iid("IMSMQMessage3"), refs=3)
        assert isinstance(ref, Objref)
        assert await made.remote(4, 1, [InterfaceRef(ref.ipid, 0, 1)]) == [[0], 0]
        earlier = object_interfaces()[ref.iid]
        ipid, many = ref.ipid, [InterfaceRef(ref.ipid, 1_000, 1_000)]
        put = arguments_of([Variant(VarType.BSTR, "bob's")], [DISPID_PROPERTYPUT])
        late = await Late(server, made.message).by(IDISPATCH.syntax.uuid)
        number = await Late(server, late).number("Label")
        invoked = [number, NULL, 0x409, InvokeFlag.PROPERTYPUT, put, 0, [], []]
        for to, interface, slot, values in (
            (ipid, earlier, PUT, ["bob's"]),
            (late.ipid, IDISPATCH, 6, invoked),
            (made.factory.ipid, ICLASSFACTORY, 3, [IID_IUNKNOWN]),
            (made.info.ipid, ITYPEINFO, 3, []),
        ):
            denied = bob.server.call(to, interface, slot, values)
            assert await fault_of(denied) == ACCESS_DENIED, interface.name
        theirs = Objects(bob, made.message, made.factory, made.info)
        assert await theirs.remote(3, ipid, 1, 1, [IID_IUNKNOWN]) == [None, ACCESS_DENIED]
        *_, pointers, status = await theirs.remote(6, ipid, 1, [IID_IUNKNOWN])
        assert (pointers, status) == ([None], ACCESS_DENIED)
        assert await theirs.remote(4, 1, many) == [[ACCESS_DENIED], ACCESS_DENIED]
        assert await theirs.remote(5, 1, many) == [0]
        raw = write_objref(replace(ref, public_refs=2))  # which were never bob's
        with pytest.raises(ComError):
            await own.call("Send", Variant(VarType.DISPATCH, raw))
        # Three public references and a private one are left, no more and no fewer.
        for public, private in ((0, 0), (2, 0), (0, 1)):
            await made.remote(5, 1, [InterfaceRef(ipid, public, private)])
            assert await server.call(ipid, earlier, GET, []) == ["", 0]
        await made.remote(5, 1, [InterfaceRef(ipid, 1, 0)])
        assert await fault_of(server.call(ipid, earlier, GET, [])) == DISCONNECTED
        bob.close()

    play_in_world(scenario)


@pytest.mark.spec("AC-3.1.4.1-01", "AC-5.1-01")
def test_the_access_list_of_a_queue_decides_for_whoever_calls() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue()
        for label in ("first", "second"):
            await program.send("body", label)
        bob = await world.program("bob")
        info = await bob.queue_info()

        async def permit(who: str, *rights: str) -> None:
            entries = [pb.Ace(principal=who, rights=rights)] if rights else []
            async with world.client(await world.leader()) as client:
                name = pb.QueueName(name=PRIVATE)
                await client.queues.SetAcl(pb.SetAclRequest(queue=name, entries=entries))

        async def refused(call: Awaitable[Any]) -> int:
            with pytest.raises(ComError) as denied:
                await call
            return denied.value.status

        assert await refused(info.call("Open", RECEIVE, 0)) == MQ_ACCESS_DENIED
        await permit("bob", "receive_message", "peek_message")
        queue = await info.call("Open", RECEIVE, 0)
        taken = await queue.call("Receive", ReceiveTimeout=1_000)
        assert await taken.get("Label") == "first"
        # To take messages is not to delete the queue, nor to describe it anew.
        assert await refused(info.call("Delete")) == MQ_ACCESS_DENIED
        await queue.call("Close")
        await permit("Everyone", "write_message")
        assert await refused(info.call("Open", RECEIVE, 0)) == MQ_ACCESS_DENIED
        await info.call("Open", SEND, 0)
        # What is for administrators is not for whoever has some queue.
        application = await bob.create("MSMQApplication")
        for name in ("Disconnect", "Connect"):
            assert await refused(application.call(name)) == MQ_ACCESS_DENIED
        await (await program.create("MSMQApplication")).call("Connect")
        bob.close()

    play_in_world(scenario)


# References ------------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-2.2.18-02")
def test_an_argument_with_another_signature_or_flags_is_no_reference() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        made, raw = await objects_of(program), write_objref((await program.opened(SEND)).ref)
        assert raw[:8] == b"MEOW\1\0\0\0"
        others = [raw[:at] + bytes((raw[at] ^ 0x20,)) + raw[at + 1 :] for at in range(4)]
        for flags in (0, 3, 5, 6, 9, 10, 16, 0x0101, 0x0100_0001, 0xFFFF_FFFF):
            others.append(raw[:4] + pack("<I", flags) + raw[8:])
        for other in others:
            given = [other, OMITTED]
            found = await program.server.call(made.message.ipid, MESSAGE4, SEND_MESSAGE, given)
            assert found == [INVALID_OBJREF], other[:8]
        queue = await program.opened(RECEIVE)
        with pytest.raises(ComError):
            await queue.call("Peek", ReceiveTimeout=0)
        given = [raw, OMITTED]
        assert await program.server.call(made.message.ipid, MESSAGE4, SEND_MESSAGE, given) == [0]

    play(scenario)


@pytest.mark.spec("RP-DCOM-2.2.18.4-01", "RP-DCOM-2.2.19.3-02")
@pytest.mark.parametrize("names", [(), ("queues.example.test", "queues")])
def test_what_was_dialled_is_told_wherever_a_place_is(names: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with dcom_world(names=names) as world:
            program, node = await world.program(), await world.harness.leader()
            made, server = await objects_of(program), program.server
            hosts = (*names, node.host)
            wanted = [iid("IMSMQMessage4"), IID_IUNKNOWN]
            *_, pointers, status = await made.remote(6, made.message.ipid, 2, wanted)
            assert status == 0
            raw, _ = await server.call(made.factory.ipid, ICLASSFACTORY, 3, [IID_IUNKNOWN])
            info, _ = await server.call(made.message.ipid, MESSAGE4, 4, [0, 0])
            client = await server.resolver()
            given: list[Any] = [
                server.this(),
                None,
                write_wanted(Wanted(clsid("MSMQMessage"), (wanted[0],))),
            ]
            reply = parse_reply((await client.call(IREMOTESCMACTIVATOR, 4, given))[1])
            await client.add(IACTIVATION)
            given = [server.this(), clsid("MSMQMessage"), None, None, 2, 0, 1, wanted[:1], 1, [7]]
            old = await client.call(IACTIVATION, 0, given)
            told: list[Any] = [*pointers, raw, info, *reply.pointers, *old[-3]]
            for each in told:
                assert each[:8] == b"MEOW\1\0\0\0"
                assert pointed(each).resolver.addresses == hosts
            _, alive, *_ = await client.call(IOBJECTEXPORTER, 5, [])
            assert alive.addresses == hosts
            asked = [reply.oxid, 1, [7]]
            first, *_ = await client.call(IOBJECTEXPORTER, 0, asked)
            second, *_ = await client.call(IOBJECTEXPORTER, 4, asked)
            ported = tuple(f"{host}[{RPC_PORT}]" for host in hosts)
            for exporter in (first, second, reply.bindings, old[2]):
                assert exporter.addresses == ported
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.1.5.1-01")
def test_each_new_pointer_comes_with_five_references_that_are_counted() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        made, server = await objects_of(program), program.server
        wanted = [iid("IMSMQMessage2")]
        _, (queried,), _ = await made.remote(6, made.message.ipid, 1, wanted)
        raw, _ = await server.call(made.factory.ipid, ICLASSFACTORY, 3, [iid("IMSMQMessage4")])
        info = (await program.queue_info()).ref
        opens = object_interfaces()[iid("IMSMQQueueInfo4")]
        by_slot = (await server.query(info.ipid, opens.syntax.uuid))[0]
        assert isinstance(by_slot, Objref)
        number = opnum("IMSMQQueueInfo4", "Open")
        assert await server.call(by_slot.ipid, opens, 13, [PRIVATE]) == [0]
        opened, *_ = await server.call(by_slot.ipid, opens, number, [SEND, 0])
        others: dict[bytes, tuple[Interface, int, list[Any]]] = {
            IID_ICLASSFACTORY: (ICLASSFACTORY, 4, [1]),
            ITYPEINFO.syntax.uuid: (ITYPEINFO, 3, []),
        }
        for ref in (
            made.message,
            made.factory,
            made.info,
            *map(pointed, (queried, raw, opened)),
            (await program.opened(SEND)).ref,
        ):
            assert ref.public_refs == 5
            called = others.get(ref.iid) or (object_interfaces()[ref.iid], 3, [])
            await made.remote(5, 1, [InterfaceRef(ref.ipid, 4, 0)])
            assert (await server.call(ref.ipid, *called))[-1] == 0
            await made.remote(5, 1, [InterfaceRef(ref.ipid, 1, 0)])
            assert await fault_of(server.call(ref.ipid, *called)) == DISCONNECTED

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3.2-01")
def test_a_class_factory_makes_as_many_objects_as_it_is_asked_for() -> None:
    async def scenario(program: Program) -> None:
        made, server = await objects_of(program), program.server
        assert made.factory.iid == IID_ICLASSFACTORY
        labels: dict[bytes, str] = {}
        for count in range(3):
            given = [iid("IMSMQMessage4")]
            raw, status = await server.call(made.factory.ipid, ICLASSFACTORY, 3, given)
            assert status == 0
            ref, label = pointed(raw), f"label {count}"
            assert ref.iid == iid("IMSMQMessage4")
            assert await server.call(ref.ipid, MESSAGE4, PUT, [label]) == [0]
            labels[ref.ipid] = label
            # It makes them whether its server is locked or not.
            for is_locked in (1, 0):
                found = await server.call(made.factory.ipid, ICLASSFACTORY, 4, [is_locked])
                assert found == [0]
        assert len(labels) == 3
        for ipid, label in labels.items():
            assert await server.call(ipid, MESSAGE4, GET, []) == [label, 0]

    play(scenario)


# How long --------------------------------------------------------------------------------


class Clock:
    """The time of a node's objects, which is told them from outside."""

    def __init__(self, dcom: Any) -> None:
        self.now_s = asyncio.get_running_loop().time()
        self._exporter = dcom._exporter
        self._threads = dcom._threads
        dcom._places.now = lambda: self.now_s

    async def is_waited_for(self) -> bool:
        """Whether a call waits."""
        return bool(self._threads.count)

    def go(self, seconds: float) -> None:
        """Let time pass, and what has expired be found."""
        self.now_s += seconds
        self._exporter.sweep(self.now_s)


async def clock_of(world: DcomWorld) -> Clock:
    return Clock((await world.harness.leader()).service.windows._dcom)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-05", "RP-DCOM-3.1.1.6.2-01")
@pytest.mark.parametrize(
    "kind",
    [
        "vtable",
        "class factory",
        "type information",
        "query",
        "query of the second kind",
        "new references",
        "release",
        "",
    ],
)
def test_each_kind_of_call_is_a_sign_of_life(kind: str) -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        clock, made = await clock_of(world), await objects_of(program)
        target = {"class factory": "class factory", "type information": "type information"}
        is_there = made.ways[target.get(kind, "vtable")]
        if kind:
            for _ in range(3):
                clock.go(300)
                await {**made.ways, **made.unknown_ways()}[kind]()
            clock.go(300)
            assert (await is_there())[-1] == 0
        clock.go(361)
        assert await fault_of(is_there()) == DISCONNECTED

    play_in_world(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.6.2-01")
def test_a_call_that_lasts_is_a_sign_of_life_when_it_ends() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue()
        clock, queue = await clock_of(world), await program.opened(RECEIVE)
        waiting = asyncio.ensure_future(queue.call("Receive", ReceiveTimeout=20_000))
        await eventually(clock.is_waited_for)
        clock.go(300)
        other = await world.program()
        await other.send("body", "late")
        assert await (await waiting).get("Label") == "late"
        clock.go(300)
        assert await queue.get("IsOpen2") is True
        other.close()

    play_in_world(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.6.2-02")
def test_a_queue_that_is_reclaimed_reads_no_more() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue()
        clock, queue = await clock_of(world), await program.opened(RECEIVE, share=DENY_RECEIVE)
        waiting = asyncio.ensure_future(queue.call("Receive", ReceiveTimeout=60_000))
        await eventually(clock.is_waited_for)
        clock.go(361)
        with pytest.raises((ComError, Fault)):
            await asyncio.wait_for(waiting, 20)

        async def is_free() -> bool:
            try:
                opened.append(await program.opened(RECEIVE, share=DENY_RECEIVE))
            except ComError as shared:
                assert shared.status == SHARING_VIOLATION
            return bool(opened)

        opened: list[Late] = []
        await eventually(is_free)
        await program.send("body", "kept")
        found = await opened[0].call("Receive", ReceiveTimeout=10_000)
        assert await found.get("Label") == "kept"

    play_in_world(scenario)


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-04")
def test_an_unknown_object_does_not_keep_others_in_a_ping_set() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        clock = await clock_of(world)
        made = [await program.create("MSMQMessage") for _ in range(3)]
        kept, first, last = [one.ref.oid for one in made]
        client = await program.server.resolver()
        given = [0, 1, 3, 1, [kept, first, last], [4711]]
        number, factor, status = await client.call(IOBJECTEXPORTER, 2, given)
        assert (factor, status) == (0, 0)
        gone = [4711, first, 1 << 63, 0, last]
        given = [number, 2, 0, len(gone), None, gone]
        assert await client.call(IOBJECTEXPORTER, 2, given) == [number, 0, 0]
        clock.go(300)
        assert await client.call(IOBJECTEXPORTER, 1, [number]) == [0]
        clock.go(100)
        assert await made[0].get("Label") == ""
        for one in made[1:]:
            assert await fault_of(one.number("Label")) == DISCONNECTED

    play_in_world(scenario)
