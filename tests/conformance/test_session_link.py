"""Connecting and reconnecting outgoing queues [MS-MQQB 3.1.5.2, 3.1.5.9, 3.1.6.1, 3.1.7.12]."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qm.session import (
    CloseReason,
    ConnectionStatus,
    NextHop,
    OutgoingLink,
    OutgoingState,
    SessionConfig,
    SessionMisuse,
)
from qm.session.link import Connect, ConnectionHistoryEntry, Resolve, SendPing
from qm.wire.codes import ErrorCode
from tests.unit.session.builders import THEM

FIRST = NextHop("10.0.0.1", "one.example", THEM)
SECOND = NextHop("fd00::2", "two.example", THEM)
UTC = 1_700_000_000


def statuses(link: OutgoingLink) -> list[ConnectionStatus]:
    return [entry.status for entry in link.history]


def connecting(link: OutgoingLink, *hops: NextHop) -> None:
    """Bring a fresh link to where the transport is being connected."""
    link.message_available()
    assert isinstance(link.next_action(), Resolve)
    link.resolved(hops or (FIRST,))
    assert isinstance(link.next_action(), Connect)


def opened(*hops: NextHop) -> OutgoingLink:
    link = OutgoingLink(SessionConfig())
    connecting(link, *hops)
    link.connected(UTC)
    link.establish_received(UTC)
    link.established(UTC)
    return link


@pytest.mark.spec("QB-3.1.5.2-01", "QB-2.1-01", "QB-3.1.5.2.2-01", "QB-3.1.5.2.2-02")
def test_resolve_then_ping_then_connect() -> None:
    link = OutgoingLink(SessionConfig(), uses_ping=True)
    assert link.next_action() is None
    link.message_available()
    assert link.next_action() == Resolve()
    assert link.next_action() is None
    link.resolved([FIRST])
    assert link.next_action() == SendPing(FIRST)
    link.ping_ended(True, 1.0, UTC, has_backlog=True)
    assert link.next_action() == Connect(FIRST, True)
    # The ping is optional.
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.resolved([FIRST])
    assert link.next_action() == Connect(FIRST, False)


@pytest.mark.spec("QB-3.1.5.2.1-04", "QB-3.1.5.2.1-05", "QB-6-04")
def test_the_first_hop_is_the_remote_queue_manager() -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.resolved([FIRST, SECOND])
    assert link.remote == FIRST
    assert link.next_hops == ("IP=10.0.0.1", "IPv6=fd00::2")
    # The name is resolved once for a session, however many messages it carries.
    link.next_action()
    link.connected(UTC)
    link.established(UTC)
    link.message_available()
    assert link.next_action() is None
    # So it is when a retry begins from the start again, after the last hop.
    link = OutgoingLink(SessionConfig())
    connecting(link, FIRST, SECOND)
    for now, hop in ((10.0, SECOND), (20.0, FIRST)):
        failure = ConnectionStatus.SOCKET_CONNECT_FAILURE
        link.connect_failed(failure, 7, now - 5, UTC, has_backlog=True)
        link.handle_timer(now, has_backlog=True)
        if hop is FIRST:
            assert link.next_action() == Resolve()
            link.resolved([FIRST, SECOND])
        assert link.remote == hop
        assert link.next_action() == Connect(hop, False)
    direct = OutgoingLink(SessionConfig())
    direct.message_available()
    direct.next_action()
    direct.resolved([NextHop("10.0.0.9")])
    assert direct.next_action() == Connect(NextHop("10.0.0.9"), False)
    assert direct.remote is not None
    assert direct.remote.qm_guid == bytes(16)


@pytest.mark.spec("DM-3.1.7.1.5-14")
def test_a_link_begins_inactive_and_without_hops() -> None:
    link = OutgoingLink(SessionConfig())
    assert (link.state, link.next_hops) == (OutgoingState.INACTIVE, ())


@pytest.mark.spec(
    "QB-3.1.5.2.3-02", "QB-3.1.5.3.2-04", "QB-3.1.5.4.2-01", "QB-3.1.5.9-02", "DM-3.1.1.3-03"
)
def test_states_and_history_of_a_session() -> None:
    link = OutgoingLink(SessionConfig())
    assert link.state is OutgoingState.INACTIVE
    connecting(link, FIRST, SECOND)
    seen: list[OutgoingState] = []
    link.connected(UTC)
    seen.append(link.state)
    link.establish_received(UTC + 1)
    seen.append(link.state)
    link.established(UTC + 2)
    seen.append(link.state)
    assert link.next_hops == ("IP=10.0.0.1",)
    link.closing()
    seen.append(link.state)
    link.closed(CloseReason.IDLE, 5.0, UTC + 3, has_backlog=False)
    seen.append(link.state)
    assert seen == [
        OutgoingState.WAITING,
        OutgoingState.WAITING,
        OutgoingState.CONNECTED,
        OutgoingState.DISCONNECTING,
        OutgoingState.DISCONNECTED,
    ]
    assert [(e.status, e.connection_history_time, e.error) for e in link.history] == [
        (ConnectionStatus.IN_PROCESS, UTC, 0),
        (ConnectionStatus.ESTABLISH_PACKET_RECEIVED, UTC + 1, 0),
        (ConnectionStatus.ESTABLISHED, UTC + 2, 0),
    ]
    assert {entry.address_list for entry in link.history} == {"10.0.0.1"}


@pytest.mark.spec("QB-3.1.5.2-02", "DM-3.1.1.3-07", "MQ-2.3.12.25-03")
@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (CloseReason.REFUSED_BY_PEER, ConnectionStatus.CONNECTION_REFUSED),
        (CloseReason.INITIALIZATION_TIMEOUT, ConnectionStatus.CONNECTION_NOT_READY),
        (CloseReason.DISCONNECTED, ConnectionStatus.SOCKET_SEND_FAILURE),
        (CloseReason.LIMIT, ConnectionStatus.LOW_RESOURCE),
        (CloseReason.MALFORMED_PACKET, ConnectionStatus.UNKNOWN_FAILURE),
        (CloseReason.WRONG_QUEUE_MANAGER, ConnectionStatus.UNKNOWN_FAILURE),
    ],
)
def test_a_session_that_does_not_open_is_recorded(
    reason: CloseReason, status: ConnectionStatus
) -> None:
    link = OutgoingLink(SessionConfig())
    connecting(link)
    link.connected(UTC)
    link.closed(reason, 7.0, UTC + 9, has_backlog=True)
    entry = link.history[-1]
    assert entry.status is status
    assert (entry.connection_history_time, entry.error) == (UTC + 9, ErrorCode.MQ_ERROR)
    assert entry.address_list == "10.0.0.1"
    # One that was open leaves no entry when it ends.
    link = opened()
    link.closed(reason, 7.0, UTC, has_backlog=True)
    assert statuses(link)[-1] is ConnectionStatus.ESTABLISHED


@pytest.mark.spec("QB-3.1.5.2.1-02", "QB-3.1.5.2-02")
@pytest.mark.parametrize("has_backlog", [False, True])
def test_failed_resolution(has_backlog: bool) -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.resolve_failed(
        ConnectionStatus.DNS_FAILURE, 0xC00E_0055, 50.0, UTC, has_backlog=has_backlog
    )
    assert link.state is OutgoingState.NEED_VALIDATION
    assert link.next_timer() == (55.0 if has_backlog else None)
    assert link.history[-1] == ConnectionHistoryEntry(
        ConnectionStatus.DNS_FAILURE, UTC, 0xC00E_0055, ""
    )
    link.handle_timer(55.0, has_backlog=has_backlog)
    assert link.next_action() == (Resolve() if has_backlog else None)


@pytest.mark.spec("QB-3.1.5.2.1-02", "QB-3.1.7.13-02")
def test_a_queue_on_hold_keeps_its_state_and_does_not_retry() -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.pause()
    link.resolve_failed(ConnectionStatus.DNS_FAILURE, 1, 50.0, UTC, has_backlog=True)
    assert link.state is OutgoingState.ON_HOLD
    assert link.next_timer() is None


@pytest.mark.spec("QB-3.1.5.2.3-02", "QB-3.1.5.4.2-01")
def test_a_queue_on_hold_stays_so_while_its_session_opens() -> None:
    link = OutgoingLink(SessionConfig())
    connecting(link, FIRST)
    link.pause()
    link.connected(UTC)
    seen = [link.state]
    assert statuses(link) == [ConnectionStatus.IN_PROCESS]
    link.resume(has_backlog=True)
    seen.append(link.state)
    assert seen == [OutgoingState.ON_HOLD, OutgoingState.WAITING]
    link.pause()
    link.establish_received(UTC + 1)
    link.established(UTC + 2)
    assert link.state is OutgoingState.ON_HOLD
    assert statuses(link)[-1] is ConnectionStatus.ESTABLISHED


@pytest.mark.spec("QB-3.1.7.13-02", "QB-3.1.5.9-02")
def test_closing_a_session_of_a_queue_on_hold_changes_no_state() -> None:
    link = opened()
    link.pause()
    states = {link.state}
    link.closing()
    states.add(link.state)
    link.closed(CloseReason.IDLE, 50.0, UTC, has_backlog=True)
    states.add(link.state)
    assert states == {OutgoingState.ON_HOLD}
    assert link.next_timer() is None


@pytest.mark.spec("QB-3.1.5.2-02", "DM-3.1.1.3-07", "MQ-2.3.12.25-03")
def test_what_fails_before_there_is_a_session_is_recorded_too() -> None:
    silent = OutgoingLink(SessionConfig(), uses_ping=True)
    silent.message_available()
    silent.next_action()
    silent.resolved((SECOND,))
    silent.ping_ended(False, 1.0, UTC + 3, has_backlog=True)
    failure = ConnectionStatus.PING_FAILURE
    entry = ConnectionHistoryEntry(failure, UTC + 3, ErrorCode.MQ_ERROR, SECOND.address)
    assert silent.history == (entry,)
    for status in (
        ConnectionStatus.SOCKET_CREATE_FAILURE,
        ConnectionStatus.SOCKET_BIND_FAILURE,
        ConnectionStatus.SOCKET_CONNECT_FAILURE,
    ):
        link = OutgoingLink(SessionConfig())
        connecting(link, SECOND)
        link.connect_failed(status, 0xC00E_0055, 1.0, UTC + 4, has_backlog=True)
        entry = ConnectionHistoryEntry(status, UTC + 4, 0xC00E_0055, SECOND.address)
        assert link.history == (entry,)


@pytest.mark.spec("QB-3.1.5.2.2-02")
@pytest.mark.parametrize("has_backlog", [False, True])
def test_failed_ping(has_backlog: bool) -> None:
    link = OutgoingLink(SessionConfig(), uses_ping=True)
    link.message_available()
    link.next_action()
    link.resolved([FIRST])
    link.next_action()
    link.ping_ended(False, 10.0, UTC, has_backlog=has_backlog)
    assert statuses(link) == [ConnectionStatus.PING_FAILURE]
    assert link.next_action() is None
    assert link.next_timer() == (15.0 if has_backlog else None)


@pytest.mark.spec("QB-3.1.2.3-01", "QB-3.1.5.9-03", "QB-3.1.1.3.1-09")
@pytest.mark.parametrize("round_trip_ms", [0, 700])
def test_a_closed_session_with_backlog_waits_to_reconnect(round_trip_ms: int) -> None:
    link = OutgoingLink(SessionConfig(round_trip_delay_ms=round_trip_ms))
    connecting(link)
    link.connected(UTC)
    link.established(UTC)
    waiting = [link.is_waiting_reconnect]
    link.closed(CloseReason.ACK_TIMEOUT, 100.0, UTC, has_backlog=True)
    waiting.append(link.is_waiting_reconnect)
    assert waiting == [False, True]
    assert link.state is OutgoingState.DISCONNECTED
    due = link.next_timer()
    assert due == 105 + round_trip_ms / 1000
    link.handle_timer(due - 0.001, has_backlog=True)
    assert link.next_action() is None
    link.handle_timer(due, has_backlog=True)
    assert link.next_action() == Resolve()
    # Without backlog nothing is due, and a message connects at once.
    link = opened()
    link.closed(CloseReason.IDLE, 100.0, UTC, has_backlog=False)
    assert link.next_timer() is None
    link.message_available()
    assert link.next_action() == Resolve()


@pytest.mark.spec("QB-3.1.6.1-01", "QB-3.1.5.2.2-01")
def test_a_retry_takes_the_next_hop_and_skips_the_ping() -> None:
    link = OutgoingLink(SessionConfig(), uses_ping=True)
    link.message_available()
    link.next_action()
    link.resolved([FIRST, SECOND])
    link.next_action()
    link.ping_ended(True, 0.0, UTC, has_backlog=True)
    link.next_action()
    link.connect_failed(ConnectionStatus.SOCKET_CONNECT_FAILURE, 7, 0.0, UTC, has_backlog=True)
    assert statuses(link) == [ConnectionStatus.SOCKET_CONNECT_FAILURE]
    link.handle_timer(5.0, has_backlog=True)
    assert link.remote == SECOND
    assert link.next_action() == Connect(SECOND, False)
    link.connect_failed(ConnectionStatus.SOCKET_CONNECT_FAILURE, 7, 6.0, UTC, has_backlog=True)
    # No hop is left: resolve again, still without a ping.
    link.handle_timer(11.0, has_backlog=True)
    assert link.next_action() == Resolve()
    link.resolved([FIRST])
    assert link.next_action() == Connect(FIRST, False)
    # A retry that finds nothing to send does nothing.
    link.connect_failed(ConnectionStatus.SOCKET_CONNECT_FAILURE, 7, 20.0, UTC, has_backlog=True)
    link.handle_timer(25.0, has_backlog=False)
    assert link.next_action() is None
    assert link.next_timer() is None


@pytest.mark.spec("QB-3.1.7.12-02", "QB-3.1.7.12-01")
def test_a_message_connects_whenever_no_session_is_open_or_opening() -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.message_available()
    assert link.next_action() == Resolve()
    link.message_available()
    assert link.next_action() is None
    # QB-A35: the history is not empty any more, and still it connects.
    link = opened()
    link.closed(CloseReason.IDLE, 1.0, UTC, has_backlog=False)
    link.message_available()
    assert link.next_action() == Resolve()
    held = OutgoingLink(SessionConfig())
    held.pause()
    held.message_available()
    assert held.next_action() is None


@pytest.mark.spec("QB-3.1.7.14-01")
@pytest.mark.parametrize("has_backlog", [False, True])
def test_resume_connects_if_there_is_something_to_send(has_backlog: bool) -> None:
    for link in (OutgoingLink(SessionConfig()), opened()):
        if link.state is OutgoingState.CONNECTED:
            link.closed(CloseReason.ACK_TIMEOUT, 1.0, UTC, has_backlog=True)
        link.pause()
        assert link.next_timer() is None
        link.resume(has_backlog=has_backlog)
        assert link.state is not OutgoingState.ON_HOLD
        assert link.next_action() == (Resolve() if has_backlog else None)


def test_a_recycled_session_reconnects_at_once() -> None:
    link = opened(FIRST, SECOND)
    link.closed(CloseReason.RECYCLED, 1.0, UTC, has_backlog=False)
    assert link.next_action() == Connect(FIRST, False)
    assert link.next_timer() is None


def test_a_stopped_link_stays_stopped() -> None:
    link = opened()
    link.closed(CloseReason.STOPPED, 1.0, UTC, has_backlog=True)
    assert link.next_timer() is None
    assert link.next_action() is None


def test_history_and_hops_are_bounded() -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.resolved([NextHop(f"10.0.0.{n}") for n in range(100)])
    assert len(link.next_hops) == 32
    for n in range(31):
        link.connect_failed(
            ConnectionStatus.SOCKET_CONNECT_FAILURE, n, 10.0 * n, UTC + n, has_backlog=True
        )
        link.handle_timer(10.0 * n + 5, has_backlog=True)
    assert len(link.history) == 20
    assert link.history[-1].connection_history_time == UTC + 30


@pytest.mark.parametrize(
    "answer",
    [
        lambda link: link.connected(UTC),
        lambda link: link.establish_received(UTC),
        lambda link: link.established(UTC),
        lambda link: link.closed(CloseReason.IDLE, 1.0, UTC, has_backlog=True),
        lambda link: link.resolved([FIRST]),
        lambda link: link.ping_ended(True, 1.0, UTC, has_backlog=True),
        lambda link: link.connect_failed(
            ConnectionStatus.DNS_FAILURE, 1, 1.0, UTC, has_backlog=True
        ),
        lambda link: link.resolve_failed(
            ConnectionStatus.DNS_FAILURE, 1, 1.0, UTC, has_backlog=True
        ),
    ],
)
def test_answers_that_nobody_asked_for_are_misuse(answer: Callable[[OutgoingLink], None]) -> None:
    with pytest.raises(SessionMisuse):
        answer(OutgoingLink(SessionConfig()))


def test_no_next_hop_is_a_failed_resolution() -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    with pytest.raises(SessionMisuse):
        link.resolved([])
