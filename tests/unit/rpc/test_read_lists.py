"""Rules of remote read that list several things or have several ways: each of them."""

import asyncio
import secrets
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.node.upkeep import rpc_endpoint
from qm.rpc.client import RpcClient
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import Nothing
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.queue_formats import format_of
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import free_network, until
from tests.cluster.test_scrub import bodies, flip
from tests.unit.api.world import Client, eventually
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RPC_PORT,
    RemoteReader,
    RpcWorld,
    body,
    with_orders,
)
from tests.unit.rpc.test_read_receives import (
    CANCELLED,
    INVALID,
    INVALID_HANDLE,
    NOT_FOUND,
    PEEK_AFTER,
    PEEK_AT,
    PEEK_BEFORE,
    TAKE_AFTER,
    TAKE_AT,
    TAKE_BEFORE,
    TIMEOUT,
    entries,
    keys_of,
    opened_queues,
)
from tests.unit.rpc.test_remote_read import in_world, waits
from tests.unit.rpc.test_server import PROBE
from tests.unit.rpc.test_server import World as Ports
from tests.unit.rpc.test_server import in_world as on_ports


@pytest.mark.spec("RR-2.2.3-04", "RR-2.2.3-05")
def test_an_address_at_which_a_node_is_called_is_the_cluster_s() -> None:
    # No name of the cluster's, but where one of its nodes listens.
    address = f"{free_network()}.50"

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        caller = await RpcClient().connect(address, RPC_PORT)
        provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
        await caller.bind(
            REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
        )
        reader = RemoteReader(caller)
        seen = set()
        names = ("quorate", "QuoRate", "QUORATE.example", "quorate.EXAMPLE", address)
        addresses = (address, world.harness["n1"].host)
        for host in (*(f"OS:{one}" for one in names), *(f"TCP:{one}" for one in addresses)):
            for ending in ("", ";later"):
                opened = await reader.open(
                    rf"DIRECT={host}\private$\orders;later", 4, for_move=True
                )
                assert await reader.close(opened.handle) == 0
                handle = await reader.open(rf"DIRECT={host}\private$\orders{ending}")
                seen.add((ending, (await reader.start(handle, PEEK_CURRENT)).sequence))
        assert len(seen) == 2, "one queue, and its subqueue"
        with pytest.raises(Fault) as refused:
            await reader.open(rf"DIRECT=TCP:{address[:-1]}1\private$\orders")
        assert refused.value.status == 0xC00E0003

    in_world(scenario, listen=(address,))


