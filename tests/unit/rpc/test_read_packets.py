"""What remote readers get of a message [MS-MQRR 2.2.5, 2.2.6]: its packet and what is behind."""

import secrets
import struct
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from qm.client.message import Message
from qm.client.signing import AuthenticationLevel, new_signer
from qm.pb import control_pb2, data_pb2
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.sections import Trailing, reader_packet
from qm.wire.headers.base_header import FLAG_SH, FLAGS_OFFSET
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.patch import attach_session_header
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
)
from tests.cluster.harness import run
from tests.unit.api.test_data import create
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    INFINITE,
    NACK,
    ORDERS,
    PEEK_CURRENT,
    RECEIVE,
    RpcWorld,
    body,
    message,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world

FLAG_AH = 0x8000
DL, SQ, DI, EA = 0x01, 0x02, 0x08, 0x10
LOOKUP_CURRENT = 0x4000_0010
_SUBQUEUE = struct.Struct("<IIIII64s64s")


class Subqueue(msgspec.Struct):
    """A SubqueueHeader."""

    size: int
    kind: int
    aborts: int
    moves: int
    last_move: int
    name: bytes
    target: bytes


class Behind(msgspec.Struct):
    """The headers behind a message, cut apart."""

    flags: int
    following: int
    subqueue: Subqueue
    dead_letter: bytes
    """Without its size."""
    address: bytes


def packet_of(found: mqrr.StartOut) -> bytes:
    assert found.sections is not None, hex(found.status)
    return b"".join(one.data or b"" for one in found.sections)


def behind(found: mqrr.StartOut) -> Behind:
    """Cut what follows the message; every size must be that of its header."""
    packet = packet_of(found)
    at = len(packet) - 12
    while struct.unpack_from("<II", packet, at) != (12, len(packet) - at - 12):
        at -= 4
    following, flags = struct.unpack_from("<IB", packet, at + 4)
    assert packet[at + 9 : at + 12] == bytes(3)
    at += 12
    subqueue = Subqueue(*_SUBQUEUE.unpack_from(packet, at))
    at += 148
    dead_letter = b""
    if flags & DL:
        (size,) = struct.unpack_from("<I", packet, at)
        assert size % 4 == 0
        dead_letter = packet[at + 4 : at + size]
        at += size
    assert len(packet) - at == 28
    return Behind(flags, following, subqueue, dead_letter, packet[at:])


async def send_with(client: Client, dead_letter_queue: str, *, path: str = ORDERS) -> None:
    """Send a transactional message that names a dead-letter queue of its own."""
    transaction = secrets.token_bytes(16)
    begin = data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
    await client.data.BeginTransaction(begin)
    sent = data_pb2.OutgoingMessage(
        targets=[path],
        properties=data_pb2.Properties(body=b"careful", dead_letter=True),
        application_dead_letter_queue=dead_letter_queue,
    )
    request = data_pb2.SendRequest(request=client.next(), messages=[sent], transaction=transaction)
    (result,) = (await client.data.Send(request)).results
    assert result.status == 0
    end = data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
    await client.data.CommitTransaction(end)


@pytest.mark.spec(
    "RR-2.2.5.2-02", "RR-2.2.5.3-01", "RR-2.2.5.3-02", "RR-2.2.5.3-05", "RR-2.2.5.3-06"
)
def test_behind_a_message_stands_where_it_is() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader = await world.reader()
        handle = await reader.open()
        first = await reader.start(handle, PEEK_CURRENT)
        told = behind(first)
        assert (told.flags, told.following, told.dead_letter) == (SQ | EA, 176, b"")
        assert told.subqueue == Subqueue(148, 0, 0, 0, 0, bytes(64), bytes(64))
        target = await reader.open(ORDERS + ";later", 4, for_move=True)
        move = mqrr.MoveIn(handle, target.move_context, 4 << 56 | first.sequence, bytes(16))
        assert (await reader.call(10, move)).status == 0
        later = await reader.open(ORDERS + ";later")
        moved = behind(await reader.start(later, PEEK_CURRENT)).subqueue
        assert moved.name == "later".encode("utf-16-le").ljust(64, b"\0")
        assert (moved.moves, moved.target) == (1, bytes(64))
        never = behind(await reader.start(handle, PEEK_CURRENT)).subqueue
        assert (never.name, never.moves, never.last_move) == (bytes(64), 0, 0)
        # A journal is no subqueue, whatever its name looks like.
        await create(client, r".\private$\kept", journaling=True)
        kept = r"DIRECT=OS:QUORATE\private$\kept"
        await client.send(kept, b"three")
        await client.receive(await client.open(kept))
        journal = await reader.open(kept + ";JOURNAL")
        assert behind(await reader.start(journal, PEEK_CURRENT)).subqueue.name == bytes(64)

    in_world(scenario)


