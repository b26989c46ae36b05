"""Final acks and order acks reach the queue manager that they are owed to, and no other."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from qm.cluster.relay import SessionFacts
from qm.edge.outgoing import limits
from qm.edge.outgoing.acks import outbox as outbox_module
from qm.edge.outgoing.acks.peer_acks import PeerAcks, PeerName
from qm.model.state.tables import Table
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.rows import OUTBOX_KEY
from qm.wire.guid import GUID_NULL
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck, acknowledgment_in, order_queue_at
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import PrivateQueueFormatNameId, QueueHost
from tests.unit.edge.outgoing.world import (
    PEER_GUID,
    Peer,
    Replicated,
    SendingCluster,
    free_port,
    one_peer,
    run,
    settled,
    until,
)
from tests.unit.model.world import OWN, packet

HOST, OTHER_HOST = "127.0.0.46", "127.0.0.47"
SEQUENCE = 9 << 32 | 5
SESSION = SessionFacts(7, PEER_GUID, HOST, 1_000)


def arrive(
    cluster: SendingCluster, number: int, *, to: Any = "absent", seen: Facts | None = None,
    **fields: Any,
) -> int:  # fmt: skip
    """Let the peer's next transactional message arrive; one to `absent` is refused for good."""
    fields = {"source_queue_manager": PEER_GUID} | fields
    raw = packet(number, to=to, sequence=(SEQUENCE, number, number - 1), **fields)
    (verdict,) = cluster.world.arrive(raw, facts=seen or Facts(1, PEER_GUID, HOST, ()))
    return verdict


def owed(cluster: SendingCluster) -> list[int]:
    """Return the ids of the outbox rows."""
    found = cluster.world.state.scan(Table.OUTBOX, b"", b"\xff" * 9, 10_000)
    return [OUTBOX_KEY.unpack(key)[0] for key, _ in found]


def final_acks(messages: list[UserMessage]) -> list[FinalAck]:
    found = [acknowledgment_in(message) for message in messages]
    return [one for one in found if isinstance(one, FinalAck)]


def order_acks(messages: list[UserMessage]) -> list[OrderAck]:
    found = [acknowledgment_in(message) for message in messages]
    return [one for one in found if isinstance(one, OrderAck)]


@pytest.mark.spec("QB-1.3.5.1-01", "QB-2.2.5-02", "QB-3.1.7.17-03")
def test_a_final_ack_leaves_over_the_session_of_any_edge_until_it_is_acknowledged() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n3", SESSION)
            assert arrive(cluster, 1) == MessageClass.NACK_BAD_DST_Q
            await until(lambda: cluster.hub.late)
            edge, late = cluster.hub.late[0]
            assert (edge, late.session) == ("n3", SESSION.number)
            (ack,) = final_acks(cluster.hub.late_messages())
            assert ack.message_class == MessageClass.NACK_BAD_DST_Q
            assert (ack.acknowledged_source, ack.acknowledged_message_id) == (PEER_GUID, 1)
            assert (ack.tx_sequence_id, ack.tx_sequence_number) == (
                TxSequenceId.from_int(SEQUENCE), 1,
            )  # fmt: skip
            assert (ack.source_queue_manager, ack.queue_manager_address) == (OWN, GUID_NULL)
            assert ack.destination_queue == order_queue_at(HOST)
            assert len(owed(cluster)) == 1
            assert cluster.metric("quorate_outbox_rows") == 1
            cluster.hub.answer(is_delivered=True)
            await until(lambda: not owed(cluster))
            # It names the number before the message's, too, and is recoverable.
            assert arrive(cluster, 2) == MessageClass.NACK_BAD_DST_Q
            await until(lambda: cluster.hub.late)
            (ack,) = final_acks(cluster.hub.late_messages())
            assert (ack.tx_sequence_number, ack.tx_previous_sequence_number) == (2, 1)
            assert ack.is_recoverable

    run(scenario())


