"""The crash points of the sending side: the leader dies, another derives everything from rows.

What was committed is kept, what was not is learnt again from the peer, and nothing is sent under a
second number.
"""

from __future__ import annotations

import pytest

from qm.cluster.relay import SessionFacts
from qm.model.values.commands import AssignTransfer, Facts, FinalAcked, OrderAcked
from qm.model.values.elements import QueueAccessType
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import FinalAck, OrderAck, acknowledgment_in
from qm.wire.packets.user_message import parse_user_message
from tests.unit.edge.outgoing.world import (
    PEER_GUID,
    Peer,
    SendingCluster,
    one_peer,
    run,
    settled,
    until,
)
from tests.unit.model.world import packet

HOST = "127.0.0.48"
SEQUENCE = 9 << 32 | 5
SESSION = SessionFacts(7, PEER_GUID, HOST, 1_000)
SEEN = Facts(1, PEER_GUID, HOST, ())


def transaction_headers(peer: Peer) -> list[TransactionHeader]:
    """What the packets that arrived say of their place, in order."""
    messages = [parse_user_message(raw, 0, len(raw))[0] for raw in peer.raw]
    return [message.transaction for message in messages if message.transaction is not None]


def places(peer: Peer) -> list[tuple[int, int]]:
    """(sequence, number) of the packets that arrived."""
    return [(one.tx_sequence_id.to_int(), one.tx_sequence_number)
            for one in transaction_headers(peer)]  # fmt: skip


@pytest.mark.spec("QB-3.1.1.5-01")
def test_numbered_and_committed_before_the_first_byte() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.is_committing.clear()
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: any(isinstance(c, AssignTransfer) for c in cluster.world.proposed))
            # The old leader dies before it hears that its numbers are committed.
            cluster.lead(None)
            cluster.world.is_committing.set()
            await settled()
            assert not peer.raw
            cluster.lead("n2")
            await until(lambda: not cluster.waiting(queue))
            assert [number for _, number in places(peer)] == [1, 2, 3]
            assert len({sequence for sequence, _ in places(peer)}) == 1

    run(scenario())


def test_numbers_proposed_and_lost() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.is_available = False
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: any(isinstance(c, AssignTransfer) for c in cluster.world.proposed))
            await settled()
            assert not peer.raw
            cluster.lead("n2")
            cluster.world.is_available = True
            await until(lambda: not cluster.waiting(queue))
            assert [number for _, number in places(peer)] == [1, 2, 3]

    run(scenario())


def test_sent_before_the_peer_s_order_ack() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: len(peer.raw) == 3)
            cluster.lead("n2")
            await until(lambda: len(peer.raw) == 6)
            assert places(peer)[:3] == places(peer)[3:]
            previous = [one.previous_tx_sequence_number for one in transaction_headers(peer)[3:]]
            assert previous == [0, 1, 2]
            assert peer.bodies == [0, 1, 2]
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("QB-3.1.6.5-01", "QB-3.1.7.1.3-02", "MQ-2.2.20.5-13")
def test_what_is_sent_again_bridges_what_has_ended() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 4, is_transactional=True)
            await until(lambda: len(peer.raw) == 4)
            peer.send_order_ack(2)
            await until(lambda: cluster.waiting(queue) == 2)
            cluster.advance(31)
            await until(lambda: len(peer.raw) == 6)
            again = transaction_headers(peer)[4:]
            assert places(peer)[4:] == places(peer)[2:4]
            assert [one.previous_tx_sequence_number for one in again] == [0, 3]
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("MQ-2.2.20.5-06", "MQ-2.2.20.5-07", "MQ-2.2.20.5-08")
def test_what_leaves_says_which_transaction_it_is_of() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            transaction = cluster.client.begin("three")
            for _ in range(3):
                raw = packet(0, sequence=(1, 1, 0))
                sent = cluster.client.send(peer.address, raw=raw, transaction=transaction)
                assert sent.status == 0
            assert cluster.client.commit(transaction) == 0
            cluster.send(peer.address, is_transactional=True)
            await until(lambda: len(peer.raw) == 4)
            headers = transaction_headers(peer)
            ends = [(one.is_first, one.is_last) for one in headers]
            assert ends == [(True, False), (False, False), (False, True), (True, True)]
            first, *others = [one.transaction_id for one in headers]
            assert first != 0
            assert others == [first, first, others[-1]]
            assert others[-1] not in (0, first)

    run(scenario())


def test_sent_and_only_partly_session_acknowledged() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_acknowledging = False
            queue = cluster.send(peer.address, 5, is_recoverable=True)
            await until(lambda: len(peer.raw) == 5)
            peer.connections[0].session.commit(2)
            peer.connections[0].handle_all_timers()
            await until(lambda: cluster.waiting(queue) == 3)
            cluster.lead("n2")
            await until(lambda: len(peer.raw) == 8)
            peer.acknowledge()
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == [0, 1, 2, 3, 4]

    run(scenario())


def test_session_acknowledgement_received_before_its_commit() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.is_available = False
            queue = cluster.send(peer.address, 5, is_recoverable=True, has_positive_journaling=True)
            await until(lambda: len(peer.raw) == 5)
            await settled()
            cluster.lead("n2")
            cluster.world.is_available = True
            await until(lambda: not cluster.waiting(queue))
            assert peer.raw[:5] == peer.raw[5:]
            assert peer.bodies == [0, 1, 2, 3, 4]
            assert len(cluster.journal()) == 5

    run(scenario())


