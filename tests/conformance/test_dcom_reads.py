"""Open and the reads of a queue by the slots of each revision [MC-MQAC 3.10.4.1.28, 3.11.4]."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.mqac.definitions import Method, definitions
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.wire.codes import ErrorCode
from tests.unit.rpc.dcom.scripts import (
    DENY_NONE,
    OMITTED,
    RECEIVE,
    Late,
    Program,
    iid,
    play,
    pointed,
    slot,
)

CONNECTOR = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
NO_CONNECTOR = "{00000000-0000-0000-0000-000000000000}"
REVISIONS = {1: "", 2: "2", 3: "3", 4: "4"}
OLDEST, NEWEST = 1, 4
BY_LOOKUP_ID = (
    "ReceiveByLookupId",
    "ReceiveNextByLookupId",
    "ReceivePreviousByLookupId",
    "ReceiveFirstByLookupId",
)
TRUE, FALSE = Variant(VarType.BOOL, 0xFFFF), Variant(VarType.BOOL, 0)
AT_ONCE = Variant(VarType.I4, 0)
Shown = tuple[Any, bool, str]


def read_of(revision: int, name: str) -> Method | None:
    """A read's slot in a revision; the first one has the older forms under the plain names."""
    methods = definitions().methods(f"IMSMQQueue{REVISIONS[revision]}")
    plain = name.removesuffix("_v1")
    if revision == OLDEST and name == plain:
        return None
    wanted = plain if revision == OLDEST else name
    return next((one for one in methods if one.name == wanted), None)


async def called(queue: Late, revision: int, method: Method, **given: Variant) -> list[Any]:
    """Everything that a slot gives; what is not said is left out."""
    interface = f"IMSMQQueue{REVISIONS[revision]}"
    ref = await queue.by(iid(interface))
    values = [given.get(one.name, OMITTED) for one in method.parameters if not one.is_out]
    served = object_interfaces()[ref.iid]
    return await queue.server.call(ref.ipid, served, method.opnum, values)


class Three:
    """A queue of three messages that name a connector, read from the second one."""

    def __init__(self, program: Program, queue: Late, ids: Sequence[int]) -> None:
        self.program, self.queue, self.ids = program, queue, ids

    def given(self, method: Method, **more: Variant) -> dict[str, Variant]:
        """How a read finds a message; PeekNext is at the first one."""
        at = {"ReceiveNextByLookupId": 0, "ReceivePreviousByLookupId": 2}.get(method.name, 1)
        return {"LookupId": Variant(VarType.UI8, self.ids[at]), **more}

    async def message(self, raw: bytes | None) -> Late:
        assert raw is not None
        return await Late(self.program.server, pointed(raw)).as_dispatch()


async def three(program: Program, place: str) -> Three:
    path = rf".\private$\{place}"
    await program.new_queue(path)
    sender = await program.opened(2, path)
    message = await program.create("MSMQMessage")
    await message.put("Body", "text")
    await message.put("ConnectorTypeGuid", CONNECTOR)
    for _ in range(3):
        await message.call("Send", sender)
    queue = await program.opened(RECEIVE, path)
    ids = []
    name = "PeekCurrent"
    for _ in range(3):
        found = await queue.call(name, ReceiveTimeout=1000)
        ids.append(int(await found.get("LookupId")))
        name = "PeekNext"
    await queue.call("Reset")
    await queue.call("PeekCurrent", ReceiveTimeout=0)
    return Three(program, queue, ids)


async def shown(found: Late) -> Shown:
    """Body, whether there is a destination, connector type."""
    destination = await found.get("DestinationQueueInfo")
    body = await found.get("Body")
    return body, destination is not None, await found.get("ConnectorTypeGuid")


