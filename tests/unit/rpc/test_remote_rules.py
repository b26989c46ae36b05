"""Rules of remote read and management on a real node, each where it could be broken alone."""

import asyncio
import secrets
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2, data_pb2
from qm.rpc.interface import Fault
from qm.rpc.queue_formats import QUEUE_FORMAT, NotAName, WireFormat, format_of, text_of
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.remote_read.sections import Trailing, reader_packet
from qm.rpc.variants import Variant
from qm.wire.enums import VarType
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.api.test_data import create
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RpcWorld,
    body,
    message,
    with_orders,
)
from tests.unit.rpc.test_management_values import send_in_transaction, values
from tests.unit.rpc.test_read_receives import opened_queues
from tests.unit.rpc.test_remote_management import MACHINE, act, in_world, info, queue
from tests.unit.rpc.test_remote_read import in_world as reading

GUID = "11223344-5566-7788-99AA-BBCCDDEEFF00"
RAW = bytes.fromhex("443322116655887799aabbccddeeff00")
AWAY = r"DIRECT=OS:elsewhere.example\private$\q"


async def accepts(host: str) -> bool:
    """Whether MSMQ takes connections."""
    try:
        _, writer = await asyncio.open_connection(host, MSMQ_PORT)
    except OSError:
        return False
    writer.close()
    return True


# Interfaces and names ----------------------------------------------------------------------


@pytest.mark.spec("RR-1.9-01", "MR-1.9-01")
def test_uuids_and_versions_of_the_interfaces() -> None:
    read, management = REMOTE_READ.syntax, QMMGMT.syntax
    assert read.raw == bytes.fromhex("dd34911a397bba45ad8844d01ca47f28") + b"\1\0\0\0"
    assert management.raw == bytes.fromhex("e08e204170e9d1119b9e00e02c064c39") + b"\1\0\0\0"


@pytest.mark.spec("RR-2.2.3-01", "RR-2.2.3-06", "RR-2.2.3-07")
@pytest.mark.parametrize(
    ("text", "kind", "suffix", "value"),
    [
        (f"PUBLIC={GUID}", 1, 0, RAW),
        (f"PRIVATE={GUID}\\0000000a", 2, 0, (RAW, 10)),
        (r"DIRECT=OS:host\private$\q", 3, 0, r"OS:host\private$\q"),
        (r"DIRECT=OS:host\private$\q;sub", 8, 5, r"OS:host\private$\q;sub"),
        (f"PUBLIC={GUID};JOURNAL", 1, 0x81, RAW),
        (f"PRIVATE={GUID}\\0000000a;JOURNAL", 2, 0x81, (RAW, 10)),
        (r"DIRECT=OS:host\private$\q;JOURNAL", 3, 0x81, r"OS:host\private$\q"),
        (f"MACHINE={GUID};JOURNAL", 4, 0x81, RAW),
        (f"MACHINE={GUID};DEADLETTER", 4, 0x82, RAW),
        (f"MACHINE={GUID};DEADXACT", 4, 0x83, RAW),
    ],
)
def test_names_are_what_their_type_and_suffix_say(
    text: str, kind: int, suffix: int, value: object
) -> None:
    parsed: Any = parse_format_name(text)
    wire = format_of(parsed)
    assert (wire.kind, wire.suffix_and_flags, wire.reserved) == (kind, suffix, 0)
    found: Any = wire.identifier.value
    if isinstance(value, tuple):
        assert (found.lineage, found.uniquifier) == value
    elif isinstance(value, str):
        assert found.casefold() == value.casefold()
    else:
        assert found == value
    assert text_of(wire).casefold() == text.casefold()
    # The suffix without its flag, or the flag without a suffix that it belongs to.
    with pytest.raises(NotAName):
        text_of(WireFormat(kind, suffix ^ 0x80, 0, wire.identifier))
    assert QUEUE_FORMAT.alignment == 4


@pytest.mark.spec("RR-2.2.5.1-02", "RR-2.2.5.2-03")
def test_an_infinite_time_stays_infinite() -> None:
    header = UserHeader(bytes(16), DirectQueueFormatName("OS:h\\q"), sent_time=1_704_067_400)
    made = UserMessage(header, MessagePropertiesHeader(b"body"), time_to_reach_queue=0xFFFF_FFFF)
    packet = reader_packet(write_packet(made), address="", trailing=Trailing())
    assert packet[12:16] == b"\xff" * 4
    # ExtensionHeader: its own 12 bytes, and how many follow it.
    at = len(packet) - 188
    assert packet[at : at + 8] == b"\x0c\0\0\0\xb0\0\0\0"


# Opens and moves ---------------------------------------------------------------------------


