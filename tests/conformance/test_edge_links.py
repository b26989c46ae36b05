"""The volatile attributes of an outgoing queue, which are its link's [MS-MQDMPR 3.1.1.3]."""

from __future__ import annotations

import msgspec
import pytest

from qm.session import (
    CloseReason,
    ConnectionStatus,
    NextHop,
    OutgoingLink,
    OutgoingState,
    SessionConfig,
)
from qm.session.link import Connect, ConnectionHistoryEntry, Resolve
from qm.wire.codes import ErrorCode
from tests.conformance.test_session_link import FIRST, SECOND, UTC, connecting, opened


@pytest.mark.spec("DM-3.1.1.3-05", "DM-3.1.1.3-03")
def test_what_the_states_mean() -> None:
    link = OutgoingLink(SessionConfig())
    seen = [link.state]
    assert (link.next_action(), link.next_timer()) == (None, None), "nobody attempts anything"
    # DM-A37: while addresses are looked up and the transport connects, the state is as before.
    starting = OutgoingLink(SessionConfig())
    starting.message_available()
    assert (starting.next_action(), starting.state) == (Resolve(), OutgoingState.INACTIVE)
    starting.resolved((FIRST,))
    assert (starting.next_action(), starting.state) == (
        Connect(FIRST, False),
        OutgoingState.INACTIVE,
    )
    link.message_available()
    assert link.next_action() == Resolve()
    unknown = ErrorCode.MQ_ERROR_NO_DS
    link.resolve_failed(ConnectionStatus.DNS_FAILURE, unknown, 1.0, UTC, has_backlog=True)
    seen.append(link.state)
    starting.connected(UTC)  # EstablishConnection was sent
    seen.append(starting.state)
    starting.establish_received(UTC)
    assert starting.state is OutgoingState.WAITING
    held = opened()
    held.pause()
    seen.append(held.state)
    assert seen == [
        OutgoingState.INACTIVE,  # nothing is attempted
        OutgoingState.NEED_VALIDATION,  # the address is still to be found
        OutgoingState.WAITING,  # an attempt is under way
        OutgoingState.ON_HOLD,  # nothing is transferred
    ]
    # On hold nothing connects that would otherwise: closed with a backlog, or by a new message.
    # That nothing is sent over an open session is in tests/unit/edge/outgoing/test_delivery.py.
    running = opened()
    for one in (held, running):
        one.closing()
        one.closed(CloseReason.ACK_TIMEOUT, 1.0, UTC, has_backlog=True)
        one.message_available()
    assert (held.state, held.next_action(), held.next_timer()) == (
        OutgoingState.ON_HOLD,
        None,
        None,
    )
    assert running.next_timer() is not None
    held.resume(has_backlog=True)
    assert isinstance(held.next_action(), Resolve)


@pytest.mark.spec("DM-3.1.7.2.4-01")
def test_a_queue_that_is_resumed_is_inactive() -> None:
    link = OutgoingLink(SessionConfig())
    link.pause()
    link.message_available()
    assert (link.state, link.next_action()) == (OutgoingState.ON_HOLD, None)
    link.resume(has_backlog=False)
    assert (link.state, link.next_action()) == (OutgoingState.INACTIVE, None)
    # From there a message connects it.
    link.message_available()
    assert link.next_action() is not None
    # So it is whatever had become of it before, or while it was held.
    lost, unknown = opened(), OutgoingLink(SessionConfig())
    lost.pause()
    lost.closing()
    lost.closed(CloseReason.ACK_TIMEOUT, 1.0, UTC, has_backlog=True)
    unknown.message_available()
    assert unknown.next_action() == Resolve()
    error = ErrorCode.MQ_ERROR_NO_DS
    unknown.resolve_failed(ConnectionStatus.DNS_FAILURE, error, 1.0, UTC, has_backlog=True)
    assert unknown.state is OutgoingState.NEED_VALIDATION
    unknown.pause()
    for one in (lost, unknown):
        one.resume(has_backlog=False)
        assert (one.state, one.next_action()) == (OutgoingState.INACTIVE, None)
        one.message_available()
        assert one.next_action() == Resolve()


@pytest.mark.spec("DM-3.1.1.3-02", "MQ-2.3.12.12-01")
def test_next_hops_are_addresses_of_the_destination() -> None:
    fresh = OutgoingLink(SessionConfig())
    assert not fresh.next_hops
    link = OutgoingLink(SessionConfig())
    connecting(link, FIRST, SECOND, NextHop("192.168.0.7"))
    candidates = ("IP=10.0.0.1", "IPv6=fd00::2", "IP=192.168.0.7")
    assert link.next_hops == candidates
    link.connected(UTC)
    link.establish_received(UTC)
    assert link.state is OutgoingState.WAITING
    assert link.next_hops == candidates
    link.established(UTC)
    assert [link.state, *link.next_hops] == [OutgoingState.CONNECTED, "IP=10.0.0.1"]


@pytest.mark.spec("MQ-2.3.12.12-01", "MR-2.2.3.2-18")
def test_one_candidate_is_left_of_those_that_a_link_waits_for() -> None:
    link = OutgoingLink(SessionConfig())
    connecting(link, FIRST, SECOND)
    status = ConnectionStatus.SOCKET_CONNECT_FAILURE
    link.connect_failed(status, ErrorCode.MQ_ERROR, 1.0, UTC, has_backlog=True)
    due = link.next_timer()
    assert due is not None
    link.handle_timer(due, has_backlog=True)
    assert link.next_action() == Connect(SECOND, False)
    link.connected(UTC)
    both = ("IP=10.0.0.1", "IPv6=fd00::2")
    assert (link.state, link.next_hops) == (OutgoingState.WAITING, both)
    link.establish_received(UTC)
    link.established(UTC)
    assert (link.state, link.next_hops) == (OutgoingState.CONNECTED, both[1:])


@pytest.mark.spec("DM-3.1.1.3-06", "DM-3.1.1.3-07")
def test_history_of_connections() -> None:
    assert [status.value for status in ConnectionStatus] == [
        "InProcess",
        "EstablishPacketReceived",
        "Established",
        "UnknownFailure",
        "PingFailure",
        "SocketCreateFailure",
        "SocketBindFailure",
        "SocketConnectFailure",
        "TcpNotEnabled",
        "SocketSendFailure",
        "ConnectionNotReady",
        "DnsFailure",
        "CertificateValidationFailure",
        "ConnectionLimitReached",
        "ConnectionRefused",
        "RoutingDataNotAvailable",
        "LowResource",
    ]
    link = opened()
    link.closing()
    link.closed(CloseReason.REFUSED_BY_PEER, 5.0, UTC + 9, has_backlog=True)
    fields = [field.name for field in msgspec.structs.fields(ConnectionHistoryEntry)]
    assert fields == ["status", "connection_history_time", "error", "address_list"]
    for entry in link.history:
        assert isinstance(entry.status, ConnectionStatus)
        assert UTC <= entry.connection_history_time <= UTC + 9
        assert entry.address_list == FIRST.address
        is_failure = entry.status.value not in (
            "InProcess",
            "EstablishPacketReceived",
            "Established",
        )
        assert bool(entry.error) is is_failure
    assert ConnectionStatus.ESTABLISHED in [entry.status for entry in link.history]
