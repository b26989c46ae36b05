"""Remote read on real nodes, by the methods of [MS-MQRR]."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

import pytest

from qm.api.data.waits import Waits
from qm.api.propose.control_once import UNNUMBERED
from qm.model.queries import find_by_path
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import SetQueue
from qm.model.values.limits import APPLY_VERSION
from qm.names.format_name import parse_format_name
from qm.pb import control_pb2
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.queue_formats import WireFormat, format_of
from qm.rpc.remote_read import interface as mqrr
from tests.cluster.harness import run, until
from tests.unit.api.test_data import PATH
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RpcWorld,
    body,
    message,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.vectors import vector

NOT_FOUND, TIMEOUT, CANCELLED = 0xC00E0088, 0xC00E001B, 0xC00E0008
LOCKED = 0xC00E009C
INVALID_PARAMETER, INVALID_HANDLE = 0xC00E0006, 0xC00E0007

Scenario = Callable[[RpcWorld, Client], Awaitable[None]]


def in_world(scenario: Scenario, **rpc: object) -> None:
    async def main() -> None:
        async with rpc_world(**rpc) as made, made.client(await made.leader()) as client:  # type: ignore[arg-type]
            await scenario(made, client)

    run(main())


def waits(world: RpcWorld) -> Waits:
    (node,) = world.harness.nodes.values()
    return node.service.api.data.waits


@pytest.mark.spec(
    "RR-4.2-01",
    "RR-3.1.4.2-01",
    "RR-3.1.4.3-01",
    "RR-3.1.4.9-02",
    "RR-3.1.4.9-08",
)
def test_the_example_of_the_text_delivers_one_message() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", label="hello")
        reader = await world.reader()
        handle = await reader.open()
        parsed: Any = parse_format_name(ORDERS)
        opening = mqrr.OpenIn(format_of(parsed), 1, 0, bytes(16), 1, 6, 1, 7601, 1)
        stub = mqrr.REMOTE_READ.operations[2].takes.marshal(opening)
        raw = await reader.client.raw_call(mqrr.REMOTE_READ, 2, stub)
        assert len(raw) == 20, "a context handle, and no HRESULT"
        assert raw not in (bytes(20), handle)
        found = await reader.start(handle)
        assert (found.status, found.count) == (0, 1)
        assert message(found).properties.label == "hello"
        assert body(found) == b"one"
        assert found.sequence > 0
        assert found.arrived > 1_700_000_000
        assert await reader.end(handle) == 0
        assert await reader.end(handle) == INVALID_HANDLE
        assert await reader.receive(handle) == b"two"
        assert (await reader.start(handle)).status == TIMEOUT
        # They are gone for good, not only from who had them.
        asked = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=ORDERS))
        assert (await client.queues.GetQueue(asked)).message_count == 0
        result = await reader.call(3, mqrr.Handle(handle))
        assert (result.handle, result.status) == (NIL, 0)
        with pytest.raises(Fault) as gone:
            await reader.start(handle)
        assert gone.value.status == 0x1C00001A

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.9-03",
    "RR-3.1.4.9-04",
    "RR-3.1.4.9-05",
    "RR-3.1.4.7-21",
    "RR-3.1.1.3-02",
)
def test_a_lent_message_is_invisible_until_it_goes_back() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        first = await reader.start(handle, request=7)
        assert first.status == 0
        assert (await reader.start(handle, PEEK_CURRENT)).status == TIMEOUT
        assert (await reader.start(handle, PEEK_CURRENT, cursor=cursor)).status == TIMEOUT
        for lookup in (0x4000_0011, 0x4000_0021):  # the first there is, to see or to take
            assert (await reader.start(handle, lookup)).status == NOT_FOUND
        assert (await reader.start(handle)).status == TIMEOUT
        assert (await reader.start(handle, request=7)).status == INVALID_PARAMETER
        assert await reader.end(handle, ACK, request=8) == INVALID_PARAMETER
        assert await reader.end(handle, NACK, request=7) == 0
        again = await reader.start(handle, request=7)
        assert again.sequence == first.sequence
        # a peek makes no entry; closing returns what is lent
        assert (await reader.close(handle)) == 0
        other = await reader.open()
        assert (await reader.start(other, PEEK_CURRENT)).sequence == first.sequence
        assert await reader.end(other) == INVALID_HANDLE
        assert await reader.receive(other) == b"one"

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.7-23",
    "RR-3.1.4.7-25",
    "RR-3.1.4.7-26",
    "RR-3.1.4.7-27",
    "RR-3.1.2.1-03",
)
def test_waiting_reads_get_what_arrives_and_hold_up_nobody() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        peeked = asyncio.ensure_future(
            reader.start(handle, PEEK_CURRENT, timeout_ms=INFINITE, request=1)
        )
        taken = [
            asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=number))
            for number in (2, 3)
        ]
        await until(lambda: waits(world)._count == 3)
        assert (await reader.start(handle, request=9)).status == TIMEOUT
        await client.send(ORDERS, b"one")
        assert body(await peeked) == b"one"
        done, _ = await asyncio.wait(taken, return_when=asyncio.FIRST_COMPLETED)
        (first,) = done
        assert body(first.result()) == b"one"
        await client.send(ORDERS, b"two")
        assert sorted([body(await one) for one in taken]) == [b"one", b"two"]
        assert await reader.end(handle, request=2) == 0
        assert await reader.end(handle, request=3) == 0
        timed = await reader.start(handle, timeout_ms=20)
        assert (timed.status, timed.count, timed.sections) == (TIMEOUT, 0, None)
        assert waits(world)._count == 0

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.8-01", "RR-3.1.4.8-02", "RR-3.1.4.8-03", "RR-3.1.4.8-04", "RR-3.1.4.8-07"
)
def test_reads_are_cancelled_by_handle_and_number() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        waiting = {
            name: asyncio.ensure_future(reader.start(one, action, timeout_ms=INFINITE, request=5))
            for name, one, action in (("first", handle, RECEIVE), ("second", other, PEEK_CURRENT))
        }
        await until(lambda: waits(world)._count == 2)
        sibling = await world.reader(group_id=reader.client.group_id)
        cancel = mqrr.RequestIn(handle, 6)
        assert (await sibling.call(8, cancel)).status == 0xC0000225
        assert (await sibling.call(8, mqrr.RequestIn(handle, 5))).status == 0
        assert (await waiting["first"]).status == CANCELLED
        assert not waiting["second"].done()
        assert (await reader.call(8, mqrr.RequestIn(handle, 5))).status == 0xC0000225
        await client.send(ORDERS, b"one")
        assert (await waiting["second"]).status == 0
        lent = await reader.start(handle, request=7)
        assert lent.status == 0
        assert (await reader.call(8, mqrr.RequestIn(handle, 7))).status == 0xC0000225, "it is lent"
        assert await reader.end(handle, ACK, request=7) == 0
        waiting["second"] = asyncio.ensure_future(
            reader.start(other, PEEK_CURRENT, timeout_ms=INFINITE, request=5)
        )
        await until(lambda: waits(world)._count == 1)
        assert (await reader.call(8, mqrr.RequestIn(other, 5))).status == 0
        assert (await waiting["second"]).status == CANCELLED
        blocked = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=5))
        await until(lambda: waits(world)._count == 1)
        assert await reader.close(handle) == 0
        assert (await blocked).status == CANCELLED

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.4-03",
    "RR-3.1.4.7-12",
    "RR-3.1.4.7-13",
    "RR-3.1.4.7-14",
    "RR-3.1.4.7-15",
)
def test_cursors_and_lookups_find_their_message() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        reader = await world.reader()
        handle = await reader.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        assert cursor != 0
        seen = [await reader.start(handle, PEEK_CURRENT, cursor=cursor)]
        seen += [await reader.start(handle, PEEK_NEXT, cursor=cursor) for _ in range(2)]
        assert [body(one) for one in seen] == [b"one", b"two", b"three"]
        assert (await reader.start(handle, PEEK_NEXT, cursor=cursor)).status == TIMEOUT
        three = 4 << 56 | seen[2].sequence
        for action, lookup, wanted in (
            (0x40000010, three, b"three"),
            (0x40000012, three, b"two"),
            (0x40000011, 0, b"one"),
            (0x40000012, (1 << 64) - 1, b"three"),
        ):
            found = await reader.start(handle, action, lookup=lookup)
            assert (found.status, body(found)) == (0, wanted), hex(action)
        assert (await reader.start(handle, 0x40000010, lookup=three + 99)).status == NOT_FOUND
        two = 4 << 56 | seen[1].sequence
        assert await reader.receive(handle, action=0x40000020, lookup=two) == b"two"
        # What stood between two others is not there, and none of them is in its place.
        for lookup in (two, two - 1, two + 1):
            gone = await reader.start(handle, 0x40000010, lookup=lookup)
            is_there = lookup in (three, 4 << 56 | seen[0].sequence)
            assert (gone.status == NOT_FOUND) is not is_there
        for one in (seen[0], seen[2]):
            again = await reader.start(handle, 0x40000010, lookup=4 << 56 | one.sequence)
            assert (again.sequence, body(again)) == (one.sequence, body(one))
        at_two = (await reader.call(4, mqrr.Handle(handle))).cursor
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=at_two)) == b"one"
        assert await reader.receive(handle) == b"one"
        gone = await reader.start(handle, PEEK_CURRENT, cursor=at_two)
        assert gone.status == 0xC00E001D
        assert await reader.receive(handle, action=RECEIVE, cursor=cursor) == b"three"
        assert (await reader.call(5, mqrr.CursorIn(handle, cursor))).status == 0
        assert (await reader.call(5, mqrr.CursorIn(handle, cursor))).status != 0
        after = await reader.start(handle, PEEK_CURRENT, cursor=cursor)
        assert after.status == 0xC0000008

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.7-01", "RR-3.1.4.7-02", "RR-3.1.4.7-04", "RR-3.1.4.7-05", "RR-3.1.4.7-09"
)
def test_parameters_that_contradict_each_other_are_refused() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle, peeking = await reader.open(), await reader.open(access=0x20)
        contradictions: list[dict[str, Any]] = [
            {"action": RECEIVE, "lookup": 5, "cursor": 1},
            {"action": RECEIVE, "lookup": 5},
            {"action": 0x40000010, "lookup": 5, "timeout_ms": 1},
            {"action": 0x40000020, "lookup": 5, "cursor": 1},
            {"action": PEEK_NEXT},
            {"action": 0x40000010, "lookup": 0},
            {"action": 77},
        ]
        for values in contradictions:
            assert (await reader.start(handle, **values)).status == INVALID_PARAMETER, values
        # Also of a message and a cursor that are there, whatever is to be done at which of them.
        key = 4 << 56 | (await reader.start(handle, PEEK_CURRENT)).sequence
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        lookups = (0x40000010, 0x40000011, 0x40000012, 0x40000020, 0x40000021, 0x40000022)
        for action in (RECEIVE, PEEK_CURRENT, PEEK_NEXT, *lookups):
            for opnum in (7, 13):
                both = reader.start_values(handle, action, lookup=key, cursor=cursor)
                assert (await reader.call(opnum, both)).status == INVALID_PARAMETER
        for action in lookups:
            for timeout_ms in (1, INFINITE):
                found = await reader.start(handle, action, lookup=key, timeout_ms=timeout_ms)
                assert found.status == INVALID_PARAMETER, "a lookup does not wait"
        assert (await reader.start(peeking)).status == 0xC00E0025
        assert (await reader.call(6, mqrr.Handle(peeking))).status == 0xC0000022
        assert body(await reader.start(peeking, PEEK_CURRENT)) == b"one"
        for opnum, values_in, wanted in (
            (12, mqrr.EnlistIn(bytes(16), 0, b"", mqrr_queue()), 0xC00E004C),
            (14, mqrr.AcknowledgeIn(handle, 1, 7), INVALID_PARAMETER),
            (14, mqrr.AcknowledgeIn(handle, 1, 0), NOT_FOUND),
        ):
            assert (await reader.call(opnum, values_in)).status == wanted
        started = reader.start_values(handle)
        started.transaction = b"x" * 16
        assert (await reader.call(13, started)).status == 0xC00E0051
        started.action = PEEK_CURRENT
        assert (await reader.call(13, started)).status == 0xC00E0050
        started.transaction, started.action = bytes(16), RECEIVE
        assert (await reader.call(13, started)).status == 0
        assert await reader.end(handle) == INVALID_PARAMETER
        ended = await reader.call(15, mqrr.EndIn(handle, ACK, reader.requests))
        assert ended.status == 0
        assert (await reader.call(0, Nothing())).port != 0

    in_world(scenario)


def mqrr_queue() -> WireFormat:
    given, _ = mqrr.REMOTE_READ.operations[2].takes.unmarshal(
        vector("mqrr_openqueue_request_direct")
    )
    found: WireFormat = given.queue
    return found


@pytest.mark.spec(
    "RR-3.1.4.2-06", "RR-3.1.4.2-07", "RR-3.1.4.2-09", "RR-3.1.4.2-10", "RR-3.1.4.2-03"
)
def test_opens_are_judged_by_name_right_and_share_mode() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        (node,) = world.harness.nodes.values()
        for name, status in (
            (r"DIRECT=OS:QUORATE\private$\none", 0xC00E0003),
            (r"DIRECT=OS:elsewhere\private$\orders", 0xC00E0003),
        ):
            with pytest.raises(Fault) as caught:
                await reader.open(name)
            assert caught.value.status == status
        others = (0, 2, 3, 4, 8, 0x10, 0x21, 0x22, 0x8000_0001, 0xFFFF_FFFF)
        for access, share in (*((access, 0) for access in others), (1, 2)):
            with pytest.raises(Fault) as caught:
                await reader.open(access=access, share=share)
            assert caught.value.status == INVALID_PARAMETER
        # Whoever only looks neither bars a reader who wants to be alone, nor is barred by him.
        looking = await reader.open(access=0x20)
        alone = await reader.open(share=1)
        await reader.close(await reader.open(access=0x20))
        for one in (looking, alone):
            await reader.close(one)
        by_address = await reader.open(rf"DIRECT=TCP:{node.host}\private$\orders")
        with pytest.raises(Fault) as caught:
            await reader.open(share=1)
        assert caught.value.status == 0xC00E0009
        await reader.close(by_address)
        alone = await reader.open(share=1)
        stranger = await world.reader()
        for who in (reader, stranger):
            for share in (0, 1):
                with pytest.raises(Fault) as caught:
                    await who.open(share=share)
                assert caught.value.status == 0xC00E0009
        await reader.close(alone)
        # One that only looks may bar all who would take, too.
        jealous = await reader.open(access=0x20, share=1)
        for share in (0, 1):
            with pytest.raises(Fault) as caught:
                await stranger.open(share=share)
            assert caught.value.status == 0xC00E0009
        await reader.close(jealous)
        await stranger.close(await stranger.open())
        acl = [control_pb2.Ace(principal="alice", rights=["receive_message", "peek_message"])]
        await client.queues.SetAcl(
            control_pb2.SetAclRequest(
                queue=control_pb2.QueueName(name=r".\private$\orders"), entries=acl
            )
        )
        bob = await world.reader(user="bob")
        with pytest.raises(Fault) as caught:
            await bob.open()
        assert caught.value.status == 0xC00E0025
        nobody = await world.reader(user="")
        with pytest.raises(Fault) as caught:
            await nobody.open()
        assert caught.value.status == 5

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.6-01", "RR-3.1.4.10-01", "RR-3.1.4.10-02", "RR-3.1.4.10-03", "RR-3.1.4.11-04"
)
def test_messages_move_to_subqueues_and_are_purged() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        moving = await reader.open(ORDERS + ";later", 4, for_move=True)
        first = await reader.start(handle, PEEK_CURRENT)
        key = 4 << 56 | first.sequence
        wrong = mqrr.MoveIn(handle, moving.move_context + 1, key, bytes(16))
        assert (await reader.call(10, wrong)).status == INVALID_HANDLE
        right = mqrr.MoveIn(handle, moving.move_context, key, bytes(16))
        assert (await reader.call(10, right)).status == 0
        assert (await reader.call(10, right)).status == NOT_FOUND
        later = await reader.open(ORDERS + ";later")
        found = await reader.start(later)
        assert found.sections is not None
        packet = found.sections[0].data
        assert packet is not None
        assert "later".encode("utf-16-le") in packet[-188:]
        assert await reader.end(later) == 0
        assert (await reader.call(6, mqrr.Handle(handle))).status == 0
        assert (await reader.start(handle)).status == TIMEOUT

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.10-07", "RR-3.1.4.10-08")
def test_a_message_that_somebody_reads_is_not_moved() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        moving = await reader.open(ORDERS + ";later", 4, for_move=True)
        lent = await reader.start(handle, request=1)
        move = mqrr.MoveIn(handle, moving.move_context, 4 << 56 | lent.sequence, bytes(16))
        assert (await reader.call(10, move)).status == LOCKED
        assert await reader.end(handle, NACK, request=1) == 0
        assert (await reader.call(10, move)).status == 0
        assert (await reader.call(10, move)).status == NOT_FOUND

    in_world(scenario)


async def limited(world: RpcWorld, **attributes: int) -> None:
    """Set attributes of the queue, once the cluster has this build's apply version."""
    cluster = (await world.harness.leader()).cluster
    await until(lambda: cluster.view.counters().apply_version == APPLY_VERSION)
    changes = {name: encode_attribute(value) for name, value in attributes.items()}
    queue_id = find_by_path(cluster.view, PATH).queue_id
    (outcome,) = await cluster.propose(SetQueue(UNNUMBERED, queue_id, changes, ()))
    assert outcome.status == 0, hex(outcome.status)


