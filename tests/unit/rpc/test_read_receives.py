"""Receives of remote read [MS-MQRR 3.1.4.7 to 3.1.4.15]: what they take, and how they end."""

import asyncio
import secrets
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.node.upkeep import rpc_endpoint
from qm.pb import control_pb2
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import Arm
from qm.rpc.queue_formats import WireFormat, format_of
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.remote_read.opened import READS_PER_QUEUE_MAX, OpenedQueue
from tests.cluster.harness import until
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RemoteReader,
    RpcWorld,
    body,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world, mqrr_queue, waits

NOT_FOUND, TIMEOUT, CANCELLED = 0xC00E0088, 0xC00E001B, 0xC00E0008
INVALID, INVALID_HANDLE, NO_ROOM = 0xC00E0006, 0xC00E0007, 0xC00E0027
NT_INVALID_HANDLE, DENIED = 0xC0000008, 0xC00E0025
MISMATCH = 0x1C00001A
USAGE, UNKNOWN_TRANSACTION = 0xC00E0050, 0xC00E0051
PEEK_AT, PEEK_AFTER, PEEK_BEFORE = 0x4000_0010, 0x4000_0011, 0x4000_0012
TAKE_AT, TAKE_AFTER, TAKE_BEFORE = 0x4000_0020, 0x4000_0021, 0x4000_0022
LAST = (1 << 64) - 1
ADMIN = r"DIRECT=OS:QUORATE\private$\admin"
TRANSACTION = b"x" * 16


def opened_queues(world: RpcWorld) -> list[OpenedQueue]:
    """What readers of the only node have open."""
    (node,) = world.harness.nodes.values()
    endpoint = node.service.windows.rpc
    assert endpoint is not None
    found = []
    for association in endpoint._associations:
        found += [one for one in association.held(REMOTE_READ) if isinstance(one, OpenedQueue)]
    return found


def entries(world: RpcWorld) -> int:
    """Return how many pending requests there are, waiting or lent."""
    return sum(len(one.reads) + len(one.lent) for one in opened_queues(world))


async def keys_of(reader: RemoteReader, handle: bytes, count: int) -> list[int]:
    """Return the lookup identifiers of the first messages, of priority 3."""
    cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
    found = [await reader.start(handle, PEEK_CURRENT, cursor=cursor)]
    while len(found) < count:
        found.append(await reader.start(handle, PEEK_NEXT, cursor=cursor))
    return [4 << 56 | one.sequence for one in found]


# What is taken -----------------------------------------------------------------------------


@pytest.mark.spec(
    "RR-3.1.4.7-03", "RR-3.1.4.7-06", "RR-3.1.4.7-07", "RR-3.1.4.7-08", "RR-3.1.4.7-10"
)
def test_parameters_of_the_wrong_kind_take_nothing() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        await reader.call(4, mqrr.Handle(other))
        (key,) = await keys_of(reader, handle, 1)
        closed = (await reader.call(4, mqrr.Handle(handle))).cursor
        assert (await reader.call(5, mqrr.CursorIn(handle, closed))).status == 0
        for action in (PEEK_AT, PEEK_AFTER, PEEK_BEFORE, TAKE_AT, TAKE_AFTER, TAKE_BEFORE):
            found = await reader.start(handle, action, lookup=key, cursor=closed)
            assert found.status == INVALID
        own = (await reader.call(4, mqrr.Handle(handle))).cursor
        others = [(await reader.call(4, mqrr.Handle(other))).cursor for _ in range(9)]
        for action in (RECEIVE, PEEK_CURRENT, PEEK_NEXT):
            for cursor in (0, own):
                found = await reader.start(handle, action, lookup=key, cursor=cursor)
                assert found.status == INVALID
            for cursor in (closed, 0xFFFF, others[-1]):
                found = await reader.start(handle, action, cursor=cursor)
                assert found.status == NT_INVALID_HANDLE
        assert body(await reader.start(other, PEEK_CURRENT, cursor=others[-1])) == b"one"
        before = entries(world)
        with pytest.raises(Fault) as unknown:
            await reader.start(secrets.token_bytes(16))
        assert unknown.value.status == MISMATCH
        assert entries(world) == before == 0
        assert await reader.receive(handle) == b"one"

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.7-11", "RR-3.1.4.7-28", "RR-3.1.4.7-29", "RR-3.1.4.7-42", "DM-3.1.7.1.11-02"
)
def test_a_receive_takes_the_first_that_is_free_and_valid() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        for text, priority in ((b"low", 1), (b"high 1", 6), (b"high 2", 6), (b"middle", 3)):
            await client.send(ORDERS, text, priority=priority)
        await client.send(ORDERS, b"soon gone", priority=7, time_to_be_received_s=1)
        reader = await world.reader()
        handle = await reader.open()
        peeked = await reader.start(handle, PEEK_CURRENT, request=9)
        assert body(peeked) == b"soon gone"
        assert await reader.end(handle, ACK, request=9) == INVALID_HANDLE, "a peek has no entry"

        async def first() -> bytes:
            return body(await reader.start(handle, PEEK_CURRENT))

        await eventually(first, lambda text: text != b"soon gone")
        for number, text in enumerate((b"high 1", b"high 2", b"middle", b"low"), 1):
            assert body(await reader.start(handle, request=number)) == text
        empty = await reader.start(handle, timeout_ms=20, request=5)
        assert (empty.status, empty.sections) == (TIMEOUT, None)
        assert entries(world) == 4, "what timed out left none"
        assert await reader.end(handle, ACK, request=5) == INVALID
        again = await reader.start(handle, timeout_ms=1, request=5)
        assert again.status == TIMEOUT, "its number is free"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-16", "RR-3.1.4.7-18", "RR-3.1.4.7-19", "DM-3.1.1.17-02")