def test_order_ack_received_before_its_commit() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 2, is_transactional=True)
            await until(lambda: len(peer.taken) == 2)
            cluster.world.is_available = False
            peer.send_order_ack()
            await until(lambda: any(isinstance(c, OrderAcked) for c in cluster.world.proposed))
            await settled()
            # Not committed, so not acknowledged: the peer keeps what it has to say.
            assert peer.connections[0].session.in_flight == 1
            cluster.lead("n2")
            cluster.world.is_available = True
            await until(lambda: len(peer.raw) == 4)
            assert cluster.waiting(queue) == 2
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            await until(lambda: peer.connections[0].session.in_flight == 0)
            assert peer.bodies == [0, 1]

    run(scenario())


def test_final_ack_received_before_its_commit() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, is_transactional=True, has_positive_journaling=True)
            await until(lambda: len(peer.taken) == 1)
            await until(lambda: cluster.manager.report(queue).loaded_count == 0)  # type: ignore[union-attr]
            cluster.world.is_available = False
            peer.send_final_ack(peer.taken[0], MessageClass.ACK_RECEIVE)
            await until(lambda: any(isinstance(c, FinalAcked) for c in cluster.world.proposed))
            await settled()
            assert peer.connections[0].session.in_flight == 1
            cluster.lead("n2")
            cluster.world.is_available = True
            # The peer sends it again on its next session, and it counts once.
            cluster.send(f"DIRECT=TCP:{HOST}\\other", 1)
            await until(lambda: peer.established == 2)
            for _ in range(2):
                peer.send_final_ack(peer.taken[0], MessageClass.ACK_RECEIVE)
            await until(lambda: not cluster.waiting(queue))
            await until(lambda: peer.connections[0].session.in_flight == 0)
            assert cluster.journal() == [b"0"]

    run(scenario())


def test_a_new_message_has_a_new_sequence_only_after_the_old_one_has_ended() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: len(peer.taken) == 1)
            # The last order ack and a new message race: the message comes first.
            cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: len(peer.taken) == 2)
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            # And now the order ack does.
            cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: len(peer.taken) == 3)
            cluster.lead("n2")
            await until(lambda: len(peer.raw) == 4)
            (old, first), (same, second), (new, third), repeated = places(peer)
            assert (old, first, second) == (same, 1, 2)
            assert new > old
            assert third == 1
            assert repeated == (new, third)
            assert peer.bodies == [0, 1, 2]

    run(scenario())


def test_dequeue_committed_before_the_final_ack_is_sent() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            raw = packet(
                1, to="orders", sequence=(SEQUENCE, 1, 0), final_ack=True,
                source_queue_manager=PEER_GUID,
            )  # fmt: skip
            cluster.world.arrive(raw, facts=SEEN)
            cluster.lead(None)
            opened = cluster.client.open("DIRECT=OS:vhost\\orders", QueueAccessType.RECEIVE_ACCESS)
            assert cluster.client.receive(opened)[0].status == 0
            sent = []
            # Each leader sends it until one hears that it arrived.
            for name in ("n1", "n2", "n1"):
                cluster.nodes[name].hub.open = [("n3", SESSION)]
                cluster.lead(name)
                await until(lambda: cluster.hub.late)
                sent.append(cluster.hub.late[0][1].packets[0])
            assert len(set(sent)) == 1
            ack = acknowledgment_in(parse_user_message(sent[0], 0, len(sent[0]))[0])
            assert isinstance(ack, FinalAck)
            assert ack.message_class == MessageClass.ACK_RECEIVE
            cluster.hub.answer(is_delivered=True)
            await settled()
            cluster.lead("n2")
            await settled()
            assert not cluster.hub.late

    run(scenario())


def test_session_ack_sent_and_the_order_ack_lost() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            orders = cluster.world.create("orders", transactional=True)
            raw = packet(1, to="orders", sequence=(SEQUENCE, 1, 0), source_queue_manager=PEER_GUID)
            cluster.world.arrive(raw, facts=SEEN)
            cluster.lead(None)
            cluster.lead("n2")
            # The peer sends again after its interval; it is rejected and acknowledged again.
            cluster.hub.session("n3", SESSION)
            cluster.world.arrive(raw, facts=SEEN)
            cluster.advance(0.51)
            await until(lambda: cluster.hub.late)
            (message,) = cluster.hub.late_messages()
            ack = acknowledgment_in(message)
            assert isinstance(ack, OrderAck)
            assert ack.tx_sequence_number == 1
            assert cluster.waiting(orders) == 1

    run(scenario())


def test_an_old_leader_that_does_not_know_it_yet_sends_nothing_new_under_old_numbers() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 2, is_transactional=True)
            await until(lambda: len(peer.taken) == 2)
            # Both think that they lead; only committed numbers ever leave.
            new = cluster.nodes["n2"]
            new.lead(type(new.leadership)("n2", 9, True))
            cluster.send(peer.address, 2, is_transactional=True)
            await until(lambda: len(peer.taken) == 4)
            peer.send_order_ack()
            cluster.nodes["n1"].lead(type(new.leadership)("n2", 9, False))
            await until(lambda: peer.established == 2 and len(peer.connections) == 1)
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == [0, 1, 2, 3]
            assert {number for _, number in places(peer)} == {1, 2, 3, 4}

    run(scenario())