def test_a_message_that_readers_return_too_often_is_set_aside() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"poison", b"good")
        await limited(world, max_deliveries=2)
        reader = await world.reader()
        handle = await reader.open()
        for request in (1, 2):
            assert body(await reader.start(handle, request=request)) == b"poison"
            assert await reader.end(handle, NACK, request=request) == 0
        assert await reader.receive(handle, request=3) == b"good"
        aside = await reader.open(ORDERS + ";poison")
        assert await reader.receive(aside, request=4) == b"poison"

    in_world(scenario)


def test_a_message_that_goes_back_is_read_again_only_after_the_delay() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"later", b"first")
        await limited(world, retry_delay_ms=300)
        reader = await world.reader()
        handle = await reader.open()
        assert body(await reader.start(handle, request=1)) == b"later"
        assert await reader.end(handle, NACK, request=1) == 0
        assert await reader.receive(handle, request=2) == b"first"
        assert (await reader.start(handle)).status == TIMEOUT
        waiting = reader.start(handle, timeout_ms=INFINITE, request=3)
        assert body(await asyncio.wait_for(waiting, 20)) == b"later"

    in_world(scenario)


@pytest.mark.spec("RR-2.2.5.1-05", "RR-2.2.5.5-01")
def test_a_packet_says_where_its_sender_is() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        found = await reader.start(await reader.open())
        assert found.sections is not None
        packet = found.sections[0].data
        assert packet is not None
        host = ip_address((await world.harness.leader()).host).packed
        assert packet[32:48] == struct.pack("<HHI", 4, 1, 0) + host + bytes(4)
        assert packet[-28:] == struct.pack("<IHHI", 28, 4, 1, 0) + host + bytes(12)

    in_world(scenario)