@pytest.mark.spec("RR-2.2.5.3-01", "RR-2.2.5.3-03", "RR-2.2.5.3-04", "RR-2.2.5.3-06")
def test_moves_and_aborts_are_counted_and_outlive_a_leader() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            stays, _ = await made.harness.followers()
            api = next(each for each in await made.followers() if each.name == stays.name)
            async with made.client(api) as client:
                await create(client, transactional=True)
                await send_with(client, "")
                opened = await client.open(ORDERS)
                for _ in range(3):
                    transaction = secrets.token_bytes(16)
                    begin = data_pb2.BeginTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    await client.data.BeginTransaction(begin)
                    taken = await client.receive(opened, transaction=transaction)
                    assert len(taken.messages.properties) == 1
                    end = data_pb2.EndTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    await client.data.AbortTransaction(end)
                reader = await made.reader(stays)
                whole = await reader.open()
                # Transactional messages have priority 0.
                key = 7 << 56 | (await reader.start(whole, PEEK_CURRENT)).sequence
                aside = await client.open(ORDERS + ";aside", data_pb2.MOVE_ACCESS)
                for _ in range(2):
                    transaction = secrets.token_bytes(16)
                    begin = data_pb2.BeginTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    await client.data.BeginTransaction(begin)
                    await client.data.Move(
                        data_pb2.MoveRequest(
                            request=client.next(),
                            source_queue_id=opened.queue_id,
                            lookup_identifier=key,
                            target_queue_id=aside.queue_id,
                            transaction=transaction,
                        )
                    )
                    end = data_pb2.EndTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    await client.data.AbortTransaction(end)
                # What a reader returns is no abort.
                returned = await reader.start(whole)
                assert await reader.end(whole, NACK) == 0
                assert returned.sequence == key & 0x00FF_FFFF_FFFF_FFFF
                for name in (";later", ";sooner"):
                    target = await reader.open(ORDERS + name, 4, for_move=True)
                    move = mqrr.MoveIn(whole, target.move_context, key, bytes(16))
                    assert (await reader.call(10, move)).status == 0
                    whole = await reader.open(ORDERS + name)

                async def counts(action: int) -> tuple[int, int]:
                    found = await reader.start(whole, action)
                    told = behind(found).subqueue
                    assert (told.size, told.kind, told.last_move) == (148, 0, 0)
                    assert (told.name, told.target) == (
                        "sooner".encode("utf-16-le").ljust(64, b"\0"),
                        bytes(64),
                    )
                    return told.aborts, told.moves

                assert await counts(PEEK_CURRENT) == (5, 2), "three receives and two moves"
                await made.harness.kill(leader.name)
                await made.harness.leader()
                assert await counts(PEEK_CURRENT) == (5, 2)
                assert await counts(RECEIVE) == (5, 2), "of one that is lent, too"

    run(scenario())


