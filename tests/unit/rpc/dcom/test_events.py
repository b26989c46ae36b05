"""MSMQEvent: a program's sink is told, through its own object exporter."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from qm.client.mqac.constants import (
    CONNECT_E_CANNOTCONNECT,
    CONNECT_E_NOCONNECTION,
    E_NOTIMPL,
    E_POINTER,
    MQMSGCURSOR,
)
from qm.client.mqac.event import CONNECTIONS_MAX
from qm.names.guid import guid_text
from qm.observe.metrics import Metrics
from qm.rpc.association.connection import Served
from qm.rpc.association.groups import Associations
from qm.rpc.dcom.automation.dispatch import ExceptionInfo, InvokeFlag
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.events import events_interface
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import (
    Bindings,
    CustomRef,
    Objref,
    parse_objref,
    standard_bytes,
    write_custom,
    write_objref,
)
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.interface import Interface
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.server.call import Call
from qm.rpc.server.ports import Port, RpcPorts
from qm.rpc.server.rpc_metrics import RpcMetrics
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    Late,
    Program,
    clsid,
    dcom_world,
    eventually,
    iid,
    play,
    pointed,
    slot,
)
from tests.unit.rpc.dialogue import NoProviders

SINK_PORT, SINK_OBJECTS = 11360, 11361
HERE = "127.0.0.1"
OXID, OID, REM_UNKNOWN, SINK = 0x77, 0x78, b"r" * 16, b"s" * 16


class Sink:
    """A program's exporter with one sink. Without protection, as a program may choose to be."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[Variant]]] = []
        self.uses: set[tuple[bytes, int]] = set()
        """The interface that was meant, and the flags."""
        self.failures = 0
        self.released: list[list[tuple[bytes, int]]] = []
        self.pings: list[list[Any]] = []
        self.sets = itertools.count(40)
        self.is_forgetful = False
        """Whether it has no ping sets, as if its computer had been started anew."""
        self.is_foreign = False
        """Whether it has no interface of sinks."""

    def resolve_2(self, call: Call, given: list[Any]) -> list[Any]:
        # The wrong host: whoever calls a sink takes the port alone.
        bindings = Bindings((f"192.0.2.1[{SINK_OBJECTS}]",), (9,))
        return [bindings, REM_UNKNOWN, 1, (5, 7), 0 if given[0] == OXID else 1910]

    def query_interface(self, call: Call, given: list[Any]) -> list[Any]:
        _, ipid, refs, _, iids = given
        assert ipid == b"u" * 16
        found = [
            (0, standard_bytes(Objref(one, OXID, OID, SINK, refs)))
            if one == iid("_DMSMQEventEvents") and not self.is_foreign
            else (Hresult.E_NOINTERFACE, bytes(40))
            for one in iids
        ]
        return [None, found, Hresult.S_FALSE]

    def release(self, call: Call, given: list[Any]) -> list[Any]:
        self.released.append([(one.ipid, one.public) for one in given[2]])
        return [None, 0]

    def complex_ping(self, call: Call, given: list[Any]) -> list[Any]:
        self.pings.append(given)
        self.is_forgetful = False
        return [given[0] or next(self.sets), 0, 0]

    def simple_ping(self, call: Call, given: list[Any]) -> list[Any]:
        self.pings.append(given)
        return [1912 if self.is_forgetful else 0]

    def invoke(self, call: Call, given: list[Any]) -> list[Any]:
        assert call.request.object_uuid == SINK
        if self.failures:
            self.failures -= 1
            raise RuntimeError("busy")
        _, dispid, riid, _, flags, arguments, *_ = given
        self.uses.add((riid, flags))
        self.told.append((dispid, arguments.values[::-1]))
        return [None, Variant(), ExceptionInfo(), 0, [], 0]


def opened(interface: Interface) -> Interface:
    return msgspec.structs.replace(interface, level=AuthLevel.NONE)


@contextlib.asynccontextmanager
async def sink(of: type[Sink] = Sink) -> AsyncIterator[Sink]:
    made = of()
    associations = Associations(secrets.token_bytes)

    def port(number: int, *interfaces: Interface) -> Port:
        served = {(one.syntax.uuid, one.syntax.major): opened(one) for one in interfaces}
        objects = {one.syntax.uuid: made for one in interfaces}
        return Port(number, Served(served, NoProviders(), associations), objects)

    ports = RpcPorts(
        [HERE],
        [
            port(SINK_PORT, IOBJECTEXPORTER, IREMOTESCMACTIVATOR),
            port(SINK_OBJECTS, IREMUNKNOWN, events_interface()),
        ],
        RpcMetrics(Metrics(CollectorRegistry()), asyncio.get_running_loop().time),
    )
    await ports.start()
    try:
        yield made
    finally:
        await ports.stop()


