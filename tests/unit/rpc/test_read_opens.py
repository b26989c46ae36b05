"""Opens, closes, cursors and rights of remote read [MS-MQRR 3.1.4.1 to 3.1.4.6]."""

import asyncio
import secrets
import socket
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.node.config.schema import RpcSection
from qm.pb import control_pb2, control_pb2_grpc
from qm.rpc.client import RpcClient
from qm.rpc.endpoint_mapper import (
    MAPPER,
    HandleOnly,
    LookupIn,
    MapIn,
    port_of_tower,
    tower_of,
)
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.pdu.bind import NDR20, NDR64
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.queue_formats import WireFormat, format_of
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import until
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.rpc.dialogue import ECHO, associations
from tests.unit.rpc.reading import (
    ACK,
    INFINITE,
    MAPPER_PORT,
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
from tests.unit.rpc.test_management_calls import bind_ack
from tests.unit.rpc.test_remote_read import in_world, waits

INVALID, UNKNOWN, DENIED, SHARED = 0xC00E0006, 0xC00E0003, 0xC00E0025, 0xC00E0009
CANCELLED, TIMEOUT = 0xC00E0008, 0xC00E001B
MISMATCH = 0x1C00001A
NT_INVALID_HANDLE, NT_DENIED = 0xC0000008, 0xC0000022
GUID = "11223344-5566-7788-99AA-BBCCDDEEFF00"


async def refusal(reader: RemoteReader, name: str, **more: Any) -> int:
    """Return the status of the fault with which an open ends; 0: it was opened."""
    try:
        opened = await reader.open(name, **more)
    except Fault as fault:
        return fault.status
    await reader.close(opened.handle if more.get("for_move") else opened)
    return 0


async def at_level(world: RpcWorld, level: AuthLevel) -> RemoteReader:
    node = await world.harness.leader()
    client = await RpcClient().connect(node.host, RPC_PORT)
    provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
    await client.bind(REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=level)
    return RemoteReader(client)


async def set_rights(client: Client, *rights: str, who: str = "bob") -> None:
    acl = [control_pb2.Ace(principal=who, rights=rights)]
    name = control_pb2.QueueName(name=r".\private$\orders")
    await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))


# Transport ---------------------------------------------------------------------------------


@pytest.mark.spec("RR-1.7-01", "RR-1.7-02", "RR-2.1-01", "RR-2.2-01", "RR-3.1.4-03")
def test_the_interface_has_one_version_and_is_found_by_the_mapper() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        node = await world.harness.leader()
        mapper = await RpcClient().connect(node.host, MAPPER_PORT)
        await mapper.bind(MAPPER)
        asked = tower_of(REMOTE_READ.syntax, 0, "0.0.0.0")
        (tower,) = (await mapper.call(MAPPER, 3, MapIn(None, asked, NIL, 4))).towers.items
        assert port_of_tower(tower.octets) == RPC_PORT
        for transfers, result in (((NDR20,), 0), ((NDR64,), 2), ((NDR20, NDR64), 0)):
            ack = await bind_ack(node.host, RPC_PORT, REMOTE_READ.syntax, *transfers)
            assert ack.answers[0].result == result
            assert ack.answers[0].transfer in (NDR20, None)
        syntax = REMOTE_READ.syntax
        for major, minor, result in ((1, 0, 0), (1, 1, 2), (2, 0, 2), (0, 0, 2)):
            other = type(syntax)(syntax.uuid, major, minor)
            ack = await bind_ack(node.host, RPC_PORT, other, NDR20)
            assert ack.answers[0].result == result, (major, minor)
        reader = await world.reader()
        assert set(REMOTE_READ.operations) == {0, *range(2, 16)}
        for opnum in (1, 16, 17, 0xFFFF):
            with pytest.raises(Fault) as refused:
                await reader.client.raw_call(REMOTE_READ, opnum, b"")
            assert refused.value.status == 0x1C010002
        assert await reader.receive(await reader.open()) == b"one", "the connection lives on"

    in_world(scenario)


@pytest.mark.spec("RR-2.1-02", "RR-3.1.4.1-01", "RR-7-02")
def test_the_port_is_told_and_nobody_needs_to_ask() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        # It is read without having asked.
        assert await reader.receive(await reader.open()) == b"one"
        port = (await reader.call(0, Nothing())).port
        assert port == RPC_PORT
        assert RpcSection().port_base == 2103, "unless a deployment chooses"
        with socket.create_connection(((await world.harness.leader()).host, port), 5):
            pass

    in_world(scenario)