@pytest.mark.spec("QB-2.2.5-04")
def test_a_final_ack_of_what_was_received_is_of_its_class() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n3", SESSION)
            cluster.world.create("orders", transactional=True)
            assert arrive(cluster, 1, to="orders", final_ack=True) == 0
            cluster.client.receive(cluster.client.open("DIRECT=OS:vhost\\orders", 0))
            await until(lambda: final_acks(cluster.hub.late_messages()))
            (message,) = cluster.hub.late_messages()
            (ack,) = final_acks([message])
            assert message.properties.message_class == ack.message_class == 0x4000
            assert ack.acknowledged_message_id == 1

    run(scenario())


@pytest.mark.spec("QB-2.2.5.1-02")
def test_a_final_ack_says_of_which_message_it_is() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n3", SESSION)
            arrive(cluster, 1)
            place = (SEQUENCE, 5, 1)
            raw = packet(77, to="absent", sequence=place, source_queue_manager=PEER_GUID)
            cluster.world.arrive(raw, facts=Facts(1, PEER_GUID, HOST, ()))
            await until(lambda: len(final_acks(cluster.hub.late_messages())) == 2)
            _, second = final_acks(cluster.hub.late_messages())
            assert second.tx_sequence_id == TxSequenceId.from_int(SEQUENCE)
            assert (second.tx_sequence_number, second.tx_previous_sequence_number) == (5, 1)
            assert second.acknowledged_source == PEER_GUID
            assert second.acknowledged_message_id == 77
            assert second.source_queue_manager == OWN
            assert second.message_id not in (0, 77)
            assert second.sent_time == cluster.world.now_ms // 1000

    run(scenario())


@pytest.mark.spec("QB-3.1.7.17-04", "QB-3.1.7.17-01", "QB-3.1.1.3.1-14")
@pytest.mark.spec("MQ-2.2.19.2-03", "MQ-2.2.19.2-04")
def test_the_way_back_follows_from_the_name_that_was_used() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n3", SESSION)
            arrive(cluster, 1)
            by_number = PrivateQueueFormatNameId(QueueHost.DESTINATION, 4711)
            arrive(cluster, 1, to=by_number, queue_manager_address=OWN)
            await until(lambda: len(cluster.hub.late) == 2)
            direct, private = final_acks(cluster.hub.late_messages())
            assert direct.destination_queue == order_queue_at(HOST)
            assert direct.queue_manager_address == GUID_NULL
            assert private.destination_queue == ORDER_QUEUE
            assert private.queue_manager_address == PEER_GUID
            cluster.advance(0.6)
            await until(lambda: len(cluster.hub.late) == 4)
            told = order_acks(cluster.hub.late_messages())
            assert {(one.destination_queue, one.queue_manager_address) for one in told} == {
                (order_queue_at(HOST), GUID_NULL), (ORDER_QUEUE, PEER_GUID),
            }  # fmt: skip
            assert len(told) == 2
            for message in cluster.hub.late_messages():
                header, properties = message.user_header, message.properties
                assert message.priority == 0
                assert not message.is_traced
                assert (properties.label, properties.body_type) == ("QM Ordering Ack", 0)
                assert (properties.flags, properties.privacy_level) == (0, 0)
                assert message.security is None, "neither authenticated nor encrypted"
                assert (header.admin_queue, header.response_queue) == (None, None)
                assert not header.has_positive_journaling
                assert not header.has_negative_journaling
                is_final = isinstance(acknowledgment_in(message), FinalAck)
                assert header.is_recoverable is is_final, "order acks are express (QB-A23)"

    run(scenario())


@pytest.mark.spec("QB-1.3.5.1-01")
@pytest.mark.parametrize(
    "stranger",
    [SessionFacts(8, PEER_GUID, "127.0.0.99", 2_000), SessionFacts(8, b"OTHR" * 4, HOST, 2_000)],
    ids=["another address", "another GUID"],
)
def test_a_session_that_matches_in_one_thing_only_is_not_used(stranger: SessionFacts) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.hub.session("n3", stranger)
            arrive(cluster, 1)
            # Instead a connection is made to where the peer was seen.
            await until(lambda: len(peer.final_acks) == 1)
            await until(lambda: not owed(cluster))
            assert not cluster.hub.late
            cluster.hub.session("n2", SESSION)
            arrive(cluster, 2)
            await until(lambda: cluster.hub.late)
            assert {edge for edge, _ in cluster.hub.late} == {"n2"}

    run(scenario())