CONTAINER = object_interfaces()[iid("IConnectionPointContainer")]
POINT = object_interfaces()[iid("IConnectionPoint")]
QUEUE4 = object_interfaces()[iid("IMSMQQueue4")]
REFERENCE = write_objref(Objref(IID_IUNKNOWN, OXID, OID, b"u" * 16, 5))


async def event_of(program: Program) -> tuple[Late, Objref, Objref]:
    """An event, as an object, a container, and a connection point."""
    server = program.server
    event, container = await server.create(
        clsid("MSMQEvent"), iid("IMSMQEvent3"), CONTAINER.syntax.uuid
    )
    pointer, status = await server.call(container.ipid, CONTAINER, 4, [iid("_DMSMQEventEvents")])
    assert status == 0
    point = parse_objref(pointer)
    assert isinstance(point, Objref)
    return Late(server, event), container, point


def assert_is_dispatch_of(given: Variant, wanted: Late) -> None:
    """A sink is given IDispatch of this object."""
    assert given.vt == VarType.DISPATCH
    ref = pointed(given.value)
    assert guid_text(ref.iid) == "00020400-0000-0000-C000-000000000046"
    assert ref.oid == wanted.ref.oid


@pytest.mark.spec("AC-3.16.4.1.1-01")
def test_later_revisions_of_events_have_the_properties_of_their_own_alone() -> None:
    own = {name: definitions().named(name).methods for name in ("IMSMQEvent2", "IMSMQEvent3")}
    assert [one.name for methods in own.values() for one in methods] == ["Properties"]
    assert [*object_interfaces()[iid("IMSMQEvent")].operations] == [3, 4, 5, 6]

    async def scenario(program: Program) -> None:
        event = await program.create("MSMQEvent")
        for name in own:
            assert object_interfaces()[iid(name)].operations.keys() == {3, 4, 5, 6, 7}
            with pytest.raises(ComError) as refused:
                await slot(event, name, "Properties")
            assert refused.value.status == 0x8000_4001
        with pytest.raises(ComError) as refused:
            await event.get("Properties")
        assert refused.value.status == 0x8000_4001

    play(scenario)


@pytest.mark.spec(
    "AC-3.16-02",
    "AC-3.16.4.4-01",
    "AC-3.16.4.4.1-01",
    "AC-3.16.4.4.2-01",
    "AC-3.16.4.5.4-01",
)
def test_a_sink_is_told_once_of_a_message_and_of_a_time_out() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            info = await program.queue_info()
            await info.call("Create")
            event, _, point = await event_of(program)
            cookie, status = await program.server.call(point.ipid, POINT, 5, [REFERENCE])
            assert status == 0
            queue = await program.opened(RECEIVE)
            (early, *_) = await program.server.query(queue.ref.ipid, iid("IMSMQQueue4"))
            assert isinstance(early, Objref)

            async def notify(timeout_ms: int, cursor: Variant = OMITTED) -> None:
                given = [write_objref(event.ref), cursor, Variant(VarType.I4, timeout_ms)]
                assert await program.server.call(early.ipid, QUEUE4, 15, given) == [0]

            async def count(wanted: int) -> None:
                async def is_there() -> bool:
                    return len(told.told) >= wanted

                await eventually(is_there)
                assert len(told.told) == wanted

            await notify(-1)
            await asyncio.sleep(0.2)
            assert told.told == []
            await program.send("news")
            await count(1)
            dispid, arguments = told.told[0]
            assert dispid == 0
            assert arguments[1:] == [Variant(VarType.I4, 0)]
            # The queue that it is told of is a live object.
            found = Late(program.server, parse_objref(arguments[0].value))  # type: ignore[arg-type]
            assert await found.get("IsOpen2") is True
            await found.call("Receive", ReceiveTimeout=0)

            # A sink that fails is called again.
            told.failures = 1
            await notify(100, Variant(VarType.I4, MQMSGCURSOR.MQMSG_CURRENT))
            await count(2)
            dispid, arguments = told.told[1]
            assert dispid == 1
            status = ErrorCode.MQ_ERROR_IO_TIMEOUT - (1 << 32)
            assert arguments[1:] == [Variant(VarType.I4, status), Variant(VarType.I4, 1)]
            found = Late(program.server, parse_objref(arguments[0].value))  # type: ignore[arg-type]
            assert await found.get("IsOpen2") is True

            assert await program.server.call(point.ipid, POINT, 6, [cookie]) == [0]
            again = await program.server.call(point.ipid, POINT, 6, [cookie])
            assert again == [CONNECT_E_NOCONNECTION]

            async def is_released() -> bool:
                return len(told.released) == 1

            await eventually(is_released)
            await program.send("later")
            await notify(-1)
            await asyncio.sleep(0.2)
            assert len(told.told) == 2, "it is never called again"
            assert told.uses == {(NULL, InvokeFlag.METHOD)}
            program.close()

    run(scenario())


