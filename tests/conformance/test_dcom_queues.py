"""Members of queues, of what describes them and of destinations by the slots and DISPIDs of their
rows [MC-MQAC 3.10.4.1 to 3.14.4.1].
"""

from __future__ import annotations

from typing import Any

import pytest

from qm.pb import control_pb2 as pb
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.objref import write_objref
from qm.wire.codes import ErrorCode
from tests.conformance.dcom_members import hold, is_kept, is_refused, is_told, ways
from tests.unit.rpc.dcom.scripts import (
    DENY_RECEIVE,
    OMITTED,
    PEEK,
    PRIVATE,
    RECEIVE,
    SEND,
    DcomWorld,
    Late,
    Program,
    eventually,
    iid,
    play,
    play_in_world,
    pointed,
)

PUBLIC = r"QUORATE\shown"
TYPES = ("01020304-0506-0708-090A-0B0C0D0E0F11", "01020304-0506-0708-090A-0B0C0D0E0F12")
TRUE, FALSE = Variant(VarType.BOOL, 0xFFFF), Variant(VarType.BOOL, 0)


async def is_gone(program: Program, path: str) -> bool:
    """Whether a queue cannot be opened."""
    try:
        await program.opened(SEND, path)
    except ComError as error:
        assert error.status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        return True
    return False


async def may_read(program: Program, path: str) -> bool:
    """Whether a user may receive from a queue."""
    try:
        await program.opened(RECEIVE, path)
    except ComError as error:
        assert error.status == ErrorCode.MQ_ERROR_ACCESS_DENIED
        return False
    return True


def count_of(row_id: str, late: Late) -> range:
    """The places of the ways to call a member: for one object each."""
    return range(len(ways(row_id, late)))


@pytest.mark.spec(
    "AC-3.10.4.1.2-02",
    "AC-3.10.4.1.4-02",
    "AC-3.10.4.1.6-02",
    "AC-3.10.4.1.8-02",
    "AC-3.10.4.1.37-02",
)
def test_texts_of_a_queue_info_are_put_and_got() -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info()
        await is_kept("AC-3.10.4.1.6-02", info, r".\private$\one", r".\private$\another")
        await is_kept("AC-3.10.4.1.2-02", info, *TYPES)
        await is_kept("AC-3.10.4.1.4-02", info, "label", "another")
        await is_kept("AC-3.10.4.1.37-02", info, "234.1.1.1:8001", "234.1.1.1:8002")
        texts = {
            "ServiceTypeGuid": TYPES[1],
            "Label": "another",
            "PathName": r".\private$\another",
            "MulticastAddress": "234.1.1.1:8002",
        }
        await hold(info, texts.items())
        await is_kept("AC-3.10.4.1.8-02", info, r"DIRECT=OS:a\b", r"DIRECT=OS:a\another")
        await hold(info, [("FormatName", r"DIRECT=OS:a\another"), ("Label", "another")])

    play(scenario)


@pytest.mark.spec(
    "AC-3.10.4.1.11-02",
    "AC-3.10.4.1.13-02",
    "AC-3.10.4.1.15-03",
    "AC-3.10.4.1.17-02",
    "AC-3.10.4.1.21-02",
)
def test_so_are_its_numbers() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue(PUBLIC)
        await is_kept("AC-3.10.4.1.11-02", info, 0, 2)
        await is_kept("AC-3.10.4.1.13-02", info, 1, 0)
        await is_kept("AC-3.10.4.1.15-03", info, 1000, 1001)
        await is_kept("AC-3.10.4.1.17-02", info, -3, 7)
        await is_kept("AC-3.10.4.1.21-02", info, 0, 1)
        names = ("PrivLevel", "Journal", "Quota", "BasePriority", "Authenticate", "JournalQuota")
        await hold(info, zip(names, (2, 0, 1001, 7, 1, -1), strict=True))

    play(scenario)


@pytest.mark.spec(
    "AC-3.10.4.1.1-03",
    "AC-3.10.4.1.31-05",
    "AC-3.10.4.1.39-04",
    "AC-3.10.4.1.19-02",
    "AC-3.10.4.1.20-02",
)
def test_a_queue_info_tells_who_its_queue_is_and_since_when() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue(PUBLIC)
        public = str(await info.get("FormatName")).removeprefix("PUBLIC=")
        await is_told("AC-3.10.4.1.1-03", info, public)
        await is_told("AC-3.10.4.1.31-05", info, r"quorate.example\shown")
        for get in ways("AC-3.10.4.1.39-04", info):
            path = await get()
            assert path.endswith(public), get
            destination = await program.create("MSMQDestination")
            await destination.put("ADsPath", path)
            assert await destination.get("FormatName") == f"PUBLIC={public}"
        time, *_ = [await get() for get in ways("AC-3.10.4.1.19-02", info)]
        labels = iter(range(10_000))

        async def is_later() -> bool:
            await info.put("Label", str(next(labels)))
            await info.call("Update")
            await info.call("Refresh")
            return bool(await info.get("ModifyTime") > await info.get("CreateTime"))

        await eventually(is_later)
        assert time.vt == VarType.DATE
        await is_told("AC-3.10.4.1.19-02", info, time)
        for get in ways("AC-3.10.4.1.20-02", info):
            modified = await get()
            assert modified.vt == VarType.DATE
            assert 0 < modified.value - time.value < 0.01, get

    play(scenario)