def test_a_listener_with_another_guid_is_told_nothing() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, b"LIAR" * 4) as (peer, cluster):
            arrive(cluster, 1)
            await until(
                lambda: cluster.metric("quorate_sessions_closed_total", reason="refused_by_peer")
            )
            assert not peer.final_acks
            assert not peer.raw
            peer.guid = PEER_GUID
            await settled()
            cluster.advance(5.1)
            await until(lambda: not owed(cluster))
            assert len(peer.final_acks) == 1

    run(scenario())


def test_whoever_names_another_source_gets_nothing_in_its_place() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, b"EVIL" * 4) as (peer, cluster):
            cluster.hub.session("n3", SessionFacts(7, b"EVIL" * 4, HOST, 2_000))
            cluster.world.create("plain")
            seen = Facts(7, b"EVIL" * 4, HOST, ())
            assert arrive(cluster, 1, to="absent", seen=seen) == MessageClass.NACK_BAD_DST_Q
            assert not owed(cluster)
            arrive(cluster, 1, to="plain", seen=seen)
            await settled()
            cluster.advance(20)
            await settled()
            assert not cluster.hub.late
            assert not peer.connections
            assert len(owed(cluster)) == 1

    run(scenario())


def test_the_configuration_says_where_a_queue_manager_is() -> None:
    async def scenario() -> None:
        async with one_peer(OTHER_HOST, is_mapped=True) as (peer, cluster):
            arrive(cluster, 1)
            await until(lambda: not owed(cluster))
            assert len(peer.final_acks) == 1
            cluster.hub.session("n3", SessionFacts(9, PEER_GUID, OTHER_HOST, 2_000))
            arrive(cluster, 2)
            await until(lambda: cluster.hub.late)
            # The session ends, and the one that follows it is found too.
            cluster.hub.late.clear()
            await peer.shut()
            cluster.hub.session("n3", SessionFacts(9, PEER_GUID, OTHER_HOST, 2_000), is_open=False)
            cluster.hub.session("n2", SessionFacts(4, PEER_GUID, OTHER_HOST, 2_000))
            await until(lambda: cluster.hub.late)
            assert cluster.hub.late[0][0] == "n2"

    run(scenario())


def test_who_leads_no_more_opens_no_connection_for_what_is_owed() -> None:
    async def scenario() -> None:
        async with one_peer(OTHER_HOST, is_mapped=True) as (peer, cluster):
            is_asked, may_answer = asyncio.Event(), asyncio.Event()

            async def addresses(host: str) -> list[str]:
                is_asked.set()
                await may_answer.wait()
                return [host]

            cluster.names.addresses = addresses  # type: ignore[method-assign]
            arrive(cluster, 1)
            await until(is_asked.is_set)
            cluster.lead(None)
            may_answer.set()
            await asyncio.sleep(0.2)
            assert peer.established == 0
            assert not peer.connections
            cluster.lead("n2")
            await until(lambda: not owed(cluster))

    run(scenario())


def test_what_a_session_did_not_deliver_is_sent_again() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n2", SESSION)
            arrive(cluster, 1)
            await until(lambda: len(cluster.hub.late) == 1)
            # The edge refuses: not again at once.
            cluster.hub.answer(is_delivered=False)
            await settled()
            assert not cluster.hub.late
            cluster.advance(limits.OUTBOX_RETRY_S)
            await until(lambda: cluster.hub.late)
            first = final_acks(cluster.hub.late_messages())
            # Its session ends: the next one carries the same packet.
            cluster.hub.late.clear()
            later = SessionFacts(12, PEER_GUID, HOST, 2_000)
            cluster.hub.session("n3", later)
            cluster.hub.session("n2", SESSION, is_open=False)
            await until(lambda: cluster.hub.late)
            assert cluster.hub.late[0][0] == "n3"
            assert final_acks(cluster.hub.late_messages()) == first
            cluster.hub.answer(is_delivered=True)
            await until(lambda: not owed(cluster))

    run(scenario())


