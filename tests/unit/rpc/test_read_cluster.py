"""Remote read where nodes die, leaders change and majorities are missing."""

import asyncio

import pytest

from qm.api.propose import proposer
from qm.model.queries import find_by_path
from qm.model.values.commands import ReceiveRun, Selector, SelectorKind
from qm.node.replica import replicated_store
from qm.rpc.interface import Fault
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read import reading, sessions
from tests.cluster.harness import run
from tests.unit.api.test_data import PATH
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
from tests.unit.rpc.test_read_receives import (
    PEEK_AFTER,
    PEEK_AT,
    PEEK_BEFORE,
    TAKE_AT,
    opened_queues,
)
from tests.unit.rpc.test_remote_read import in_world

UNAVAILABLE, TIMEOUT = 0xC00E000B, 0xC00E001B


@pytest.mark.spec("RR-3.1.3-01")
def test_opens_and_reads_wait_or_fail_while_there_is_no_leader() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, _ = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
            early = await made.reader(one)
            opened = await early.open()
            await made.harness.kill(leader.name)
            late = await made.reader(one)  # whoever leads: it connects and logs on
            answers = await asyncio.gather(
                late.open(), early.start(opened, PEEK_CURRENT), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    assert isinstance(answer, Fault)
                    assert answer.status == UNAVAILABLE

            async def reads() -> bytes:
                try:
                    found = await late.start(await late.open(), PEEK_CURRENT)
                except Fault as fault:
                    assert fault.status == UNAVAILABLE
                    return b""
                assert found.status in (0, UNAVAILABLE)
                return body(found) if found.status == 0 else b""

            assert await eventually(reads, bool) == b"one"

    run(scenario())


@pytest.mark.spec("RR-OUR-1-05", "RR-OUR-1-06", "RR-3.1.3-01")
def test_without_a_majority_nothing_is_shown_and_nothing_lent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proposer, "REPEAT_FOR_S", 2.0)
    monkeypatch.setattr(replicated_store, "PROPOSE_WAIT_MS", 2_000)
    monkeypatch.setattr(reading, "FAILING_MAX_S", 3.0)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one", b"two")
            reader = await made.reader(one)
            handle = await reader.open()
            cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
            seen = await reader.start(handle, PEEK_CURRENT, cursor=cursor)
            assert body(seen) == b"one"
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            key = 4 << 56 | seen.sequence
            peeks = [
                reader.start_values(handle, PEEK_CURRENT),
                reader.start_values(handle, PEEK_CURRENT, timeout_ms=60_000),
                *(
                    reader.start_values(handle, action, cursor=cursor)
                    for action in (PEEK_CURRENT, PEEK_NEXT)
                ),
                *(
                    reader.start_values(handle, action, lookup=key)
                    for action in (PEEK_AT, PEEK_AFTER, PEEK_BEFORE)
                ),
            ]
            loop = asyncio.get_running_loop()
            late = await made.reader(one)  # without a majority, too, it connects and logs on
            begun = loop.time()
            at_once = [
                *peeks,
                reader.start_values(handle, RECEIVE),
                reader.start_values(handle, TAKE_AT, lookup=key),
            ]
            # One that waits tries for as long as it may.
            waiting = reader.start_values(handle, timeout_ms=INFINITE)
            opened, *answers = await asyncio.gather(
                late.open(),
                *(reader.call(7, given) for given in (*at_once, waiting)),
                reader.call(13, reader.start_values(handle)),
                reader.call(13, reader.start_values(handle, PEEK_CURRENT)),
                return_exceptions=True,
            )
            assert loop.time() - begun < 20
            assert isinstance(opened, Fault)
            assert opened.status == UNAVAILABLE
            for found in answers:
                assert not isinstance(found, BaseException), found
                assert (found.status, found.sections) == (UNAVAILABLE, None)
            for node in (leader, other):
                await made.harness.restart(node.name)
            await made.harness.leader()
            again = await made.reader(await made.harness.leader())
            theirs = await again.open()
            # No read keeps anything. What is decided only now may hold a message for a moment.
            left = [await again.receive(theirs, timeout_ms=20_000) for _ in range(2)]
            assert sorted(left) == [b"one", b"two"]

    run(scenario())


