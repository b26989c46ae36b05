"""Opening and refusing sessions [MS-MQQB 2.1.1, 2.2.1, 2.2.3, 3.1.5.2.3, 3.1.5.3, 3.1.5.4]."""

from __future__ import annotations

import struct

import pytest

from qm.session import (
    CloseReason,
    Established,
    EstablishReceived,
    PacketsArrived,
    SessionConfig,
    SessionState,
)
from qm.session.handshake import recoverable_ack_send_timeout_ms
from qm.session.session import Session
from qm.session.states import Role
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection
from qm.wire.packets.packet import parse_packet, write_packet
from tests.unit.session.builders import (
    NOW,
    STRANGER,
    THEM,
    US,
    acceptor,
    ack,
    establish,
    initiator,
    message,
    open_acceptor,
    open_initiator,
)


@pytest.mark.spec("QB-2.1.1-04", "QB-3.1.5.2.3-01", "QB-3.1.5.2.3-02", "QB-2.2.3.1-02")
def test_initiator_sends_establish_connection_first() -> None:
    raw = initiator().session.take_outgoing(NOW)
    assert (len(raw), raw[2] & 0x08, raw[16:20]) == (572, 0x08, b"\0\0\x02\0")
    driven = initiator()
    (request,) = driven.out()
    # The Session Initialization Timer runs from now, and with it alone Session Cleanup.
    assert driven.session.next_timer() == NOW + 60
    assert isinstance(request, EstablishConnection)
    assert request.client_guid == US
    assert request.server_guid == THEM
    assert not request.is_refused
    assert request.time_stamp == int(NOW * 1000)
    assert driven.state() is SessionState.WAITING_ECR_MSG
    driven.feed(establish(US, THEM))
    assert isinstance(driven.out()[0], ConnectionParameters)
    driven.feed(ConnectionParameters(500, 20_000))
    assert driven.state() is SessionState.OPEN
    driven.events()
    driven.offer(1, 1)
    driven.feed(message(1))
    assert len(driven.out()) == 1
    assert driven.event(PacketsArrived).first_position == 1


@pytest.mark.spec("QB-2.1.1-04")
def test_an_acceptor_answers_both_requests_and_then_messages_flow_both_ways() -> None:
    driven = acceptor()
    for request in (establish(THEM, US), ConnectionParameters(500, 20_000)):
        driven.feed(request)
        (response,) = driven.out()
        assert type(response) is type(request)
    assert driven.state() is SessionState.OPEN
    driven.events()
    driven.offer(1, 1)
    driven.feed(message(1))
    assert len(driven.out()) == 1
    assert driven.event(PacketsArrived).first_position == 1
    # Nothing of it comes twice or before its turn, whichever end it is.
    parameters = ConnectionParameters(500, 20_000)
    half_accepted, half_made = acceptor(), initiator()
    half_accepted.feed(establish(THEM, US))
    half_made.feed(establish(US, THEM))
    for session, early in (
        *((acceptor(), one) for one in (parameters, message(1))),
        *((initiator(), one) for one in (parameters, message(1))),
        (half_accepted, message(1)),
        (half_made, message(1)),
        *((open_acceptor(), one) for one in (establish(THEM, US), parameters)),
        *((open_initiator(), one) for one in (establish(US, THEM), parameters)),
    ):
        session.feed(early)
        assert session.closed() is CloseReason.UNEXPECTED_PACKET


@pytest.mark.spec("QB-2.2.3.1-03", "QB-2.2.3.1-02", "QB-2.2.1-05", "QB-3.1.5.2.3-01")
@pytest.mark.parametrize("asked", [US, GUID_NULL])
def test_guids_of_request_and_response(asked: bytes) -> None:
    driven = acceptor()
    driven.feed(establish(THEM, asked))
    (response,) = driven.out()
    assert isinstance(response, EstablishConnection)
    assert (response.client_guid, response.server_guid) == (THEM, US)
    assert not response.is_refused
    assert initiator(remote=GUID_NULL).out()[0] == initiator_request(GUID_NULL)
    assert initiator(remote=THEM).out()[0] == initiator_request(THEM)