def test_what_many_sessions_in_turn_did_not_deliver_has_its_room_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.edge.outgoing.acks.peer_acks.OUTBOX_IN_FLIGHT_MAX", 2)

    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            for number in (1, 2, 3):
                arrive(cluster, number)
            for number in range(4):
                facts = SessionFacts(20 + number, PEER_GUID, HOST, 1_000 + number)
                cluster.hub.session("n2", facts)
                await until(lambda: len(cluster.hub.late_messages()) == 2)
                cluster.hub.late.clear()
                cluster.hub.session("n2", facts, is_open=False)
            cluster.hub.session("n3", SESSION)
            while owed(cluster):
                await until(lambda: cluster.hub.late)
                cluster.hub.answer(is_delivered=True)
                await settled()

    run(scenario())


def test_what_an_older_session_carries_leaves_over_a_newer_one_too() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            stale = SessionFacts(9, PEER_GUID, HOST, 5_000)
            cluster.hub.session("n2", stale)
            arrive(cluster, 1)
            await until(lambda: len(cluster.hub.late) == 1)
            ((_, first),) = cluster.hub.late
            # The peer has reconnected, to an edge whose numbers are smaller.
            fresh = SessionFacts(3, PEER_GUID, HOST, 5_001)
            cluster.hub.session("n3", fresh)
            await until(lambda: len(cluster.hub.late) == 2)
            edge, again = cluster.hub.late[1]
            assert (edge, again.session) == ("n3", fresh.number)
            assert (again.tokens, again.packets) == (first.tokens, first.packets)
            # That the old session ends undoes nothing.
            cluster.hub.late.clear()
            listener = cluster.hub.listener
            assert listener is not None
            listener.on_late_result("n2", stale.number, first.tokens, False)
            cluster.hub.session("n2", stale, is_open=False)
            await settled()
            assert not cluster.hub.late
            listener.on_late_result("n3", fresh.number, again.tokens, True)
            await until(lambda: not owed(cluster))

    run(scenario())


def test_a_late_end_of_an_older_session_ends_what_a_newer_one_carries() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n2", SESSION)
            arrive(cluster, 1)
            await until(lambda: len(cluster.hub.late) == 1)
            ((_, first),) = cluster.hub.late
            cluster.hub.session("n3", SessionFacts(3, PEER_GUID, HOST, 5_001))
            await until(lambda: len(cluster.hub.late) == 2)
            listener = cluster.hub.listener
            assert listener is not None
            listener.on_late_result("n2", SESSION.number, first.tokens, True)
            await until(lambda: not owed(cluster))
            cluster.hub.answer(is_delivered=True)
            await settled()
            assert cluster.metric("quorate_outbox_rows") == 0

    run(scenario())


def test_sessions_are_as_old_as_their_edges_say_whatever_is_announced_first() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            # A new leader hears of the sessions of all edges, in any order.
            cluster.hub.session("n3", SessionFacts(3, PEER_GUID, HOST, 5_001))
            cluster.hub.session("n2", SessionFacts(9, PEER_GUID, HOST, 5_000))
            arrive(cluster, 1)
            await until(lambda: cluster.hub.late)
            cluster.hub.session("n1", SessionFacts(4, PEER_GUID, HOST, 4_999))
            await settled()
            assert [edge for edge, _ in cluster.hub.late] == ["n3"]

    run(scenario())


def test_the_end_of_a_session_does_not_keep_its_peer_waiting() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n2", SESSION)
            cluster.hub.session("n3", SessionFacts(3, PEER_GUID, HOST, 5_001))
            arrive(cluster, 1)
            await until(lambda: [edge for edge, _ in cluster.hub.late] == ["n3"])
            # As an edge says it: what was late comes back, then the session is gone.
            cluster.hub.answer(is_delivered=False)
            cluster.hub.session("n3", SessionFacts(3, PEER_GUID, HOST, 5_001), is_open=False)
            await until(lambda: [edge for edge, _ in cluster.hub.late] == ["n2"])

    run(scenario())


