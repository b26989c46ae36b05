"""Messages of peers, from the socket to the queue and back as acknowledgements."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from qm.model.values import commands
from qm.names.guid import guid_text
from qm.session import SessionConfig
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from tests.unit.edge.world import (
    ADDRESS,
    OTHER,
    OWN,
    PEER,
    Consensus,
    lines_of,
    packet,
    run,
    until,
    world,
)
from tests.unit.session.builders import final_ack, order_ack

SEQUENCE = 7 << 32 | 1


def transactional(number: int, previous: int | None = None) -> bytes:
    previous = number - 1 if previous is None else previous
    return packet(number, to="tx", sequence=(SEQUENCE, number, previous))


def with_security(raw: bytes, security: SecurityHeader) -> bytes:
    message, _ = parse_user_message(raw, 0, len(raw))
    return write_user_message(
        UserMessage(message.user_header, message.properties, security=security)
    )


def test_messages_are_stored_in_order_and_acknowledged() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            for first in (1, 51):
                peer.send(*[packet(n, is_recoverable=n % 2 == 0) for n in range(first, first + 50)])
            await peer.acknowledged(*range(1, 101))
            assert w.consensus.ids(queue) == list(range(1, 101))
            assert w.metric("quorate_messages_arrived_total", verdict="accepted") == 100
            assert w.metric("quorate_sessions", role="acceptor") == 1
            assert w.metric("quorate_bytes_arrived_total") > 100 * 120
            assert w.metric("quorate_bytes_sent_total") > 604

    run(scenario())


def test_nothing_is_acknowledged_before_it_is_committed() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            w.consensus.is_working = False
            peer = await w.peer()
            peer.send(packet(1), packet(2))
            await until(lambda: w.consensus.batches == 1)
            peer.send(packet(3))
            await until(lambda: w.consensus.batches == 2)
            assert peer.acked == []
            w.consensus.work(1)
            peer.send(packet(4))
            await until(lambda: w.consensus.batches == 3)
            # The third is in flight, so the first two wait for it (DESIGN section 7).
            assert peer.acked == []
            w.consensus.work()
            await peer.acknowledged(1, 2, 3, 4)

    run(scenario())


@pytest.mark.spec("QB-1.3.5.1-01")
def test_a_session_is_acknowledged_on_its_own_connection() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            first, second = await w.peer(), await w.peer()
            first.send(*map(packet, (1, 2, 3)))
            second.send(packet(4))
            await first.acknowledged(1, 2, 3)
            await second.acknowledged(4)
            second.send(packet(5))
            await second.acknowledged(4, 5)
            assert first.acked == [1, 2, 3]
            assert (first.closed, second.closed) == (None, None)

    run(scenario())


def test_many_sessions_share_batches_and_keep_their_own_facts() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            w.consensus.has_no_room = True
            guids = [bytes([n]) * 16 for n in range(1, 21)]
            peers = [await w.peer(guid) for guid in guids]
            for guid, peer in zip(guids, peers, strict=True):
                peer.send(*[packet(n, source_queue_manager=guid) for n in (1, 2)])
            size = 40 * len(packet(1))
            await until(lambda: w.edge.held_bytes == size, lambda: w.edge.held_bytes)
            w.consensus.has_no_room = False
            peers[0].send(packet(3, source_queue_manager=guids[0]))
            await peers[0].acknowledged(1, 2, 3)
            for peer in peers[1:]:
                await peer.acknowledged(1, 2)
            assert len(w.consensus.ids(queue)) == 41
            assert w.consensus.batches == 1
            assert w.edge.held_bytes == 0

    run(scenario())


def test_arrivals_during_an_entry_are_one_batch_of_the_next() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            w.consensus.is_free = False
            peer = await w.peer()
            size = 0
            for n in range(1, 6):
                peer.send(packet(n))
                size += len(packet(n))
                await until(lambda size=size: w.edge.held_bytes == size)  # type: ignore[misc]
            assert w.consensus.batches == 0
            w.consensus.is_free = True
            w.consensus.streams[-1].events.on_free()
            await peer.acknowledged(1, 2, 3, 4, 5)
            assert w.consensus.ids(queue) == [1, 2, 3, 4, 5]
            assert w.consensus.batches == 1

    run(scenario())


@pytest.mark.spec("QB-3.1.5.8.1-03")
def test_every_verdict_is_acknowledged_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world() as w:
            orders = w.consensus.create("orders")
            tx = w.consensus.create("tx", transactional=True)
            peer = await w.peer()
            arrivals = [
                packet(1),
                packet(1),
                transactional(1),
                transactional(1),
                transactional(3, previous=2),
                transactional(2),
                packet(7, to="nowhere"),
                packet(8, to="tx"),
            ]
            peer.send(*arrivals, first_token=100)
            await peer.acknowledged(*range(100, 108))
            assert w.consensus.ids(orders) == [1]
            assert w.consensus.ids(tx) == [1, 2]
            counts = {
                "accepted": 3,
                "duplicate": 2,
                "out_of_order": 1,
                "nack_bad_dst_q": 1,
                "nack_not_transactional_msg": 1,
            }
            for verdict, count in counts.items():
                found = w.metric("quorate_messages_arrived_total", verdict=verdict)
                assert found == count, verdict
            for verdict in ("out_of_order", "nack_bad_dst_q", "nack_not_transactional_msg"):
                (line,) = lines_of(caplog, f"not_taken:{verdict}")
                assert (line["reason"], line["peer"]) == (verdict, ADDRESS)
                assert line["queue_manager"] == guid_text(PEER)
            assert not lines_of(caplog, "not_taken:duplicate")

    run(scenario())


@pytest.mark.spec("QB-3.1.5.8.3-01")
@pytest.mark.parametrize(
    ("security", "verdict"),
    [
        (SecurityHeader(signature=b"s" * 64), MessageClass.NACK_BAD_SIGNATURE),
        (
            SecurityHeader(encryption_key=b"k" * 64, is_body_encrypted=True),
            MessageClass.NACK_BAD_ENCRYPTION,
        ),
        (SecurityHeader(sender_id_type=1, security_id=b"\1\1" + bytes(6)), None),
    ],
    ids=["signed", "sealed", "a sender's name"],
)
def test_nothing_unverified_is_stored(
    security: SecurityHeader, verdict: MessageClass | None
) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(packet(1), with_security(packet(2), security), packet(3))
            await peer.acknowledged(1, 2, 3)
            assert w.consensus.ids(queue) == ([1, 2, 3] if verdict is None else [1, 3])
            if verdict is not None:
                name = verdict.name.lower()
                assert w.metric("quorate_messages_arrived_total", verdict=name) == 1
                assert w.consensus.insecure == [(name, 1, ADDRESS)]

    run(scenario())


def test_a_message_of_the_largest_size_passes() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            overhead = len(packet(1, body=b""))
            body = bytes(range(256)) * (0x40_0000 // 256)
            large = packet(1, body=body[: 0x40_0000 - overhead])
            assert len(large) == 0x40_0000
            peer.send(large, packet(2))
            await peer.acknowledged(1, 2)
            assert w.consensus.messages(queue)[0].properties.message_body == body[:-overhead]

    run(scenario())


def test_a_window_of_one_is_kept() -> None:
    async def scenario() -> None:
        async with world(session=SessionConfig(window_size=1)) as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(*[packet(n) for n in range(1, 31)])
            await peer.acknowledged(*range(1, 31))
            assert w.consensus.ids(queue) == list(range(1, 31))

    run(scenario())


# Acknowledgements of what we sent --------------------------------------------------------


def sent_transactionally(
    consensus: Consensus, *, is_journaled: bool = False, count: int = 1
) -> tuple[int, int, int]:
    """Send messages to another queue manager; return (queue_id, SeqID, first ordinal)."""
    one = consensus.one
    assert one(commands.OpenClient("c", "p", 60_000)).status == 0
    transaction = bytes(15) + b"T"
    assert not one(
        commands.TxBegin(commands.Request("c", 1, 0), transaction, True, "", 60_000)
    ).status
    raw = packet(0, sequence=(1, 1, 0), has_positive_journaling=is_journaled)
    target = "DIRECT=TCP:10.9.8.7\\far"
    queue_id = 0
    for number in range(2, count + 2):
        request = commands.Request("c", number, 0)
        sent = one(commands.Send.of(request, [(target, raw)], transaction=transaction))
        assert isinstance(sent.value, tuple), hex(sent.status)
        queue_id = sent.value[1][0][0]
    assert one(commands.TxCommit(commands.Request("c", count + 2, 0), transaction)).status == 0
    positions = consensus.positions(queue_id)
    sequence = 0
    for first in range(0, count, 1000):
        keys = array("Q", [key for key, _ in positions[first : first + 1000]])
        numbered = one(commands.AssignTransfer(queue_id, keys))
        assert isinstance(numbered.value, list)
        sequence = numbered.value[0][1]
        one(commands.TransferAcked(queue_id, keys))
    return queue_id, sequence, positions[0][1].message_ordinal


def test_an_order_ack_settles_what_was_sent_before_it_is_acknowledged() -> None:
    async def scenario() -> None:
        async with world() as w:
            orders = w.consensus.create("orders")
            queue, sequence, _ = sent_transactionally(w.consensus)
            w.consensus.is_working = False
            peer = await w.peer()
            ack = order_ack_of(sequence, 1)
            peer.send(packet(1), ack, packet(2), first_token=1)
            await until(lambda: w.consensus.batches == 3, lambda: w.consensus.batches)
            w.consensus.work(1)
            assert len(w.consensus.positions(queue)) == 1
            w.consensus.work()
            await peer.acknowledged(1, 2, 3)
            assert w.consensus.positions(queue) == []
            assert w.consensus.ids(orders) == [1, 2]

    run(scenario())


def test_an_order_ack_for_more_than_one_entry_can_settle_waits_for_the_rest() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            queue, sequence, _ = sent_transactionally(w.consensus, count=1030)
            w.consensus.is_working = False
            peer = await w.peer()
            peer.send(packet(1), order_ack_of(sequence, 1030), packet(2), first_token=1)
            await until(lambda: w.consensus.batches == 3, lambda: w.consensus.batches)
            w.consensus.work()
            await until(lambda: w.consensus.batches == 4, lambda: w.consensus.batches)
            assert len(w.consensus.positions(queue)) == 6
            w.consensus.work()
            await peer.acknowledged(1, 2, 3)
            assert w.consensus.positions(queue) == []
            # Nothing was acknowledged in between.
            assert [mark.acknowledged for mark in w.edge.drain_ack_marks()] == [3]

    run(scenario())


@pytest.mark.parametrize("source", [OWN, OTHER], ids=["ours", "another's"])
def test_a_final_ack_counts_for_our_message_only(source: bytes) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue, sequence, ordinal = sent_transactionally(w.consensus, is_journaled=True)
            peer = await w.peer()
            peer.send(order_ack_of(sequence, 1), final_ack_of(sequence, ordinal, source),
                      first_token=1)  # fmt: skip
            await peer.acknowledged(1, 2)
            left = w.consensus.positions(queue)
            assert len(left) == (0 if source == OWN else 1)
            journal = w.consensus.machine.manager
            assert journal is not None
            assert len(w.consensus.ids(journal.system_journal_queue)) == int(source == OWN)

    run(scenario())


def order_ack_of(sequence: int, number: int) -> bytes:
    ack = order_ack(number, OWN)
    return write_packet(
        msgspec.structs.replace(ack, tx_sequence_id=TxSequenceId.from_int(sequence))
    )


def final_ack_of(sequence: int, ordinal: int, source: bytes) -> bytes:
    ack = msgspec.structs.replace(
        final_ack(1),
        tx_sequence_id=TxSequenceId.from_int(sequence),
        queue_manager_address=OWN,
        acknowledged_source=source,
        acknowledged_message_id=ordinal,
    )
    return write_packet(ack)