def test_lookups_find_free_neighbours_and_both_ends() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three", b"four")
        reader = await world.reader()
        handle = await reader.open()
        one, two, three, four = await keys_of(reader, handle, 4)
        lent = await reader.start(handle, TAKE_AT, lookup=two, request=50)
        assert body(lent) == b"two"
        for action, lookup, text in (
            (PEEK_AFTER, one, b"three"),
            (PEEK_BEFORE, three, b"one"),
            (PEEK_AFTER, 0, b"one"),
            (PEEK_BEFORE, LAST, b"four"),
            (PEEK_AFTER, two, b"three"),
            (PEEK_BEFORE, two, b"one"),
        ):
            assert body(await reader.start(handle, action, lookup=lookup)) == text
        for action, lookup in ((PEEK_AFTER, four), (PEEK_BEFORE, one)):
            assert (await reader.start(handle, action, lookup=lookup)).status == NOT_FOUND
        locked = await reader.start(handle, PEEK_AT, lookup=two)
        assert locked.status == USAGE, "somebody has it (DM-A5)"
        assert await reader.receive(handle, action=TAKE_BEFORE, lookup=four) == b"three"
        assert (await reader.start(handle, TAKE_BEFORE, lookup=0)).status == INVALID
        assert await reader.receive(handle, action=TAKE_AFTER, lookup=0) == b"one"
        assert await reader.receive(handle, action=TAKE_BEFORE, lookup=LAST) == b"four"
        assert await reader.end(handle, NACK, request=50) == 0

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.7-17", "RR-3.1.4.7-20", "RR-3.1.4.7-22", "RR-3.1.1.3-01", "RR-3.1.4.9-03"
)
def test_what_is_answered_is_lent_in_the_cluster_by_handle_and_number() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three", b"four")
        reader, rival = await world.reader(), await world.reader()
        handle, other, third = [await reader.open() for _ in range(3)]
        theirs = await rival.open()
        one, *_ = await keys_of(reader, handle, 1)
        # One number under three handles: three entries.
        for at, action, lookup, text in (
            (handle, TAKE_AT, one, b"one"),
            (other, TAKE_AFTER, one, b"two"),
            (third, TAKE_BEFORE, LAST, b"four"),
        ):
            found = await reader.start(at, action, lookup=lookup, request=7)
            assert body(found) == text
            # Whoever asks next finds it locked already, in the replicated state.
            seen = await rival.start(theirs, PEEK_AT, lookup=4 << 56 | found.sequence)
            assert seen.status == USAGE
        assert body(await rival.start(theirs, PEEK_CURRENT)) == b"three"
        assert await reader.end(handle, NACK, request=7) == 0
        assert body(await rival.start(theirs, PEEK_CURRENT)) == b"one"
        assert await reader.end(other, ACK, request=7) == 0
        assert await rival.receive(theirs, action=TAKE_AFTER, lookup=one) == b"three"
        assert await reader.end(third, NACK, request=7) == 0
        assert await rival.receive(theirs, action=TAKE_BEFORE, lookup=LAST) == b"four"

    in_world(scenario)