@pytest.mark.spec("RR-2.2.5.2-02", "RR-2.2.5.2-04", "RR-2.2.5.4-01", "RR-2.2.5.4-02")
def test_a_message_with_a_dead_letter_queue_of_its_own_names_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, transactional=True)
        await create(client, r".\private$\dead", transactional=True)
        await create(client, r".\private$\plain")
        await send_with(client, r"DIRECT=OS:QUORATE\private$\dead")
        await send_with(client, r"DIRECT=OS:QUORATE\private$\plain")
        await send_with(client, "")
        await create(client, r".\private$\gone", transactional=True)
        gone = r"DIRECT=OS:QUORATE\private$\gone"
        for name in (r"DIRECT=OS:QUORATE\private$\none", r"DIRECT=OS:away\private$\dead", gone):
            await send_with(client, name)
        deleted = control_pb2.QueueName(name=r".\private$\gone")
        await client.queues.DeleteQueue(control_pb2.DeleteQueueRequest(queue=deleted))
        reader = await world.reader()
        handle = await reader.open()
        for path, flags in (
            (r"QUORATE\private$\dead", DL | SQ | EA),
            (r"QUORATE\private$\plain", DL | DI | SQ | EA),
            ("", SQ | EA),
            (r"DIRECT=OS:QUORATE\private$\none", DL | DI | SQ | EA),
            (r"DIRECT=OS:away\private$\dead", DL | DI | SQ | EA),
            (gone, DL | DI | SQ | EA),
        ):
            found = await reader.start(handle, PEEK_CURRENT)
            lent = await reader.start(handle)
            assert packet_of(lent) == packet_of(found)
            told = behind(found)
            assert told.flags == flags
            text = path.encode("utf-16-le") + b"\0\0"
            wanted = text + bytes(-len(text) % 4) if path else b""
            assert told.dead_letter == wanted
            size = 4 + len(wanted) if wanted else 0
            assert told.following == 176 + size
            assert await reader.end(handle) == 0

    in_world(scenario)


@pytest.mark.spec("RR-2.2.5.2-05")
def test_the_headers_behind_can_be_left_out() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        packet = packet_of(await reader.start(await reader.open()))
        (size,) = struct.unpack_from("<I", packet, 8)
        assert size == len(packet)
        assert struct.pack("<II", 12, 176) not in packet
        assert packet.rstrip(b"\0").endswith(b"one"), "the body is the last"

    in_world(scenario, trailing_headers=False)


# The message itself ------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    "label": "everything",
    "correlation_id": bytes(range(20)),
    "response_queue": r"DIRECT=OS:QUORATE\private$\answers",
    "administration_queue": r"DIRECT=OS:QUORATE\private$\admin",
    "acknowledgements": 5,
    "application_tag": 77,
    "extension": b"extension",
    "priority": 6,
    "body_type": 8,
}


async def received(world: RpcWorld) -> mqrr.StartOut:
    reader = await world.reader()
    return await reader.start(await reader.open(), timeout_ms=INFINITE)


@pytest.mark.spec("RR-2.2.5.1-08", "RR-2.2.5.1-09", "RR-2.2.5.1-10", "RR-2.2.5.1-11")
@pytest.mark.spec("RR-2.2.5.1-04")
def test_a_message_reads_alike_wherever_it_was_sent() -> None:
    async def main() -> None:
        async with (
            rpc_world() as elsewhere,
            rpc_world() as made,
            made.client(await made.leader()) as client,
            elsewhere.client(await elsewhere.leader()) as sender,
        ):
            await create(client)
            name = rf"DIRECT=TCP:{made.harness['n1'].host}\private$\orders"
            packets = []
            for sending in (client, sender):
                await sending.send(name, b"body", **EVERYTHING)
                packets.append(await received(made))
            for found in packets:
                (flags,) = struct.unpack_from("<H", packet_of(found), FLAGS_OFFSET)
                assert not flags & (FLAG_SH | FLAG_AH)
                told, header = message(found).properties, message(found).user_header
                assert (told.label, told.message_body) == ("everything", b"body")
                assert told.correlation_id == bytes(range(20))
                assert (told.application_tag, told.body_type) == (77, 8)
                assert told.extension_data == b"extension"
                assert message(found).priority == 6
                assert told.message_class == 0
                for queue, name in (
                    (header.response_queue, "answers"),
                    (header.admin_queue, "admin"),
                ):
                    assert isinstance(queue, DirectQueueFormatName)
                    assert queue.direct_format_name.casefold() == rf"os:quorate\private$\{name}"
            # Where the other queue manager speaks from stands in both places.
            away = packet_of(packets[1])
            address = away[40:44]
            assert str(ip_address(address)) in ("127.0.0.1", elsewhere.harness["n1"].host)
            assert away[32:48] == struct.pack("<HHI", 4, 1, 0) + address + bytes(4)
            assert away[-28:] == struct.pack("<IHHI", 28, 4, 1, 0) + address + bytes(12)
            local, remote = (message(one) for one in packets)
            differing = {
                *("source_queue_manager", "queue_manager_address"),
                "message_id",
                "sent_time",
            }
            for field in local.user_header.__struct_fields__:
                if field not in differing:
                    # Names of outgoing queues are kept in a case of their own.
                    values = [repr(getattr(one.user_header, field)) for one in (local, remote)]
                    assert values[0].casefold() == values[1].casefold(), field
            assert local.properties == remote.properties
            assert local.security == remote.security

    run(main())