def test_a_row_that_could_not_be_settled_is_settled_later_and_not_sent_twice() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n2", SESSION)
            arrive(cluster, 1)
            await until(lambda: len(cluster.hub.late) == 1)
            cluster.world.is_available = False
            cluster.hub.answer(is_delivered=True)
            await settled()
            assert len(owed(cluster)) == 1
            cluster.world.is_available = True
            await until(lambda: not owed(cluster))
            assert not cluster.hub.late

    run(scenario())


def test_many_rows_are_kept_in_mind_in_part_and_all_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.edge.outgoing.acks.peer_acks.OUTBOX_ROWS_PER_PEER_MAX", 10)
    monkeypatch.setattr("qm.edge.outgoing.acks.peer_acks.OUTBOX_IN_FLIGHT_MAX", 4)
    monkeypatch.setattr("qm.edge.outgoing.acks.outbox.OUTBOX_PAGE_ROWS_MAX", 8)

    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            dead = Facts(2, b"DEAD" * 4, OTHER_HOST, ())
            for number in range(1, 61):
                arrive(cluster, number)
                arrive(cluster, number, seen=dead, source_queue_manager=b"DEAD" * 4)
            assert len(owed(cluster)) == 120
            cluster.lead("n2")
            async with Peer(HOST, port) as peer:
                await settled()
                cluster.advance(5.1)
                await until(lambda: len(owed(cluster)) == 60, lambda: len(owed(cluster)))
                found = {ack.acknowledged_message_id for ack in peer.final_acks}
                assert found == set(range(1, 61))
                assert len(peer.final_acks) == 60

    run(scenario())


def test_rows_whose_peer_never_comes_back_are_given_up() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            for number in range(1, 4):
                arrive(cluster, number)
            cluster.world.now_ms += limits.OUTBOX_AGE_MAX_MS - 1_000
            cluster.advance(limits.OUTBOX_SWEEP_S)
            arrive(cluster, 4)
            assert len(owed(cluster)) in (1, 4)
            await until(lambda: len(owed(cluster)) == 1)

    run(scenario())


def test_peers_out_of_reach_keep_nobody_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.edge.outgoing.acks.outbox.OUTBOX_PEERS_MAX", 3)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            for number in range(1, 7):
                guid = bytes([number]) * 16
                seen = Facts(2, guid, OTHER_HOST, ())
                arrive(cluster, 1, seen=seen, source_queue_manager=guid)
                await until(
                    lambda: cluster.metric("quorate_outgoing_connects_total", result="failed")
                )
                await settled()
            arrive(cluster, 1)
            await until(lambda: len(peer.final_acks) == 1)
            await until(lambda: len(owed(cluster)) == 6)
            # What is out of mind is not forgotten.
            async with Peer(OTHER_HOST, cluster.settings.port, bytes([1]) * 16) as late:
                for _ in range(4):
                    cluster.advance(limits.OUTBOX_SWEEP_S)
                    await settled()
                await until(lambda: late.final_acks)

    run(scenario())


@pytest.mark.parametrize("in_mind", [40, 400])
def test_what_a_peer_costs_does_not_grow_with_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, in_mind: int
) -> None:
    """Made-up GUIDs, all of them busy: the others' rows and order acks wait, and cost as before."""
    looked_at = 0

    def is_idle(_self: PeerAcks) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    monkeypatch.setattr("qm.edge.outgoing.acks.outbox.OUTBOX_PEERS_MAX", in_mind)
    monkeypatch.setattr(PeerAcks, "is_idle", property(is_idle))
    monkeypatch.setattr(PeerAcks, "is_out_of_reach", False)
    counted = PeerAcks.row_count

    def row_count(self: PeerAcks) -> int:
        nonlocal looked_at
        looked_at += 1
        count: int = counted.__get__(self)
        return count

    async def scenario() -> None:
        nonlocal looked_at
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.world.create("plain")

            def come(first: int, count: int) -> None:
                for number in range(first, first + count):
                    guid = number.to_bytes(16, "big")
                    seen = Facts(number, guid, HOST, ())
                    for to in ("orders", "plain"):
                        arrive(cluster, 1, to=to, seen=seen, source_queue_manager=guid)

            come(1, in_mind)
            cluster.advance(0.51)
            await settled()
            monkeypatch.setattr(PeerAcks, "row_count", property(row_count))
            looked_at = 0
            come(in_mind + 1, 20)
            cluster.advance(0.51)
            await settled()
            assert 0 < looked_at <= 20 * 4 * limits.PEERS_PER_LOOK_MAX

    run(scenario())