# How it ends -------------------------------------------------------------------------------


@pytest.mark.spec(
    "RR-3.1.4.9-06", "RR-3.1.4.9-09", "RR-3.1.4.9-12", "RR-3.1.4.15-01", "RR-3.1.4.15-02"
)
def test_an_entry_ends_once_and_by_its_own_method() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        plain, transactional = 9, 15

        async def end(opnum: int, request: int, ack: int = ACK) -> int:
            return int((await reader.call(opnum, mqrr.EndIn(handle, ack, request))).status)

        for opnum in (plain, transactional):
            assert await end(opnum, 1) == INVALID_HANDLE, "no entry at all"
        # A read that waits has an entry, which nothing ends but its message, or a cancel.
        empty = await reader.open(ORDERS + ";JOURNAL")
        waiting = asyncio.ensure_future(reader.start(empty, timeout_ms=INFINITE, request=1))
        await until(lambda: entries(world) == 1)
        for opnum, request in ((plain, 1), (plain, 2), (transactional, 1), (transactional, 2)):
            ending = mqrr.EndIn(empty, ACK, request)
            assert (await reader.call(opnum, ending)).status == INVALID
        assert (await reader.call(8, mqrr.RequestIn(empty, 1))).status == 0
        assert (await waiting).status == CANCELLED
        assert await reader.close(empty) == 0
        assert body(await reader.start(handle, request=1)) == b"one"
        given = reader.start_values(handle, request=2)
        assert body(await reader.call(13, given)) == b"two"
        (opened,) = opened_queues(world)
        timers = [opened.lent[number].timer for number in (1, 2)]
        for opnum, request in ((plain, 3), (transactional, 3), (plain, 2), (transactional, 1)):
            assert await end(opnum, request) == INVALID
        assert await end(transactional, 2, NACK) == 0
        assert await end(transactional, 2) == INVALID
        assert await end(plain, 1) == 0
        assert await end(plain, 1) == INVALID_HANDLE
        assert all(one.cancelled() for one in timers)
        assert await reader.receive(handle) == b"two", "what was returned"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.9-07", "RR-OUR-1-07", "RR-3.1.4.9-06")
def test_an_end_that_comes_too_late_changes_nothing() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        for number, text in ((1, b"one"), (2, b"two")):
            assert body(await reader.start(handle, request=number)) == text
        session, *_ = (one.session for one in opened_queues(world) if one.lent)
        # Its session ends in the replicated state, as one whose lease was not renewed.
        await session._close_client()
        assert body(await other.start(theirs, PEEK_CURRENT)) == b"one"
        assert await reader.end(handle, ACK, request=1) == NOT_FOUND
        assert await reader.end(handle, NACK, request=2) == NOT_FOUND, "nor is it returned"
        assert await reader.end(handle, ACK, request=1) == INVALID_HANDLE, "the entry is gone"
        assert await other.receive(theirs) == b"one", "and nothing was received by it"
        assert await other.receive(theirs) == b"two"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.9-10", "RR-3.1.4.9-11")
def test_what_is_accepted_is_journaled_and_acknowledged_once() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await create(client, r".\private$\admin")
        await client.send(ORDERS, b"kept", acknowledgements=2, administration_queue=ADMIN)
        for flags in (0, 8):  # those that ask for none, or only for bad news
            await client.send(ORDERS, b"", acknowledgements=flags, administration_queue=ADMIN)
        reader = await world.reader()
        handle, journal = await reader.open(), await reader.open(ORDERS + ";JOURNAL")
        admin = await client.open(ADMIN)
        assert body(await reader.start(handle)) == b"kept"
        assert await reader.end(handle, NACK) == 0
        assert (await reader.start(journal, PEEK_CURRENT)).status == TIMEOUT
        assert not (await client.receive(admin)).messages.properties
        assert await reader.receive(handle) == b"kept"
        await reader.end(handle)
        assert [await reader.receive(handle) for _ in range(2)] == [b"", b""]
        assert body(await reader.start(journal, PEEK_CURRENT)) == b"kept"

        async def told() -> list[int]:
            found = (await client.receive(admin, 9)).messages.properties
            classes.extend(one.message_class for one in found)
            return classes

        classes: list[int] = []
        assert await eventually(told, bool) == [0x4000]
        assert await told() == [0x4000], "once"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.8-05", "RR-3.1.4.8-06", "RR-3.2.4.11-01")