@pytest.mark.spec("RR-3.1.4.13-02")
def test_without_a_transaction_every_action_is_as_by_the_plain_method() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        reader = await world.reader()
        handle = await reader.open()
        _, two, _ = await keys_of(reader, handle, 3)
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor

        async def begun(action: int, **more: int) -> mqrr.StartOut:
            given = reader.start_values(handle, action, **more)
            found: mqrr.StartOut = await reader.call(13, given)
            return found

        async def ended(ack: int = NACK) -> int:
            given = mqrr.EndIn(handle, ack, reader.requests)
            return int((await reader.call(15, given)).status)

        for action, lookup, text in (
            (PEEK_CURRENT, 0, b"one"),
            (PEEK_AT, two, b"two"),
            (PEEK_AFTER, two, b"three"),
            (PEEK_BEFORE, two, b"one"),
        ):
            assert body(await begun(action, lookup=lookup)) == text
            assert await ended() == INVALID_HANDLE, "a peek has no entry"
        for action, lookup, text in (
            (RECEIVE, 0, b"one"),
            (TAKE_AT, two, b"two"),
            (TAKE_AFTER, two, b"three"),
            (TAKE_BEFORE, two, b"one"),
        ):
            assert body(await begun(action, lookup=lookup)) == text
            assert await ended() == 0
        for action, text in ((PEEK_CURRENT, b"one"), (PEEK_NEXT, b"two"), (RECEIVE, b"two")):
            assert body(await begun(action, cursor=cursor)) == text
        assert await ended(ACK) == 0
        for text in (b"one", b"three"):
            assert body(await begun(RECEIVE)) == text
            assert await ended(ACK) == 0
        assert (await begun(RECEIVE, timeout_ms=20)).status == TIMEOUT
        for action, number in ((RECEIVE, 91), (PEEK_CURRENT, 92)):
            waiting = asyncio.ensure_future(begun(action, timeout_ms=INFINITE, request=number))
            await until(lambda: waits(world)._count == 1)
            assert (await reader.call(8, mqrr.RequestIn(handle, number))).status == 0
            assert (await waiting).status == CANCELLED

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-42")
def test_what_expires_while_it_is_lent_is_received_by_nobody_else() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"lent", time_to_be_received_s=1)
        reader = await world.reader()
        handle = await reader.open()
        lent = await reader.start(handle, request=1)
        assert body(lent) == b"lent"
        await client.send(ORDERS, b"free", time_to_be_received_s=1)
        await client.send(ORDERS, b"valid", b"later")
        key = 4 << 56 | lent.sequence

        async def first() -> bytes:
            return body(await reader.start(handle, PEEK_CURRENT))

        await eventually(first, lambda text: text != b"free")
        assert await reader.end(handle, NACK, request=1) == 0
        assert await first() == b"valid"
        for action, lookup in ((TAKE_AT, key), (PEEK_AT, key), (TAKE_BEFORE, key + 2)):
            assert (await reader.start(handle, action, lookup=lookup)).status == NOT_FOUND
        for text in (b"valid", b"later"):
            assert await reader.receive(handle) == text

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.9-06", "RR-3.1.4.9-09")
def test_of_two_ends_at_once_the_second_finds_no_entry() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        for ack in (NACK, ACK):
            assert (await reader.start(handle, request=7)).status == 0
            ends = [reader.end(handle, ack, request=7) for _ in range(2)]
            assert await asyncio.gather(*ends) == [0, INVALID_HANDLE]
        assert (await reader.start(handle, request=1)).status == 0
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=8))
        await until(lambda: waits(world)._count == 1)
        ends = [reader.end(handle, ACK, request=1) for _ in range(2)]
        assert await asyncio.gather(*ends) == [0, INVALID], "beside another entry"
        assert (await reader.call(8, mqrr.RequestIn(handle, 8))).status == 0
        assert (await waiting).status == CANCELLED
        assert entries(world) == 0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-23")
def test_what_is_behind_a_cursor_that_waits_is_there_for_others() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        for _ in range(2):
            assert (await reader.start(handle, cursor=cursor)).status == 0
            assert await reader.end(handle, NACK) == 0
        begun = reader.start(handle, cursor=cursor, timeout_ms=INFINITE, request=7)
        waiting = asyncio.ensure_future(begun)
        await until(lambda: waits(world)._count == 1)
        keys = await keys_of(other, theirs, 2)
        assert await other.receive(theirs, action=TAKE_AT, lookup=keys[1]) == b"two"
        assert await other.receive(theirs) == b"one"
        assert not waiting.done()
        await client.send(ORDERS, b"three")
        assert body(await waiting) == b"three"
        assert await reader.end(handle, ACK, request=7) == 0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-25", "RR-3.1.4.7-26")
def test_whoever_waited_first_one_takes_what_arrives_and_all_who_look_see_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader, other = await world.reader(), await world.reader()
        handles = [await reader.open(), await other.open()]
        actions = (RECEIVE, PEEK_CURRENT, RECEIVE, PEEK_CURRENT)

        async def waits_of(count: int) -> None:
            await until(lambda: waits(world)._count == count)

        for first in range(4):
            looking: list[asyncio.Future[mqrr.StartOut]] = []
            taking: dict[asyncio.Future[mqrr.StartOut], tuple[RemoteReader, bytes, int]] = {}
            for k, action in enumerate(actions[first:] + actions[:first]):
                who, number = (reader, other)[k % 2], 10 + k
                begun = who.start(handles[k % 2], action, timeout_ms=INFINITE, request=number)
                read = asyncio.ensure_future(begun)
                if action == RECEIVE:
                    taking[read] = who, handles[k % 2], number
                else:
                    looking.append(read)
                await waits_of(k + 1)
            await client.send(ORDERS, b"%d" % first)
            for look in looking:
                assert body(await look) == b"%d" % first
            await waits_of(1)
            (done,), (late,) = await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)
            assert body(done.result()) == b"%d" % first
            who, handle, number = taking[done]
            assert await who.end(handle, ACK, request=number) == 0
            who, handle, number = taking[late]
            assert (await who.call(8, mqrr.RequestIn(handle, number))).status == 0
            assert (await late).status == CANCELLED
            assert entries(world) == 0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.2.1-03")