@pytest.mark.spec("AC-6-05", "AC-6-06", "AC-6-07", "AC-6-08", "AC-3.16.4-09")
def test_an_event_s_connection_points_are_enumerated() -> None:
    async def scenario(program: Program) -> None:
        server = program.server
        _, container, point = await event_of(program)
        raw, status = await server.call(container.ipid, CONTAINER, 3, [])
        assert status == 0
        points = object_interfaces()[iid("IEnumConnectionPoints")]
        enumerator = pointed(raw)
        assert enumerator.iid == points.syntax.uuid
        call = partial(server.call, enumerator.ipid, points)
        for wanted in (1, 5):
            # As long as the client's array, with what there is.
            found, count, status = await call(3, [wanted])
            assert (found.count_max, len(found.items), count) == (wanted, 1, 1)
            assert status == (0 if wanted == 1 else Hresult.S_FALSE)
            assert pointed(found.items[0]).iid == POINT.syntax.uuid
            assert pointed(found.items[0]).oid == point.oid
            found, count, status = await call(3, [wanted])
            assert (found.count_max, found.items, count) == (wanted, [], 0)
            assert status == Hresult.S_FALSE
            assert await call(5, []) == [0]
        assert await call(4, [1]) == [0]
        assert await call(4, [1]) == [Hresult.S_FALSE]
        raw, status = await call(6, [])
        assert (pointed(raw).iid, status) == (points.syntax.uuid, 0)
        assert await call(5, []) == [0]
        # The copy stands where the other one stood, and goes its own way.
        _, count, _ = await server.call(pointed(raw).ipid, points, 3, [1])
        assert count == 0
        _, count, _ = await call(3, [1])
        assert count == 1

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.9-02",
    "AC-3.11.4.1.9-06",
    "AC-3.11.4.1.9-11",
    "AC-3.16.4.3.2-01",
    "AC-3.16.4.4.1-02",
)
def test_a_sink_is_told_of_the_head_and_of_the_cursor() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            await program.new_queue()
            event, _, point = await event_of(program)
            _, status = await program.server.call(point.ipid, POINT, 5, [REFERENCE])
            assert status == 0
            queue = await program.opened(RECEIVE)

            async def is_told(cursor: int, timeout_ms: int, error: int | None = None) -> None:
                count = len(told.told) + 1
                await queue.call("EnableNotification", event, cursor, timeout_ms)

                async def is_there() -> bool:
                    return len(told.told) >= count

                await eventually(is_there)
                assert len(told.told) == count, "once"
                dispid, arguments = told.told[-1]
                wanted = [] if error is None else [error - (1 << 32)]
                assert dispid == len(wanted)
                assert [one.value for one in arguments[1:]] == [*wanted, cursor]
                assert_is_dispatch_of(arguments[0], queue)

            first, current, following = MQMSGCURSOR
            nothing, late = ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_IO_TIMEOUT
            for cursor in (first, current):
                await is_told(cursor, 0, nothing)
                await is_told(cursor, 10, late)
            await program.send("a")
            await program.send("b")
            for cursor in (first, current, following):
                await is_told(cursor, 0)
            for body in ("a", "b"):  # they stayed
                found = await queue.call("Receive", ReceiveTimeout=0)
                assert await found.get("Body") == body
            await is_told(following, 0, nothing)
            await is_told(current, 10, late)
            count = len(told.told)
            await program.send("nobody asked for it")
            await asyncio.sleep(0.2)
            assert len(told.told) == count
            program.close()

    run(scenario())