def test_cancelling_races_with_lending_and_locks_nothing() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        sibling = await world.reader(group_id=reader.client.group_id)
        for action in (RECEIVE, PEEK_CURRENT, RECEIVE, PEEK_CURRENT, PEEK_CURRENT):
            begun = reader.start(handle, action, timeout_ms=INFINITE, request=7)
            waiting = asyncio.ensure_future(begun)
            await until(lambda: waits(world)._count == 1)
            assert (await sibling.call(8, mqrr.RequestIn(handle, 7))).status == 0
            assert (await waiting).status == CANCELLED
            assert entries(world) == waits(world)._count == 0
            assert (await sibling.call(8, mqrr.RequestIn(handle, 7))).status == 0xC0000225
        taken = 0
        for number in range(1, 31):
            waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=7))
            await until(lambda: waits(world)._count == 1)
            _, cancelled = await asyncio.gather(
                client.send(ORDERS, b"%d" % number), sibling.call(8, mqrr.RequestIn(handle, 7))
            )
            found = await waiting
            if found.status == 0:
                taken += 1
                assert cancelled.status in (0, 0xC0000225)
                assert await reader.end(handle, ACK, request=7) == 0
            else:
                assert (found.status, cancelled.status) == (CANCELLED, 0)
                async with asyncio.timeout(20):
                    assert await reader.receive(handle, timeout_ms=INFINITE) == b"%d" % number
            assert entries(world) == 0, "its number is free again"
        assert (await reader.start(handle, PEEK_CURRENT)).status == TIMEOUT

    in_world(scenario)


# Timers ------------------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.2.1-02", "RR-3.1.4.13-04", "DM-3.1.2.3-01")
def test_a_wait_ends_at_its_timeout_by_both_methods() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        loop = asyncio.get_running_loop()

        async def lasts(opnum: int, action: int, has_cursor: bool) -> float:
            cursor = (await reader.call(4, mqrr.Handle(handle))).cursor if has_cursor else 0
            begun = loop.time()
            given = reader.start_values(handle, action, cursor=cursor, timeout_ms=300)
            assert (await reader.call(opnum, given)).status == TIMEOUT
            return loop.time() - begun

        waits = [(action, bool(k)) for action in (RECEIVE, PEEK_CURRENT) for k in range(2)]
        for opnum in (7, 13):
            rounds = [
                await asyncio.gather(*(lasts(opnum, *one) for one in waits)) for _ in range(3)
            ]
            # A node that is busy may be late once, but not each time.
            for lasted in zip(*rounds, strict=True):
                assert 0.28 < min(lasted) < 0.55
            for values, status in (
                ({"action": RECEIVE, "lookup": 5}, INVALID),
                ({"action": TAKE_AT, "lookup": 5, "timeout_ms": 1}, INVALID),
                ({"action": TAKE_AT, "lookup": 5, "cursor": 1}, INVALID),
                ({"action": TAKE_AT}, INVALID),
                ({"action": PEEK_NEXT}, INVALID),
                ({"action": RECEIVE, "cursor": 99}, NT_INVALID_HANDLE),
                ({"action": 77}, INVALID),
            ):
                given = reader.start_values(handle, **values)
                assert (await reader.call(opnum, given)).status == status
            given = reader.start_values(await reader.open(access=0x20))
            assert (await reader.call(opnum, given)).status == DENIED
        await client.send(ORDERS, b"0123456789")
        for opnum, end in ((7, 9), (13, 15)):
            cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
            for action, status in ((PEEK_CURRENT, 0), (PEEK_NEXT, TIMEOUT)):
                given = reader.start_values(handle, action, cursor=cursor)
                assert (await reader.call(opnum, given)).status == status
            given = reader.start_values(handle, body_max=3)
            found = await reader.call(opnum, given)
            assert [one.kind for one in found.sections] == [1, 2]
            assert (await reader.call(end, mqrr.EndIn(handle, NACK, given.request))).status == 0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.1.2-01", "RR-3.1.2.2-01", "RR-3.1.2.2-02")
