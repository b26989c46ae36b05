"""Rules of remote read, each where it could be broken alone [MS-MQRR 3.1.4.5 to 3.1.4.15]."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from qm.node.config.schema import RpcSection
from qm.pb import data_pb2
from qm.rpc.association import groups
from qm.rpc.interface import Fault
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read import service
from qm.rpc.remote_read.interface import REMOTE_READ
from tests.cluster.harness import run, until
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
    RpcWorld,
    body,
    message,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.test_management_values import send_in_transaction
from tests.unit.rpc.test_read_receives import (
    CANCELLED,
    INVALID,
    INVALID_HANDLE,
    PEEK_AFTER,
    PEEK_AT,
    PEEK_BEFORE,
    TAKE_AFTER,
    TAKE_AT,
    TAKE_BEFORE,
    TIMEOUT,
    TRANSACTION,
    entries,
    keys_of,
    opened_queues,
)
from tests.unit.rpc.test_remote_management import act, queue
from tests.unit.rpc.test_remote_read import in_world, waits

DENIED, LOCKED, NO_RESOURCES = 0xC00E0025, 0xC00E009C, 0xC00E0027
NT_INVALID_PARAMETER, NT_NOT_FOUND = 0xC000000D, 0xC0000225
EXACT = r"DIRECT=OS:QUORATE\private$\exact"


# What is asked for -------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.7-05")
def test_there_are_nine_actions() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        (key,) = await keys_of(reader, handle, 1)
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        for action in (
            *(1, 2, 0x10, 0x20, 0x4000_0000, 0x4000_000F, 0x4000_0013, 0x4000_001F, 0x4000_0023),
            *(0x4000_0030, 0x7FFF_FFFF, 0x8000_0002, 0x8000_0010, 0xC000_0010, INFINITE),
        ):
            for more in ({}, {"lookup": key}, {"cursor": cursor}, {"timeout_ms": 9}):
                found = await reader.start(handle, action, **more)
                assert (found.status, found.sections) == (INVALID, None), hex(action)
        assert entries(world) == 0
        assert await reader.receive(handle) == b"one"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-09")
def test_who_may_only_peek_takes_nothing_by_any_action() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        reader = await world.reader()
        handle = await reader.open(access=0x20)
        _, two, _ = await keys_of(reader, handle, 3)
        for opnum in (7, 13):
            for action in (RECEIVE, TAKE_AT, TAKE_AFTER, TAKE_BEFORE):
                given = reader.start_values(handle, action, lookup=two if action else 0)
                found = await reader.call(opnum, given)
                assert (found.status, found.sections) == (DENIED, None), hex(action)
                assert entries(world) == 0
        for action, text in ((PEEK_AT, b"two"), (PEEK_AFTER, b"three"), (PEEK_BEFORE, b"one")):
            assert body(await reader.start(handle, action, lookup=two)) == text
        assert await keys_of(reader, handle, 3), "nothing is locked"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-12", "RR-3.1.4.7-13", "RR-3.1.4.4-03", "DM-3.2.7.3-02", "MQ-1.1-04")
def test_a_cursor_moves_with_what_is_taken_and_with_peeks_of_the_next() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three", b"four", b"five")
        reader = await world.reader()
        handle = await reader.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor

        async def seen(action: int) -> bytes:
            return body(await reader.start(handle, action, cursor=cursor))

        for _ in range(3):
            assert await seen(PEEK_CURRENT) == b"one", "it stays"
        assert await seen(PEEK_NEXT) == b"two"
        for _ in range(3):
            assert await seen(PEEK_CURRENT) == b"two"
        assert await reader.receive(handle, cursor=cursor) == b"two", "not the first of the queue"
        assert await reader.receive(handle, cursor=cursor) == b"three", "it has advanced"
        assert await seen(PEEK_CURRENT) == b"four"
        assert await seen(PEEK_NEXT) == b"five"
        assert await reader.receive(handle) == b"one", "whatever other reads take"
        assert await seen(PEEK_CURRENT) == b"five"
        fresh = (await reader.call(4, mqrr.Handle(handle))).cursor
        for text in (b"four", b"five"):
            assert await reader.receive(handle, cursor=fresh) == text, "from before the first on"

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.14-04")
def test_a_cursor_is_at_the_message_for_which_its_peek_has_waited() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        looker, taker = await world.reader(), await world.reader()
        handle, taking = await looker.open(), await taker.open()
        cursor = (await looker.call(4, mqrr.Handle(handle))).cursor
        at = {"cursor": cursor, "timeout_ms": INFINITE}
        assert body(await looker.start(handle, PEEK_CURRENT, **at)) == b"one"
        assert await taker.receive(taking) == b"one"
        peek = asyncio.ensure_future(looker.start(handle, PEEK_NEXT, **at))
        await until(lambda: waits(world)._count == 1)
        # The read behind it is not held up by it, nor it by that read.
        take = asyncio.ensure_future(taker.start(taking, timeout_ms=INFINITE))
        await until(lambda: waits(world)._count == 2)
        await client.send(ORDERS, b"two")
        assert [body(one) for one in await asyncio.gather(peek, take)] == [b"two"] * 2
        await client.send(ORDERS, b"three")
        assert (await looker.start(handle, PEEK_CURRENT, cursor=cursor)).status == 0xC00E001D
        assert body(await looker.start(handle, PEEK_NEXT, cursor=cursor)) == b"three"

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.10-07", "DM-3.1.7.1.17-01", "DM-3.1.7.3.1-03")
def test_waits_with_and_without_a_cursor_stand_in_line_and_end_by_their_number() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        line = []
        for number, (one, how) in enumerate(
            (
                (handle, {"cursor": cursor}),
                (handle, {}),
                (other, {}),
                (handle, {"action": PEEK_CURRENT}),
                (other, {}),
            ),
            start=1,
        ):
            start = reader.start(one, timeout_ms=INFINITE, request=number, **how)
            line.append(asyncio.ensure_future(start))
            await until(lambda: waits(world)._count == len(line))
        # Whatever stands before it, the one with the number ends, and no other.
        for number in (2, 4):
            assert (await reader.call(8, mqrr.RequestIn(handle, number))).status == 0
            assert (await line[number - 1]).status == CANCELLED
        assert (await reader.call(8, mqrr.RequestIn(handle, 3))).status == NT_NOT_FOUND
        assert [one.done() for one in line] == [False, True, False, True, False]
        await client.send(ORDERS, b"one")
        assert body(await line[0]) == b"one"
        assert not line[2].done()
        await client.send(ORDERS, b"two", b"three", b"four")
        assert [body(await line[at]) for at in (2, 4)] == [b"two", b"three"]
        found = await reader.start(handle, PEEK_CURRENT, cursor=cursor)
        assert body(found) == b"four", "the cursor went on"
        assert await reader.end(handle, ACK, request=1) == 0
        for number in (3, 5):
            assert await reader.end(other, NACK, request=number) == 0
        assert await reader.receive(handle) == b"two", "what was lent came back, and one is gone"
        # At the end a cursor waits for what comes, whatever is there before it.
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        for action, text in ((PEEK_CURRENT, b"three"), (PEEK_NEXT, b"four")):
            assert body(await reader.start(handle, action, cursor=cursor)) == text
        assert await reader.receive(handle, cursor=cursor) == b"four"
        late = asyncio.ensure_future(
            reader.start(handle, cursor=cursor, timeout_ms=INFINITE, request=60)
        )
        await until(lambda: waits(world)._count == 1)
        await client.send(ORDERS, b"five")
        assert body(await late) == b"five"
        assert await reader.end(handle, ACK, request=60) == 0
        assert await reader.receive(handle) == b"three"

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.10-08")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_cursor_s_wait_that_failed_leaves_it_at_the_end(is_cancelled: bool) -> None:
    """DM-A17: behind all that was there then, also what another had locked."""

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"lent")
        reader, rival = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await rival.open()
        assert body(await rival.start(theirs)) == b"lent"
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        if is_cancelled:
            given = reader.start_values(handle, cursor=cursor, timeout_ms=60_000)
            wait = asyncio.ensure_future(reader.call(7, given))
            await until(lambda: entries(world) == 2)
            await reader.call(8, mqrr.RequestIn(handle, given.request))
            assert (await wait).status == CANCELLED
        else:
            late = await reader.start(handle, cursor=cursor, timeout_ms=10)
            assert late.status == TIMEOUT
        assert await rival.end(theirs, NACK) == 0
        assert (await reader.start(handle, cursor=cursor)).status == TIMEOUT
        await client.send(ORDERS, b"later")
        assert await reader.receive(handle, cursor=cursor) == b"later"
        assert await reader.receive(handle) == b"lent"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.1.3-02", "RR-3.1.4.9-04", "RR-3.1.4.9-05")
def test_a_number_is_taken_while_its_call_waits() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=7))
        peeking = asyncio.ensure_future(
            reader.start(handle, PEEK_CURRENT, timeout_ms=INFINITE, request=9)
        )
        await until(lambda: waits(world)._count == 2)
        for action in (RECEIVE, PEEK_CURRENT):
            for timeout_ms, number in ((0, 7), (20, 7), (0, 9), (20, 9)):
                for opnum in (7, 13):
                    more = {"timeout_ms": timeout_ms, "request": number}
                    given = reader.start_values(handle, action, **more)
                    assert (await reader.call(opnum, given)).status == INVALID
        assert (await reader.start(other, request=7)).status == TIMEOUT, "another handle's"
        for opnum in (9, 15):
            for number in (7, 8):  # a call that waits is an entry, but nothing that could end
                ended = await reader.call(opnum, mqrr.EndIn(handle, ACK, number))
                assert ended.status == INVALID
                ended = await reader.call(opnum, mqrr.EndIn(other, ACK, number))
                assert ended.status == INVALID_HANDLE
        assert not waiting.done()
        assert not peeking.done()
        for number, read in ((9, peeking), (7, waiting)):
            assert (await reader.call(8, mqrr.RequestIn(handle, number))).status == 0
            assert (await read).status == CANCELLED
        assert (await reader.start(handle, request=7)).status == TIMEOUT, "it is free again"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.2.2-01")
def test_the_cleanup_time_is_five_minutes_and_never_none() -> None:
    assert RpcSection().return_after_minutes == 5
    assert msgspec.convert({"return_after_minutes": 1}, RpcSection).return_after_minutes == 1
    for minutes in (0, -1, 0.5):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"return_after_minutes": minutes}, RpcSection)

    async def scenario(world: RpcWorld, client: Client) -> None:
        windows = (await world.harness.leader()).service.windows
        assert windows._remote_read._settings.cleanup_after_s == 300.0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-30")
def test_when_it_came_is_not_when_it_was_sent() -> None:
    async def main() -> None:
        async with (
            rpc_world() as elsewhere,
            rpc_world() as made,
            made.client(await made.leader()) as client,
            elsewhere.client(await elsewhere.leader()) as sender,
        ):
            await create(client)
            name = rf"DIRECT=TCP:{made.harness['n1'].host}\private$\orders"
            caller = await elsewhere.caller(QMMGMT)
            await sender.send(name, b"first")
            reader = await made.reader()
            handle = await reader.open()
            assert body(await reader.start(handle, timeout_ms=INFINITE)) == b"first"
            assert await act(caller, queue(name), "PAUSE") == 0
            await sender.send(name, b"held")
            await asyncio.sleep(2.1)
            assert await act(caller, queue(name), "RESUME") == 0
            seen: list[int] = []
            for action in (PEEK_CURRENT, PEEK_CURRENT, RECEIVE):
                found = await reader.start(handle, action, timeout_ms=INFINITE)
                assert body(found) == b"held"
                assert 2 <= found.arrived - message(found).user_header.sent_time < 60
                seen.append(found.arrived)
                await until(lambda: time.time() > seen[0] + 2)
            assert len(set(seen)) == 1, "it is not when it is looked at"

    run(main())


# Moving ------------------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.6-04")
def test_what_transactions_have_locked_is_purged_with_their_ends() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, r".\private$\exact", transactional=True, journaling=True)
        await send_in_transaction(client, EXACT, b"one", b"two", b"three")
        source = await client.open(EXACT)
        transactions = (TRANSACTION, b"y" * 16)
        for transaction in transactions:
            begin = data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
            await client.data.BeginTransaction(begin)
            taken = await client.receive(source, transaction=transaction)
            assert len(taken.messages.properties) == 1
        reader = await world.reader()
        handle = await reader.open(EXACT)
        assert (await reader.call(6, mqrr.Handle(handle))).status == 0
        assert (await reader.start(handle, PEEK_CURRENT)).status == TIMEOUT
        ends = [
            data_pb2.EndTransactionRequest(request=client.next(), transaction=one)
            for one in transactions
        ]
        await client.data.CommitTransaction(ends[0])
        await client.data.AbortTransaction(ends[1])
        assert (await reader.start(handle, PEEK_CURRENT)).status == TIMEOUT, "it does not come back"
        journal = await reader.open(EXACT + ";JOURNAL")
        assert await reader.receive(journal) == b"one", "what is committed is received"
        assert (await reader.start(journal)).status == TIMEOUT, "what was rolled back is deleted"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.10-02", "RR-3.1.4.10-08", "RR-3.1.4.11-01", "MQ-2.4-32")
def test_nothing_moves_to_where_it_is_or_away_from_who_has_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, r".\private$\exact", transactional=True)
        await send_in_transaction(client, EXACT, b"one")
        reader = await world.reader()
        opening = REMOTE_READ.operations[11].takes
        given = mqrr.OpenIn(queue(EXACT).what.value, 4, 0, bytes(16), 1, 6, 1, 7601, 1)
        stub = opening.marshal(given)
        made = await reader.client.raw_call(REMOTE_READ, 11, stub)
        assert len(made) == 28, "a context, a handle, and no HRESULT"
        itself = mqrr.MoveHandle(int.from_bytes(made[:8], "little"), made[8:])
        whole = await reader.open(EXACT)
        later = await reader.open(EXACT + ";later", 4, for_move=True)
        from_later = await reader.open(EXACT + ";later")
        key = 7 << 56 | (await reader.start(whole, PEEK_CURRENT)).sequence

        async def moves(source: bytes, context: int) -> int:
            move = mqrr.MoveIn(source, context, key, bytes(16))
            return int((await reader.call(10, move)).status)

        assert await moves(whole, itself.move_context) == NT_INVALID_PARAMETER
        assert await moves(from_later, later.move_context) == NT_INVALID_PARAMETER
        await create(client, r".\private$\other", transactional=True)
        other = r"DIRECT=OS:QUORATE\private$\other"
        journal = await reader.open(EXACT + ";JOURNAL")
        for name in (other, other + ";later"):
            target = await reader.open(name, 4, for_move=True)
            for source in (whole, from_later, journal):
                assert await moves(source, target.move_context) == NT_INVALID_PARAMETER
        for context in (itself.move_context, later.move_context):
            for source in (journal, await reader.open(other), await reader.open(other + ";later")):
                assert await moves(source, context) == NT_INVALID_PARAMETER, "from elsewhere"
        begin = data_pb2.BeginTransactionRequest(request=client.next(), transaction=TRANSACTION)
        await client.data.BeginTransaction(begin)
        taken = await client.receive(await client.open(EXACT), transaction=TRANSACTION)
        assert len(taken.messages.properties) == 1
        assert await moves(whole, later.move_context) == LOCKED, "a transaction has it"
        end = data_pb2.EndTransactionRequest(request=client.next(), transaction=TRANSACTION)
        await client.data.AbortTransaction(end)
        assert await moves(whole, later.move_context) == 0
        assert body(await reader.start(from_later, PEEK_CURRENT)) == b"one"

    in_world(scenario)


# Ending ------------------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.15-02", "RR-2.2.8-01", "MQ-2.2.18.1.8-01")
def test_without_a_transaction_its_method_accepts_and_returns() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()

        async def taken(ack: int) -> bytes:
            given = reader.start_values(handle)
            assert given.transaction == bytes(16)
            found = await reader.call(13, given)
            assert (await reader.call(15, mqrr.EndIn(handle, ack, given.request))).status == 0
            return body(found)

        assert await taken(NACK) == b"one"
        assert body(await other.start(theirs, PEEK_CURRENT)) == b"one"
        assert await taken(ACK) == b"one"
        assert body(await other.start(theirs, PEEK_CURRENT)) == b"two"
        given = reader.start_values(handle)
        for at in range(16):  # one bit anywhere is a transaction
            given.transaction = bytes(at) + b"\1" + bytes(15 - at)
            assert (await reader.call(13, given)).status == 0xC00E0051
        # As with moves, between queues that know no transactions.
        moving = await reader.open(ORDERS + ";later", 4, for_move=True)
        (key,) = await keys_of(reader, handle, 1)
        for at in range(16):
            transaction = bytes(at) + b"\1" + bytes(15 - at)
            move = mqrr.MoveIn(handle, moving.move_context, key, transaction)
            assert (await reader.call(10, move)).status == 0xC00E0050
        back = await reader.open(for_move=True, access=4)
        later = await reader.open(ORDERS + ";later")
        for source, target in ((handle, moving), (later, back)):
            move = mqrr.MoveIn(source, target.move_context, key, bytes(16))
            assert (await reader.call(10, move)).status == 0
        assert await taken(ACK) == b"two"
        assert (await other.start(theirs, PEEK_CURRENT)).status == TIMEOUT

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.8-06")
def test_what_is_being_lent_as_its_call_is_cancelled_goes_back() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        for number in range(3):
            waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=7))
            await until(lambda: waits(world)._count == 1)
            read = next(one.reads[7] for one in opened_queues(world) if 7 in one.reads)
            sending = asyncio.ensure_future(client.send(ORDERS, b"%d" % number))
            while not read._is_trying:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            read.cancel()  # in the middle of a proposal, which is too short to be met by a call
            assert (await waiting).status == CANCELLED
            await sending
            async with asyncio.timeout(20):
                found = await other.start(theirs, timeout_ms=INFINITE)
            assert body(found) == b"%d" % number, "not locked by a call that has ended"
            assert await other.end(theirs) == 0
            assert entries(world) == 0

    in_world(scenario)


# Limits and counters -----------------------------------------------------------------------


@pytest.mark.spec("RR-OUR-2-01")
def test_one_handle_has_so_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READS_PER_QUEUE_MAX", 3)

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        assert body(await reader.start(handle, request=1)) == b"one"
        waiting = [
            asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=number))
            for number in (2, 3)
        ]
        await until(lambda: waits(world)._count == 2)
        for action in (RECEIVE, PEEK_CURRENT):
            assert (await reader.start(handle, action, request=4)).status == NO_RESOURCES
        assert (await reader.start(other, request=4)).status == TIMEOUT, "another has its own"
        assert await reader.end(handle, ACK, request=1) == 0
        assert (await reader.start(handle, request=4)).status == TIMEOUT, "there is room again"
        assert await reader.close(handle) == 0
        assert [(await one).status for one in waiting] == [CANCELLED] * 2

    in_world(scenario)


def test_an_open_beyond_the_limit_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "HANDLES_PER_GROUP_MAX", 3)

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader, other = await world.reader(), await world.reader()
        handles = [await reader.open() for _ in range(3)]
        for for_move, access in ((False, 1), (False, 0x20), (True, 4)):
            with pytest.raises(Fault) as full:
                await reader.open(access=access, for_move=for_move)
            assert full.value.status == 0x1C010014
        for handle in handles:
            assert await reader.close(handle) == 0

        async def alone() -> bool:
            try:
                return bool(await other.open(share=1))
            except Fault:
                return False

        assert await eventually(alone, bool), "none is open any more"

    in_world(scenario)


@pytest.mark.spec("RR-OUR-2-03")
def test_what_goes_back_is_counted_by_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        metrics = (await world.leader()).metrics

        def counted() -> dict[str, float]:
            returned = metrics.counter("quorate_remote_reads_returned_total")
            causes = ("refused", "close", "rundown", "timeout")
            return {cause: returned.labels(cause)._value.get() for cause in causes}

        reader = await world.reader()
        handle = await reader.open()
        assert (await reader.start(handle)).status == 0
        assert await reader.end(handle, NACK) == 0
        assert counted() == {"refused": 1, "close": 0, "rundown": 0, "timeout": 0}
        for _ in range(2):
            assert (await reader.start(handle)).status == 0
        assert await reader.close(handle) == 0
        assert counted() == {"refused": 1, "close": 2, "rundown": 0, "timeout": 0}
        handle = await reader.open()
        assert (await reader.start(handle)).status == 0
        reader.client.close()
        await eventually(lambda: _soon(counted), lambda found: found["rundown"] == 1)
        assert counted() == {"refused": 1, "close": 2, "rundown": 1, "timeout": 0}

    in_world(scenario)


async def _soon(look: Any) -> Any:
    await asyncio.sleep(0.01)
    return look()