@pytest.mark.spec("RR-3.2.4.1-01")
def test_what_older_clients_would_fall_back_to_is_not_here() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        node = await world.harness.leader()
        qm2qm = type(REMOTE_READ.syntax)(bytes.fromhex("80a98810e5ead0118d9b00a02453c337"), 1, 0)
        ack = await bind_ack(node.host, RPC_PORT, qm2qm, NDR20)
        assert (ack.answers[0].result, ack.answers[0].reason) == (2, 1)
        mapper = await RpcClient().connect(node.host, MAPPER_PORT)
        await mapper.bind(MAPPER)
        asked = MapIn(None, tower_of(qm2qm, 0, "0.0.0.0"), NIL, 4)
        found = await mapper.call(MAPPER, 3, asked)
        assert (found.count, found.status) == (0, 0x16C9A0D6)

    in_world(scenario)


# Who may -----------------------------------------------------------------------------------


@pytest.mark.spec("RR-2.1-03", "RR-3.1.4.2-15", "RR-3.1.4.2-17", "RR-3.1.4.2-08", "RR-5.1-01")
def test_whoever_connects_is_judged_at_each_method() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await client.send(ORDERS, b"one", b"two")
        await client.receive(await client.open(ORDERS))
        alice = await world.reader()
        handle = await alice.open()
        moving = await alice.open(ORDERS + ";later", 4, for_move=True)
        seen = await alice.start(handle, PEEK_CURRENT)
        bob = await world.reader(user="bob")
        await set_rights(client, "receive_message")
        assert await refusal(bob, ORDERS) == 0
        assert await refusal(bob, ORDERS + ";JOURNAL") == DENIED, "that is another right"
        await set_rights(client, "receive_journal_message")
        assert await refusal(bob, ORDERS) == DENIED
        assert await refusal(bob, ORDERS + ";JOURNAL") == 0
        # Who uses another one's handle is judged by his own name.
        await set_rights(client, "receive_message", "write_message", who="alice")
        guest = await world.reader(user="bob", group_id=alice.client.group_id)
        move = mqrr.MoveIn(handle, moving.move_context, 4 << 56 | seen.sequence, bytes(16))
        assert (await guest.call(10, move)).status == DENIED
        assert (await guest.call(6, mqrr.Handle(handle))).status == DENIED
        assert (await alice.start(handle, PEEK_CURRENT)).sequence == seen.sequence
        assert (await alice.call(10, move)).status == 0
        assert (await alice.call(6, mqrr.Handle(handle))).status == 0
        await set_rights(client, "receive_message", "peek_message", "receive_journal_message")
        for level in (AuthLevel.CONNECT, AuthLevel.INTEGRITY):
            low = await at_level(world, level)
            parsed: Any = parse_format_name(ORDERS)
            for workgroup in (0, 1):
                given = mqrr.OpenIn(format_of(parsed), 1, 0, bytes(16), 1, 6, 1, 7601, workgroup)
                with pytest.raises(Fault) as refused:
                    await low.call(2, given)
                assert refused.value.status == 5
            # Every method needs the level, even the one that only tells a port.
            for opnum, values in (
                (0, Nothing()),
                (3, mqrr.Handle(NIL)),
                (9, mqrr.EndIn(NIL, ACK, 1)),
            ):
                with pytest.raises(Fault) as refused:
                    await low.call(opnum, values)
                assert refused.value.status == 5

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.2-18")
def test_integrity_is_enough_where_a_deployment_says_so() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await at_level(world, AuthLevel.INTEGRITY)
        assert await reader.receive(await reader.open()) == b"one"
        for level in (AuthLevel.CONNECT, AuthLevel.PACKET):
            assert await refusal(await at_level(world, level), ORDERS) == 5, level

    in_world(scenario, level="integrity")