def test_what_is_lent_has_its_time_from_then_on() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=5))
        await until(lambda: waits(world)._count == 1)
        await asyncio.sleep(0.2)
        (opened,) = opened_queues(world)
        assert not opened.lent
        sent_at = loop.time()
        (sent,) = await client.send(ORDERS, b"one")
        assert body(await waiting) == b"one"
        (entry,) = opened.lent.values()
        assert opened.lent.keys() == {5}
        assert entry.key == sent.places[0].lookup_identifier
        assert entry.timer.when() >= sent_at + 7 * 60
        assert entry.timer.when() <= loop.time() + 7 * 60

    in_world(scenario, return_after_minutes=7)


@pytest.mark.spec("RR-3.1.5.1-01", "RR-3.1.5.1-02")
def test_what_nobody_ends_goes_back_to_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_endpoint, "_S_PER_MINUTE", 0.1)

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        lent = await reader.start(handle, request=1)
        kept = await reader.start(handle, request=2)
        assert (await other.start(theirs)).status == TIMEOUT
        waiting = await other.start(theirs, PEEK_CURRENT, timeout_ms=INFINITE)
        assert waiting.sequence in (lent.sequence, kept.sequence)

        async def first() -> int:
            return int((await other.start(theirs, PEEK_CURRENT)).sequence)

        await eventually(first, lambda sequence: sequence == lent.sequence)
        await until(lambda: entries(world) == 0)
        assert await reader.end(handle, ACK, request=1) in (INVALID, INVALID_HANDLE)
        assert [body(await other.start(theirs)) for _ in range(2)] == [b"one", b"two"]

    in_world(scenario, return_after_minutes=5)


# Moves and transactions --------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.10-06", "RR-3.1.4.10-09", "RR-3.1.4.10-10")
def test_a_move_without_a_transaction_is_done_when_it_is_answered() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        exact = r"DIRECT=OS:QUORATE\private$\exact"
        await create(client, r".\private$\exact", transactional=True)
        reader = await world.reader()
        handle = await reader.open()
        target = await reader.open(ORDERS + ";later", 4, for_move=True)
        (key,) = await keys_of(reader, handle, 1)

        async def moves(source: bytes, context: int, transaction: bytes = bytes(16)) -> int:
            given = mqrr.MoveIn(source, context, key, transaction)
            return int((await reader.call(10, given)).status)

        assert await moves(handle, target.move_context, TRANSACTION) == USAGE
        whole = await reader.open(exact)
        later = await reader.open(exact + ";later", 4, for_move=True)
        assert await moves(whole, later.move_context, TRANSACTION) == UNKNOWN_TRANSACTION
        assert body(await reader.start(handle, PEEK_CURRENT)) == b"one", "it has not moved"
        assert await moves(handle, target.move_context) == 0
        assert (await reader.start(handle, PEEK_CURRENT)).status == TIMEOUT
        moved = await reader.start(await reader.open(ORDERS + ";later"))
        assert body(moved) == b"one"
        assert moved.sections is not None
        packet = moved.sections[0].data
        assert packet is not None
        # MoveCounter of the SubqueueHeader, behind the ExtensionHeader.
        at = len(packet) - 176 + 12
        assert packet[at : at + 4] == b"\1\0\0\0"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.12-02", "RR-3.1.4.12-03")
def test_there_is_no_coordinator_to_enlist_with() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        elsewhere: Any = parse_format_name(r"DIRECT=OS:nowhere.example\private$\q")
        names = [mqrr_queue(), format_of(elsewhere), WireFormat(0, 0, 0, Arm(0))]
        names.append(WireFormat(3, 0x83, 7, Arm(3, None)))  # a queue of no computer, without a text
        for name in names:
            enlisting = mqrr.EnlistIn(TRANSACTION, 0, b"", name)
            assert (await reader.call(12, enlisting)).status == 0xC00E004C
        given = reader.start_values(handle)
        given.transaction = TRANSACTION
        assert (await reader.call(13, given)).status == UNKNOWN_TRANSACTION, "it is not known"
        assert await reader.receive(handle) == b"one"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.13-01", "RR-3.1.4.13-02", "RR-3.1.4.13-03", "RR-3.1.4.13-05")