def reads_by_slot(*names: str) -> None:
    """Each argument does what its name says in each revision, and one that is left out nothing;
    what is read has the interface of the revision.
    """
    of_destination: Shown = (None, True, NO_CONNECTOR)
    of_connector: Shown = ("text", False, CONNECTOR)

    async def scenario(program: Program) -> None:
        for name in names:
            for revision, suffix in REVISIONS.items():
                method = read_of(revision, name)
                if method is None:
                    continue
                world = await three(program, f"{name}{revision}")
                place = world.given(method)
                raw, status = await called(world.queue, revision, method, **place)
                assert status == 0
                of_revision = "" if name.endswith("_v1") else suffix
                assert pointed(raw).iid == iid(f"IMSMQMessage{of_revision}"), (name, revision)
                found = await world.message(raw)
                assert await shown(found) == ("text", False, NO_CONNECTOR)
                ways = [({"WantDestinationQueue": TRUE, "WantBody": FALSE}, of_destination)]
                if "WantConnectorType" in [one.name for one in method.parameters]:
                    ways.append(({"WantConnectorType": TRUE}, of_connector))
                for more, seen in ways if revision in (OLDEST, NEWEST) else ():
                    world = await three(program, f"{name}{revision}{len(more)}")
                    given = world.given(method, **more)
                    raw, status = await called(world.queue, revision, method, **given)
                    assert status == 0
                    found = await world.message(raw)
                    assert await shown(found) == seen, (name, revision, more)

    play(scenario)


@pytest.mark.spec("AC-3.11.4.1.11-12", "AC-3.11.4.1.12-08", "AC-3.11.4.1.13-08")
def test_earlier_reads_take_their_arguments_and_give_messages_of_their_revision() -> None:
    reads_by_slot("ReceiveCurrent_v1", "PeekNext_v1", "PeekCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.14-10", "AC-3.11.4.1.15-07", "AC-3.11.4.1.16-12")
def test_so_do_reads_of_the_first_and_the_current_message() -> None:
    reads_by_slot("Receive", "Peek", "ReceiveCurrent")


@pytest.mark.spec("AC-3.11.4.1.17-08", "AC-3.11.4.1.18-08")
def test_so_do_peeks_at_the_cursor() -> None:
    reads_by_slot("PeekNext", "PeekCurrent")


@pytest.mark.spec(
    "AC-3.11.4.1.21-11", "AC-3.11.4.1.22-11", "AC-3.11.4.1.23-10", "AC-3.11.4.1.24-10"
)
def test_so_do_receives_by_lookup_id() -> None:
    reads_by_slot(*BY_LOOKUP_ID)


@pytest.mark.spec("AC-3.10.4.1.28-07")
def test_open_gives_a_queue_of_its_revision() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        for suffix in REVISIONS.values():
            raw = await slot(info, f"IMSMQQueueInfo{suffix}", "Open", "method", RECEIVE, DENY_NONE)
            assert pointed(raw).iid == iid(f"IMSMQQueue{suffix}")
            queue = await Late(program.server, pointed(raw)).as_dispatch()
            assert await queue.get("Access") == RECEIVE
            await queue.call("Close")

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4-14",
    "AC-3.11.4.1.21-07",
    "AC-3.11.4.1.22-07",
    "AC-3.11.4.1.23-07",
    "AC-3.11.4.1.24-06",
)
def test_a_read_without_a_message_gives_null_and_an_error() -> None:
    async def scenario(program: Program) -> None:
        world = await three(program, "empty")
        other = await program.opened(RECEIVE, r".\private$\empty")
        newest = {one.name: one for one in definitions().methods("IMSMQQueue4")}

        async def answer(name: str, **given: Variant) -> list[Any]:
            known = {"LookupId": Variant(VarType.UI8, world.ids[1])}
            return await called(world.queue, NEWEST, newest[name], **(known | given))

        for _ in range(3):
            assert await other.call("Receive", ReceiveTimeout=0) is not None
        for name in ("PeekCurrent", "ReceiveCurrent"):
            found = await answer(name, ReceiveTimeout=AT_ONCE)
            assert found == [None, ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED]
        await world.queue.call("Reset")
        for name in ("Peek", "Receive", "PeekCurrent", "ReceiveCurrent"):
            for older in (name, f"{name}_v1"):
                found = await answer(older, ReceiveTimeout=AT_ONCE)
                assert found == [None, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND], older
                found = await answer(older, ReceiveTimeout=Variant(VarType.I4, 10))
                assert found == [None, ErrorCode.MQ_ERROR_IO_TIMEOUT], older
        for name in (*BY_LOOKUP_ID, "ReceiveLastByLookupId", "PeekByLookupId"):
            assert await answer(name) == [None, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND], name

    play(scenario)