def initiator_request(server: bytes) -> EstablishConnection:
    return EstablishConnection(
        US, server, int(NOW * 1000), is_ping_skipped=True, is_server_class=True
    )


@pytest.mark.spec(
    "QB-2.2.3.1-04", "QB-2.2.3.1-06", "QB-3.1.5.3.1-01", "QB-3.1.5.3.1-03", "QB-2.2.3.1-10"
)
@pytest.mark.parametrize("is_ping_skipped", [False, True])
@pytest.mark.parametrize("asked_for", [US, GUID_NULL], ids=["our GUID", "zeros"])
def test_acceptor_echoes_time_stamp_and_se(is_ping_skipped: bool, asked_for: Guid) -> None:
    driven = acceptor()
    driven.feed(
        EstablishConnection(
            THEM, asked_for, 0xFFFF_FFF0, is_ping_skipped=is_ping_skipped, padding=b"\x01" * 512
        )
    )
    raw = driven.session.take_outgoing(NOW)
    assert (len(raw), raw[2] & 0x08, raw[16:20]) == (572, 0x08, b"\0\0\x02\0")
    response = parse_packet(raw, 0, len(raw))[0]
    assert isinstance(response, EstablishConnection)
    assert (response.client_guid, response.server_guid) == (THEM, US)
    assert response.time_stamp == 0xFFFF_FFF0
    assert response.is_ping_skipped is is_ping_skipped
    assert response.padding == b"\x5a" * 512
    assert not response.is_refused
    assert driven.session.remote_guid == THEM
    assert driven.state() is SessionState.WAITING_CP_MSG


@pytest.mark.spec(
    "QB-2.2.3.1-04", "QB-2.2.3.1-06", "QB-2.2.3.1-07", "QB-2.2.3.1-08", "QB-3.1.5.2.3-01"
)
@pytest.mark.parametrize(("pinged", "server"), [(False, True), (True, False)])
def test_request_says_ping_class_and_time(pinged: bool, server: bool) -> None:
    config = SessionConfig(is_server_class=server)
    # 2^32 ms and 1.5 s after the system's start.
    session = Session(config, Role.INITIATOR, US, 4_294_967.296 + 1.5, pinged=pinged)
    data = session.take_outgoing(0.0)
    assert int.from_bytes(data[52:56], "little") == 1500
    operating_system = int.from_bytes(data[56:58], "little")
    assert operating_system == 0x10 | (0 if pinged else 0x100) | (0x200 if server else 0)


@pytest.mark.spec("QB-2.2.3.1-08", "QB-2.2.3.1-07")
def test_acceptor_reads_class_and_quality_of_service_as_information() -> None:
    for bits in (0, 0x200, 0x400, 0x600):
        raw = bytearray(write_packet(EstablishConnection(THEM, US)))
        raw[56:58] = (0x10 | bits).to_bytes(2, "little")
        request = parse_packet(raw, 0, len(raw))[0]
        assert isinstance(request, EstablishConnection)
        assert request.is_server_class is bool(bits & 0x200)
        assert request.has_quality_of_service is bool(bits & 0x400)
        driven = acceptor()
        driven.feed(bytes(raw))
        assert driven.state() is SessionState.WAITING_CP_MSG


@pytest.mark.spec("QB-2.2.1-05", "QB-3.1.5.3.1-03", "QB-3.1.5.3.1-04")
@pytest.mark.parametrize("skips", [False, True])
def test_acceptor_refuses_another_guid_and_says_so(skips: bool) -> None:
    driven = acceptor()
    driven.feed(EstablishConnection(THEM, STRANGER, 0xFFFF_FFF0, is_ping_skipped=skips))
    assert driven.state() is SessionState.CLOSED
    # QB-A31: the refusal leaves, and nothing that comes later is heard.
    (response,) = driven.out()
    assert isinstance(response, EstablishConnection)
    assert response.is_refused
    assert (response.client_guid, response.server_guid) == (THEM, US)
    assert (response.time_stamp, response.is_ping_skipped) == (0xFFFF_FFF0, skips)
    assert response.padding == b"\x5a" * 512
    assert driven.closed() is CloseReason.WRONG_QUEUE_MANAGER
    driven.feed(ConnectionParameters(500, 20_000))
    assert driven.out() == []


