"""Pings [MS-MQQB 2.1.2, 2.2.7, 3.1.7.6 to 3.1.7.8]."""

from __future__ import annotations

import pytest

from qm.session import (
    CloseReason,
    PingRequester,
    PingResult,
    PingVerdict,
    SessionMisuse,
    answer_ping,
)
from qm.wire.packets.internal import ConnectionParameters
from qm.wire.packets.packet import write_packet
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from tests.unit.session.builders import THEM, US, ack, establish, message, open_acceptor

SESSION_PACKETS = {
    "EstablishConnection": write_packet(establish(THEM, US)),
    "ConnectionParameters": write_packet(ConnectionParameters(500, 20_000)),
    "SessionAck": write_packet(ack(0)),
    "UserMessage": write_packet(message(1)),
}


def read(datagram: bytes | None) -> Ping:
    assert datagram is not None
    assert len(datagram) == 24
    ping, _ = parse_ping(datagram, 0, len(datagram))
    return ping


@pytest.mark.spec("QB-3.1.7.6-01", "QB-3.1.3.2-12", "QB-3.1.1.3-10", "QB-2.2.7-07")
def test_requests_have_rising_cookies_and_our_guid() -> None:
    requester = PingRequester(US)
    for expected in (1, 2, 3):
        cookie, datagram = requester.send(10.0)
        ping = read(datagram)
        assert cookie == ping.cookie == expected
        assert ping.qm_guid == US
        assert not ping.is_refused
        assert datagram[2:4] == b"\x48\x55"
    # Each has a timer of its own, of a second.
    assert requester.next_timer() == 11.0
    requester.send(10.25)
    assert requester.handle_timer(10.999) == []
    assert requester.handle_timer(11.0) == [PingResult(n, PingVerdict.TIMEOUT) for n in (1, 2, 3)]
    assert requester.next_timer() == 11.25
    # None has the cookie of an earlier one, however many there were.
    for expected in range(5, 0x1_0003):
        now = float(expected)
        assert requester.send(now)[0] == expected
        requester.handle_timer(now + 1)


@pytest.mark.spec("QB-2.2.7-03")
@pytest.mark.parametrize("is_server_class", [False, True])
def test_rc_marks_an_initiator_that_is_no_server(is_server_class: bool) -> None:
    _, datagram = PingRequester(US, is_server_class=is_server_class).send(0.0)
    assert read(datagram).is_client_class is not is_server_class
    response = read(answer_ping(datagram, THEM, is_accepting=True))
    assert response.is_client_class is not is_server_class


@pytest.mark.spec("QB-3.1.7.7-01", "QB-2.2.7-04", "QB-2.2.7-06", "QB-2.2.7-07")
@pytest.mark.parametrize("is_accepting", [False, True])
@pytest.mark.parametrize("is_client", [False, True])
def test_answers_repeat_the_cookie_and_say_whether_we_refuse(
    is_accepting: bool, is_client: bool
) -> None:
    request = write_ping(Ping(0xFFFF_FFFF, THEM, is_client_class=is_client))
    response = read(answer_ping(request, US, is_accepting=is_accepting))
    assert response == Ping(0xFFFF_FFFF, US, is_client_class=is_client, is_refused=not is_accepting)


@pytest.mark.spec("QB-3.1.7.6-02", "QB-3.1.7.8-01", "QB-2.2.7-06")
def test_a_response_ends_the_ping_with_its_cookie() -> None:
    requester = PingRequester(US)
    first, request = requester.send(0.0)
    second, _ = requester.send(0.5)
    # QB-A44: the older one counts too.
    assert requester.receive(write_ping(Ping(77, THEM))) is None
    response = answer_ping(request, THEM, is_accepting=True)
    assert response is not None
    assert requester.receive(response) == PingResult(first, PingVerdict.ACCEPTED)
    assert requester.receive(response) is None
    assert requester.next_timer() == 1.5
    refusal = write_ping(Ping(second, THEM, is_refused=True))
    assert requester.receive(refusal) == PingResult(second, PingVerdict.REFUSED)
    assert requester.next_timer() is None


@pytest.mark.spec("QB-3.1.2.9-01", "QB-3.1.7.6-02")
def test_every_ping_has_its_own_second() -> None:
    requester = PingRequester(US)
    first, _ = requester.send(10.0)
    second, _ = requester.send(10.25)
    assert requester.next_timer() == 11.0
    assert requester.handle_timer(10.999) == []
    assert requester.handle_timer(11.0) == [PingResult(first, PingVerdict.TIMEOUT)]
    assert requester.next_timer() == 11.25
    assert requester.receive(write_ping(Ping(first, THEM))) is None
    assert requester.handle_timer(12.0) == [PingResult(second, PingVerdict.TIMEOUT)]


@pytest.mark.spec("QB-2.2.7-02", "QB-3.1.5.1.1-05", "QB-3.1.7.8-01", "QB-3.1.7.7-01")
@pytest.mark.parametrize("damage", ["signature", "short", "long", "empty", *SESSION_PACKETS])
def test_other_datagrams_are_ignored(damage: str) -> None:
    requester = PingRequester(US)
    cookie, _ = requester.send(0.0)
    good = write_ping(Ping(cookie, THEM))
    bad = {
        "signature": good[:2] + b"\x55\x48" + good[4:],
        "short": good[:-1],
        "long": good + b"\x00",
        "empty": b"",
        **SESSION_PACKETS,
    }[damage]
    assert good[2:4] == b"\x48\x55"
    assert requester.receive(bad) is None
    assert answer_ping(bad, US, is_accepting=True) is None
    assert requester.receive(good) == PingResult(cookie, PingVerdict.ACCEPTED)
    # Nor is a ping a packet of a session.
    driven = open_acceptor()
    driven.feed(good)
    assert driven.closed() is CloseReason.MALFORMED_PACKET


@pytest.mark.spec("QB-2.2.7-05")
def test_unused_flag_bits_mean_nothing() -> None:
    requester = PingRequester(US)
    cookie, _ = requester.send(0.0)
    noisy = write_ping(Ping(cookie, THEM, unused_flags=0x3FFF))
    assert read(answer_ping(noisy, US, is_accepting=True)).unused_flags == 0
    assert requester.receive(noisy) == PingResult(cookie, PingVerdict.ACCEPTED)


def test_cookies_wrap_and_outstanding_pings_are_bounded() -> None:
    requester = PingRequester(US)
    for _ in range(0x1000):
        requester.send(0.0)
    with pytest.raises(SessionMisuse):
        requester.send(0.0)
    assert len(requester.handle_timer(1.0)) == 0x1000
    assert requester.send(2.0)[0] == 0x1001