TIMEOUTS = {
    "Receive_v1": "AC-3.11.4.1.7-07",
    "Receive": "AC-3.11.4.1.14-07",
    "Peek_v1": "AC-3.11.4.1.8-06",
    "Peek": "AC-3.11.4.1.15-06",
}
TIMEOUTS_AT_THE_CURSOR = {
    "ReceiveCurrent_v1": "AC-3.11.4.1.11-07",
    "ReceiveCurrent": "AC-3.11.4.1.16-07",
}
TIMEOUTS_OF_PEEKS_AT_THE_CURSOR = {
    "PeekCurrent_v1": "AC-3.11.4.1.13-06",
    "PeekCurrent": "AC-3.11.4.1.18-06",
    "PeekNext_v1": "AC-3.11.4.1.12-06",
    "PeekNext": "AC-3.11.4.1.17-06",
}
INFINITE = (Variant(VarType.I4, -1), Variant(VarType.UI4, 0xFFFF_FFFF), OMITTED)
BLOCKED_S, SOON_S, WAIT_S = 0.1, 0.2, 20


def rows(reads: dict[str, str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.spec(row)) for name, row in reads.items()]


def waits(name: str) -> None:
    """A finite time ends in an error and not before; without end it lasts until a message comes."""

    async def scenario(program: Program) -> None:
        newest = {one.name: one for one in definitions().methods("IMSMQQueue4")}
        await program.new_queue()
        queue = await program.opened(RECEIVE)

        async def ready() -> None:
            """Nothing is suitable: PeekNext is at the only message, the others have none."""
            await queue.call("Purge")
            await queue.call("Reset")
            if name.startswith("PeekNext"):
                await program.send("before")
                await queue.call("PeekCurrent", ReceiveTimeout=0)

        async def read(timeout: Variant) -> list[Any]:
            return await called(queue, NEWEST, newest[name], ReceiveTimeout=timeout)

        loop = asyncio.get_running_loop()
        await ready()
        begun = loop.time()
        found = await read(Variant(VarType.I4, round(SOON_S * 1_000)))
        assert found == [None, ErrorCode.MQ_ERROR_IO_TIMEOUT]
        assert loop.time() - begun >= SOON_S
        for infinite in INFINITE:
            await ready()
            waiting = asyncio.ensure_future(read(infinite))
            ended, _ = await asyncio.wait([waiting], timeout=BLOCKED_S)
            assert not ended, infinite
            await program.send("late")
            raw, status = await asyncio.wait_for(waiting, WAIT_S)
            assert status == 0, infinite
            late = await Late(program.server, pointed(raw)).as_dispatch()
            assert await late.get("Body") == "late"

    play(scenario)


@pytest.mark.parametrize("name", rows(TIMEOUTS))
def test_a_read_of_another_computer_waits_as_long_as_it_is_told(name: str) -> None:
    waits(name)


@pytest.mark.parametrize("name", rows(TIMEOUTS_AT_THE_CURSOR))
def test_so_does_a_receive_at_the_cursor(name: str) -> None:
    waits(name)


@pytest.mark.parametrize("name", rows(TIMEOUTS_OF_PEEKS_AT_THE_CURSOR))
def test_so_does_a_peek_at_the_cursor(name: str) -> None:
    waits(name)