@pytest.mark.spec("QB-2.2.1-06", "QB-3.1.5.3.1-02")
def test_acceptor_refuses_by_policy() -> None:
    asked: list[tuple[bytes, bool]] = []

    def admit(guid: bytes, pinged: bool) -> bool:
        asked.append((guid, pinged))
        return guid != STRANGER

    for guid, state in ((STRANGER, SessionState.CLOSED), (THEM, SessionState.WAITING_CP_MSG)):
        driven = acceptor(SessionConfig(admit=admit))
        driven.feed(establish(guid, US))
        (response,) = driven.out()
        assert isinstance(response, EstablishConnection)
        assert response.is_refused is (guid == STRANGER)
        assert driven.state() is state
        assert driven.closed() is (CloseReason.NOT_ADMITTED if guid == STRANGER else None)
    assert asked == [(STRANGER, False), (THEM, False)]


@pytest.mark.spec("QB-2.2.1-04")
def test_cs_refuses_in_both_packets_of_the_handshake() -> None:
    driven = initiator()
    driven.feed(establish(US, THEM, is_refused=True))
    assert driven.closed() is CloseReason.REFUSED_BY_PEER
    driven = initiator()
    driven.feed(establish(US, THEM), ConnectionParameters(500, 20_000, is_refused=True))
    assert driven.closed() is CloseReason.REFUSED_BY_PEER
    # Whichever end it is that reads it.
    driven = acceptor()
    driven.feed(establish(THEM, US, is_refused=True))
    assert driven.closed() is CloseReason.REFUSED_BY_PEER
    driven = acceptor()
    driven.feed(establish(THEM, US), ConnectionParameters(500, 20_000, is_refused=True))
    assert driven.closed() is CloseReason.REFUSED_BY_PEER
    for is_refused, bit in ((False, 0), (True, 0x10)):
        parameters = ConnectionParameters(500, 20_000, is_refused=is_refused)
        for packet in (establish(US, THEM, is_refused=is_refused), parameters):
            assert write_packet(packet)[18] & 0xF0 == bit
    assert write_packet(ack(0))[18] & 0xF0 == 0
    driven = open_acceptor()
    refusing = bytearray(write_packet(ack(0)))
    refusing[18] |= 0x10
    driven.feed(bytes(refusing))
    assert driven.closed() is CloseReason.MALFORMED_PACKET


@pytest.mark.spec("QB-2.2.1-03")
@pytest.mark.parametrize("packet_type", [0, *range(4, 16)])
def test_unknown_packet_type_closes(packet_type: int) -> None:
    for driven in (acceptor(), initiator(), open_acceptor()):
        packet = bytearray(write_packet(ConnectionParameters(500, 20_000)))
        packet[18] = packet_type
        driven.feed(bytes(packet))
        assert driven.closed() is CloseReason.MALFORMED_PACKET


@pytest.mark.spec("QB-3.1.5.3.2-01")
@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (establish(STRANGER, THEM), CloseReason.WRONG_QUEUE_MANAGER),
        (establish(US, STRANGER), CloseReason.WRONG_QUEUE_MANAGER),
        (establish(US, THEM, is_refused=True), CloseReason.REFUSED_BY_PEER),
        (establish(US, THEM), None),
    ],
)
def test_validity_of_the_response(
    response: EstablishConnection, reason: CloseReason | None
) -> None:
    driven = initiator()
    driven.out()
    driven.feed(response)
    assert driven.closed() is reason
    assert bool(driven.out()) is (reason is None)


