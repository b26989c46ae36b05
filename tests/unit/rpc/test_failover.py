"""Three nodes and remote readers: a leader that dies costs time, a reader's node its handles."""

import asyncio

import pytest

from qm.model.values.commands import ReceiveRun, Selector, SelectorKind
from qm.pb import control_pb2
from qm.rpc.client import RpcFailed
from qm.rpc.interface import Fault
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.remote_read.opened import OpenedQueue
from tests.cluster.harness import HarnessNode, run, until
from tests.unit.api.test_data import create
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    ORDERS,
    PEEK_CURRENT,
    RemoteReader,
    body,
    rpc_world,
    with_orders,
)

SECOND = r"DIRECT=OS:QUORATE\private$\second"
NOBODY = "S-1-5-7"


@pytest.mark.spec("RR-OUR-1-02", "RR-OUR-1-03", "RR-OUR-1-08", "RR-OUR-1-09", "RR-3.1.4.7-24")
def test_a_leader_that_dies_is_a_late_answer() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client((await made.followers())[1]) as client:
                await with_orders(client, b"one")
                reader = await made.reader(one)
                handle = await reader.open()
                lent = await reader.start(handle, request=1)
                assert body(lent) == b"one"
                waiting = asyncio.ensure_future(
                    reader.start(handle, timeout_ms=INFINITE, request=2)
                )
                await until(lambda: one.service.api.data.waits._count == 1)
                stranger = await made.reader(other)
                with pytest.raises(Fault) as unknown:
                    await stranger.start(handle)
                assert unknown.value.status == 0x1C00001A
                for opnum, given in (
                    *((opnum, mqrr.Handle(handle)) for opnum in (3, 4, 6)),
                    (5, mqrr.CursorIn(handle, 1)),
                    (8, mqrr.RequestIn(handle, 2)),
                    *((opnum, mqrr.EndIn(handle, ACK, 1)) for opnum in (9, 15)),
                    (10, mqrr.MoveIn(handle, 1, 4 << 56 | lent.sequence, bytes(16))),
                    (13, stranger.start_values(handle)),
                    (14, mqrr.AcknowledgeIn(handle, 4 << 56 | lent.sequence, 0)),
                ):
                    with pytest.raises(Fault) as unknown:
                        await stranger.call(opnum, given)
                    assert unknown.value.status == 0x1C00001A, opnum
                await made.harness.kill(leader.name)
                assert await reader.end(handle, ACK, request=1) == 0
                await client.send(ORDERS, b"two")
                assert body(await waiting) == b"two"
                assert await reader.end(handle, ACK, request=2) == 0
                assert (await reader.start(handle)).status == 0xC00E001B

    run(scenario())


@pytest.mark.spec("RR-OUR-1-11", "RR-3.1.4.2-11")
def test_a_node_that_stops_returns_what_it_lent() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            await made.harness.leader()
            one, other = await made.harness.followers()
            api = next(each for each in await made.followers() if each.name == other.name)
            async with made.client(api) as client:
                await with_orders(client, b"one")
                reader = await made.reader(one)
                handle = await reader.open(share=1)
                lent = await reader.start(handle, request=1)
                elsewhere = await made.reader(other)
                with pytest.raises(Fault) as shared:
                    await elsewhere.open()
                assert shared.value.status == 0xC00E0009
                # Another principal of the same connection's node has a session of its own.
                await create(client, r".\private$\second")
                await client.send(SECOND, b"two")
                beside = await made.reader(one, "bob")
                theirs = await beside.open(SECOND)
                lent_too = await beside.start(theirs, request=1)
                assert body(lent_too) == b"two"
                waiting = [
                    asyncio.ensure_future(each)
                    for each in (
                        reader.start(handle, timeout_ms=INFINITE, request=2),
                        reader.start(handle, PEEK_CURRENT, timeout_ms=INFINITE, request=3),
                        beside.start(theirs, timeout_ms=INFINITE, request=2),
                    )
                ]
                await until(lambda: one.service.api.data.waits._count == len(waiting))
                await one.stop()
                for each in waiting:
                    assert (await each).status == 0xC00E0008
                with pytest.raises((RpcFailed, Fault)):
                    await reader.end(handle, ACK, request=1)
                again = await elsewhere.open()
                found = await elsewhere.start(again, PEEK_CURRENT)
                assert found.sequence == lent.sequence
                second = await elsewhere.open(SECOND)
                found = await elsewhere.start(second, PEEK_CURRENT)
                assert (body(found), found.sequence) == (b"two", lent_too.sequence)


@pytest.mark.spec("RR-OUR-1-11")
def test_a_node_stops_only_when_what_it_lent_is_back() -> None:
    async def scenario() -> None:
        async with rpc_world(5) as made:
            leader = await made.harness.leader()
            one, other, *_ = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
            reader = await made.reader(one)
            lent = await reader.start(await reader.open())
            await made.harness.kill(leader.name)  # nothing is committed until there is another
            await one.stop()
            elsewhere = await made.reader(other)
            found = await elsewhere.start(await elsewhere.open(), PEEK_CURRENT)
            assert found.sequence == lent.sequence

    run(scenario())