@pytest.mark.spec("RR-3.1.4.2-19")
def test_readers_are_listed_with_who_they_are() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader(user="bob")
        handle = await reader.open()
        assert (await reader.start(handle)).status == 0
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE))
        await until(lambda: waits(world)._count == 1)
        sessions = control_pb2_grpc.ClientControlStub(client.channel)
        opens = await sessions.ListOpens(control_pb2.ListOpensRequest())
        (opened,) = (one for one in opens.opens if one.client_id.startswith("rpc-"))
        assert opened.format_name.casefold().endswith(r"private$\orders")
        clients = await sessions.ListClients(control_pb2.ListClientsRequest())
        (known,) = (one for one in clients.clients if one.client_id == opened.client_id)
        assert known.principal.rpartition("\\")[2] == "bob"
        # Each open has its own principal, though they come in one association.
        other = await world.reader(group_id=reader.client.group_id)
        await other.open(ORDERS + ";JOURNAL", 0x20)
        opens = await sessions.ListOpens(control_pb2.ListOpensRequest())
        clients = await sessions.ListClients(control_pb2.ListClientsRequest())
        who = {one.client_id: one.principal.rpartition("\\")[2] for one in clients.clients}
        by = {
            one.format_name.casefold().rpartition("\\")[2]: who[one.client_id]
            for one in opens.opens
            if one.client_id.startswith("rpc-")
        }
        assert by == {"orders": "bob", "orders;journal": "alice"}
        waiting.cancel()

    in_world(scenario)


# Names -------------------------------------------------------------------------------------


@pytest.mark.spec("RR-2.2.3-02", "RR-2.2.3-03", "RR-2.2.3-04", "RR-2.2.3-05")
def test_names_of_queues_here_are_opened_and_others_refused() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        host = world.harness["n1"].host
        names = (
            *(ORDERS, r"DIRECT=OS:quorate\PRIVATE$\Orders"),
            rf"DIRECT=TCP:{host}\private$\orders",
        )
        handles = [await reader.open(name) for name in names]
        seen = {(await reader.start(one, PEEK_CURRENT)).sequence for one in handles}
        assert len(seen) == 1, "one queue"
        for name, status in (
            (r"DIRECT=OS:elsewhere\private$\orders", UNKNOWN),
            (r"DIRECT=OS:quorate.other\private$\orders", UNKNOWN),
            (r"DIRECT=OS:elsewhere\SYSTEM$;DEADLETTER", UNKNOWN),
            (r"DIRECT=TCP:192.0.2.9\private$\orders", UNKNOWN),
            ("DIRECT=HTTP://quorate/msmq/private$/orders", UNKNOWN),
            ("DIRECT=HTTPS://quorate/msmq/private$/orders", UNKNOWN),
            (f"DL={GUID}", INVALID),
            ("MULTICAST=239.0.0.1:1801", INVALID),
            (f"CONNECTOR={GUID}", INVALID),
        ):
            assert await refusal(reader, name) == status, name
        parsed: Any = parse_format_name(ORDERS)
        wire = format_of(parsed)
        unknown = WireFormat(0, 0, 0, type(wire.identifier)(0, None))
        with pytest.raises(Fault) as refused:
            await reader.call(2, mqrr.OpenIn(unknown, 1, 0, bytes(16), 1, 6, 1, 7601, 1))
        assert refused.value.status == INVALID

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.2-20", "RR-3.1.4.2-21", "RP-RPCE-3.1.1.5.5-01")
def test_no_queue_that_goes_and_none_that_leads_away_is_opened() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, *[b"x"] * 50)
        away = r"DIRECT=OS:elsewhere.example\private$\q"
        await client.send(away, b"out")
        reader = await world.reader()
        for access in (1, 0x20):
            assert await refusal(reader, away, access=access) == UNKNOWN
        for name in (away, away + ";later"):
            assert await refusal(reader, name, access=4, for_move=True) == UNKNOWN
        handle = await reader.open()
        assert (await reader.start(handle)).status == 0, "lent, so that the queue cannot go yet"
        going = control_pb2.QueueName(name=r".\private$\orders")
        await client.queues.DeleteQueue(control_pb2.DeleteQueueRequest(queue=going))
        for access in (1, 0x20):
            assert await refusal(reader, ORDERS, access=access) == UNKNOWN
        assert await refusal(reader, ORDERS, access=4, for_move=True) == UNKNOWN

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.2-02", "RR-3.1.4.2-04", "RR-3.1.4.2-12", "RR-3.1.4.2-13", "RR-3.1.4.2-14"
)
def test_what_an_open_looks_at_and_what_it_does_not() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        for share, status in ((0, 0), (1, 0), (2, INVALID), (3, INVALID), (INFINITE, INVALID)):
            assert await refusal(reader, ORDERS, share=share) == status
            assert await refusal(reader, ORDERS, share=share, access=0x20) == status
        parsed: Any = parse_format_name(ORDERS)
        wire = format_of(parsed)
        for client_id, non_routing, major, minor, build in (
            (bytes(16), 0, 6, 1, 7601),
            (b"\xff" * 16, 1, 255, 255, 65535),
            (bytes(16), 1, 0, 0, 0),
        ):
            given = mqrr.OpenIn(wire, 1, 1, client_id, non_routing, major, minor, build, 0)
            handle = (await reader.call(2, given)).handle
            assert body(await reader.start(handle, PEEK_CURRENT)) == b"one"
            assert await reader.close(handle) == 0
        # Whatever it fails with is a fault of this status.
        elsewhere = r"DIRECT=OS:elsewhere\private$\orders"
        for name in (r"DIRECT=OS:QUORATE\private$\none", elsewhere, f"PUBLIC={GUID}"):
            assert await refusal(reader, name) == UNKNOWN
        alone = await reader.open(share=1)
        assert await refusal(reader, ORDERS) == SHARED
        assert await reader.close(alone) == 0
        await set_rights(client, "receive_journal_message")
        assert await refusal(await world.reader(user="bob"), ORDERS) == DENIED

    in_world(scenario)