@pytest.mark.spec(
    "AC-3.16.4-06",
    "AC-3.16.1-02",
    "AC-3.16.4.5.3-01",
    "AC-3.16.4.5.3-02",
    "AC-3.16.4.5.3-03",
)
def test_an_event_has_so_many_sinks_and_each_has_its_cookie() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            _, _, point = await event_of(program)

            async def advise(reference: bytes | None = REFERENCE) -> tuple[int, int]:
                cookie, status = await program.server.call(point.ipid, POINT, 5, [reference])
                return cookie, status

            cookies = []
            for _ in range(CONNECTIONS_MAX):
                cookie, status = await advise()
                assert status == 0
                cookies.append(cookie)
            assert len({*cookies}) == CONNECTIONS_MAX
            assert 0 not in cookies
            assert await advise() == (0, 0x8004_0201)
            assert await advise(None) == (0, 0x8000_4003), "before the limit"
            assert await program.server.call(point.ipid, POINT, 6, [cookies[7]]) == [0]
            told.is_foreign = True
            assert await advise() == (0, 0x8004_0202), "it has no such interface"
            told.is_foreign = False
            unknown = write_objref(Objref(IID_IUNKNOWN, OXID + 1, OID, b"u" * 16, 5))
            assert await advise(unknown) == (0, 0x8004_0202), "nobody knows where it is"
            by_value = write_custom(CustomRef(IID_IUNKNOWN, b"c" * 16, b"data"))
            assert await advise(by_value) == (0, 0x8004_0202), "there is nothing to call"
            cookie, status = await advise()
            assert (status, cookie not in cookies) == (0, True)
            program.close()

    run(scenario())


@pytest.mark.spec("AC-3.16.3-01")
def test_an_event_has_no_sink_at_first_and_no_cookie_twice() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink():
            program = await world.program()
            _, _, point = await event_of(program)
            for number in (0, 1):
                assert await program.server.call(point.ipid, POINT, 6, [number]) == [0x8004_0200]
            kept: list[int] = []
            for _ in range(3):
                for _ in range(2):
                    cookie, status = await program.server.call(point.ipid, POINT, 5, [REFERENCE])
                    assert (status, cookie in kept) == (0, False)
                    kept.append(cookie)
                assert await program.server.call(point.ipid, POINT, 6, [kept.pop(0)]) == [0]
            for cookie in kept:
                assert await program.server.call(point.ipid, POINT, 6, [cookie]) == [0]
            program.close()

    run(scenario())


@pytest.mark.spec("AC-3.16.4-07", "AC-3.16.1-01")
def test_a_sink_that_leaves_is_released_and_others_stay() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            server = program.server
            event, container, point = await event_of(program)
            for name in ("IConnectionPoint", "IConnectionPointContainer", "IMSMQPrivateEvent"):
                (same,) = await server.query(event.ref.ipid, iid(name))
                assert isinstance(same, Objref)
                assert (same.iid, same.oid) == (iid(name), container.oid)
            cookies = []
            for _ in range(2):
                cookie, status = await server.call(point.ipid, POINT, 5, [REFERENCE])
                assert status == 0
                cookies.append(cookie)
            unknown = max(cookies) + 1
            for wrong in (0, unknown):
                found = await server.call(point.ipid, POINT, 6, [wrong])
                assert found == [CONNECT_E_NOCONNECTION]
            assert told.released == []
            left, kept = cookies
            for cookie, count in ((left, 1), (kept, 2)):
                assert await server.call(point.ipid, POINT, 6, [cookie]) == [0]

                async def is_released(count: int = count) -> bool:
                    return len(told.released) >= count

                await eventually(is_released)
                assert len(told.released) == count
                # All that it was given: what it asked for, and what the client named.
                assert {ipid for ipid, _ in told.released[-1]} == {SINK, b"u" * 16}
                assert all(public > 0 for _, public in told.released[-1])
                again = await server.call(point.ipid, POINT, 6, [cookie])
                assert again == [CONNECT_E_NOCONNECTION]
                await slot(event, "IMSMQPrivateEvent", "FireArrivedEvent", "method", None, 0)
                if cookie == left:

                    async def is_told() -> bool:
                        return len(told.told) >= 1

                    await eventually(is_told)
                else:
                    await asyncio.sleep(0.2)
                assert len(told.told) == 1, "of the one that is left"
            program.close()

    run(scenario())