@pytest.mark.spec("RR-3.1.4.2-11")
def test_a_share_conflict_is_one_between_any_two_nodes() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client)
                readers = [await made.reader(node) for node in (leader, one, other)]
                for k, first in enumerate(readers):
                    second = readers[(k + 1) % 3]
                    for shares in ((1, 0), (0, 1), (1, 1)):
                        handle = await first.open(share=shares[0])
                        with pytest.raises(Fault) as refused:
                            await second.open(share=shares[1])
                        assert refused.value.status == 0xC00E0009, shares
                        assert await first.close(handle) == 0
                        await second.close(await second.open(share=shares[1]))
                    handles = [await each.open() for each in (first, second)]
                    for each, handle in zip((first, second), handles, strict=True):
                        assert await each.close(handle) == 0
                # Whoever opened it by the API is met, too.
                await client.open(ORDERS)
                with pytest.raises(Fault) as refused:
                    await readers[1].open(share=1)
                assert refused.value.status == 0xC00E0009

    run(scenario())


@pytest.mark.spec("RR-3.1.4.7-24")
def test_a_waiting_receive_is_woken_through_every_node() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.leader()
            async with made.client(leader) as client:
                await with_orders(client)
            nodes = [leader, *await made.followers()]
            for at in nodes:
                reader = await made.reader(at.node)
                handle = await reader.open()
                for through in nodes:
                    waiting = asyncio.ensure_future(reader.receive(handle, timeout_ms=INFINITE))
                    await until(lambda at=at: at.waiting_readers == 1)  # type: ignore[misc]
                    text = f"{at.name} {through.name}".encode()
                    async with made.client(through) as sender:
                        await sender.send(ORDERS, text)
                    async with asyncio.timeout(20):
                        assert await waiting == text
                await reader.close(handle)

    run(scenario())


@pytest.mark.spec("RR-OUR-1-04")
def test_a_lend_that_is_proposed_again_to_the_next_leader_lends_once() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client((await made.followers())[0]) as client:
                await with_orders(client, b"one", b"two")
                reader, rival = await made.reader(one), await made.reader(other)
                await reader.open()
                theirs = await rival.open()
                (opened,) = held_at(one)
                session = opened.session
                request = session._begin()
                lend = ReceiveRun(
                    session.client_id,
                    opened.handle,
                    opened.queue_id,
                    request.number,
                    1,
                    request.confirmed_upto,
                    Selector(SelectorKind.FIRST),
                    is_two_phase=True,
                )
                first = await session._proposer.repeat(lend)
                await made.harness.kill(leader.name)
                await made.harness.leader()
                again = await session._proposer.repeat(lend)
                assert [each.value for each in again] == [each.value for each in first]
                assert await rival.receive(theirs, timeout_ms=20_000) == b"two"
                assert (await rival.start(theirs, PEEK_CURRENT)).status == 0xC00E001B

    run(scenario())


@pytest.mark.spec("RR-3.1.4.2-16")
def test_the_right_of_nobody_is_asked_for_at_each_queue() -> None:
    async def scenario() -> None:
        async with (
            rpc_world(anonymous_receive=True) as made,
            made.client(await made.leader()) as client,
        ):
            await with_orders(client, b"one")
            await create(client, r".\private$\second")
            await client.send(SECOND, b"two")
            nobody = await made.reader(user="")

            async def lets(path: str, *entries: tuple[str, str]) -> None:
                acl = [control_pb2.Ace(sid=sid, rights=[right]) for sid, right in entries]
                name = control_pb2.QueueName(name=path)
                await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))

            async def status(name: str, access: int = 1) -> int:
                try:
                    await nobody.close(await nobody.open(name, access))
                except Fault as fault:
                    return fault.status
                return 0

            await lets(r".\private$\orders", (NOBODY, "receive_message"))
            # Authenticated users, and those who come by a network, are somebody.
            others = ("S-1-5-11", "S-1-5-2", "S-1-5-32-544")
            await lets(r".\private$\second", *((each, "receive_message") for each in others))
            assert await status(ORDERS) == 0
            assert await nobody.receive(await nobody.open()) == b"one"
            assert await status(SECOND) == 0xC00E0025
            await lets(r".\private$\second", (NOBODY, "peek_message"))
            assert await status(SECOND) == 0xC00E0025
            assert await status(SECOND, 0x20) == 0
            await lets(r".\private$\orders", *((each, "receive_message") for each in others))
            assert await status(ORDERS) == 0xC00E0025

    run(scenario())


def held_at(node: HarnessNode) -> list[OpenedQueue]:
    """What readers of a node have open."""
    endpoint = node.service.windows.rpc
    assert endpoint is not None
    return [
        one
        for association in endpoint._associations
        for one in association.held(REMOTE_READ)
        if isinstance(one, OpenedQueue)
    ]


@pytest.mark.spec("RR-3.1.4.2-16")
def test_nobody_reads_only_what_its_list_gives_to_nobody() -> None:
    async def scenario() -> None:
        async with rpc_world(anonymous_receive=True) as made:
            leader = await made.leader()
            async with made.client(leader) as client:
                await with_orders(client, b"one")
                nobody: RemoteReader = await made.reader(user="")
                handle = await nobody.open()  # its list lets everyone
                assert await nobody.receive(handle) == b"one"
                await nobody.close(handle)
                acl = [control_pb2.Ace(principal="alice", rights=["receive_message"])]
                name = control_pb2.QueueName(name=r".\private$\orders")
                await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))
                with pytest.raises(Fault) as denied:
                    await nobody.open()
                assert denied.value.status == 0xC00E0025

    run(scenario())