# Handles -----------------------------------------------------------------------------------


@pytest.mark.spec("RR-2.2.4-01", "RR-2.2.4.1-03", "RR-3.1.4.3-02", "RP-C706-5.1.6-03")
def test_a_handle_is_of_one_interface_and_ends_once() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        moving = await reader.open(ORDERS + ";later", 4, for_move=True)
        # Methods with serialized handles, and without: one and the same.
        assert (await reader.start(handle, PEEK_CURRENT)).status == 0
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        assert (await reader.call(5, mqrr.CursorIn(handle, cursor))).status == 0
        assert (await reader.call(8, mqrr.RequestIn(handle, 99))).status == 0xC0000225
        # Of another interface, of nobody, closed: a fault, and nothing is closed by it.
        foreign = bytearray(handle)
        foreign[4] ^= 1
        mapper = await RpcClient().connect((await world.harness.leader()).host, MAPPER_PORT)
        await mapper.bind(MAPPER, group_id=reader.client.group_id)
        search = (await mapper.call(MAPPER, 2, LookupIn(0, None, None, 1, NIL, 1))).handle
        assert search != NIL
        with pytest.raises(Fault):
            await reader.close(NIL)
        for bad in (bytes(foreign), secrets.token_bytes(16), search):
            for opnum, values in (
                (3, mqrr.Handle(bad)),
                (4, mqrr.Handle(bad)),
                (6, mqrr.Handle(bad)),
                (7, reader.start_values(bad)),
                (9, mqrr.EndIn(bad, ACK, 1)),
            ):
                with pytest.raises(Fault) as refused:
                    await reader.call(opnum, values)
                assert refused.value.status == MISMATCH, (opnum, bad)
        assert (await reader.start(handle, PEEK_CURRENT)).status == 0
        more = await mapper.call(MAPPER, 2, LookupIn(0, None, None, 1, search, 1))
        assert (more.status, more.count) == (0, 1), "the search goes on"
        for one in (handle, moving.handle):
            stub = REMOTE_READ.operations[3].takes.marshal(mqrr.Handle(one))
            closed = await reader.client.raw_call(REMOTE_READ, 3, stub)
            assert closed == bytes(24), "the handle as twenty zero bytes, and 0"
            with pytest.raises(Fault) as refused:
                await reader.close(one)
            assert refused.value.status == MISMATCH
        # As with the searches of the mapper.
        stub = MAPPER.operations[4].takes.marshal(HandleOnly(search))
        assert await mapper.raw_call(MAPPER, 4, stub) == bytes(24)
        with pytest.raises(Fault) as refused:
            await mapper.call(MAPPER, 2, LookupIn(0, None, None, 1, search, 1))
        assert refused.value.status == MISMATCH

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.3-03", "RR-3.1.4.3-04", "RR-3.1.4.3-06", "RR-2.2.4.2-01", "RR-2.2.4.1-01"
)
def test_a_close_ends_what_waits_and_returns_what_is_lent() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        lent = [await reader.start(handle, request=number) for number in (1, 2)]
        waiting = [
            asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=number))
            for number in range(3, 8)
        ]
        await until(lambda: waits(world)._count == 5)
        order: list[str] = []
        for one in waiting:
            one.add_done_callback(lambda _: order.append("read"))
        closing = asyncio.ensure_future(reader.close(handle))
        closing.add_done_callback(lambda _: order.append("closed"))
        assert await closing == 0
        assert [(await one).status for one in waiting] == [CANCELLED] * 5
        assert order == ["read"] * 5 + ["closed"]
        other = await reader.open()
        again = [await reader.start(other, request=number) for number in (1, 2)]
        assert [one.sequence for one in again] == [one.sequence for one in lent]
        for number in (1, 2):
            assert await reader.end(other, NACK, request=number) == 0

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.3-05", "RR-3.1.4.3-07", "RR-3.1.4.11-01", "RR-3.1.4.11-03")
def test_a_close_ends_cursors_and_move_contexts() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        cursors = [(await reader.call(4, mqrr.Handle(handle))).cursor for _ in range(256)]
        assert (await reader.call(4, mqrr.Handle(handle))).status == 0xC00E0027
        assert await reader.close(handle) == 0
        handle = await reader.open()
        found = await reader.start(handle, PEEK_CURRENT, cursor=cursors[7])
        assert found.status == NT_INVALID_HANDLE
        key = 4 << 56 | (await reader.start(handle, PEEK_CURRENT)).sequence
        contexts = set()
        for _ in range(8):
            moving = await reader.open(ORDERS + ";later", 4, for_move=True)
            contexts.add(moving.move_context)
            assert await reader.close(moving.handle) == 0
            move = mqrr.MoveIn(handle, moving.move_context, key, bytes(16))
            assert (await reader.call(10, move)).status == 0xC00E0007
            with pytest.raises(Fault) as closed:
                await reader.close(moving.handle)
            assert closed.value.status == MISMATCH
        sessions = control_pb2_grpc.ClientControlStub(client.channel)
        opens = (await sessions.ListOpens(control_pb2.ListOpensRequest())).opens
        assert not [one for one in opens if one.format_name.endswith(";later")], "here, too"
        assert len(contexts) == 8
        assert max(contexts) > 1 << 56, "eight random bytes"
        # There is nothing to make a subqueue of, either.
        none = r"DIRECT=OS:QUORATE\private$\none"
        for name in (none, none + ";later", f"PUBLIC={GUID}"):
            assert await refusal(reader, name, access=4, for_move=True) == UNKNOWN, name

    in_world(scenario)