def test_only_what_waits_for_some_time_has_a_timer() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        for timeout_ms in (INFINITE, INFINITE - 1):
            reads = [
                asyncio.ensure_future(reader.start(handle, action, timeout_ms=timeout_ms))
                for action in (RECEIVE, PEEK_CURRENT)
            ]
            await until(lambda: waits(world)._count == 2)
            (opened,) = opened_queues(world)
            timers: list[Any] = [vars(one)["_timer"] for one in opened.reads.values()]
            assert [one is None for one in timers] == [timeout_ms == INFINITE] * 2
            # Whoever does not wait is answered before those who do, and takes no place in line.
            for action in (RECEIVE, PEEK_CURRENT):
                assert (await reader.start(handle, action)).status == TIMEOUT
                assert waits(world)._count == 2
            for number in list(opened.reads):
                assert (await reader.call(8, mqrr.RequestIn(handle, number))).status == 0
            assert [(await one).status for one in reads] == [CANCELLED] * 2

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.2-15")
@pytest.mark.parametrize("is_configured", [False, True])
def test_a_workgroup_s_reader_is_nobody_only_where_that_is_configured(is_configured: bool) -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        nobody = await world.reader(user="")
        parsed: Any = parse_format_name(ORDERS)
        given = mqrr.OpenIn(format_of(parsed), 1, 0, bytes(16), 1, 6, 1, 7601, 1)
        if is_configured:
            assert await nobody.receive((await nobody.call(2, given)).handle) == b"one"
            return
        with pytest.raises(Fault) as refused:
            await nobody.call(2, given)
        assert refused.value.status == 5
        reader: RemoteReader = await world.reader()
        assert await reader.receive(await reader.open()) == b"one"

    in_world(scenario, anonymous_receive=is_configured)


@pytest.mark.spec("RR-OUR-2-03")
@pytest.mark.parametrize("cause", ["timeout", "undelivered"])
def test_what_its_reader_forgets_and_what_never_reaches_him_is_counted(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cause == "timeout":
        monkeypatch.setattr(rpc_endpoint, "_S_PER_MINUTE", 0.02)

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"x" * 500)
        if cause == "undelivered":
            node = await world.harness.leader()
            (known,) = bodies(node)
            flip(node, known.place.index, 64 + known.place.offset + 300)
        returned = (await world.leader()).metrics.counter("quorate_remote_reads_returned_total")

        def counted() -> list[str]:
            causes = ("refused", "close", "rundown", "timeout", "undelivered")
            return [one for one in causes for _ in range(int(returned.labels(one)._value.get()))]

        reader = await world.reader()
        found = await reader.start(await reader.open())
        assert (found.status == 0) is (cause == "timeout")
        await until(lambda: bool(counted()))
        assert counted() == [cause]

    in_world(scenario)


@pytest.mark.spec("RP-RPCE-3.1.1.5.5-01")
def test_what_a_method_throws_is_the_status_of_its_fault() -> None:
    async def test(world: Ports) -> None:
        client = await world.bound()
        thrown = 0

        def crash(call: object, given: object) -> None:
            raise Fault(thrown)

        async def crash_slowly(call: object, given: object) -> None:
            await asyncio.sleep(0)
            raise Fault(thrown)

        world.probe.crash = crash  # type: ignore[method-assign]
        world.probe.crash_slowly = crash_slowly  # type: ignore[method-assign]
        # Win32 codes, small and large; HRESULTs of Win32 codes, of MSMQ and of success; NCA.
        for thrown in (5, 0x57, 1722, 0xFFFF, 0x80070005, 0xC00E0003, 0x400E0009, 0x1C01000B):
            for opnum in (3, 5):
                with pytest.raises(Fault) as caught:
                    await client.call(PROBE, opnum, Nothing())
                assert caught.value.status == thrown, (hex(thrown), opnum)

    on_ports(test)