@pytest.mark.spec("QB-3.1.5.3.2-01")
def test_initiator_learns_the_guid_behind_a_direct_name() -> None:
    driven = initiator(remote=GUID_NULL)
    driven.feed(establish(US, STRANGER))
    assert driven.event(EstablishReceived).remote_guid == STRANGER
    assert driven.session.remote_guid == STRANGER
    driven = initiator(remote=GUID_NULL)
    driven.feed(establish(THEM, STRANGER))
    assert driven.closed() is CloseReason.WRONG_QUEUE_MANAGER


@pytest.mark.spec("QB-3.1.5.3.2-02", "QB-3.1.5.3.2-03", "QB-3.1.5.3.2-04")
@pytest.mark.parametrize(
    ("round_trip_ms", "timeout_ms"),
    [(0, 500), (62, 500), (63, 504), (187, 1496), (15_000, 120_000), (20_000, 120_000)],
)
def test_initiator_proposes_eight_round_trips(round_trip_ms: int, timeout_ms: int) -> None:
    driven = initiator(SessionConfig(window_size=33, ack_wait_timeout_ms=30_000))
    driven.out()
    driven.feed(establish(US, THEM, (int(NOW * 1000) - round_trip_ms) & 0xFFFF_FFFF))
    assert driven.out() == [ConnectionParameters(timeout_ms, 30_000, 33)]
    assert driven.state() is SessionState.WAITING_CPR_MSG
    twin = initiator(SessionConfig(window_size=33, ack_wait_timeout_ms=30_000))
    twin.out()
    twin.feed(establish(US, THEM, (int(NOW * 1000) - round_trip_ms) & 0xFFFF_FFFF))
    raw = twin.session.take_outgoing(NOW)
    assert (len(raw), raw[2] & 0x08, raw[18:20]) == (32, 0x08, b"\3\0"), "IN, PT 3, without CS"
    assert raw[20:] == struct.pack("<IIHH", timeout_ms, 30_000, 0, 33)
    # It is what counts here, too.
    driven.feed(ConnectionParameters(timeout_ms, 30_000, 5))
    agreed = driven.event(Established)
    assert (agreed.recoverable_ack_send_timeout_ms, agreed.ack_wait_timeout_ms) == (
        timeout_ms,
        30_000,
    )
    # AckWaitTimeout allows for the configured round trip (note <51>).
    slow = initiator(SessionConfig(ack_wait_timeout_ms=30_000, round_trip_delay_ms=1_000))
    slow.out()
    slow.feed(establish(US, THEM, (int(NOW * 1000) - round_trip_ms) & 0xFFFF_FFFF))
    assert slow.out() == [ConnectionParameters(timeout_ms, 31_000, 64)]
    # The clock may have passed 2^32 ms since the request.
    wrapped = recoverable_ack_send_timeout_ms(-round_trip_ms & 0xFFFF_FFFF, 0.0)
    assert wrapped == timeout_ms


@pytest.mark.spec("QB-3.1.5.4.1-01", "QB-3.1.5.4.1-02", "QB-3.1.5.4.1-03", "QB-2.2.2.1-03")
def test_acceptor_adopts_and_echoes_the_parameters() -> None:
    driven = acceptor(SessionConfig(window_size=16))
    driven.feed(establish(THEM, US), ConnectionParameters(700, 40_000, 5))
    assert driven.out()[1:] == [ConnectionParameters(700, 40_000, 16)]
    established = driven.event(Established)
    assert established.received_window_size == 5
    assert established.remote_guid == THEM
    assert driven.state() is SessionState.OPEN
    # The peer's window bounds what we send, its AckTimeout how long we wait for an answer,
    # its RecoverableAckTimeout how long we keep it waiting.
    driven.offer(1, 6)
    assert len(driven.out()) == 5
    driven.wait(79.9)
    assert driven.closed() is None
    driven.wait(0.2)
    assert driven.closed() is CloseReason.ACK_TIMEOUT
    driven = open_acceptor(window=1)
    driven.offer(1, 2)
    assert len(driven.out()) == 1
    driven = open_acceptor(recoverable_ack_timeout_ms=700, ack_timeout_ms=40_000)
    driven.feed(message(1))
    assert driven.session.next_timer() == NOW + 0.7


