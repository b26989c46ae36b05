"""Settings of a queue manager's sessions; one value, shared by all of them."""

from collections.abc import Callable

import msgspec

from qm.session import limits
from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.limits import (
    ACK_TIMEOUT_MAX_MS,
    ACK_TIMEOUT_MIN_MS,
    WINDOW_SIZE_DEFAULT,
    WINDOW_SIZE_MIN,
)

Admission = Callable[[Guid, bool], bool]
"""(ClientGuid, whether a ping came before) -> whether the session may open [MS-MQQB 2.2.1]."""


def admit_all(client_guid: Guid, pinged: bool) -> bool:
    """Admit every queue manager, as Windows does by default (note <12>)."""
    del client_guid, pinged
    return True


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts, window and policy of a queue manager's sessions; `check` before use."""

    window_size: int = WINDOW_SIZE_DEFAULT
    """Own WindowSize in messages, 1 to OPEN_POSITIONS_MAX_COUNT [MS-MQQB 3.1.3.2]."""
    ack_wait_timeout_ms: int = limits.ACK_WAIT_TIMEOUT_MS
    """AckWaitTimeout an initiator proposes, 20,000 to 120,000 [MS-MQQB 3.1.3.2]."""
    round_trip_delay_ms: int = 0
    """RoundTripDelay: added to the timeouts that notes <43>, <45> and <51> name."""
    initialization_timeout_ms: int = limits.INITIALIZATION_TIMEOUT_MS
    """Session Initialization Timer without the two round trips [MS-MQQB 3.1.2.1]."""
    cleanup_timeout_ms: int = limits.CLEANUP_TIMEOUT_MS
    """Session Cleanup Timer: an idle session ends after one to two of these [MS-MQQB 3.1.2.2]."""
    is_server_class: bool = True
    """OperatingSystem.OS of our EstablishConnection; its inverse is RC of our pings."""
    clamp_connection_parameters: bool = False
    """QB-A45: bring out-of-range ConnectionParameters into range instead of closing."""
    uncommitted_max_bytes: int = limits.UNCOMMITTED_MAX_BYTES
    """Arrivals not yet committed, above which the session asks its edge to stop reading."""
    uncommitted_max_count: int = limits.UNCOMMITTED_MAX_COUNT
    """The same in messages; at most OPEN_POSITIONS_MAX_COUNT."""
    acknowledged_after_count: int = limits.ACKNOWLEDGED_AFTER_COUNT
    """Durable messages that are acknowledged although others are in flight, unless half a window
    or 32 recoverable ones are fewer [MS-MQQB 3.1.5.8.7]."""
    admit: Admission = admit_all
    """Asked once per EstablishConnection request; must be quick and must not raise."""

    def check(self) -> "SessionConfig":
        """Return self, or raise `ValueOutOfRange` for a value with which sessions cannot run."""
        ranges = (
            ("window_size", WINDOW_SIZE_MIN, limits.OPEN_POSITIONS_MAX_COUNT),
            ("ack_wait_timeout_ms", ACK_TIMEOUT_MIN_MS, ACK_TIMEOUT_MAX_MS),
            ("round_trip_delay_ms", 0, ACK_TIMEOUT_MAX_MS),
            ("initialization_timeout_ms", 1, 0xFFFF_FFFF),
            ("cleanup_timeout_ms", 1, 0xFFFF_FFFF),
            ("uncommitted_max_bytes", 1, 0xFFFF_FFFF),
            ("uncommitted_max_count", 1, limits.OPEN_POSITIONS_MAX_COUNT),
            ("acknowledged_after_count", 1, limits.OPEN_POSITIONS_MAX_COUNT),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueOutOfRange(name, "MS-MQQB 3.1.3.2", f"{value} is not {low} to {high}")
        return self