@pytest.mark.spec(
    "AC-3.16.4.5.1-01",
    "AC-3.16.4.5.2-01",
    "AC-3.16.4-09",
    "AC-3.16.4-10",
    "AC-3.16-01",
)
def test_connection_points_answer_as_the_document_has_it() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world:
            program = await world.program()
            event, container, point = await event_of(program)
            server = program.server
            for other in (
                *(IID_IUNKNOWN, IID_IDISPATCH, NULL),
                *map(iid, ("IMSMQEvent3", "IConnectionPoint", "IMSMQPrivateEvent")),
            ):
                wrong = await server.call(container.ipid, CONTAINER, 4, [other])
                assert wrong == [None, 0x8004_0200]
            # Nobody listens there.
            refused = await server.call(point.ipid, POINT, 5, [REFERENCE])
            assert refused == [0, CONNECT_E_CANNOTCONNECT]
            assert await server.call(point.ipid, POINT, 5, [None]) == [0, E_POINTER]
            found, status = await server.call(point.ipid, POINT, 3, [])
            assert (guid_text(found), status) == ("D7D6E078-DCCD-11D0-AA4B-0060970DEBAE", 0)
            back, status = await server.call(point.ipid, POINT, 4, [])
            assert status == 0
            same = parse_objref(back)
            assert isinstance(same, Objref)
            assert (same.iid, same.oid, same.ipid) == (
                iid("IConnectionPointContainer"), container.oid, container.ipid,
            ), "of the same event"  # fmt: skip
            assert event.ref.oid == point.oid == container.oid
            assert await server.call(point.ipid, POINT, 7, []) == [None, E_NOTIMPL]
            pointer, status = await server.call(container.ipid, CONTAINER, 3, [])
            points = parse_objref(pointer)
            assert isinstance(points, Objref)
            interface = object_interfaces()[points.iid]
            listed, fetched, status = await server.call(points.ipid, interface, 3, [5])
            assert (len(listed.items), fetched) == (1, 1)
            assert parse_objref(listed.items[0]).iid == iid("IConnectionPoint")
            assert await server.call(points.ipid, interface, 4, [1]) == [Hresult.S_FALSE]
            assert await server.call(points.ipid, interface, 5, []) == [0]
            _, status = await server.call(points.ipid, interface, 6, [])
            assert status == 0
            (late,) = await server.query(event.ref.ipid, IID_IDISPATCH)
            assert isinstance(late, Objref)
            with pytest.raises(ComError) as missing:
                await Late(server, late).get("Properties")
            assert missing.value.status == E_NOTIMPL
            program.close()

    run(scenario())


@pytest.mark.spec(
    "AC-3.16.4-01",
    "AC-3.16.4-02",
    "AC-3.16.4-03",
    "AC-3.16.4.3.2-01",
    "AC-3.16.4.3.3-01",
)
def test_private_members_of_an_event_tell_every_sink() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            event, _, point = await event_of(program)
            for _ in range(2):
                _, status = await program.server.call(point.ipid, POINT, 5, [REFERENCE])
                assert status == 0
            private = "IMSMQPrivateEvent"
            assert await slot(event, private, "Hwnd") == 0
            await program.new_queue()
            queue = await program.opened(RECEIVE)
            pointer = write_objref(await queue.by(iid("IMSMQQueue")))
            status = ErrorCode.MQ_ERROR_IO_TIMEOUT - (1 << 32)
            await slot(event, private, "FireArrivedEvent", "method", pointer, 2)
            for code, cursor in ((status, 1), (0, 0)):
                given = (pointer, code, cursor)
                await slot(event, private, "FireArrivedErrorEvent", "method", *given)

            async def are_told() -> bool:
                return len(told.told) == 6

            await eventually(are_told)
            found = []
            for dispid, (subject, *numbers) in told.told:
                assert_is_dispatch_of(subject, queue)
                assert {one.vt for one in numbers} == {VarType.I4}
                found.append((dispid, [one.value for one in numbers]))
            assert sorted(found) == sorted([(0, [2]), (1, [status, 1]), (1, [0, 0])] * 2)
            program.close()

    run(scenario())
