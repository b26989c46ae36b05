"""Timers of a session [MS-MQQB 3.1.2, 3.1.6]."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qm.node.config.loading import ConfigError, parse
from qm.node.config.schema import MSMQ_PORT, MsmqSection
from qm.node.upkeep.msmq_endpoint import session_config
from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    CloseReason,
    OutgoingLink,
    SessionConfig,
    SessionState,
)
from qm.session.link import ConnectionStatus
from qm.wire.guid import GUID_NULL
from qm.wire.packets.internal import (
    ESTABLISH_CONNECTION_SIZE_BYTES,
    ConnectionParameters,
    parse_connection_parameters,
)
from qm.wire.packets.packet import Packet, write_packet
from tests.cluster.harness import free_network, run, until
from tests.unit.api.world import world
from tests.unit.edge.outgoing.world import Peer
from tests.unit.node.config.test_loading import SOUND
from tests.unit.session.builders import (
    NOW,
    THEM,
    US,
    acceptor,
    ack,
    establish,
    final_ack,
    initiator,
    message,
    messages,
    open_acceptor,
    open_initiator,
    order_ack,
)


@pytest.mark.spec("QB-3.1.2.1-01", "QB-3.1.6.6-01")
@pytest.mark.parametrize(
    ("config", "period"),
    [
        (SessionConfig(), 60),
        (SessionConfig(round_trip_delay_ms=2_000), 64),
        (SessionConfig(initialization_timeout_ms=45_000, round_trip_delay_ms=500), 46),
    ],
)
def test_initialization_timer_bounds_the_handshake_on_both_sides(
    config: SessionConfig, period: float
) -> None:
    half_way = initiator(config)
    waiting = acceptor(config)
    for driven, first in ((half_way, establish(US, THEM)), (waiting, establish(THEM, US))):
        driven.wait(30)
        driven.feed(first)
        driven.wait(period - 30 - 0.001)
    for driven in (initiator(config), acceptor(config), half_way, waiting):
        driven.wait(NOW + period - 0.001 - driven.now)
        assert driven.closed() is None
        driven.wait(0.001)
        assert driven.closed() is CloseReason.INITIALIZATION_TIMEOUT
        assert driven.session.next_timer() is None


@pytest.mark.spec("QB-3.1.2.1-01")
def test_initialization_timer_stops_with_connection_parameters() -> None:
    for driven in (open_initiator(), open_acceptor()):
        driven.wait(299)
        assert driven.state() is SessionState.OPEN


@pytest.mark.spec("QB-3.1.2.2-01", "QB-3.1.6.2-01", "QB-3.1.7.1.3-05")
@pytest.mark.parametrize("kind", [KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL])
@pytest.mark.parametrize("is_sender", [False, True])
def test_a_session_without_messages_for_a_whole_period_ends(is_sender: bool, kind: int) -> None:
    driven = open_acceptor(SessionConfig(cleanup_timeout_ms=100_000))
    named = int(kind != KIND_EXPRESS)
    if is_sender:
        driven.offer(1, 1, kind)
        driven.out()
        driven.feed(ack(1, named))
    else:
        driven.feed(message(1, kind))
        driven.session.commit(1)
        driven.out()
    driven.wait(100)
    assert driven.closed() is None
    # A SessionAck is no activity.
    recoverable_sent = 0 if is_sender else named
    driven.feed(ack(int(is_sender), sent=int(not is_sender), recoverable_sent=recoverable_sent))
    driven.wait(99.9)
    assert driven.closed() is None
    driven.wait(0.1)
    assert driven.closed() is CloseReason.IDLE


@pytest.mark.spec("QB-3.1.2.2-01", "QB-3.1.3.2-02")
def test_cleanup_runs_from_the_start_and_five_minutes_long() -> None:
    driven = open_acceptor()
    assert driven.session.next_timer() == NOW + 300
    driven.wait(300)
    assert driven.closed() is CloseReason.IDLE


@pytest.mark.spec("QB-3.1.3.2-02")
def test_other_timers_are_stopped_at_the_start() -> None:
    driven = acceptor(SessionConfig(cleanup_timeout_ms=50_000))
    assert driven.session.next_timer() == NOW + 50
    driven = acceptor(SessionConfig(initialization_timeout_ms=400_000))
    assert driven.session.next_timer() == NOW + 300
    # RecoverableAckSendTimeout is not known before the handshake has agreed on it.
    driven.feed(establish(THEM, US))
    assert driven.session.next_timer() == NOW + 300
    driven.feed(ConnectionParameters(700, 20_000), message(1))
    assert driven.session.next_timer() == NOW + 0.7


@pytest.mark.spec("QB-3.1.2.4-01")
@pytest.mark.parametrize(
    "packet",
    [message(1), message(1, KIND_EXPRESS), order_ack(), final_ack(), ack(0)],
    ids=["recoverable", "express", "OrderAck", "FinalAck", "SessionAck"],
)
def test_every_packet_that_arrives_gives_a_waiting_session_another_period(packet: Packet) -> None:
    for driven in (open_initiator(), open_acceptor()):
        driven.offer(1, 1)
        driven.out()
        driven.wait(20)  # what came before the message
        assert driven.closed() is None
        driven.wait(10)
        driven.feed(packet)
        driven.wait(20)
        assert driven.closed() is None
        driven.wait(40)
        assert driven.closed() is CloseReason.ACK_TIMEOUT


@pytest.mark.spec("QB-3.1.2.4-01")
def test_the_ack_wait_is_for_what_awaits_an_ack() -> None:
    for named in (False, True):
        for driven in (open_initiator(), open_acceptor()):
            driven.offer(1, 1)
            driven.out()
            driven.feed(ack(1, 1, 1) if named else ack(1))
            # A recoverable message that has arrived is awaited until it is named as persisted.
            driven.wait(41)
            assert driven.closed() is (None if named else CloseReason.ACK_TIMEOUT)


@pytest.mark.spec("QB-3.1.2.4-01", "QB-3.1.6.3-01", "QB-3.1.7.1.3-05")
@pytest.mark.parametrize(("remote", "period"), [(THEM, 20), (GUID_NULL, 40)])
def test_ack_wait_closes_when_nothing_arrives(remote: bytes, period: int) -> None:
    driven = open_initiator(remote=remote)
    driven.wait(10)
    driven.offer(1, 1)
    driven.out()
    assert driven.session.next_timer() == NOW + 10 + period
    # No acceptor connected to a direct name.
    accepted = open_acceptor()
    accepted.offer(1, 1)
    accepted.out()
    assert accepted.session.next_timer() == NOW + 20
    # AckWaitTimeout is what was agreed on.
    for agreed, wanted in (
        (open_acceptor(ack_timeout_ms=40_000), 40),
        (open_initiator(SessionConfig(ack_wait_timeout_ms=30_000), remote=remote), 1.5 * period),
    ):
        agreed.offer(1, 1)
        agreed.out()
        assert agreed.session.next_timer() == NOW + wanted
    # Something had arrived since the session began: the first expiry only clears ReceivedAck.
    driven.wait(period)
    assert driven.closed() is None
    driven.offer(2, 1)
    driven.out()
    # The timer runs already; another message does not start it anew.
    driven.wait(period - 0.001)
    assert driven.closed() is None
    driven.wait(0.001)
    assert driven.closed() is CloseReason.ACK_TIMEOUT


@pytest.mark.spec("QB-3.1.6.3-01", "QB-3.1.5.1-01")
@pytest.mark.parametrize("kind", ["message", "order ack", "final ack", "session ack"])
def test_ack_wait_goes_on_while_packets_arrive(kind: str) -> None:
    driven = open_initiator(SessionConfig(cleanup_timeout_ms=1_000_000))
    driven.offer(1, 1)
    driven.out()
    made: dict[str, Callable[[int], Packet]] = {
        "message": message,
        "order ack": order_ack,
        "final ack": final_ack,
        # One that acknowledges nothing.
        "session ack": lambda _: ack(0),
    }
    for number in range(1, 10):
        driven.wait(19)
        driven.feed(made[kind](number))
        if kind != "session ack":
            driven.session.commit(number)
        driven.out()
        assert driven.closed() is None
    driven.wait(41)
    assert driven.closed() is CloseReason.ACK_TIMEOUT


@pytest.mark.spec("QB-3.1.5.1-01")
def test_the_packets_of_the_handshake_count_as_received() -> None:
    for driven in (open_initiator(), open_acceptor()):
        driven.offer(1, 1)
        driven.out()
        driven.wait(20)
        assert driven.closed() is None
        driven.wait(20)
        assert driven.closed() is CloseReason.ACK_TIMEOUT


@pytest.mark.spec("QB-3.1.6.3-01", "QB-3.1.5.5.5-02")
def test_ack_wait_restarts_with_an_acknowledgement_and_ends_with_the_last() -> None:
    driven = open_initiator(SessionConfig(cleanup_timeout_ms=1_000_000))
    driven.offer(1, 2)
    driven.out()
    driven.wait(15)
    driven.feed(ack(1, 1, 1))
    assert driven.session.next_timer() == NOW + 15 + 20
    driven.wait(10)
    driven.feed(ack(2, 2, 1))
    driven.wait(10)
    # It expired with nothing awaiting, and was not restarted: what is left is cleanup.
    assert driven.closed() is None
    assert driven.session.next_timer() == NOW + 1000
    # ReceivedAck is FALSE after that expiry.
    driven.offer(3, 1)
    driven.out()
    driven.wait(20)
    assert driven.closed() is CloseReason.ACK_TIMEOUT


@pytest.mark.spec("QB-3.1.3.2-08")
def test_ack_wait_timeout_is_20_seconds_and_the_round_trip() -> None:
    for configured, expected in (
        (SessionConfig(round_trip_delay_ms=3_000), 23_000),
        (SessionConfig(ack_wait_timeout_ms=30_000), 30_000),
        (SessionConfig(ack_wait_timeout_ms=25_000, round_trip_delay_ms=500), 25_500),
    ):
        driven = initiator(configured)
        driven.out()
        driven.feed(establish(US, THEM))
        (parameters,) = driven.out()
        assert isinstance(parameters, ConnectionParameters)
        assert parameters.ack_timeout == expected
    assert SessionConfig().ack_wait_timeout_ms == 20_000


def configured(folder: Path, keys: str) -> SessionConfig:
    return session_config(parse(f"{SOUND}[msmq]\n{keys}\n", folder)).check()


@pytest.mark.spec("QB-3.1.3.2-08", "QB-3.1.2.1-01", "QB-3.1.2.3-01")
def test_a_node_s_configuration_sets_the_ack_wait_and_the_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    for keys, timeout, initialization_s, reconnect_s in (
        ("", 20_000, 60, 5),
        ("ack_wait_timeout_ms = 30000", 30_000, 60, 5),
        ("round_trip_delay_ms = 1500", 21_500, 63, 6.5),
        ("ack_wait_timeout_ms = 120000\nround_trip_delay_ms = 1500", 120_000, 63, 6.5),
    ):
        config = configured(tmp_path, keys)
        driven = initiator(config)
        assert driven.session.next_timer() == NOW + initialization_s
        driven.out()
        driven.feed(establish(US, THEM))
        (proposed,) = driven.out()
        assert isinstance(proposed, ConnectionParameters)
        assert proposed.ack_timeout == timeout
        link = OutgoingLink(config)
        link.message_available()
        link.next_action()
        link.resolve_failed(ConnectionStatus.UNKNOWN_FAILURE, 0, NOW, 0, has_backlog=True)
        assert link.next_timer() == NOW + reconnect_s
        # An acceptor keeps to what its peer proposed.
        agreed = open_acceptor(config, ack_timeout_ms=40_000)
        agreed.feed(message(1, KIND_EXPRESS))
        assert agreed.session.next_timer() == NOW + 20
    for keys in (
        "ack_wait_timeout_ms = 19999",
        "ack_wait_timeout_ms = 120001",
        "round_trip_delay_ms = -1",
        "round_trip_delay_ms = 120001",
        'round_trip_delay_ms = "1500"',
    ):
        with pytest.raises(ConfigError, match=f"msmq.{keys.partition(' ')[0]}"):
            configured(tmp_path, keys)


@pytest.mark.spec("QB-3.1.3.2-08", "QB-3.1.5.3.2-03", "QB-3.1.5.4.1-01")
def test_a_node_proposes_its_ack_wait_and_keeps_to_what_its_peers_propose() -> None:
    section = MsmqSection(ack_wait_timeout_ms=30_000, round_trip_delay_ms=1_500)

    async def scenario() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            world(msmq=section) as made,
            made.client(await made.leader()) as client,
        ):
            (sent,) = await client.send(peer.address, b"x")
            assert sent.status == 0
            await until(lambda: peer.ack_timeouts_ms == [31_500], lambda: peer.ack_timeouts_ms)
            host = (await made.leader()).node.host
            reader, writer = await asyncio.open_connection(host, MSMQ_PORT)
            writer.write(write_packet(establish(THEM, GUID_NULL)))
            await reader.readexactly(ESTABLISH_CONNECTION_SIZE_BYTES)
            proposed = ConnectionParameters(500, 40_000, 64)
            writer.write(write_packet(proposed))
            answer = await reader.readexactly(len(write_packet(proposed)))
            agreed, _ = parse_connection_parameters(answer, 0, len(answer))
            assert (agreed.ack_timeout, agreed.recoverable_ack_timeout) == (40_000, 500)
            writer.close()

    run(scenario())


@pytest.mark.spec("QB-3.1.2.5-01", "QB-3.1.5.8.2-05", "QB-3.1.6.4-01", "QB-3.1.1.6.1-04")
def test_ack_send_timer_acknowledges_what_is_durable() -> None:
    driven = open_acceptor(ack_timeout_ms=40_000)
    driven.feed(*messages(1, 2, KIND_EXPRESS))
    assert driven.session.next_timer() == NOW + 20
    driven.wait(5)
    driven.feed(message(3, KIND_EXPRESS))
    assert driven.session.next_timer() == NOW + 20
    driven.session.commit(2)
    driven.wait(14.9)
    assert driven.acks() == []
    driven.wait(0.1)
    (header,) = driven.acks()
    assert header.ack_sequence_number == 2
    # SessionActive: whatever arrived, the first expiry of Session Cleanup ends no session.
    for packet in (message(1, KIND_EXPRESS), message(1), order_ack(1), final_ack(1)):
        driven = open_acceptor(SessionConfig(cleanup_timeout_ms=50_000))
        driven.feed(packet)
        driven.session.commit(1)
        driven.out()
        driven.wait(99)
        assert driven.closed() is None
        driven.wait(1)
        assert driven.closed() is CloseReason.IDLE


@pytest.mark.spec("QB-3.1.6.4-01")
def test_each_expiry_names_what_came_since_the_last_acknowledgement() -> None:
    driven = open_acceptor(recoverable_ack_timeout_ms=500)
    for first, named in ((1, (2, 1, 0b11)), (4, (5, 3, 0b111))):
        driven.feed(*messages(first, 3))
        driven.session.commit(first + 1)
        driven.wait(0.4)
        assert driven.acks() == []
        driven.wait(0.1)
        (header,) = driven.acks()
        assert named == (
            header.ack_sequence_number,
            header.recoverable_msg_ack_seq_number,
            header.recoverable_msg_ack_flags,
        )
        driven.wait(5)
        assert driven.acks() == [], "nothing more is durable"


@pytest.mark.spec("QB-3.1.6.4-01", "QB-3.1.6.4-02", "QB-3.1.2.5-01", "QB-3.1.5.8.2-05")
def test_ack_send_timer_says_nothing_of_what_is_not_durable() -> None:
    driven = open_acceptor()
    driven.feed(*messages(1, 2, KIND_EXPRESS))
    driven.wait(10)
    assert driven.acks() == []
    # It goes on while anything waits, and stops when nothing does (QB-A34).
    assert driven.session.next_timer() == NOW + 20
    driven.session.commit(1)
    driven.wait(10)
    assert [header.ack_sequence_number for header in driven.acks()] == [1]
    assert driven.session.next_timer() == NOW + 30
    driven.session.commit(2)
    assert [header.ack_sequence_number for header in driven.acks()] == [2]
    assert driven.session.next_timer() == NOW + 300
    driven.feed(message(3, KIND_EXPRESS))
    assert driven.session.next_timer() == NOW + 30


@pytest.mark.spec("QB-3.1.5.8.7-04", "QB-3.1.2.5-01")
def test_first_recoverable_message_shortens_the_timer() -> None:
    driven = open_acceptor(recoverable_ack_timeout_ms=600)
    driven.feed(message(1, KIND_EXPRESS))
    assert driven.session.next_timer() == NOW + 10
    driven.wait(1)
    driven.feed(message(2))
    assert driven.session.next_timer() == NOW + 1.6
    driven.wait(0.5)
    # Only the first since the last acknowledgement.
    driven.feed(message(3))
    assert driven.session.next_timer() == NOW + 1.6
    driven.session.commit(2)
    driven.wait(0.1)
    assert len(driven.acks()) == 1
    driven.session.commit(3)
    assert len(driven.acks()) == 1
    driven.wait(1)
    driven.feed(message(4))
    assert driven.session.next_timer() == pytest.approx(driven.now + 0.6)
    # Express ones that come with it change nothing.
    driven = open_acceptor(recoverable_ack_timeout_ms=600)
    driven.feed(message(1, KIND_EXPRESS), message(2), message(3, KIND_EXPRESS))
    assert driven.session.next_timer() == NOW + 0.6


def test_timers_that_are_called_early_do_nothing() -> None:
    driven = open_initiator()
    driven.offer(1, 1)
    driven.out()
    due = driven.session.next_timer()
    driven.session.handle_timer(NOW)
    assert driven.session.next_timer() == due
    assert driven.closed() is None


def test_every_expiry_moves_or_stops_its_timer() -> None:
    driven = open_acceptor()
    driven.feed(message(1))
    driven.offer(1, 1)
    driven.out()
    for _ in range(100):
        due = driven.session.next_timer()
        if due is None:
            break
        driven.session.handle_timer(due)
        later = driven.session.next_timer()
        assert later is None or later > due
    assert driven.closed() is not None