@pytest.mark.spec("RR-3.1.6.1-01", "RR-3.1.6.2-01", "RR-3.1.6.2-02", "RR-3.1.6.2-03", "RR-2.2.4-01")
def test_a_client_that_vanishes_gives_back_what_it_was_lent() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open(share=1)
        lent = [(await reader.start(handle)).sequence for _ in range(2)]
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE))
        await until(lambda: waits(world)._count == 1)
        reader.client.close()
        other = await world.reader()

        async def opened() -> bytes:
            try:
                found: bytes = await other.open(share=1)
            except Fault:
                return b""
            return found

        again = await opened()
        for _ in range(500):
            if again:
                break
            await asyncio.sleep(0.01)
            again = await opened()
        for sequence in lent:
            found = await other.start(again)
            assert (found.status, found.sequence) == (0, sequence)
        assert waits(world)._count == 0
        waiting.cancel()

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.7-33", "RR-3.1.4.7-34", "RR-3.1.4.7-35", "RR-3.1.4.7-36", "RR-3.1.4.7-41"
)
def test_a_large_body_comes_whole_or_in_sections() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        large = bytes(range(256)) * (4 << 12 - 4)
        await with_orders(client, large)
        reader = await world.reader()
        handle = await reader.open()
        cut: list[bytes] = []
        for body_max in (0, 10, len(large) - 1):
            part = await reader.start(handle, PEEK_CURRENT, body_max=body_max)
            assert part.sections is not None
            first, second = part.sections
            assert (first.kind, second.kind) == (1, 2)
            assert first.size_alloc - first.size == len(large) - body_max
            assert first.data is not None
            assert first.data.endswith(large[:body_max])
            assert second.data is not None
            cut.append(first.data + large[body_max:] + second.data)
        for body_max in (len(large), len(large) + 1, INFINITE):
            given = reader.start_values(handle, PEEK_CURRENT, body_max=body_max)
            found = await reader.call(7, given)
            assert found.sections is not None
            (one,) = found.sections
            assert one.data is not None
            assert (one.kind, one.size, one.size_alloc) == (0, len(one.data), len(one.data))
            assert cut == [one.data] * 3, "parts of it, and nothing twice"
        whole = await reader.start(handle)
        assert body(whole) == large

    in_world(scenario)