def test_of_a_sender_that_nobody_can_find_nothing_is_kept_in_mind() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            made: list[PeerName] = []
            cluster.hub.session("n3", SESSION)
            with mock.patch.object(outbox_module, "PeerAcks", side_effect=AssertionError(made)):
                for number in range(1, 20):
                    guid = number.to_bytes(16, "big")
                    verdict = arrive(cluster, 1, to="orders", source_queue_manager=guid)
                    assert verdict == TransferVerdict.ACCEPTED
                cluster.advance(0.51)
                await settled()
            assert not cluster.hub.late

    run(scenario())


# Order acks -----------------------------------------------------------------------------------


@pytest.mark.spec(
    "QB-2.2.4.1-02", "QB-3.1.7.17-02", "MQ-2.2.18.1.6-05", "QB-3.1.5.8.6-02", "QB-3.1.1.6.2-02"
)
def test_with_the_timer_an_order_ack_follows_half_a_second_after_the_last_message() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.hub.session("n3", SESSION)
            for number in (1, 2, 3):
                arrive(cluster, number, to="orders")
                cluster.advance(0.4)
            await settled()
            assert not cluster.hub.late
            cluster.advance(0.11)
            await until(lambda: cluster.hub.late)
            (ack,) = order_acks(cluster.hub.late_messages())
            assert ack.tx_sequence_id == TxSequenceId.from_int(SEQUENCE)
            assert (ack.tx_sequence_number, ack.tx_previous_sequence_number) == (3, 2)
            assert (ack.source_queue_manager, ack.destination_queue) == (OWN, order_queue_at(HOST))
            # Nothing new: nothing more is said, until the peer asks again.
            cluster.hub.answer(is_delivered=True)
            cluster.advance(60)
            await settled()
            assert not cluster.hub.late
            arrive(cluster, 2, to="orders")
            cluster.advance(0.51)
            await until(lambda: cluster.hub.late)
            (again,) = order_acks(cluster.hub.late_messages())
            assert again.tx_sequence_number == 3
            # A message that is refused, here for its number, schedules one like all others.
            cluster.hub.answer(is_delivered=True)
            raw = packet(9, to="orders", sequence=(SEQUENCE, 9, 8), source_queue_manager=PEER_GUID)
            (verdict,) = cluster.world.arrive(raw, facts=Facts(1, PEER_GUID, HOST, ()))
            assert verdict == TransferVerdict.OUT_OF_ORDER
            cluster.advance(0.49)
            await settled()
            assert not cluster.hub.late
            cluster.advance(0.02)
            await until(lambda: cluster.hub.late)
            (told,) = order_acks(cluster.hub.late_messages())
            assert told.tx_sequence_number == 3
            # So does one that is refused for good, here since it was on its way for too long.
            cluster.hub.answer(is_delivered=True)
            sent_s = cluster.world.now_ms // 1000 - 60
            refused = arrive(cluster, 4, to="orders", time_to_reach_queue=5, sent_time=sent_s)
            assert refused == MessageClass.NACK_REACH_QUEUE_TIMEOUT
            cluster.advance(0.49)
            await settled()
            assert not order_acks(cluster.hub.late_messages())
            cluster.advance(0.02)
            await until(lambda: order_acks(cluster.hub.late_messages()))
            (told,) = order_acks(cluster.hub.late_messages())
            assert told.tx_sequence_number == 4
            assert [one.is_recoverable for one in order_acks(cluster.hub.late_messages())] == [
                False
            ]

    run(scenario())


