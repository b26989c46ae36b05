"""Messages leave, arrive once and in order, and are gone when their peer has them."""

from __future__ import annotations

from functools import partial

import pytest

from qm.edge.outgoing import limits
from qm.model import queries
from qm.model.state.outgoing_queues import peers_of
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts
from qm.model.values.elements import BindingMode, OutgoingAdminState
from qm.names.direct import DirectName, direct_text
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.session import OutgoingState, SessionConfig
from qm.wire.guid import GUID_NULL
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import parse_user_message
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
)
from tests.unit.edge.outgoing.test_encryption import know_peer
from tests.unit.edge.outgoing.world import (
    PEER_GUID,
    Peer,
    SendingCluster,
    free_port,
    one_peer,
    run,
    settled,
    two_peers,
    until,
)
from tests.unit.model.world import OWN, PEER, direct, packet, request

HOST, OTHER_HOST = "127.0.0.41", "127.0.0.42"


@pytest.mark.spec("QB-2.1.1-03", "QB-3.1.7.4-01", "MQ-2.2.19.2-02", "MQ-2.2.19.2-07")
@pytest.mark.spec("QB-3.1.5.5.2-01")
def test_messages_of_every_kind_arrive_once_with_their_numbers() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            sent_s = cluster.world.now_ms // 1000
            queue = cluster.send(peer.address, 40)
            cluster.send(peer.address, 40, is_recoverable=True)
            cluster.send(peer.address, 40, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert sorted(peer.bodies) == list(range(120))
            assert len(peer.raw) == 120
            assert peer.established == 1
            transactional = [m for m in peer.taken if m.transaction is not None]
            numbers = [m.transaction.tx_sequence_number for m in transactional if m.transaction]
            assert numbers == list(range(1, 41))
            assert {m.user_header.source_queue_manager for m in peer.taken} == {OWN}
            assert {m.user_header.sent_time for m in peer.taken} == {sent_s}
            assert len({m.user_header.message_id for m in peer.taken}) == 120
            assert cluster.metric("quorate_outgoing_messages_total", result="sent") == 120
            assert cluster.metric("quorate_outgoing_messages_total", result="acknowledged") == 120
            assert cluster.metric("quorate_sessions", role="initiator") == 1

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-34", "MQ-2.2.19.2-02")
@pytest.mark.parametrize("sequence", [None, (1, 1, 0)])
@pytest.mark.parametrize(("source", "flag"), [(OWN, 0x02), (PEER, 0), (PEER, 0x02)])
def test_what_is_stored_leaves_without_ah_and_as_from_this_queue_manager(
    sequence: tuple[int, int, int] | None, source: bytes, flag: int
) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            # As it leaves, but for the one flag or its source.
            parsed = parse_format_name(peer.address)
            assert isinstance(parsed, DirectName)
            to = DirectQueueFormatName(direct_text(parsed))
            raw = bytearray(packet(0, to=to, source_queue_manager=source, sequence=sequence))
            raw[63] |= flag
            transaction = cluster.client.begin("t") if sequence else None
            client, stored = cluster.client, bytes(raw)
            assert client.send(peer.address, raw=stored, transaction=transaction).status == 0
            if transaction is not None:
                assert (
                    cluster.world.one(commands.TxCommit(client.request(), transaction)).status == 0
                )
            await until(lambda: len(peer.raw) == 2)
            assert [one[63] & 0x02 for one in peer.raw] == [0, 0]
            assert peer.taken[1].user_header.source_queue_manager == OWN

    run(scenario())


def test_transactional_messages_arrive_once_in_order_while_the_leader_changes() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 600, is_transactional=True)
            for step in range(1, 9):
                await until(lambda step=step: len(peer.taken) >= 60 * step)  # type: ignore[misc]
                if step % 3 == 0:
                    cluster.lead(None)
                    await settled()
                cluster.lead("n2" if step % 2 else "n1")
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == list(range(600))
            assert peer.established > 3

    run(scenario())


def test_a_leader_that_steps_down_while_it_looks_for_queues_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.edge.outgoing.leadership.QUEUES_PER_PAGE_MAX", 1)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.lead(None)
            await settled()
            for number in range(10):
                cluster.send(f"{peer.address}{number}", 1, is_recoverable=True)
            cluster.lead("n1")
            cluster.lead(None)
            await settled()
            assert (peer.established, peer.taken) == (0, [])
            cluster.lead("n2")
            await until(lambda: len(peer.taken) == 10)

    run(scenario())


