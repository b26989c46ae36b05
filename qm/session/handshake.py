"""EstablishConnection and ConnectionParameters, both roles [MS-MQQB 3.1.5.2 to 3.1.5.4]."""

from typing import Final

from qm.session.config import SessionConfig
from qm.session.events import CloseReason
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.limits import (
    ACK_TIMEOUT_MAX_MS,
    RECOVERABLE_ACK_TIMEOUT_MAX_MS,
    RECOVERABLE_ACK_TIMEOUT_MIN_MS,
    U32_MAX,
)
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    write_connection_parameters,
    write_establish_connection,
)

_ROUND_TRIPS: Final = 8


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
    """Return why an acceptor refuses, or None. QB-A53: zeros mean whoever listens here."""
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


def ack_wait_timeout_ms(config: SessionConfig) -> int:
    """Return the AckWaitTimeout that an initiator proposes (note <51>)."""
    return min(config.ack_wait_timeout_ms + config.round_trip_delay_ms, ACK_TIMEOUT_MAX_MS)


def parameters(
    recoverable_ack_timeout_ms: int, ack_timeout_ms: int, config: SessionConfig
) -> bytes:
    """Return a ConnectionParameters packet; request and response differ in nothing else."""
    return write_connection_parameters(
        ConnectionParameters(recoverable_ack_timeout_ms, ack_timeout_ms, config.window_size)
    )