@pytest.mark.spec(
    "AC-3.10.4.1.10-03",
    "AC-3.10.4.1.25-03",
    "AC-3.10.4.1.35-03",
    "AC-3.10.4.1.36-02",
    "AC-3.10.4.1.26-12",
)
def test_a_queue_is_created_with_its_flags_in_their_order() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        first = await program.queue_info()
        bob = await world.program("bob")
        number = 0
        for given, is_exact, is_open in (
            ((TRUE, FALSE), 1, False),
            ((FALSE, TRUE), 0, True),
            ((TRUE, OMITTED), 1, False),
            ((OMITTED, TRUE), 0, True),
            ((OMITTED, OMITTED), 0, False),
        ):
            for place in count_of("AC-3.10.4.1.26-12", first):
                number += 1
                path = rf".\private$\q{number}"
                info = await program.queue_info(path)
                create = ways("AC-3.10.4.1.26-12", info)[place]
                assert await create(*given) is None
                assert await info.get("IsTransactional2") is bool(is_exact), create
                assert await may_read(bob, path) is is_open, create
            await is_told("AC-3.10.4.1.10-03", info, is_exact)
            await is_told("AC-3.10.4.1.35-03", info, -is_exact)
        for open_now in (1, 0):
            await is_told("AC-3.10.4.1.25-03", info, open_now)
            await is_told("AC-3.10.4.1.36-02", info, -open_now)
            # From here on its owner alone may take it over.
            entries = [pb.Ace(principal="Everyone", rights=["receive_message"])]
            async with world.client(await world.leader()) as client:
                name = pb.QueueName(name=path)
                await client.queues.SetAcl(pb.SetAclRequest(queue=name, entries=entries))
        bob.close()

    play_in_world(scenario)


@pytest.mark.spec(
    "AC-3.10.4.1.27-08", "AC-3.10.4.1.29-07", "AC-3.10.4.1.30-07", "AC-3.10.4.1.32-02"
)
def test_a_queue_is_updated_refreshed_and_deleted() -> None:
    async def scenario(program: Program) -> None:
        first = await program.queue_info()
        await is_refused("AC-3.10.4.1.32-02", first)
        for place in count_of("AC-3.10.4.1.27-08", first):
            path = rf".\private$\q{place}"
            info = await program.new_queue(path)
            other = await program.queue_info(path)
            assert await other.get("Label") == ""
            await info.put("Label", "new")
            assert await ways("AC-3.10.4.1.30-07", info)[place]() is None
            assert await other.get("Label") == "", "what was read already"
            assert await ways("AC-3.10.4.1.29-07", other)[place]() is None
            assert await other.get("Label") == "new"
            assert not await is_gone(program, path)
            assert await ways("AC-3.10.4.1.27-08", info)[place]() is None
            assert await is_gone(program, path)

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.1-03",
    "AC-3.11.4.1.2-02",
    "AC-3.11.4.1.5-03",
    "AC-3.11.4.1.6-02",
    "AC-3.11.4.1.32-02",
)
def test_a_queue_tells_how_it_is_open_until_it_is_closed() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        first = await program.opened(PEEK)
        await is_told("AC-3.11.4.1.1-03", first, PEEK)
        await is_told("AC-3.11.4.1.2-02", first, 0)
        for place in count_of("AC-3.11.4.1.6-02", first):
            queue = await program.opened(RECEIVE, PRIVATE, DENY_RECEIVE)
            await is_told("AC-3.11.4.1.1-03", queue, RECEIVE)
            await is_told("AC-3.11.4.1.2-02", queue, DENY_RECEIVE)
            await is_told("AC-3.11.4.1.5-03", queue, 1)
            await is_told("AC-3.11.4.1.32-02", queue, -1)
            assert await ways("AC-3.11.4.1.6-02", queue)[place]() is None
            await is_told("AC-3.11.4.1.5-03", queue, 0)
            await is_told("AC-3.11.4.1.32-02", queue, 0)

    play(scenario)