def test_what_the_old_leader_learnt_and_could_not_commit_is_learnt_again() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.is_available = False
            queue = cluster.send(peer.address, 50, is_recoverable=True)
            await until(lambda: len(peer.taken) == 50)
            await settled()
            assert cluster.waiting(queue) == 50
            cluster.world.is_available = True
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 50

            cluster.world.is_available = False
            cluster.send(peer.address, 50, is_recoverable=True)
            await until(lambda: len(peer.taken) == 100)
            cluster.lead("n2")
            cluster.world.is_available = True
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == list(range(100))
            assert len(peer.raw) == 150

    run(scenario())


async def sent_without_order_ack(peer: Peer, cluster: SendingCluster) -> int:
    """Send three transactional messages, which the session acknowledges; return their queue."""
    peer.is_order_acking = False
    queue = cluster.send(peer.address, 3, is_transactional=True)
    await until(lambda: len(peer.raw) == 3)
    await until(
        lambda: cluster.metric("quorate_outgoing_messages_total", result="acknowledged") == 3
    )
    return queue


def has_count(packets: list[bytes], count: int) -> bool:
    return len(packets) == count


@pytest.mark.spec("QB-3.1.5.6-01")
def test_order_acks_are_counted_and_the_time_of_the_last_one_is_noted() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = await sent_without_order_ack(peer, cluster)
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_last_ack_count, report.eod_last_ack_time) == (0, 0)
            for number in (1, 2, 3):
                cluster.advance(2)
                peer.send_order_ack(number)
                left = 3 - number
                await until(partial(is_left, cluster, queue, left))
                report = cluster.manager.report(queue)
                assert report is not None
                assert report.eod_last_ack_count == number
                assert report.eod_last_ack_time == cluster.world.now_ms // 1000
            # One that was lost on its way and is repeated counts, too.
            for count, number in ((4, 3), (5, 1)):
                cluster.advance(5)
                peer.send_order_ack(number)
                await until(partial(is_acked, cluster, queue, count))
                report = cluster.manager.report(queue)
                assert report is not None
                assert report.eod_last_ack_time == cluster.world.now_ms // 1000
                assert report.eod_no_ack_count == 0

    run(scenario())


def is_acked(cluster: SendingCluster, queue: int, count: int) -> bool:
    report = cluster.manager.report(queue)
    return report is not None and report.eod_last_ack_count == count


@pytest.mark.spec("QB-3.1.5.6-01", "MR-2.2.3.2-28")
def test_a_repeated_order_ack_is_counted_and_neither_settles_nor_delays_anything() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = await sent_without_order_ack(peer, cluster)
            peer.send_order_ack(1)
            await until(partial(is_left, cluster, queue, 2))
            report = cluster.manager.report(queue)
            assert report is not None
            resend_time = report.eod_resend_time
            cluster.advance(7)
            peer.send_order_ack(1)
            await until(partial(is_acked, cluster, queue, 2))
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.eod_last_ack_time == cluster.world.now_ms // 1000
            assert (report.eod_no_ack_count, cluster.waiting(queue)) == (2, 2)
            assert report.eod_resend_time == resend_time
            assert 22 <= resend_time - cluster.world.now_ms // 1000 <= 24, "30 s, less 7"
            peer.cut()
            await until(lambda: cluster.manager.report(queue).eod_resend_time == 0)  # type: ignore[union-attr]

    run(scenario())


def is_left(cluster: SendingCluster, queue: int, count: int) -> bool:
    return cluster.waiting(queue) == count