@pytest.mark.spec("QB-2.2.2.1-03")
@pytest.mark.parametrize(("window", "count"), [(0, 1), (1, 1), (3, 3), (0xFFFF, 100)])
def test_either_side_is_bound_by_the_window_of_the_other(window: int, count: int) -> None:
    """QB-A33: one of 0 lets a single message out at a time."""
    config = SessionConfig(window_size=100)
    for driven in (open_acceptor(config, window=window), open_initiator(config, window=window)):
        driven.offer(1, 150)
        assert len(driven.out()) == count


@pytest.mark.spec("QB-3.1.5.4.2-01")
def test_initiator_adopts_the_window_of_the_response() -> None:
    driven = initiator()
    driven.feed(establish(US, THEM), ConnectionParameters(500, 20_000, 3))
    driven.out()
    assert driven.event(Established).received_window_size == 3
    assert driven.state() is SessionState.OPEN
    driven.offer(1, 4)
    assert len(driven.out()) == 3
    # Session Initialization is stopped: it would have ended the session after a minute.
    driven.feed(ack(3, 1, 7))
    driven.wait(61)
    assert driven.closed() is not CloseReason.INITIALIZATION_TIMEOUT


@pytest.mark.parametrize("recoverable_ms", [499, 120_001])
@pytest.mark.parametrize("is_clamping", [False, True])
@pytest.mark.spec("QB-3.1.5.1.3-01")
def test_parameters_out_of_range(recoverable_ms: int, is_clamping: bool) -> None:
    driven = acceptor(SessionConfig(clamp_connection_parameters=is_clamping))
    packet = bytearray(write_packet(ConnectionParameters(500, 20_000)))
    packet[20:24] = recoverable_ms.to_bytes(4, "little")
    driven.feed(establish(THEM, US), bytes(packet))
    if not is_clamping:
        assert driven.closed() is CloseReason.BAD_PARAMETERS
        return
    clamped = 500 if recoverable_ms == 499 else 120_000
    assert driven.out()[1:] == [ConnectionParameters(clamped, 20_000)]


@pytest.mark.spec("QB-3.1.5.10-01")
def test_an_accepted_connection_waits_for_establish_connection() -> None:
    driven = acceptor()
    session = driven.session
    assert driven.state() is SessionState.WAITING_EC_MSG
    assert session.remote_guid == GUID_NULL
    assert session.next_timer() == NOW + 60
    assert driven.out() == []
    # Nothing has been agreed on yet: neither is an acknowledgement timed, nor a number known.
    early = acceptor(SessionConfig(cleanup_timeout_ms=50_000))
    early.wait(50)
    # SessionActive is FALSE: the very first expiry of Session Cleanup ends it.
    assert early.closed() is CloseReason.IDLE
    # Two sessions do not share the timer (QB-A32).
    other = Session(SessionConfig(), Role.ACCEPTOR, US, NOW + 30)
    driven.wait(61)
    assert driven.closed() is CloseReason.INITIALIZATION_TIMEOUT
    assert other.state is SessionState.WAITING_EC_MSG
    assert other.next_timer() == NOW + 90


@pytest.mark.spec("QB-3.1.1.3.1-01")
def test_both_ends_of_a_connection_keep_their_own_state() -> None:
    ours, theirs = open_initiator(), open_acceptor()
    ours.offer(1, 2)
    ours.out()
    assert (ours.session.in_flight, theirs.session.in_flight) == (2, 0)
    theirs.feed(message(1))
    assert (ours.session.uncommitted, theirs.session.uncommitted) == (0, 1)