@pytest.mark.spec("RR-3.1.4.2-07")
def test_each_access_needs_its_right() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        bob = await world.reader(user="bob")

        async def opens(rights: list[str]) -> list[int]:
            acl = [control_pb2.Ace(principal="bob", rights=rights)]
            name = control_pb2.QueueName(name=r".\private$\orders")
            await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))
            statuses = []
            for access in (1, 0x20):
                try:
                    await bob.close(await bob.open(access=access))
                except Fault as refused:
                    statuses.append(refused.status)
                else:
                    statuses.append(0)
            return statuses

        assert await opens(["receive_message"]) == [0, 0], "it contains the right to peek"
        assert await opens(["peek_message"]) == [0xC00E0025, 0]
        assert await opens(["write_message"]) == [0xC00E0025] * 2

    reading(scenario)


@pytest.mark.spec("RR-3.1.4.10-01", "RR-3.1.4.10-02", "RR-3.1.4.10-03")
def test_messages_move_within_a_queue_and_nowhere_else() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await create(client, r".\private$\other")
        reader = await world.reader()

        async def target(name: str) -> int:
            return int((await reader.open(name, 4, for_move=True)).move_context)

        async def moves(source: bytes, context: int, key: int) -> int:
            given = mqrr.MoveIn(source, context, key, bytes(16))
            return int((await reader.call(10, given)).status)

        later, sooner = await target(f"{ORDERS};later"), await target(f"{ORDERS};sooner")
        foreign = await target(r"DIRECT=OS:QUORATE\private$\other;later")
        handles = [await reader.open(name) for name in (ORDERS, f"{ORDERS};later")]
        handles.append(await reader.open(f"{ORDERS};sooner"))
        whole, from_later, from_sooner = handles
        key = 4 << 56 | (await reader.start(whole, PEEK_CURRENT)).sequence
        assert await moves(whole, foreign, key) == 0xC000000D
        assert await moves(whole, later, key) == 0
        assert await moves(from_later, foreign, key) == 0xC000000D
        assert await moves(from_later, sooner, key) == 0, "between two subqueues"
        back = await reader.open(ORDERS, 4, for_move=True)
        assert await moves(from_sooner, back.move_context, key) == 0, "and back"
        assert body(await reader.start(whole, PEEK_CURRENT)) == b"one"
        # A move context ends with its handle, and one that never was is none.
        assert await reader.close(back.handle) == 0
        for context in (back.move_context, 0, 12345):
            assert await moves(whole, context, key) == 0xC00E0007
        assert body(await reader.start(whole, PEEK_CURRENT)) == b"one"

    reading(scenario)


@pytest.mark.spec("RR-3.1.4.7-14", "DM-3.1.7.1.11-02")
def test_nothing_is_read_at_a_cursor_whose_message_is_gone() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursor)) == b"one"
        # As long as somebody else has it, it is gone, too.
        other = await world.reader()
        theirs = await other.open()
        assert body(await other.start(theirs)) == b"one"
        for action in (PEEK_CURRENT, RECEIVE):
            found = await reader.start(handle, action, cursor=cursor)
            assert (found.status, found.sections) == (0xC00E001D, None)
        assert await other.end(theirs, NACK) == 0
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursor)) == b"one"
        assert await reader.receive(handle) == b"one"
        for action in (PEEK_CURRENT, RECEIVE):
            found = await reader.start(handle, action, cursor=cursor)
            assert (found.status, found.sections) == (0xC00E001D, None)
        assert await reader.receive(handle) == b"two", "it was not taken instead"

    reading(scenario)


@pytest.mark.spec("RR-OUR-1-08")
def test_what_a_lost_reader_gives_back_is_where_it_was() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"low", priority=1)
        await client.send(ORDERS, b"first", b"second", priority=6)
        looker = await world.reader()
        view = await looker.open(access=0x20)

        async def seen() -> list[tuple[int, int, bytes]]:
            cursor = (await looker.call(4, mqrr.Handle(view))).cursor
            found = [await looker.start(view, PEEK_CURRENT, cursor=cursor)]
            while found[-1].status == 0:
                found.append(await looker.start(view, PEEK_NEXT, cursor=cursor))
            return [(one.sequence, message(one).priority, body(one)) for one in found[:-1]]

        before = await seen()
        assert [one[1:] for one in before] == [(6, b"first"), (6, b"second"), (1, b"low")]
        for cause in ("it has gone", "its time is over"):
            reader = await world.reader()
            handle = await reader.open()
            assert body(await reader.start(handle, request=1)) == b"first"
            assert await seen() == before[1:]
            if cause == "it has gone":
                reader.client.close()
            else:
                (opened,) = (one for one in opened_queues(world) if one.lent)
                opened._clean_up(1)
            async with asyncio.timeout(20):
                while (after := await seen()) == before[1:]:
                    await asyncio.sleep(0.01)
            assert after == before, cause
        exact = 1 << 56 | before[0][0]  # 7 - 6
        found = await looker.start(view, 0x40000010, lookup=exact)
        assert body(found) == b"first", "by its identifier as before"

    reading(scenario)