@pytest.mark.spec("RR-2.2.5.1-10")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_signature_is_read_as_it_was_sent(is_transactional: bool) -> None:
    signer = new_signer("alice", 1024, 30)
    transaction = secrets.token_bytes(16) if is_transactional else b""

    async def main() -> None:
        async with (
            rpc_world() as elsewhere,
            rpc_world() as made,
            made.client(await made.leader()) as client,
            elsewhere.client(await elsewhere.leader()) as sender,
        ):
            await create(client, transactional=is_transactional)
            # As a program may write it: names are kept with other letters.
            name = rf"DIRECT=TCP:{made.harness['n1'].host}\private$\ORDERS"
            text = Message(
                body=b"signed", authentication_level=AuthenticationLevel.SIG20, signer=signer
            )
            wanted = text.properties()
            wanted.sender_id_type = 0  # whom the certificate is registered for is not known there
            outgoing = data_pb2.OutgoingMessage(targets=[name], properties=wanted)
            if is_transactional:
                begin = data_pb2.BeginTransactionRequest(
                    request=sender.next(), transaction=transaction
                )
                await sender.data.BeginTransaction(begin)
            composing = data_pb2.ComposeRequest(messages=[outgoing], transaction=transaction)
            composed = await sender.data.Compose(composing)
            packet = signer.signed(composed.packets[0], text)
            sent, _ = parse_user_message(packet, 0, len(packet))
            outgoing = data_pb2.OutgoingMessage(targets=[name], packet=packet)
            request = data_pb2.SendRequest(
                request=sender.next(), messages=[outgoing], transaction=transaction
            )
            (result,) = (await sender.data.Send(request)).results
            assert result.status == 0
            if is_transactional:
                end = data_pb2.EndTransactionRequest(request=sender.next(), transaction=transaction)
                await sender.data.CommitTransaction(end)
            found = message(await received(made))
            assert found.security == sent.security
            assert found.security is not None
            assert found.security.sender_cert == signer.certificate
            assert found.security.signature
            assert found.properties == sent.properties

    run(main())


@pytest.mark.spec("RR-2.2.5.1-10")
def test_an_acknowledgment_is_read_with_its_class() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        await create(client, r".\private$\admin")
        admin = r"DIRECT=OS:QUORATE\private$\admin"
        (sent,) = await client.send(ORDERS, b"told", acknowledgements=1, administration_queue=admin)
        reader = await world.reader()
        found = message(await reader.start(await reader.open(admin), timeout_ms=INFINITE))
        assert found.properties.message_class == 2, "it has reached its queue"
        assert found.properties.correlation_id == sent.message_id

    in_world(scenario)


@pytest.mark.spec("RR-2.2.5.1-08", "RR-2.2.5.1-10")
@pytest.mark.parametrize("is_direct", [True, False])
def test_a_reader_s_packet_is_the_stored_one_but_for_times_and_addresses(is_direct: bool) -> None:
    own = bytes(range(16))
    destination = (
        DirectQueueFormatName(r"OS:quorate\private$\orders")
        if is_direct
        else PrivateQueueFormatNameId(QueueHost.DESTINATION, 7)
    )
    header = UserHeader(
        own,
        destination,
        queue_manager_address=bytes(16) if is_direct else bytes(range(16, 32)),
        sent_time=1_704_067_400,
        message_id=9,
        admin_queue=DirectQueueFormatName(r"OS:there\private$\admin"),
        response_queue=DirectQueueFormatName(r"OS:there\private$\answers"),
    )
    made = UserMessage(
        header,
        MessagePropertiesHeader(
            b"body", "label", message_class=0xC001, correlation_id=own + own[:4]
        ),
        security=SecurityHeader(1, security_id=own, signature=b"s" * 64, sender_cert=b"c" * 99),
        time_to_reach_queue=60,
        priority=5,
    )
    plain = write_packet(made)
    stored = bytearray(plain)
    attach_session_header(stored, SessionHeader(1, 0, 0, 1, 0))
    assert len(stored) == len(plain) + 16
    for packet in (plain, bytes(stored)):
        read = reader_packet(packet, address="192.0.2.7", trailing=None)
        assert len(read) == len(plain), "no SessionHeader"
        changed = {at for at in range(len(plain)) if read[at] != plain[at]}
        assert changed <= {*range(12, 16), *(range(32, 48) if is_direct else ())}
        found, _ = parse_user_message(read, 0, len(read))
        assert found.session is None
        assert (found.properties, found.security) == (made.properties, made.security)