@pytest.mark.spec("AC-3.11.4.1.10-02", "AC-3.11.4.1.19-02", "AC-3.11.4.1.31-04")
def test_a_queue_s_cursor_goes_back_and_its_messages_go() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        await is_refused("AC-3.11.4.1.19-02", queue)
        for label in ("a", "b"):
            await program.send("body", label)

        async def label_of(name: str) -> Any:
            return await (await queue.call(name, ReceiveTimeout=0)).get("Label")

        for reset in ways("AC-3.11.4.1.10-02", queue):
            assert await label_of("PeekCurrent") == "a"
            assert await label_of("PeekNext") == "b"
            assert await reset() is None
        assert await label_of("PeekCurrent") == "a"
        for purge in ways("AC-3.11.4.1.31-04", queue):
            await program.send("body", "c")
            assert await label_of("Peek") in ("a", "c")
            assert await purge() is None
            with pytest.raises(ComError) as empty:
                await label_of("Peek")
            assert empty.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, purge

    play(scenario)


@pytest.mark.spec(
    "AC-3.11.4.1.20-03",
    "AC-3.12.4.2.1-02",
    "AC-3.13.4.1.2-02",
    "AC-3.14.4.1.1-03",
    "AC-3.14.4.1.2-05",
)
def test_handles_are_passed_on_and_results_begin_anew() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queues = [await program.opened(SEND) for _ in range(2)]
        handles = [Variant(VarType.I8, await one.get("Handle2")) for one in queues]
        for queue, handle in zip(queues, handles, strict=True):
            assert handle.value > 0
            assert handle.value & 0xFFFF_FFFF == await queue.get("Handle")
            await is_told("AC-3.11.4.1.20-03", queue, handle)
        destination = await program.create("MSMQDestination")
        await is_told("AC-3.12.4.2.1-02", destination, Variant())
        await is_kept("AC-3.12.4.2.1-02", destination, *handles)
        message = await program.create("MSMQMessage")
        await message.call("Send", destination)
        reader = await program.opened(RECEIVE)
        assert await reader.call("Receive", ReceiveTimeout=0) is not None
        for name in ("one", "two"):
            await program.new_queue(rf"QUORATE\{name}")
        query = await program.create("MSMQQuery")
        await is_refused("AC-3.13.4.1.2-02", query)
        infos = await query.call("LookupQueue")
        first = await (await infos.call("Next")).get("FormatName")
        for revision in ("", "2", "3", "4"):
            await infos.call("Reset")
            ref = await infos.by(iid(f"IMSMQQueueInfos{revision}"))
            raw, status = await program.server.call(ref.ipid, object_interfaces()[ref.iid], 8, [])
            assert (pointed(raw).iid, status) == (iid(f"IMSMQQueueInfo{revision}"), 0)
        for reset in ways("AC-3.14.4.1.1-03", infos):
            assert await (await infos.call("Next")).get("FormatName") != first
            assert await reset() is None
            assert await (await infos.call("Next")).get("FormatName") == first

    play(scenario)


@pytest.mark.spec(
    "AC-3.12.4.1.6-02",
    "AC-3.12.4.1.8-02",
    "AC-3.12.4.1.10-02",
    "AC-3.12.4.1.12-02",
    "AC-3.12.4.1.14-02",
)
def test_names_of_a_destination_are_put_and_got() -> None:
    async def scenario(program: Program) -> None:
        infos = [await program.new_queue(rf"QUORATE\{name}") for name in ("one", "two")]
        paths = [await info.get("ADsPath") for info in infos]
        names = [f"PUBLIC={await info.get('QueueGuid')}" for info in infos]
        destination = await program.create("MSMQDestination")
        await is_kept("AC-3.12.4.1.6-02", destination, *paths)
        shown = {"ADsPath": paths[1], "PathName": "", "FormatName": names[1]}
        await hold(destination, shown.items())
        await is_kept("AC-3.12.4.1.8-02", destination, r"QUORATE\two", r"QUORATE\one")
        shown = {"ADsPath": "", "PathName": r"QUORATE\one", "FormatName": names[0]}
        await hold(destination, shown.items())
        await is_kept("AC-3.12.4.1.10-02", destination, *names)
        shown = {"ADsPath": "", "PathName": "", "FormatName": names[1]}
        await hold(destination, shown.items())
        pointer = write_objref(infos[0].ref)
        await is_refused("AC-3.12.4.1.12-02", destination, pointer)
        await is_refused("AC-3.12.4.1.14-02", destination)

    play(scenario)


@pytest.mark.spec("AC-3.12.4.1.1-04", "AC-3.12.4.1.2-03", "AC-3.12.4.1.3-03")
def test_a_destination_is_opened_and_closed() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        destination = await program.create("MSMQDestination")
        await destination.put("PathName", PRIVATE)
        opens, closes = (
            ways(row_id, destination) for row_id in ("AC-3.12.4.1.1-04", "AC-3.12.4.1.2-03")
        )
        for open_, close in zip(opens, closes, strict=True):
            await is_told("AC-3.12.4.1.3-03", destination, 0)
            assert await open_() is None
            await is_told("AC-3.12.4.1.3-03", destination, -1)
            assert await close() is None
        await is_told("AC-3.12.4.1.3-03", destination, 0)

    play(scenario)
