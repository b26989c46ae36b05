"""Every packet in every state, both ways of cutting the stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qm.session import CloseReason, EstablishReceived, SessionMisuse, SessionState
from qm.session.states import INITIAL_STATE, TRANSITIONS, Role
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.internal import ConnectionParameters
from qm.wire.packets.packet import Packet, PacketKind, packet_kind, write_packet
from tests.unit.session.builders import (
    THEM,
    US,
    Driven,
    acceptor,
    ack,
    establish,
    final_ack,
    initiator,
    message,
    open_acceptor,
    open_initiator,
    order_ack,
)


def waiting_cp() -> Driven:
    driven = acceptor()
    driven.feed(establish(THEM, US))
    return driven


def waiting_cpr() -> Driven:
    driven = initiator()
    driven.feed(establish(US, THEM))
    return driven


def closed() -> Driven:
    driven = open_acceptor()
    driven.session.close(CloseReason.STOPPED)
    return driven


IN_STATE: dict[str, tuple[SessionState, Callable[[], Driven]]] = {
    "WAITING_EC_MSG": (SessionState.WAITING_EC_MSG, acceptor),
    "WAITING_CP_MSG": (SessionState.WAITING_CP_MSG, waiting_cp),
    "WAITING_ECR_MSG": (SessionState.WAITING_ECR_MSG, initiator),
    "WAITING_CPR_MSG": (SessionState.WAITING_CPR_MSG, waiting_cpr),
    "OPEN (acceptor)": (SessionState.OPEN, open_acceptor),
    "OPEN (initiator)": (SessionState.OPEN, open_initiator),
    "CLOSED": (SessionState.CLOSED, closed),
}

PACKETS: dict[str, Packet] = {
    "EstablishConnection request": establish(THEM, US),
    "EstablishConnection response": establish(US, THEM),
    "ConnectionParameters": ConnectionParameters(500, 20_000),
    "SessionAck": ack(0),
    "UserMessage": message(1),
    "UserMessage with SessionHeader": message(1, session=SessionHeader(0, 0, 0, 1, 1)),
    "OrderAck": order_ack(),
    "FinalAck": final_ack(),
}


def expected(state: SessionState, name: str) -> tuple[SessionState, CloseReason | None]:
    """What the table says, and what the contents of the packet add to it."""
    data = write_packet(PACKETS[name])
    if state is SessionState.CLOSED:
        return state, CloseReason.STOPPED
    follower = TRANSITIONS[state].get(packet_kind(data, 0, len(data)))
    if follower is None:
        return SessionState.CLOSED, CloseReason.UNEXPECTED_PACKET
    if state is SessionState.WAITING_EC_MSG and name.endswith("response"):
        return SessionState.CLOSED, CloseReason.WRONG_QUEUE_MANAGER
    if state is SessionState.WAITING_ECR_MSG and name.endswith("request"):
        return SessionState.CLOSED, CloseReason.WRONG_QUEUE_MANAGER
    return follower, None


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "bytes"])
@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("where", IN_STATE)
def test_every_packet_in_every_state(where: str, name: str, is_cut: bool) -> None:
    state, enter = IN_STATE[where]
    driven = enter()
    assert driven.state() is state
    data = write_packet(PACKETS[name])
    for piece in [bytes([byte]) for byte in data] if is_cut else [data]:
        driven.feed(piece)
    follower, reason = expected(state, name)
    assert driven.state() is follower
    assert driven.closed() is reason
    assert (driven.session.next_timer() is None) is (follower is SessionState.CLOSED)


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(SessionState)
    assert set(INITIAL_STATE) == set(Role)
    reachable = set(INITIAL_STATE.values())
    for _ in SessionState:
        reachable |= {follower for state in reachable for follower in TRANSITIONS[state].values()}
    # CLOSED is reached from everywhere by bad contents; WAITING_RECONNECT has no session.
    assert reachable == set(SessionState) - {SessionState.CLOSED, SessionState.WAITING_RECONNECT}
    assert {kind for row in TRANSITIONS.values() for kind in row} == set(PacketKind)


def test_offers_are_for_open_sessions() -> None:
    for where in IN_STATE.values():
        driven = where[1]()
        if driven.state() is SessionState.OPEN:
            continue
        with pytest.raises(SessionMisuse):
            driven.offer(1, 1)
        assert driven.session.pause() == []


def test_pipelined_handshake() -> None:
    """A peer that does not wait for answers is answered in order all the same."""
    driven = acceptor()
    driven.feed(
        establish(THEM, US),
        ConnectionParameters(500, 20_000),
        message(1),
        ack(0, sent=1, recoverable_sent=1),
    )
    assert driven.state() is SessionState.OPEN
    assert len(driven.out()) == 2
    assert driven.session.uncommitted == 1


def test_initiator_reports_the_answer_it_got() -> None:
    driven = initiator()
    driven.feed(establish(US, THEM))
    assert driven.events() == [EstablishReceived(THEM)]