@pytest.mark.spec("RR-3.1.6.1-01")
def test_a_connection_that_ends_takes_nothing_from_those_that_share_its_handles() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open(share=1)
        cursor = (await reader.call(4, mqrr.Handle(handle))).cursor
        sibling = await world.reader(group_id=reader.client.group_id)
        reader.client.close()
        # The node has seen it end: it answers a caller that came later.
        late = await world.reader()
        with pytest.raises(Fault) as shared:
            await late.open()
        assert shared.value.status == 0xC00E0009, "the queue is open as before"
        found = await sibling.start(handle, PEEK_CURRENT, cursor=cursor)
        assert body(found) == b"one"
        sibling.client.close()
        for _ in range(500):
            try:
                await late.open(share=1)
            except Fault:
                await asyncio.sleep(0.01)
            else:
                break
        else:
            raise AssertionError("its queues and cursors are still open")

    reading(scenario)


@pytest.mark.spec("RR-3.1.4.7-41")
def test_a_message_of_four_mebibytes_comes_whole() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        large = bytes(range(256)) * (4 * 4096 - 8)
        assert (4 << 20) - len(large) == 2048, "with its headers it is as large as any may be"
        await with_orders(client, large)
        reader = await world.reader()
        found = await reader.start(await reader.open())
        assert found.sections is not None
        assert [(one.kind, one.size == one.size_alloc) for one in found.sections] == [(0, True)]
        assert body(found) == large

    reading(scenario)


# Management --------------------------------------------------------------------------------


@pytest.mark.spec("MR-2.2.3.1-02", "MR-2.2.3.2-10")
def test_active_queues_are_those_open_or_filled_and_counts_have_what_is_lent() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        await create(client, r".\private$\opened")
        await create(client, r".\private$\idle")
        caller = await world.caller(QMMGMT)
        assert (await info(caller, MACHINE, 1))[1] == [[]]
        await client.send(ORDERS, b"one", b"two", b"three")
        await client.send(AWAY, b"out")
        await client.open(r".\private$\opened")
        _, (active,) = await info(caller, MACHINE, 1)
        assert len(active) == 3
        paths = [(await info(caller, queue(name), 1))[1][0] for name in active]
        assert {r"QUORATE\private$\orders", r"QUORATE\private$\opened"} <= {*paths}
        assert AWAY.casefold() in [name.casefold() for name in active]
        reader = await world.reader()
        handle = await reader.open()
        assert (await reader.start(handle)).status == 0, "lent"
        assert await values(caller, queue(ORDERS), 7) == [Variant(VarType.UI4, 3)]
        assert await reader.end(handle) == 0
        assert await values(caller, queue(ORDERS), 7) == [Variant(VarType.UI4, 2)]
        exact = r"DIRECT=OS:QUORATE\private$\exact"
        await create(client, r".\private$\exact", transactional=True)
        await send_in_transaction(client, exact, b"one", b"two")
        transaction = secrets.token_bytes(16)
        begin = data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
        await client.data.BeginTransaction(begin)
        taken = await client.receive(await client.open(exact), transaction=transaction)
        assert len(taken.messages.properties) == 1, "locked by a transaction"
        assert await values(caller, queue(exact), 7) == [Variant(VarType.UI4, 2)]
        assert await values(caller, queue(AWAY), 7) == [Variant(VarType.UI4, 1)]

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-03", "MR-3.1.4.2-07", "MR-3.1.4.2-10", "MR-3.1.4.2-12")
def test_what_actions_leave_alone() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"before")
        caller = await world.caller(QMMGMT)

        async def seen() -> list[Any]:
            local = await info(caller, queue(ORDERS), 1, 3, 4, 5, 6, 7, 11)
            return [local, await info(caller, MACHINE, 2, 3, 4)]

        before = await seen()
        for what, action in (
            (MACHINE, "ERASE"),
            (queue(ORDERS), "ERASE"),
            (queue(ORDERS), "PAUSE"),
            (queue(ORDERS), "RESUME"),
        ):
            assert await act(caller, what, action) == 0xC00E0006
            assert await seen() == before
        assert await act(caller, queue(AWAY), "PAUSE") == 0
        await client.send(AWAY, b"meanwhile")
        assert (await info(caller, queue(AWAY), 11, 7))[1] == ["ONHOLD", 2]
        assert await act(caller, queue(AWAY), "RESUME") == 0
        # Offline it speaks to no other queue manager; its own queues are served.
        assert await act(caller, MACHINE, "DISCONNECT") == 0
        node = await world.harness.leader()
        async with asyncio.timeout(20):
            while await accepts(node.host):
                await asyncio.sleep(0.01)
        assert (await info(caller, MACHINE, 4))[1] == ["DISCONNECTED"]
        await client.send(ORDERS, b"two")
        reader = await world.reader()
        handle = await reader.open()
        assert [await reader.receive(handle) for _ in range(2)] == [b"one", b"two"]

    in_world(scenario)