@pytest.mark.spec("QB-2.2.4-06", "QB-3.1.1.6.2-04")
def test_an_order_ack_covers_what_was_refused_too() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.hub.session("n3", SESSION)
            for number in (1, 2):
                assert arrive(cluster, number) == MessageClass.NACK_BAD_DST_Q
            cluster.advance(0.51)
            await until(lambda: order_acks(cluster.hub.late_messages()))
            (ack,) = order_acks(cluster.hub.late_messages())
            assert ack.tx_sequence_id == TxSequenceId.from_int(SEQUENCE)
            assert ack.tx_sequence_number == 2

    run(scenario())


def test_no_two_order_acks_have_one_message_id() -> None:
    """Nor any other message: of two peers, of two leaders, between final acks."""

    async def scenario() -> None:
        seen: list[int] = []
        others_sent: set[int] = set()
        async with SendingCluster(1801) as cluster:
            world = cluster.world
            world.create("orders", transactional=True)
            world.create("plain")
            others = [number.to_bytes(16, "big") for number in range(1, 4)]

            def take_over(name: str) -> None:
                cluster.lead(name)
                cluster.hub.open.clear()
                for number, guid in enumerate([PEER_GUID, *others]):
                    cluster.hub.session("n3", SessionFacts(number, guid, HOST, 1_000))

            async def told(count: int) -> None:
                await until(lambda: len(cluster.hub.late_messages()) >= count)
                messages = cluster.hub.late_messages()
                for one in messages:
                    ack, message_id = acknowledgment_in(one), one.user_header.message_id
                    if isinstance(ack, OrderAck):
                        seen.append(message_id)
                    else:  # a final ack is the same message each time
                        others_sent.add(message_id)
                cluster.hub.answer(is_delivered=True)

            for number in range(1, 4):
                take_over("n2" if number == 2 else "n1")
                await settled()
                if number > 1:  # those that were heard of lately are told at once
                    cluster.advance(0.51)
                    await told(4)
                for guid in (PEER_GUID, *others):
                    facts = Facts(7, guid, HOST, ())
                    arrive(cluster, number, to="orders", seen=facts, source_queue_manager=guid)
                    arrive(cluster, number, to="plain", seen=facts, source_queue_manager=guid)
                cluster.advance(0.51)
                await told(8)
                world.client(f"c{number}").send("DIRECT=TCP:127.0.0.1\\q")
                others_sent.add(world.counters().message_ordinal)
        assert len(seen) >= 20
        assert len(others_sent) == 15
        assert len(set(seen)) == len(seen)
        assert others_sent.isdisjoint(seen)

    run(scenario())


@pytest.mark.spec("QB-1.3.5.1-01")
def test_an_order_ack_leaves_over_every_open_session_of_the_peer() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            sessions = [SessionFacts(one, PEER_GUID, HOST, 1_000 + one) for one in range(12)]
            for facts in sessions:
                cluster.hub.session(f"n{facts.number % 3}", facts)
            arrive(cluster, 1, to="orders")
            cluster.advance(0.51)
            await until(lambda: cluster.hub.late)
            acks = order_acks(cluster.hub.late_messages())
            assert {ack.tx_sequence_number for ack in acks} == {1}
            told = [late.session for _, late in cluster.hub.late]
            assert told == list(range(11, 11 - limits.ORDER_ACK_SESSIONS_MAX, -1))

    run(scenario())


@pytest.mark.spec("QB-3.1.1.6.2-03", "QB-3.1.6.9-01", "QB-3.1.3.2-10")
def test_an_order_ack_waits_for_what_follows_but_ten_seconds_at_most() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.hub.session("n3", SESSION)
            for number in range(1, 28):
                arrive(cluster, number, to="orders")
                cluster.advance(0.375)
                assert not cluster.hub.late
            # The timer was restarted last at 9.75 s, and a message at 10.125 s leaves it alone.
            arrive(cluster, 28, to="orders")
            cluster.advance(0.125)
            (ack,) = order_acks(cluster.hub.late_messages())
            assert ack.tx_sequence_number == 28

    with mock.patch.object(Replicated, "clock", lambda world: 5.0 + world.offset_s):
        run(scenario())