@pytest.mark.spec(
    "QB-3.1.5.6-08", "DM-3.1.1.4-02", "QB-3.1.7.1.3-01", "QB-3.1.1.6-01", "AC-3.5.4.1.6-01"
)
def test_unacknowledged_transactional_messages_are_sent_again_and_reported() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = await sent_without_order_ack(peer, cluster)
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.state is OutgoingState.CONNECTED
            # Each is in UnackedSequence, and the Transactional Ack Wait Timer runs.
            assert (report.eod_no_ack_count, report.eod_resend_count) == (3, 0)
            assert report.eod_resend_interval_s == 30
            assert 29 <= report.eod_resend_time - cluster.world.now_ms // 1000 <= 31
            cluster.advance(31)
            await until(lambda: len(peer.raw) == 6)
            assert peer.raw[:3] == peer.raw[3:]
            assert peer.bodies == [0, 1, 2]
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.eod_resend_count == 1
            for count in (9, 12):
                cluster.advance(31)
                await until(partial(has_count, peer.raw, count))
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_resend_count, report.eod_resend_interval_s) == (3, 300)
            assert 299 <= report.eod_resend_time - cluster.world.now_ms // 1000 <= 301
            sent = len(peer.raw)
            assert cluster.manager.resend(queue)
            await until(lambda: len(peer.raw) == sent + 3)
            peer.send_order_ack(1)
            await until(lambda: cluster.waiting(queue) == 2)
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_no_ack_count, report.eod_last_ack_count) == (2, 1)
            assert (report.eod_resend_count, report.eod_resend_interval_s) == (0, 30)
            assert report.eod_last_ack_time == cluster.world.now_ms // 1000
            cluster.advance(2)
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_no_ack_count, report.eod_resend_time) == (0, 0)
            assert (report.eod_last_ack_count, report.loaded_count) == (2, 0)
            assert report.eod_last_ack_time == cluster.world.now_ms // 1000
            assert report.next_hops == (f"IP={HOST}",)
            # What was not sent is in no sequence.
            held = commands.SetOutgoingAdminState(request(), queue, OutgoingAdminState.ON_HOLD, ())
            cluster.world.one(held)
            cluster.send(peer.address, 2)
            await settled()
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_no_ack_count, report.loaded_count) == (0, 2)
            assert not cluster.manager.resend(queue + 1000)
            assert cluster.manager.report(queue + 1000) is None

    run(scenario())


@pytest.mark.parametrize(
    ("message_class", "journal", "dead"),
    [
        (MessageClass.ACK_RECEIVE, [b"0"], []),
        (MessageClass.NACK_RECEIVE_TIMEOUT, [], [b"0"]),
        (MessageClass.NACK_Q_PURGED, [], [b"0"]),
    ],
)
def test_a_final_ack_ends_a_journaled_message(
    message_class: int, journal: list[bytes], dead: list[bytes]
) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(
                peer.address, is_transactional=True,
                has_positive_journaling=True, has_negative_journaling=True,
            )  # fmt: skip
            await until(lambda: len(peer.taken) == 1)
            await until(lambda: cluster.manager.report(queue).loaded_count == 0)  # type: ignore[union-attr]
            assert cluster.waiting(queue) == 1
            peer.send_final_ack(peer.taken[0], message_class)
            await until(lambda: not cluster.waiting(queue))
            assert cluster.journal() == journal
            assert cluster.dead_letters(is_transactional=True) == dead
            # The peer may forget its acknowledgement: it is acknowledged itself.
            await until(lambda: peer.connections[0].released)

    run(scenario())


@pytest.mark.spec("QB-3.1.5.7-01")
def test_a_final_ack_ends_the_message_that_its_body_names() -> None:
    """Of this queue manager: what it says of another one's message ends nothing."""

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(
                peer.address, 3, is_transactional=True, has_positive_journaling=True
            )
            await until(lambda: len(peer.taken) == 3)
            peer.send_final_ack(peer.taken[1], MessageClass.ACK_RECEIVE, of=b"X" * 16)
            await until(lambda: peer.connections[0].session.in_flight == 0)
            assert cluster.waiting(queue) == 3
            assert not cluster.journal()
            peer.send_final_ack(peer.taken[1], MessageClass.ACK_RECEIVE)
            await until(lambda: cluster.waiting(queue) == 2)
            assert cluster.journal() == [b"1"]

    run(scenario())