@pytest.mark.spec("RR-2.2.5.1-05", "RR-2.2.5.5-01")
def test_an_address_of_a_zone_says_which() -> None:
    header = UserHeader(bytes(16), DirectQueueFormatName("OS:h\\q"), sent_time=1)
    stored = write_packet(UserMessage(header, MessagePropertiesHeader(b"body")))
    six = bytes.fromhex("fe800000000000000000000000000007")
    for zone, scope in (("%3", 3), ("", 0), ("%eth0", 0)):
        packet = reader_packet(stored, address="fe80::7" + zone, trailing=Trailing())
        assert packet[32:48] == struct.pack("<HHI", 16, 6, scope) + six[:8]
        assert packet[-28:] == struct.pack("<IHHI", 28, 16, 6, scope) + six


@pytest.mark.spec("RR-2.2.5.1.1-01", "RR-2.2.6-05", "RR-2.2.7-01", "RR-3.1.4.7-39", "RR-3.1.4.7-40")
def test_there_are_one_or_two_sections_with_a_message_and_none_without() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"0123456789")
        reader = await world.reader()
        handle = await reader.open()
        for body_max, kinds in ((0, [1, 2]), (9, [1, 2]), (10, [0]), (INFINITE, [0])):
            for compound in (0, 1, INFINITE):
                given = reader.start_values(handle, PEEK_CURRENT, body_max=body_max)
                given.compound_max = compound
                found = await reader.call(7, given)
                assert found.sections is not None
                assert [one.kind for one in found.sections] == kinds
                assert found.count == len(kinds)
        assert await reader.receive(handle) == b"0123456789"
        for action, more in (
            (RECEIVE, {}),
            (PEEK_CURRENT, {"timeout_ms": 1}),
            (LOOKUP_CURRENT, {"lookup": 4 << 56 | 1}),
            (77, {}),
            (PEEK_CURRENT, {"cursor": 99}),
        ):
            failed = await reader.start(handle, action, **more)
            assert failed.status != 0
            assert (failed.count, failed.sections) == (0, None)

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4.7-30", "RR-3.1.4.7-31", "RR-3.1.4.7-32")
def test_when_it_came_and_where_it_stands_are_told_with_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        results = []
        for priority in (0, 7, 3):
            results += await client.send(ORDERS, b"%d" % priority, priority=priority)
        reader = await world.reader()
        handle = await reader.open()
        for priority, sent in zip((7, 3, 0), (results[1], results[2], results[0]), strict=True):
            peeked = await reader.start(handle, PEEK_CURRENT)
            lent = await reader.start(handle)
            key = sent.places[0].lookup_identifier
            for found in (peeked, lent):
                assert body(found) == b"%d" % priority
                assert found.sequence == key & 0x00FF_FFFF_FFFF_FFFF
                assert found.arrived == peeked.arrived > 1_700_000_000
            assert await reader.end(handle, 1) == 0
            # As Windows makes it: the priority is in the message, the rest is beside it.
            derived = (7 - message(lent).priority) << 56 | lent.sequence
            assert derived == key
            assert body(await reader.start(handle, LOOKUP_CURRENT, lookup=derived)) == body(lent)
            assert await reader.receive(handle, action=0x4000_0020, lookup=derived) == body(lent)

    in_world(scenario)