@pytest.mark.spec(
    "RR-3.1.4.4-01", "RR-3.1.4.4-02", "RR-3.1.4.4-04", "RR-3.1.4.5-01", "RR-3.1.4.5-02"
)
def test_cursors_belong_to_their_handle() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        one, other = await reader.open(), await reader.open()
        made = [await reader.call(4, mqrr.Handle(one)) for _ in range(5)]
        assert {found.status for found in made} == {0}
        numbers = [found.cursor for found in made]
        assert len({*numbers}) == 5
        assert 0 not in numbers
        for k in (1, 2, 3):
            assert (await reader.call(5, mqrr.CursorIn(one, numbers[k]))).status == 0
            numbers[k] = (await reader.call(4, mqrr.Handle(one))).cursor
            assert len({*numbers}) == 5, "one that was closed does not make room for a second"
        closed = await reader.open()
        assert await reader.close(closed) == 0
        for unknown in (NIL, closed, secrets.token_bytes(16)):
            with pytest.raises(Fault) as refused:
                await reader.call(4, mqrr.Handle(unknown))
            assert refused.value.status in (0x6F7, MISMATCH)
        assert (await reader.call(5, mqrr.CursorIn(other, numbers[0]))).status != 0
        assert (await reader.call(5, mqrr.CursorIn(one, max(numbers) + 1))).status != 0
        assert body(await reader.start(one, PEEK_CURRENT, cursor=numbers[0])) == b"one"
        assert body(await reader.start(one, PEEK_NEXT, cursor=numbers[0])) == b"two"
        assert (await reader.call(5, mqrr.CursorIn(one, numbers[0]))).status == 0
        gone = await reader.start(one, PEEK_CURRENT, cursor=numbers[0])
        assert gone.status == NT_INVALID_HANDLE
        assert body(await reader.start(one, PEEK_CURRENT, cursor=numbers[1])) == b"one"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.11-02", "RR-3.1.4.10-04", "RR-3.1.4.10-05")