@pytest.mark.spec("QB-3.1.5.5.3-01")
def test_recoverable_messages_are_journaled_when_their_session_acknowledged_them() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 3, is_recoverable=True, has_positive_journaling=True)
            await until(lambda: not cluster.waiting(queue))
            assert cluster.journal() == [b"0", b"1", b"2"]

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.1-18", "QB-3.1.7.1.2-01", "QB-3.1.7.1.2-02")
def test_what_is_too_old_when_its_turn_comes_is_a_dead_letter_and_leaves_a_gap() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            admin = cluster.world.create("admin")
            asking = {
                "has_negative_journaling": True,
                "admin_queue": direct("admin"),
                "properties": {"flags": 0x04},
            }
            queue = cluster.send(peer.address, is_transactional=True)
            await until(lambda: len(peer.taken) == 1)
            peer.cut()
            await until(lambda: cluster.manager.report(queue).state is OutgoingState.DISCONNECTED)  # type: ignore[union-attr]
            cluster.send(peer.address, 2, is_transactional=True, time_to_reach_queue=60, **asking)
            cluster.send(peer.address, is_transactional=True)
            # Cluster time moves on; apply's own clock follows with the next entry only.
            cluster.world.now_ms += 61_000
            cluster.world.offset_s += 10
            cluster.manager.run_timers()
            await until(lambda: len(peer.taken) == 2, lambda: peer.bodies)
            assert peer.bodies == [0, 3]
            failed = [one for one in cluster.world.proposed
                      if isinstance(one, commands.TransferFailed)]  # fmt: skip
            assert [one.message_class for one in failed] == [
                MessageClass.NACK_REACH_QUEUE_TIMEOUT
            ] * len(failed)
            assert cluster.dead_letters(is_transactional=True) == [b"1", b"2"]
            told = cluster.world.messages(admin)
            assert [one.properties.message_class for one in told] == [0x8002, 0x8002]
            assert cluster.metric("quorate_outgoing_messages_total", result="expired") == 2
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


def test_an_unreachable_peer_s_backlog_expires_in_apply() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(
                f"DIRECT=TCP:{HOST}\\q", 300, time_to_reach_queue=60, has_negative_journaling=True
            )
            cluster.send(f"DIRECT=TCP:{HOST}\\q", 300)
            cluster.advance(61)
            assert len(cluster.dead_letters()) == 300
            async with Peer(HOST, port) as peer:
                await cluster.retry(queue)
                await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
                assert peer.bodies == list(range(300, 600))

    run(scenario())


@pytest.mark.spec("DM-3.1.1.3-05", "DM-3.1.4.15-01", "QB-3.1.7.13-02", "QB-3.1.7.14-01")
def test_a_paused_queue_sends_nothing_until_it_is_resumed() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 5)
            other = cluster.send(f"DIRECT=TCP:{HOST}\\other", 1)
            await until(lambda: not cluster.waiting(queue) and not cluster.waiting(other))

            def set_state(state: OutgoingAdminState) -> None:
                cluster.world.one(commands.SetOutgoingAdminState(request(), queue, state, ()))

            set_state(OutgoingAdminState.ON_HOLD)
            cluster.send(peer.address, 5)
            cluster.send(f"DIRECT=TCP:{HOST}\\other", 5)
            await until(lambda: not cluster.waiting(other))
            assert cluster.waiting(queue) == 5
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.state is OutgoingState.ON_HOLD
            assert len(peer.raw) == 11, "five before the hold, and those of the other queue"
            # A new leader respects it too, from the start.
            cluster.lead("n2")
            await settled()
            assert cluster.waiting(queue) == 5
            assert cluster.manager.report(queue).state is OutgoingState.ON_HOLD  # type: ignore[union-attr]
            set_state(OutgoingAdminState.NORMAL)
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 16
            # Nobody else uses its session now: that is held with it, and goes on with it.
            sessions = peer.established
            set_state(OutgoingAdminState.ON_HOLD)
            cluster.send(peer.address, 5)
            await settled()
            assert len(peer.raw) == 16
            set_state(OutgoingAdminState.NORMAL)
            await until(lambda: not cluster.waiting(queue))
            assert (len(peer.raw), peer.established) == (21, sessions)

    run(scenario())


@pytest.mark.spec("QB-3.1.5.6-04")
def test_when_all_is_acknowledged_the_next_resending_is_due_after_the_first_interval() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 2, is_transactional=True)
            for count in (2, 4, 6, 8):
                await until(partial(has_count, peer.raw, count))
                cluster.advance(31)
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_resend_count, report.eod_resend_interval_s) == (3, 300)
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            cluster.send(peer.address, 1, is_transactional=True)
            await until(partial(has_count, peer.raw, 9))
            await settled()
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_resend_count, report.eod_resend_interval_s) == (0, 30)
            cluster.advance(31)
            await until(partial(has_count, peer.raw, 10))

    run(scenario())