@pytest.mark.spec("RR-OUR-1-01", "RR-OUR-1-08")
def test_what_a_dead_node_had_lent_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LEASE_DEFAULT_MS", 3_000)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one", b"two", priority=5)
            reader = await made.reader(one)
            lent = await reader.start(await reader.open())
            elsewhere = await made.reader(other)
            theirs = await elsewhere.open()
            assert body(await elsewhere.start(theirs, PEEK_CURRENT)) == b"two"
            await made.harness.kill(one.name)
            dead_since = asyncio.get_running_loop().time()

            async def seen() -> int:
                return int((await elsewhere.start(theirs, PEEK_CURRENT)).sequence)

            assert await seen() != lent.sequence, "a node that dies returns nothing itself"
            await eventually(seen, lambda found: found == lent.sequence)
            # The lease, which the node had just renewed, and what a busy machine takes.
            assert asyncio.get_running_loop().time() - dead_since < 3.0 + 3.0
            back = await elsewhere.start(theirs, PEEK_AT, lookup=2 << 56 | lent.sequence)  # 7 - 5
            assert (body(back), message(back).priority) == (b"one", 5)
            assert await elsewhere.receive(theirs) == b"one"

    run(scenario())


@pytest.mark.spec("RR-OUR-1-04")
def test_a_lend_that_is_proposed_twice_lends_once() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        store = (await world.harness.leader()).cluster
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        opened = next(one for one in opened_queues(world) if one.session.who.name)
        queue_id = find_by_path(store.view, PATH).queue_id
        session = opened.session
        request = session._begin()
        lend = ReceiveRun(
            session.client_id,
            opened.handle,
            queue_id,
            request.number,
            1,
            request.confirmed_upto,
            Selector(SelectorKind.FIRST),
            is_two_phase=True,
        )
        for _ in range(3):
            await store.propose(lend)
        assert body(await other.start(theirs, PEEK_CURRENT)) == b"two"
        assert body(await other.start(theirs, request=1)) == b"two"
        assert body(await other.start(theirs, request=2)) == b"three"
        del handle

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.1-03")
def test_there_is_no_port_to_tell_of_while_none_is_open() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        windows = (await world.harness.leader()).service.windows
        served = windows._remote_read
        assert served.get_server_port(None, None).port != 0  # type: ignore[arg-type]
        await windows.stop()
        assert served.get_server_port(None, None).port == 0  # type: ignore[arg-type]

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-22", "RR-3.1.4.9-08", "RR-3.1.4.6-03", "RR-3.1.4.10-10")
def test_nothing_is_answered_as_done_that_no_majority_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer, "REPEAT_FOR_S", 2.0)

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one", b"two", b"three")
            reader = await made.reader(one)
            handle, again = await reader.open(), await reader.open()
            later = await reader.open(ORDERS + ";later", 4, for_move=True)
            key = 4 << 56 | (await reader.start(handle, PEEK_CURRENT)).sequence
            for number in (1, 2):
                assert (await reader.start(handle, request=number)).status == 0
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            move = mqrr.MoveIn(again, later.move_context, key, bytes(16))
            answers = await asyncio.gather(
                reader.call(9, mqrr.EndIn(handle, ACK, 1)),
                reader.call(9, mqrr.EndIn(handle, NACK, 2)),
                reader.start(handle),
                reader.call(6, mqrr.Handle(handle)),
                reader.call(10, move),
                reader.call(3, mqrr.Handle(again)),
            )
            assert [answer.status for answer in answers] == [UNAVAILABLE] * 6

    run(scenario())