def test_the_last_message_in_flight_is_acknowledged_at_once() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801, has_prompt_acks=True) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.hub.session("n3", SESSION)
            cluster.hub.is_entry_in_flight = False
            for number in (1, 2):
                arrive(cluster, number, to="orders")
                (ack,) = order_acks(cluster.hub.late_messages())
                assert ack.tx_sequence_number == number
                cluster.hub.answer(is_delivered=True)

    run(scenario())


def test_while_a_sequence_flows_it_is_acknowledged_once_in_20_ms() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801, has_prompt_acks=True) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.hub.session("n3", SESSION)

            def acknowledged() -> list[int]:
                numbers = [
                    ack.tx_sequence_number for ack in order_acks(cluster.hub.late_messages())
                ]
                cluster.hub.answer(is_delivered=True)
                return numbers

            for number in range(1, 500):
                arrive(cluster, number, to="orders")
            assert not acknowledged()
            cluster.advance(0.02)
            assert acknowledged() == [499]
            cluster.advance(0.02)
            assert not acknowledged()
            # After silence the first one is acknowledged at once, the next one is not.
            for number in (500, 501):
                arrive(cluster, number, to="orders")
            assert acknowledged() == [500]

    with mock.patch.object(Replicated, "clock", lambda world: 5.0 + world.offset_s):
        run(scenario())


def test_nothing_is_acknowledged_before_anything_was_accepted() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            cluster.hub.session("n3", SESSION)
            raw = packet(5, to="orders", sequence=(SEQUENCE, 5, 4), source_queue_manager=PEER_GUID)
            cluster.world.arrive(raw, facts=Facts(1, PEER_GUID, HOST, ()))
            cluster.advance(1)
            await settled()
            assert not cluster.hub.late

    run(scenario())


@pytest.mark.spec("QB-1.3.5.1-01")
def test_order_acks_go_to_where_the_peer_listens_when_it_has_no_session() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.create("orders", transactional=True)
            arrive(cluster, 1, to="orders")
            cluster.advance(0.51)
            await until(lambda: peer.order_acks)
            assert peer.order_acks[0].tx_sequence_number == 1
            # The same connection serves what the cluster sends to that address.
            queue = cluster.send(peer.address, 3)
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


def test_a_direct_session_serves_acknowledgements_once_its_guid_is_known() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            arrive(cluster, 1)
            await until(lambda: not owed(cluster))
            assert peer.established == 1
            assert len(peer.final_acks) == 1
            # The session ends while nothing is owed; the next thing owed opens another.
            peer.cut()
            await until(lambda: cluster.metric("quorate_sessions", role="initiator") == 0)
            arrive(cluster, 2)
            await until(lambda: not owed(cluster))
            assert peer.established == 2

    run(scenario())


def test_a_new_leader_acknowledges_the_sequences_that_it_saw_as_a_follower() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            cluster.world.create("orders", transactional=True)
            arrive(cluster, 1, to="orders")
            cluster.lead("n2")
            cluster.hub.session("n3", SESSION)
            cluster.advance(0.51)
            await until(lambda: cluster.hub.late)
            (ack,) = order_acks(cluster.hub.late_messages())
            assert ack.tx_sequence_number == 1
            # What was silent for long is not active any more.
            cluster.lead("n1")
            cluster.advance(limits.SEQUENCE_ACTIVE_MS / 1000 + 1)
            cluster.lead("n2")
            cluster.advance(0.51)
            await settled()
            assert not order_acks(cluster.hub.late_messages())

    run(scenario())


def test_who_leads_no_more_owes_nothing_that_is_counted() -> None:
    async def scenario() -> None:
        async with one_peer(OTHER_HOST, is_mapped=False) as (_, cluster):

            def counted() -> set[float | None]:
                found = cluster.registries.values()
                return {one.get_sample_value("quorate_outbox_rows") for one in found}

            arrive(cluster, 1)
            await until(lambda: 1 in counted())
            cluster.lead(None)
            assert counted() == {0}

    run(scenario())