@pytest.mark.spec("QB-3.1.1.6.1-02")
@pytest.mark.parametrize("is_recoverable", [False, True])
def test_a_message_is_kept_until_its_session_acknowledges_it(is_recoverable: bool) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_acknowledging = False
            queue = cluster.send(peer.address, 5, is_recoverable=is_recoverable)
            await until(lambda: len(peer.raw) == 5)
            await settled()
            assert cluster.waiting(queue) == 5
            (connection,) = peer.connections
            connection.session.commit(3)
            connection.handle_all_timers()
            await until(lambda: cluster.waiting(queue) == 2, lambda: cluster.waiting(queue))
            await settled()
            assert cluster.waiting(queue) == 2
            peer.acknowledge()
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 5

    run(scenario())


def test_a_hardened_queue_manager_sends_nothing() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))

            def harden(is_hardened: bool) -> None:
                changes = {"hardened_security": encode_attribute(is_hardened)}
                cluster.world.one(commands.SetQueueManager(request(), changes, ()))

            harden(True)
            cluster.send(peer.address, 3)
            await settled()
            assert cluster.waiting(queue) == 3
            harden(False)
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 4

    run(scenario())


def test_a_session_is_paused_when_all_that_it_serves_is_on_hold() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            hold = commands.SetOutgoingAdminState(request(), queue, OutgoingAdminState.ON_HOLD, ())
            cluster.world.one(hold)
            session = peer.connections[0].session
            # [MS-MQQB] 3.1.7.13: the peer hears of a window of one.
            for number in range(3):
                session.offer([number], [packet(number + 1, to="absent")])
            assert session.room < 64
            cluster.send(peer.address, 3)
            resume = commands.SetOutgoingAdminState(request(), queue, OutgoingAdminState.NORMAL, ())
            cluster.world.one(resume)
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 4

    run(scenario())


def test_a_hundred_queues_share_few_connections_fairly() -> None:
    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (first, second, cluster):
            queues = [
                cluster.send(
                    f"DIRECT=TCP:{peer.host}\\q{number}", 20, is_transactional=bool(number % 2)
                )
                for number in range(50)
                for peer in (first, second)
            ]
            assert len(set(queues)) == 100
            await until(lambda: not any(map(cluster.waiting, queues)))
            assert (first.established, second.established) == (1, 1)
            assert (len(first.raw), len(second.raw)) == (1000, 1000)
            for peer in (first, second):
                for number in range(50):
                    name = f"TCP:{peer.host}\\q{number}"
                    bodies = [
                        int(one.properties.message_body)
                        for one in peer.taken
                        if one.user_header.destination_queue.direct_format_name == name  # type: ignore[union-attr]
                    ]
                    assert len(bodies) == 20
                    assert bodies == sorted(bodies)

    run(scenario())


def test_a_long_backlog_is_loaded_in_pages_and_a_new_message_of_higher_priority_overtakes() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_acknowledging = False
            queue = cluster.send(peer.address, 3_000)
            await until(lambda: len(peer.raw) == 64)
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.loaded_count <= limits.READ_AHEAD_MAX + limits.PAGE_ROWS_MAX + 64
            cluster.send(peer.address, 1, priority=7)
            peer.acknowledge()
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert sorted(peer.bodies) == list(range(3_001))
            assert len(peer.raw) == 3_001
            assert peer.bodies.index(3_000) < 1_000

    run(scenario())


def test_transactional_messages_wait_for_order_acks_in_bounded_number() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 2_600, is_transactional=True)
            bound = limits.TABLE_ENTRIES_MAX + limits.PAGE_ROWS_MAX
            await until(lambda: len(peer.taken) >= limits.TABLE_ENTRIES_MAX)
            await settled(100)
            assert len(peer.taken) <= bound
            peer.is_order_acking = True
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == list(range(2_600))

    run(scenario())


def test_a_transaction_that_commits_late_is_sent_after_its_elders() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            raw = packet(0, body=b"7000", sequence=(1, 1, 0))
            late = cluster.client.begin("late")
            cluster.client.send(peer.address, raw=raw, transaction=late)
            queue = cluster.send(peer.address, 5, is_transactional=True)
            await until(lambda: len(peer.taken) == 5)
            assert cluster.client.commit(late) == 0
            await until(lambda: len(peer.taken) == 6)
            assert peer.bodies[-1] == 7000
            # In the order of keys it comes first; a new leader sends in the order of numbers.
            peer.is_order_acking = False
            late = cluster.client.begin("late2")
            cluster.client.send(peer.address, raw=raw, transaction=late)
            cluster.send(peer.address, 5, is_transactional=True)
            await until(lambda: len(peer.taken) == 11)
            assert cluster.client.commit(late) == 0
            await until(lambda: len(peer.taken) == 12)
            peer.raw.clear()
            cluster.lead("n2")
            await until(lambda: len(peer.raw) == 6)
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.taken) == 12

    run(scenario())


