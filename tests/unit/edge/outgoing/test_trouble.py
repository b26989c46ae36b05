"""Peers that refuse, lie, break off or cannot be found; each has its reason, others continue."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import Any

import pytest

from qm.edge.outgoing import limits
from qm.edge.outgoing import queue as queues
from qm.edge.outgoing.link import connections
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.elements import OutgoingAdminState, QueueAccessType
from qm.model.values.limits import PACKET_MAX_BYTES
from qm.names.guid import guid_text
from qm.session import (
    CloseReason,
    ConnectionStatus,
    OutgoingState,
    SessionConfig,
)
from qm.wire.guid import GUID_NULL
from qm.wire.headers.session_header import SessionHeader
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.packets.internal import SessionAck
from qm.wire.packets.packet import write_packet
from qm.wire.structures.queue_name import DirectQueueFormatName
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
from tests.unit.edge.world import lines_of
from tests.unit.model.world import packet, request

HOST, OTHER_HOST = "127.0.0.43", "127.0.0.44"


def last_status(cluster: SendingCluster, queue: int) -> ConnectionStatus | None:
    report = cluster.manager.report(queue)
    if report is None or not report.connection_history:
        return None
    return report.connection_history[-1].status


def has_packets(peer: Peer, count: int) -> bool:
    return len(peer.raw) == count


def state(cluster: SendingCluster, queue: int) -> OutgoingState | None:
    report = cluster.manager.report(queue)
    return None if report is None else report.state


@pytest.mark.spec("DM-3.1.1.3-07")
def test_a_peer_that_does_not_run_is_tried_again() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 3)
            await until(
                lambda: last_status(cluster, queue) is ConnectionStatus.SOCKET_CONNECT_FAILURE
            )
            assert state(cluster, queue) is OutgoingState.DISCONNECTED
            assert cluster.metric("quorate_outgoing_connects_total", result="failed") == 1
            async with Peer(HOST, port) as peer:
                await settled()
                assert not peer.connections
                await cluster.retry(queue)
                await until(lambda: not cluster.waiting(queue))
                assert peer.bodies == [0, 1, 2]

    run(scenario())


@pytest.mark.spec("QB-3.1.5.9-03", "QB-3.1.6.1-02")
def test_what_a_second_session_sent_is_sent_again_without_an_order_ack() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 1, is_transactional=True)
            await until(partial(has_packets, peer, 1))
            peer.cut()
            await cluster.retry(queue)
            await until(partial(has_packets, peer, 2))
            await settled()
            cluster.advance(31)
            await until(partial(has_packets, peer, 3))
            peer.send_order_ack()
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("QB-3.1.3.2-03")
def test_a_new_session_resends_from_the_first_interval() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: len(peer.raw) == 1)
            for count in (2, 3, 4):
                cluster.advance(31)
                await until(partial(has_packets, peer, count))
            peer.cut()
            await until(lambda: state(cluster, queue) is OutgoingState.DISCONNECTED)
            await cluster.retry(queue)
            await until(lambda: len(peer.raw) == 5)
            report = cluster.manager.report(queue)
            assert report is not None
            assert (report.eod_resend_count, report.eod_resend_interval_s) == (0, 30)
            assert report.eod_last_ack_count == 0
            await until(lambda: state(cluster, queue) is OutgoingState.CONNECTED)
            await settled()
            cluster.advance(31)
            await until(lambda: len(peer.raw) == 6)

    run(scenario())


def test_a_connection_given_up_just_as_it_is_made_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            loop = asyncio.get_running_loop()
            connect = loop.create_connection

            async def late(*arguments: Any, **more: Any) -> None:
                transport, _ = await connect(*arguments, **more)
                loop.call_later(0.02, transport.close)
                raise TimeoutError

            with monkeypatch.context() as patched:
                patched.setattr(type(loop), "create_connection", lambda _, *a, **m: late(*a, **m))
                queue = cluster.send(peer.address, 3)
                await until(lambda: state(cluster, queue) is OutgoingState.DISCONNECTED)
            await until(lambda: cluster.metric("quorate_sessions", role="initiator") == 0)
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            assert cluster.metric("quorate_sessions", role="initiator") == 1

    run(scenario())


@pytest.mark.spec("MQ-2.3.12.25-03")
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.EMFILE, ConnectionStatus.SOCKET_CREATE_FAILURE),
        (errno.ENFILE, ConnectionStatus.SOCKET_CREATE_FAILURE),
        (errno.EADDRNOTAVAIL, ConnectionStatus.SOCKET_BIND_FAILURE),
        (errno.EADDRINUSE, ConnectionStatus.SOCKET_BIND_FAILURE),
        (errno.ECONNREFUSED, ConnectionStatus.SOCKET_CONNECT_FAILURE),
        (errno.ENOBUFS, ConnectionStatus.LOW_RESOURCE),
        (errno.ENOMEM, ConnectionStatus.LOW_RESOURCE),
    ],
)
def test_what_the_system_does_not_give_has_its_status(
    number: int, status: ConnectionStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise OSError(number, "refused")

    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refused)
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 1)
            await until(lambda: last_status(cluster, queue) is status)

    run(scenario())


@pytest.mark.spec("MQ-2.3.12.25-03")
def test_a_peer_that_refuses_is_tried_again() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.config = SessionConfig(admit=lambda guid, pinged: False)
            queue = cluster.send(peer.address, 3)
            await until(lambda: last_status(cluster, queue) is ConnectionStatus.CONNECTION_REFUSED)
            assert cluster.metric("quorate_sessions_closed_total", reason="refused_by_peer") == 1
            peer.config = SessionConfig()
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40, b"\x00" * 600])
def test_nonsense_ends_a_session_with_its_reason_and_leaves_others_alone(greeting: bytes) -> None:
    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (bad, good, cluster):
            bad.greeting = greeting
            first = cluster.send(bad.address, 3)
            second = cluster.send(good.address, 3)
            await until(lambda: not cluster.waiting(second))
            await until(
                lambda: cluster.metric("quorate_sessions_closed_total", reason="malformed_packet")
            )
            assert cluster.waiting(first) == 3
            bad.greeting = b""
            await cluster.retry(first)
            await until(lambda: not cluster.waiting(first))
            assert bad.bodies == [0, 1, 2]

    run(scenario())


def test_a_peer_that_answers_with_another_guid_gets_nothing() -> None:
    async def scenario() -> None:
        async with one_peer(HOST, b"LIAR" * 4, is_mapped=True) as (peer, cluster):
            queue = cluster.send(f"PRIVATE={guid_text(PEER_GUID)}\\00000009", 3)
            await until(
                lambda: cluster.metric("quorate_sessions_closed_total", reason="refused_by_peer")
            )
            assert not peer.raw
            assert cluster.waiting(queue) == 3
            peer.guid = PEER_GUID
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("MQ-2.3.12.25-03", "QB-3.1.6.1-01", "QB-3.1.5.2.1-02")
def test_a_host_that_nobody_knows_is_looked_up_again() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send("DIRECT=OS:far\\q", 3)
            await until(lambda: last_status(cluster, queue) is ConnectionStatus.DNS_FAILURE)
            assert state(cluster, queue) is OutgoingState.NEED_VALIDATION
            # Not at once, but when the timer says so.
            await settled()
            report = cluster.manager.report(queue)
            assert report is not None
            assert len(report.connection_history) == 1
            cluster.names.known["far"] = ["127.0.0.45", HOST]
            await cluster.retry(queue)
            await until(
                lambda: last_status(cluster, queue) is ConnectionStatus.SOCKET_CONNECT_FAILURE
            )
            # The next hop is tried without asking again.
            cluster.names.known.clear()
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == [0, 1, 2]
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.next_hops == (f"IP={HOST}",)

    run(scenario())


@pytest.mark.spec("QB-3.1.6.1-01")
def test_a_retry_that_finds_nothing_to_send_connects_to_nobody() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        peer = Peer(HOST, port)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(peer.address)
            failure = ConnectionStatus.SOCKET_CONNECT_FAILURE
            await until(lambda: last_status(cluster, queue) is failure)
            cluster.world.one(commands.PurgeQueue(request(), queue, ()))
            cluster.world.settle(queue)
            async with peer:
                await cluster.retry(queue)
                await settled()
                assert peer.asked_for == []
                again = cluster.send(peer.address)
                await until(lambda: not cluster.waiting(again))
                assert len(peer.taken) == 1

    run(scenario())


@pytest.mark.spec("MQ-2.1.4-02")
def test_a_private_name_asks_the_directory_for_its_computer_and_not_for_its_queue() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            know_peer(cluster.world, addresses=(HOST,))
            queue = cluster.send(f"PRIVATE={guid_text(PEER_GUID)}\\00000009", 1)
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.taken) == 1
            # The directory has that computer, and no object of the queue.
            rows = [key for table, key, _ in cluster.world.state.rows() if table == Table.DIRECTORY]
            assert rows == [PEER_GUID]

    run(scenario())


@pytest.mark.spec("QB-2.2.3.1-03", "QB-3.1.5.2.1-01", "QB-3.1.5.2.1-04", "QB-3.1.7.4-03")
@pytest.mark.parametrize("known_by", ["its address", "the configuration", "the directory"])
def test_a_session_is_asked_of_a_queue_manager_unless_the_name_is_direct(known_by: str) -> None:
    async def scenario() -> None:
        async with one_peer(HOST, is_mapped=known_by == "the configuration") as (peer, cluster):
            know_peer(cluster.world, addresses=(HOST,))
            is_direct = known_by == "its address"
            name = peer.address if is_direct else f"PRIVATE={guid_text(PEER_GUID)}\\00000009"
            queue = cluster.send(name, 1)
            await until(lambda: not cluster.waiting(queue))
            assert peer.asked_for == [GUID_NULL if is_direct else PEER_GUID]

    run(scenario())


@pytest.mark.spec("QB-3.1.7.4-03")
def test_a_private_name_needs_its_queue_manager_in_the_configuration() -> None:
    async def scenario() -> None:
        async with SendingCluster(1801) as cluster:
            queue = cluster.send(f"PRIVATE={guid_text(PEER_GUID)}\\00000009", 1)
            await until(
                lambda: last_status(cluster, queue) is ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE
            )
            assert state(cluster, queue) is OutgoingState.NEED_VALIDATION

    run(scenario())


@pytest.mark.spec(
    "QB-1.3.2.1.1-01", "QB-1.3.2.1.2-01", "QB-3.1.1.6-01", "QB-3.1.7.1.6-01", "QB-3.1.3.2-04"
)
@pytest.mark.parametrize("is_recoverable", [False, True])
def test_a_cut_connection_is_made_again_and_what_was_under_way_is_repeated(
    is_recoverable: bool,
) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_acknowledging = False
            queue = cluster.send(peer.address, 200, is_recoverable=is_recoverable)
            await until(lambda: len(peer.raw) == 64)
            first = list(peer.raw)
            peer.cut()
            peer.is_acknowledging = True
            await until(lambda: state(cluster, queue) is OutgoingState.DISCONNECTED)
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            # Byte for byte the same, so that a receiver recognizes them.
            assert peer.raw[64:128] == first
            assert peer.bodies == list(range(200))

    run(scenario())


def test_a_silent_peer_is_given_up_after_the_ack_wait() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            peer.is_deaf = True
            cluster.send(peer.address, 3)
            await settled()
            cluster.advance(41)
            cluster.advance(41)
            await until(
                lambda: cluster.metric("quorate_sessions_closed_total", reason="ack_timeout")
            )
            peer.is_deaf = False
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


def test_a_peer_that_acknowledges_what_was_not_sent_to_it_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (forger, honest, cluster):
            forger.is_acknowledging = honest.is_acknowledging = False
            queue = cluster.send(forger.address, 3)
            other = cluster.send(honest.address, 3)
            await until(lambda: len(forger.raw) == len(honest.raw) == 3)
            transport = forger.connections[0].transport
            assert transport is not None
            transport.write(write_packet(SessionAck(SessionHeader(4, 0, 0, 0, 0, 64))))
            reason = CloseReason.FALSE_ACKNOWLEDGEMENT.value
            await until(lambda: cluster.metric("quorate_sessions_closed_total", reason=reason) == 1)
            (line,) = lines_of(caplog, f"session_closed_{reason}")
            assert (line["reason"], line["address"]) == (reason, HOST)
            assert cluster.waiting(queue) == 3, "nothing of it counts"
            honest.is_acknowledging = True
            honest.connections[0].settle()
            await until(lambda: not cluster.waiting(other))
            forger.is_acknowledging = True
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            assert forger.bodies == [0, 1, 2]

    run(scenario())


def test_what_peers_send_back_arrives_like_everything_else() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            orders = cluster.world.create("orders")
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            connection = peer.connections[0]
            cluster.world.is_committing.clear()
            connection.offer(
                1, packet(1, to="orders", is_recoverable=True, source_queue_manager=PEER_GUID)
            )
            await settled()
            assert connection.session.in_flight == 1
            assert not cluster.waiting(orders)
            cluster.world.is_committing.set()
            await until(lambda: connection.released == [1])
            assert cluster.waiting(orders) == 1
            # A malformed packet ends the session; everything before it has arrived.
            good = packet(2, to="orders", source_queue_manager=PEER_GUID)
            bad = bytearray(packet(3, to="orders", source_queue_manager=PEER_GUID))
            bad[-60:-56] = b"\xff\xff\xff\x7f"
            connection.session.offer([2, 3], [good, bytes(bad)])
            connection.write()
            await until(
                lambda: cluster.metric("quorate_sessions_closed_total", reason="malformed_packet")
            )
            await until(lambda: cluster.waiting(orders) == 2)
            assert cluster.metric("quorate_sessions", role="initiator") == 0

    run(scenario())


@pytest.mark.spec("DM-3.1.1.3-07")
def test_an_idle_connection_makes_room_and_a_busy_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.edge.outgoing.link.connections.CONNECTIONS_MAX", 1)

    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (first, second, cluster):
            queue = cluster.send(first.address, 1)
            await until(lambda: not cluster.waiting(queue))
            other = cluster.send(second.address, 1)
            await until(lambda: not cluster.waiting(other))
            assert cluster.metric("quorate_sessions", role="initiator") == 1
            second.is_acknowledging = False
            cluster.send(second.address, 1)
            await until(lambda: len(second.raw) == 2)
            cluster.send(first.address, 1)
            await until(
                lambda: last_status(cluster, queue) is ConnectionStatus.CONNECTION_LIMIT_REACHED
            )
            second.acknowledge()
            await until(lambda: not cluster.waiting(other))
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            assert not cluster.waiting(other)

    run(scenario())


@pytest.mark.spec("MQ-2.3.12.25-03")
def test_a_busy_connection_gives_way_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.edge.outgoing.link.connections.CONNECTIONS_MAX", 1)

    async def scenario() -> None:
        async with two_peers(HOST, OTHER_HOST) as (first, second, cluster):
            first.is_acknowledging = False
            queue = cluster.send(first.address, 200)
            await until(lambda: len(first.raw) == 64)
            other = cluster.send(second.address, 3)
            await until(
                lambda: last_status(cluster, other) is ConnectionStatus.CONNECTION_LIMIT_REACHED
            )
            cluster.advance(limits.TENURE_S)
            await settled()
            # What was sent is still acknowledged before the connection ends.
            first.acknowledge()
            await until(lambda: cluster.waiting(queue) == 136)
            await cluster.retry(other)
            await until(lambda: not cluster.waiting(other))
            await cluster.retry(queue)
            await until(lambda: not cluster.waiting(queue))
            assert len(first.raw) == 200
            assert first.established == 2

    run(scenario())


def test_queues_with_nothing_to_send_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.edge.outgoing.leadership.SENDERS_MAX", 2)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            cluster.advance(301)
            cluster.advance(301)
            await until(lambda: cluster.metric("quorate_sessions_closed_total", reason="idle") == 1)
            for number in range(3):
                other = cluster.send(f"DIRECT=TCP:{HOST}\\other{number}", 1)
                await until(lambda other=other: not cluster.waiting(other))  # type: ignore[misc]
            assert cluster.manager.report(queue) is None
            cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            assert len(peer.raw) == 5

    run(scenario())


def test_nothing_is_sent_by_a_node_that_does_not_lead() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            cluster.lead(None)
            queue = cluster.send(peer.address, 3)
            await settled()
            assert not peer.connections
            assert cluster.waiting(queue) == 3
            cluster.lead("n2")
            await until(lambda: not cluster.waiting(queue))
            await asyncio.sleep(0)
            cluster.lead("n1")
            await until(lambda: cluster.metric("quorate_sessions", role="initiator") == 0)

    run(scenario())


def test_a_node_that_cannot_read_a_body_sends_nothing_behind_it_and_the_next_leader_does() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: not cluster.waiting(queue))
            cluster.nodes["n1"].is_damaged = True
            cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: cluster.metric("quorate_outgoing_messages_total", result="damaged"))
            cluster.send(peer.address, 1, is_transactional=True)
            await settled()
            cluster.advance(limits.OUTBOX_RETRY_S)
            await settled()
            assert len(peer.raw) == 3
            cluster.lead("n2")
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == list(range(7))

    run(scenario())


def test_a_body_that_is_restored_is_sent_by_the_node_that_could_not_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "RESTORE_RETRY_S", 0.01)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: not cluster.waiting(queue))
            cluster.nodes["n1"].is_damaged = True
            cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: cluster.metric("quorate_outgoing_messages_total", result="damaged"))
            cluster.send(peer.address, 1, is_transactional=True)
            await settled()
            assert len(peer.raw) == 3
            cluster.nodes["n1"].is_damaged = False
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == list(range(7))
            # It was tried again and again, not sent and taken back.
            assert cluster.metric("quorate_outgoing_messages_total", result="damaged") == 1

    run(scenario())


def test_a_restoration_that_broke_off_does_not_stop_its_queue() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: not cluster.waiting(queue))
            node = cluster.nodes["n1"]
            node.is_damaged = node.breaks_off = True
            cluster.send(peer.address, 3, is_transactional=True)
            await until(lambda: cluster.metric("quorate_outgoing_messages_total", result="damaged"))
            await settled()
            assert len(peer.raw) == 3
            node.is_damaged = node.breaks_off = False
            cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == list(range(7))

    run(scenario())


def test_a_message_of_which_no_packet_can_be_made_is_a_dead_letter() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            # Addressed to where it goes, it would be longer than a packet may be.
            small = len(packet(0, to="x", sequence=(1, 1, 0), has_negative_journaling=True))
            body = b"8" * (PACKET_MAX_BYTES - small)
            raw = packet(0, to="x", body=body, sequence=(1, 1, 0), has_negative_journaling=True)
            queue = cluster.send(peer.address, 1, is_transactional=True)
            transaction = cluster.client.begin("big")
            assert cluster.client.send(peer.address, raw=raw, transaction=transaction).status == 0
            assert cluster.client.commit(transaction) == 0
            cluster.send(peer.address, 1, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert len(peer.taken) == 2
            (letter,) = cluster.dead_letters(is_transactional=True)
            assert letter == body
            assert cluster.metric("quorate_outgoing_messages_total", result="unsendable") == 1

    run(scenario())


def test_a_snapshot_begins_everything_anew() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            peer.is_acknowledging = False
            queue = cluster.send(peer.address, 3, is_recoverable=True)
            await until(lambda: len(peer.raw) == 3)
            peer.is_acknowledging = True
            cluster.nodes["n1"].restore()
            cluster.nodes["n2"].restore()
            await until(lambda: not cluster.waiting(queue))
            assert peer.bodies == [0, 1, 2]
            assert peer.established == 2

    run(scenario())


def test_a_peer_that_sends_more_than_can_be_committed_is_not_read_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.edge.relay.relay.HELD_MAX_BYTES", 1_000)

    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            orders = cluster.world.create("orders")
            queue = cluster.send(peer.address, 1)
            await until(lambda: not cluster.waiting(queue))
            connection = peer.connections[0]
            cluster.world.is_committing.clear()
            for number in range(1, 41):
                connection.offer(
                    number, packet(number, to="orders", source_queue_manager=PEER_GUID)
                )
                await settled(1)
            assert connection.session.in_flight == 40
            cluster.world.is_committing.set()
            await until(lambda: cluster.waiting(orders) == 40)
            await until(lambda: not connection.session.in_flight)

    run(scenario())


def test_outgoing_queues_that_are_not_used_any_more_are_removed() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            used, unused, held, opened, owing = (
                cluster.send(f"DIRECT=TCP:{HOST}\\q{number}", 1) for number in range(5)
            )
            every = (used, unused, held, opened, owing)
            await until(lambda: not any(map(cluster.waiting, every)))
            hold = commands.SetOutgoingAdminState(request(), held, OutgoingAdminState.ON_HOLD, ())
            cluster.world.one(hold)
            cluster.client.open(f"DIRECT=TCP:{HOST}\\q3", QueueAccessType.SEND_ACCESS)
            peer.is_order_acking = False
            cluster.send(f"DIRECT=TCP:{HOST}\\q4", 1, is_transactional=True)
            cluster.advance(limits.IDLE_QUEUE_S + 1)
            cluster.send(f"DIRECT=TCP:{HOST}\\q0", 1)
            await until(lambda: not cluster.waiting(used))
            cluster.advance(limits.IDLE_QUEUE_S + 1)
            await until(lambda: cluster.world.counters().outgoing_queue_count == 4)
            removed = [one for one in cluster.world.proposed
                       if isinstance(one, commands.RemoveOutgoingQueue)]  # fmt: skip
            assert [one.queue_id for one in removed] == [unused]
            # Its next message finds its way like its first one did.
            assert cluster.send(f"DIRECT=TCP:{HOST}\\q1", 1) != unused
            await until(lambda: len(peer.taken) == 8)

    run(scenario())


def test_an_address_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            peer = Peer(HOST, port)
            queue = cluster.send(peer.address, 1)

            def ended(result: str) -> float:
                return cluster.metric("quorate_outgoing_connects_total", result=result)

            def tries() -> float:
                return ended("failed") + ended("left_alone")

            for number in range(1, 13):
                await until(lambda number=number: tries() >= number)  # type: ignore[misc]
                await cluster.retry(queue)
            # The clock moved after the last of them, too: what that began has ended.
            await until(lambda: tries() >= 13)
            assert ended("left_alone") > 3
            assert limits.BACKOFF_AFTER_COUNT <= ended("failed") < 9
            async with peer:
                cluster.advance(limits.BACKOFF_MAX_S)
                await cluster.retry(queue)
                await until(lambda: not cluster.waiting(queue))

    run(scenario())


def test_what_peers_named_has_connection_attempts_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "CONNECTING_NAMED_MAX", 2)

    async def scenario() -> None:
        loop, most = asyncio.get_running_loop(), 0
        silent: set[str] = set()
        real = loop.create_connection

        async def dial(factory: Any, host: str, *others: Any, **more: Any) -> Any:
            nonlocal most
            if host == HOST:
                return await real(factory, host, *others, **more)
            silent.add(host)
            most = max(most, len(silent))
            try:
                await asyncio.Event().wait()
            finally:
                silent.discard(host)

        monkeypatch.setattr(loop, "create_connection", dial)
        async with one_peer(HOST) as (peer, cluster):
            cluster.world.create("plain")
            for number in range(1, 21):
                admin = DirectQueueFormatName(f"TCP:192.0.2.{number}\\admin")
                asking = {"flags": AcknowledgeFlags.PA}
                message = packet(number, to="plain", admin_queue=admin, properties=asking)
                cluster.world.arrive(message)
            await until(lambda: most)
            queue = cluster.send(peer.address, 3)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert most == 2

    run(scenario())


@pytest.mark.spec("QB-3.1.5.4.2-01", "QB-3.1.5.9-02", "QB-3.1.5.3.2-04", "QB-3.1.5.9-01")
def test_what_became_of_a_connection_is_told_step_by_step() -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            queue = cluster.send(peer.address)
            await until(lambda: not cluster.waiting(queue))
            now_s = cluster.world.now_ms // 1000
            report = cluster.manager.report(queue)
            assert report is not None
            assert [entry.status for entry in report.connection_history][-2:] == [
                ConnectionStatus.ESTABLISH_PACKET_RECEIVED,
                ConnectionStatus.ESTABLISHED,
            ]
            assert {
                (entry.connection_history_time, entry.error, entry.address_list)
                for entry in report.connection_history
            } == {(now_s, 0, HOST)}
            assert (report.state, report.next_hops) == (OutgoingState.CONNECTED, (f"IP={HOST}",))
            peer.cut()
            await until(lambda: state(cluster, queue) is OutgoingState.DISCONNECTED)
            # One that is not used any more is closed without a word.
            cluster.send(peer.address)
            await until(lambda: not cluster.waiting(queue))
            (connection,) = peer.connections
            for _ in range(2):
                cluster.advance(301)
            await until(lambda: not peer.connections)
            assert (connection.session.arrived_count, peer.closed) == (1, [])
            assert state(cluster, queue) is OutgoingState.DISCONNECTED

    run(scenario())