def test_handles_for_moving_only_move_and_the_source_must_be_readable() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader, stranger = await world.reader(), await world.reader()
        for access in (0, 1, 2, 5, 6, 0xC, 0x14, 0x20, 0x24, 0x8000_0004, INFINITE):
            with pytest.raises(Fault) as refused:
                await reader.open(ORDERS + ";later", access, for_move=True)
            assert refused.value.status == INVALID
        moving = await reader.open(ORDERS + ";later", 4, for_move=True)
        for opnum, values in (
            (4, mqrr.Handle(moving.handle)),
            (5, mqrr.CursorIn(moving.handle, 1)),
            (6, mqrr.Handle(moving.handle)),
            (7, reader.start_values(moving.handle, PEEK_CURRENT)),
        ):
            with pytest.raises(Fault) as refused:
                await reader.call(opnum, values)
            assert refused.value.status == MISMATCH
        handle = await stranger.open()
        key = 4 << 56 | (await stranger.start(handle, PEEK_CURRENT)).sequence
        move = mqrr.MoveIn(handle, moving.move_context, key, bytes(16))
        assert (await stranger.call(10, move)).status == 0xC00E0007, "another client's"
        peeking = await reader.open(access=0x20)
        move = mqrr.MoveIn(peeking, moving.move_context, key, bytes(16))
        assert (await reader.call(10, move)).status == 0xC00E0007, "it may only peek"
        move = mqrr.MoveIn(moving.handle, moving.move_context, key, bytes(16))
        assert (await reader.call(10, move)).status == 0xC00E0007, "it may only be moved to"
        assert body(await reader.start(await reader.open(), RECEIVE)) == b"one"

    in_world(scenario)


# Purging -----------------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.6-02", "RR-3.1.4.6-03", "RR-3.1.4.6-04", "RR-3.1.4.6-05", "RR-4.1-01")
def test_a_purge_takes_all_and_what_is_lent_when_it_comes_back() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        await create(client, r".\private$\admin")
        telling = r"DIRECT=OS:QUORATE\private$\admin"
        bodies = (b"one", b"two", b"three")
        await client.send(ORDERS, *bodies, acknowledgements=0x0E, administration_queue=telling)
        # Those that ask only for good news, or for none, are purged without a word.
        for flags in (0, 0x02):
            asked: dict[str, Any] = {"acknowledgements": flags, "priority": 2}
            await client.send(ORDERS, b"quiet", administration_queue=telling, **asked)
        reader = await world.reader()
        peeking = await reader.open(access=0x20)
        assert (await reader.call(6, mqrr.Handle(peeking))).status == NT_DENIED
        handle = await reader.open()
        assert [body(await reader.start(handle, request=k)) for k in (1, 2)] == [b"one", b"two"]
        assert (await reader.call(6, mqrr.Handle(handle))).status == 0
        assert (await reader.start(handle)).status == TIMEOUT, "it was done before the answer"
        assert await reader.end(handle, ACK, request=1) == 0, "what is lent is received"
        assert await reader.end(handle, NACK, request=2) == 0, "or goes, instead of back"
        assert (await reader.start(handle)).status == TIMEOUT
        assert await reader.close(handle) == 0
        admin = await client.open(telling)

        async def classes() -> list[int]:
            found = (await client.receive(admin, 3)).messages.properties
            seen.extend(one.message_class for one in found)
            return seen

        seen: list[int] = []
        await eventually(classes, lambda found: len(found) >= 3)
        assert await classes() == seen
        assert seen == [0xC001] * 3, "whoever reads it: it was purged [MS-MQDMPR 3.1.7.1.12]"

    in_world(scenario)


class Held:
    """What a handle of the association stands for."""

    def run_down(self) -> None: ...


@pytest.mark.spec("RR-2.2.4.1-02")
def test_a_handle_is_unknown_to_every_other_interface() -> None:
    association = associations().join(0, "10.0.0.9")
    assert association is not None
    held = Held()
    for own, other in ((REMOTE_READ, ECHO), (ECHO, REMOTE_READ)):
        raw = association.open(own, held)
        for use in (association.find, association.close):
            with pytest.raises(Fault) as refused:
                use(other, raw)
            assert refused.value.status == MISMATCH
        assert association.find(own, raw) is held