def test_what_was_acknowledged_is_not_sent_again_while_that_is_committed() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1, priority=0)
            await until(lambda: not cluster.waiting(queue))
            late = cluster.client.begin("late")
            raw = packet(0, body=b"100", sequence=(1, 1, 0))
            assert cluster.client.send(peer.address, raw=raw, transaction=late).status == 0
            cluster.world.is_committing.clear()
            cluster.send(peer.address, 1, priority=0)
            await until(lambda: len(peer.raw) == 2)
            await settled()
            # It lies before what was sent, so that the queue is read again from there.
            assert cluster.client.commit(late) == 0
            await settled()
            cluster.world.is_committing.set()
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 3

    run(scenario())


def test_copies_of_one_send_are_addressed_each_to_its_destination() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=True) as (peer, cluster):
            private = f"PRIVATE={guid_text(PEER_GUID)}\\00000009"
            outcome = cluster.client.send(f"DIRECT=TCP:{HOST}\\a", f"DIRECT=TCP:{HOST}\\b", private)
            assert outcome.status == 0
            await until(lambda: len(peer.raw) == 3)
            messages = [parse_user_message(raw, 0, len(raw))[0].user_header for raw in peer.raw]
            found = {(one.destination_queue, one.queue_manager_address) for one in messages}
            assert found == {
                (DirectQueueFormatName(f"TCP:{HOST}\\a"), GUID_NULL),
                (DirectQueueFormatName(f"TCP:{HOST}\\b"), GUID_NULL),
                (PrivateQueueFormatNameId(QueueHost.DESTINATION, 9), PEER_GUID),
            }
            assert len({one.message_id for one in messages}) == 1

    run(scenario())


def test_large_messages_leave_one_by_one() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            raw = packet(0, body=b"9" * 1_000_000, is_recoverable=True)
            for _ in range(12):
                assert cluster.client.send(peer.address, raw=raw).status == 0
            await until(lambda: len(peer.raw) == 12)
            assert len({one.user_header.message_id for one in peer.taken}) == 12

    run(scenario())


def test_a_purged_outgoing_queue_sends_nothing_of_it() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 5, has_negative_journaling=True)
            cluster.world.one(commands.PurgeQueue(request(), queue, ()))
            cluster.send(f"DIRECT=TCP:{HOST}\\q", 1)
            async with Peer(HOST, port) as peer:
                await cluster.retry(queue)
                await until(lambda: len(peer.raw) == 1)
                cluster.world.settle(queue)
                await until(lambda: not cluster.waiting(queue))
                assert len(peer.raw) == 1
                assert len(cluster.dead_letters()) == 5
                assert cluster.world.one(commands.RemoveOutgoingQueue(queue)).status == 0
                assert cluster.manager.report(queue) is None
                again = cluster.send(f"DIRECT=TCP:{HOST}\\q", 1)
                assert again != queue
                await until(lambda: len(peer.raw) == 2)

    run(scenario())


