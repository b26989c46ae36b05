"""EstablishConnection and ConnectionParameters, both roles [MS-MQQB 3.1.5.2 to 3.1.5.4]."""

from math import inf
from typing import Final

import msgspec

from qm.session.config import SessionConfig
from qm.session.errors import PeerFault
from qm.session.events import CloseReason, Established, EstablishReceived
from qm.session.states import Role, SessionState
from qm.session.timers import Timers
from qm.wire.errors import ProtocolError
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.limits import (
    RECOVERABLE_ACK_TIMEOUT_MAX_MS,
    RECOVERABLE_ACK_TIMEOUT_MIN_MS,
    U32_MAX,
    WINDOW_SIZE_MIN,
)
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    parse_connection_parameters,
    parse_establish_connection,
    write_connection_parameters,
    write_establish_connection,
)

_ROUND_TRIPS: Final = 8


class HandshakeStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one packet of the handshake leads to."""

    remote_guid: Guid
    """RemoteQMGuid from now on."""
    reply: bytes = b""
    """Bytes to write."""
    event: EstablishReceived | Established | None = None
    """Event for the owner."""
    peer_window: int = WINDOW_SIZE_MIN
    """WindowSize of the peer, once it is known."""
    refusal: CloseReason | None = None
    """The session ends, after `reply` (QB-A31)."""


def read_packet(
    state: SessionState,
    packet: tuple[bytes | bytearray, int, int],
    now: float,
    config: SessionConfig,
    timers: Timers,
    local_guid: Guid,
    remote_guid: Guid,
) -> HandshakeStep:
    """Process the packet that `state` waits for; `packet` is a buffer, its start and its end.

    Timeouts that it agrees on are stored in `timers`. Raises PeerFault and ProtocolError.
    """
    if state is SessionState.WAITING_EC_MSG:
        return _read_request(packet, config, local_guid)
    if state is SessionState.WAITING_ECR_MSG:
        return _read_response(packet, now, config, timers, local_guid, remote_guid)
    role = Role.ACCEPTOR if state is SessionState.WAITING_CP_MSG else Role.INITIATOR
    return _read_parameters(packet, role, config, timers, remote_guid)


def _read_request(
    packet: tuple[bytes | bytearray, int, int], config: SessionConfig, local_guid: Guid
) -> HandshakeStep:
    request, _ = parse_establish_connection(*packet)
    refusal = judge_request(request, config, local_guid)
    reply = establish_response(request, config, local_guid, is_refused=refusal is not None)
    return HandshakeStep(remote_guid=request.client_guid, reply=reply, refusal=refusal)


def _read_response(
    packet: tuple[bytes | bytearray, int, int],
    now: float,
    config: SessionConfig,
    timers: Timers,
    local_guid: Guid,
    remote_guid: Guid,
) -> HandshakeStep:
    response, _ = parse_establish_connection(*packet)
    refusal = judge_response(response, local_guid, remote_guid)
    if refusal is not None:
        raise PeerFault(refusal, "EstablishConnection response")
    timeout_ms = recoverable_ack_send_timeout_ms(response.time_stamp, now)
    timers.recoverable_ack_send_timeout_ms = timeout_ms
    return HandshakeStep(
        remote_guid=response.server_guid,
        reply=parameters(timeout_ms, timers.ack_wait_timeout_ms, config),
        event=EstablishReceived(response.server_guid),
    )


def _read_parameters(
    packet: tuple[bytes | bytearray, int, int],
    role: Role,
    config: SessionConfig,
    timers: Timers,
    remote_guid: Guid,
) -> HandshakeStep:
    try:
        said, _ = parse_connection_parameters(
            *packet, is_clamping=config.clamp_connection_parameters
        )
    except ProtocolError as error:
        if error.field.startswith("ConnectionParametersHeader."):
            raise PeerFault(CloseReason.BAD_PARAMETERS, str(error)) from None
        raise
    if said.is_refused:
        raise PeerFault(CloseReason.REFUSED_BY_PEER, "ConnectionParameters")
    reply = b""
    if role is Role.ACCEPTOR:
        timers.ack_wait_timeout_ms = said.ack_timeout
        timers.recoverable_ack_send_timeout_ms = said.recoverable_ack_timeout
        reply = parameters(said.recoverable_ack_timeout, said.ack_timeout, config)
    timers.initialization_at = inf
    return HandshakeStep(
        remote_guid=remote_guid,
        reply=reply,
        peer_window=said.window_size,
        event=Established(
            role,
            remote_guid,
            said.window_size,
            timers.ack_wait_timeout_ms,
            timers.recoverable_ack_send_timeout_ms,
        ),
    )


def milliseconds(now: float) -> int:
    """Return the u32 TimeStamp for monotonic seconds."""
    return int(now * 1000) & U32_MAX


def establish_request(
    config: SessionConfig, local_guid: Guid, remote_guid: Guid, *, pinged: bool, now: float
) -> bytes:
    """Return the initiator's first packet; `remote_guid` is zeros for a direct name."""
    return write_establish_connection(
        EstablishConnection(
            local_guid,
            remote_guid,
            milliseconds(now),
            is_ping_skipped=not pinged,
            is_server_class=config.is_server_class,
        )
    )


def judge_request(
    request: EstablishConnection, config: SessionConfig, local_guid: Guid
) -> CloseReason | None:
    """Return why an acceptor refuses, or None. QB-A53: zeros mean any queue manager."""
    if request.is_refused:
        return CloseReason.REFUSED_BY_PEER
    if request.server_guid not in (local_guid, GUID_NULL):
        return CloseReason.WRONG_QUEUE_MANAGER
    if not config.admit(request.client_guid, not request.is_ping_skipped):
        return CloseReason.NOT_ADMITTED
    return None


def establish_response(
    request: EstablishConnection, config: SessionConfig, local_guid: Guid, *, is_refused: bool
) -> bytes:
    """Return the acceptor's answer; its padding is 0x5A."""
    return write_establish_connection(
        EstablishConnection(
            request.client_guid,
            local_guid,
            request.time_stamp,
            is_ping_skipped=request.is_ping_skipped,
            is_server_class=config.is_server_class,
            is_refused=is_refused,
        )
    )


def judge_response(
    response: EstablishConnection, local_guid: Guid, remote_guid: Guid
) -> CloseReason | None:
    """Return why an initiator gives up, or None.

    QB-A30: the peer's GUID is unknown for a direct name and is then taken from the response.
    """
    if response.is_refused:
        return CloseReason.REFUSED_BY_PEER
    if response.client_guid != local_guid:
        return CloseReason.WRONG_QUEUE_MANAGER
    if remote_guid not in (GUID_NULL, response.server_guid):
        return CloseReason.WRONG_QUEUE_MANAGER
    return None


def recoverable_ack_send_timeout_ms(time_stamp: int, now: float) -> int:
    """Return RecoverableAckSendTimeout: eight round trips, modulo 2^32, brought into range."""
    round_trip_ms = (milliseconds(now) - time_stamp) & U32_MAX
    return min(
        max(_ROUND_TRIPS * round_trip_ms, RECOVERABLE_ACK_TIMEOUT_MIN_MS),
        RECOVERABLE_ACK_TIMEOUT_MAX_MS,
    )


def parameters(
    recoverable_ack_timeout_ms: int, ack_timeout_ms: int, config: SessionConfig
) -> bytes:
    """Return a ConnectionParameters packet; request and response are otherwise the same."""
    return write_connection_parameters(
        ConnectionParameters(recoverable_ack_timeout_ms, ack_timeout_ms, config.window_size)
    )