def test_a_transactional_receive_without_a_transaction_is_one_without() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader, rival = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await rival.open()
        (key,) = await keys_of(reader, handle, 1)
        for action, status in (
            (RECEIVE, UNKNOWN_TRANSACTION),
            (TAKE_AT, UNKNOWN_TRANSACTION),
            (TAKE_AFTER, UNKNOWN_TRANSACTION),
            (TAKE_BEFORE, UNKNOWN_TRANSACTION),
            (PEEK_CURRENT, USAGE),
            (PEEK_NEXT, USAGE),
            (PEEK_AT, USAGE),
            (PEEK_AFTER, USAGE),
            (PEEK_BEFORE, USAGE),
        ):
            given = reader.start_values(handle, action, lookup=key if action & 0x4000_0000 else 0)
            for transaction in (TRANSACTION, b"\1" + bytes(15), bytes(15) + b"\1"):
                given.transaction = transaction
                found = await reader.call(13, given)
                assert (found.status, found.sections) == (status, None)
            assert entries(world) == 0
            assert body(await rival.start(theirs, PEEK_CURRENT)) == b"one", "nothing is locked"
        given = reader.start_values(handle)
        assert body(await reader.call(13, given)) == b"one"
        assert (await rival.start(theirs, PEEK_CURRENT)).status == TIMEOUT
        assert await reader.end(handle) == INVALID
        ended = await reader.call(15, mqrr.EndIn(handle, ACK, given.request))
        assert ended.status == 0
        assert (await rival.start(theirs, PEEK_CURRENT)).status == TIMEOUT, "received"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.14-01", "RR-3.1.4.14-02", "RR-3.1.4.14-03")
def test_a_class_of_acknowledgement_needs_a_message_of_a_transaction() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        (key,) = await keys_of(reader, handle, 1)

        async def set_class(lookup: int, number: int) -> int:
            given = mqrr.AcknowledgeIn(handle, lookup, number)
            return int((await reader.call(14, given)).status)

        for number in (0, 0xC004):
            assert await set_class(key, number) == USAGE
            assert await set_class(key + 1, number) == NOT_FOUND
        others = (1, 2, 4, 0x4000, 0x8000, *range(0xC000, 0xC004), 0xC005, 0xC104, 0xFFFF)
        for number in others:
            assert await set_class(key, number) == INVALID
        assert body(await reader.start(handle, PEEK_CURRENT)) == b"one"

    in_world(scenario)


# Limits and counters -----------------------------------------------------------------------


@pytest.mark.spec("RR-OUR-2-01", "RR-OUR-2-03")
def test_waiting_calls_are_bounded_and_everything_is_counted() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        reader = await world.reader()
        handle = await reader.open()
        assert await reader.receive(handle) == b"one"
        assert body(await reader.start(handle)) == b"two"
        assert await reader.end(handle, NACK) == 0
        assert (await reader.start(handle, PEEK_CURRENT)).status == 0
        assert (await reader.start(handle, TAKE_AT, lookup=4 << 56 | 99)).status == NOT_FOUND
        acl = [control_pb2.Ace(principal="alice", rights=["receive_message"])]
        orders = control_pb2.QueueName(name=r".\private$\orders")
        await client.queues.SetAcl(control_pb2.SetAclRequest(queue=orders, entries=acl))
        with pytest.raises(Fault):
            await (await world.reader(user="bob")).open()
        metrics = (await world.leader()).metrics
        for name, labels, least in (
            ("quorate_remote_reads_total", ("received",), 2),
            ("quorate_remote_reads_total", ("peeked",), 1),
            ("quorate_remote_reads_total", ("none",), 1),
            ("quorate_remote_reads_returned_total", ("refused",), 1),
            ("quorate_rpc_calls_total", ("RemoteRead", "end_receive", "ok"), 2),
            ("quorate_rpc_calls_total", ("RemoteRead", "open_queue", "c00e0025"), 1),
        ):
            assert metrics.counter(name).labels(*labels)._value.get() >= least, name
        for _ in range(2):
            await reader.receive(handle)
        waiting = [
            asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE))
            for _ in range(READS_PER_QUEUE_MAX + 1)
        ]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = done
        assert refused.result().status == NO_ROOM
        reader.client.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: waits(world)._count == 0)

    in_world(scenario)