def test_counters_do_not_wrap_on_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.session.session.RECYCLE_AFTER_COUNT", 100)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.config = SessionConfig(window_size=16)
            queue = cluster.send(peer.address, 350, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == list(range(350))
            assert peer.established >= 3
            assert cluster.metric("quorate_sessions_closed_total", reason="recycled") >= 2

    run(scenario())


@pytest.mark.spec("QB-1.3.5.2-01")
@pytest.mark.parametrize("is_recoverable", [False, True])
def test_acknowledgements_leave_over_tcp_for_names_without_a_transport(
    is_recoverable: bool,
) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            know_peer(cluster.world, addresses=(HOST,))
            cluster.world.create("orders")
            asking = packet(
                5, admin_queue=PrivateQueueFormatName(PEER_GUID, 9), is_recoverable=is_recoverable,
                properties={"flags": 0x01},
            )  # fmt: skip
            cluster.world.arrive(asking)
            await until(lambda: len(peer.raw) == 1)
            (ack,) = peer.taken
            assert ack.properties.message_class == 0x0002
            assert ack.user_header.is_recoverable is is_recoverable
            assert ack.user_header.queue_manager_address == PEER_GUID

    run(scenario())


@pytest.mark.spec("QB-1.3.5.2-01")
def test_acknowledgements_of_apply_leave_like_messages() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.create("orders")
            asking = packet(
                5, admin_queue=DirectQueueFormatName(f"TCP:{HOST}\\admin"),
                properties={"flags": 0x01},
            )  # fmt: skip
            cluster.world.arrive(asking)
            await until(lambda: len(peer.raw) == 1)
            assert peer.taken[0].properties.message_class == MessageClass.ACK_REACH_QUEUE

    run(scenario())


def test_messages_behind_many_that_wait_for_their_final_acks_are_found() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(
                peer.address, 600, is_transactional=True, has_positive_journaling=True
            )
            await until(lambda: len(peer.taken) == 600)
            peer.send_order_ack()
            await until(lambda: cluster.manager.report(queue).loaded_count == 0)  # type: ignore[union-attr]
            assert cluster.waiting(queue) == 600
            cluster.lead(None)
            cluster.send(peer.address, 3)
            cluster.send(peer.address, 3, is_transactional=True)
            cluster.lead("n2")
            await until(lambda: cluster.waiting(queue) == 600, lambda: cluster.waiting(queue))
            assert len(peer.raw) == 606
            for message in peer.taken[:600]:
                peer.send_final_ack(message, MessageClass.ACK_RECEIVE)
                if peer.connections[0].session.in_flight > 32:
                    await until(lambda: not peer.connections[0].session.in_flight)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert len(cluster.journal()) == 600

    run(scenario())


def test_an_administrator_need_not_wait_for_the_retry_timer() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 3, is_transactional=True)
            await until(
                lambda: cluster.metric("quorate_outgoing_connects_total", result="failed") == 1
            )
            async with Peer(HOST, port) as peer:
                await settled()
                assert not peer.connections
                assert cluster.manager.resend(queue)
                await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("QB-3.1.5.2.1-05")
def test_acknowledgements_come_from_the_peer_that_the_messages_went_to() -> None:
    """Also over a new session of another address, and with a leader that knows only rows."""

    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (first, second, cluster):
            second.guid = first.guid
            cluster.world.one(commands.SetBindings(BindingMode.STRICT, 60_000, (), ()))
            cluster.names.known["far"] = [HOST]
            queue = cluster.send("DIRECT=OS:far\\q", 40, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peers_of(cluster.world.state, queue) == ((PEER_GUID, HOST),)
            cluster.names.known["far"] = [OTHER_HOST]
            await first.shut()
            cluster.lead("n2")
            cluster.send("DIRECT=OS:far\\q", 40, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peers_of(cluster.world.state, queue)[0] == (PEER_GUID, OTHER_HOST)
            opened = [c for c in cluster.world.proposed if isinstance(c, commands.TransferOpened)]
            assert len(opened) == 2

    run(scenario())


def test_a_new_leader_numbers_on_behind_what_only_waits_for_its_final_ack() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            fields = {"is_transactional": True, "has_positive_journaling": True}
            queue = cluster.send(peer.address, **fields)
            await until(lambda: len(peer.bodies) == 1)
            await until(lambda: not pending(cluster, queue))
            assert cluster.waiting(queue) == 1
            cluster.lead("n2")
            await settled()
            for count in (2, 3):
                cluster.send(peer.address, **fields)
                await until(lambda count=count: len(peer.bodies) == count)  # type: ignore[misc]
            assert peer.bodies == [0, 1, 2]

    run(scenario())


def pending(cluster: SendingCluster, queue: int) -> int:
    """Return how many messages of a sequence have not been acknowledged in order."""
    info = queries.outgoing_queue(cluster.world.machine.view, queue)
    return 0 if info is None else info.eod_no_ack_count


def test_a_leader_that_steps_down_closes_its_connections_for_final_acks() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=True) as (peer, cluster):
            peer.is_acknowledging = False
            raw = packet(1, to="absent", sequence=(9 << 32, 1, 0), source_queue_manager=PEER_GUID)
            cluster.world.arrive(raw, facts=Facts(1, PEER_GUID, HOST, ()))
            await until(lambda: peer.final_acks)
            cluster.lead(None)
            await until(lambda: not peer.connections)
            cluster.advance(limits.OUTBOX_RETRY_S)
            await settled()
            assert not peer.connections

    run(scenario())
