"""What a session tells its owner: frozen values, in the order in which they happened.

Positions in events count this session's arriving UserMessages from 1 without wrapping; only the
wire sees them modulo 2^16.
"""

from enum import Enum
from typing import Final

import msgspec

from qm.session.states import Role
from qm.wire.guid import Guid
from qm.wire.packets.ack import FinalAck, OrderAck


class Blame(Enum):
    """Who caused the end of a session; `PEER` counts against an address or GUID."""

    PEER = "peer"
    LOCAL = "local"
    NOBODY = "nobody"


class CloseReason(Enum):
    """Why a session ended; the values are metric labels."""

    MALFORMED_PACKET = "malformed_packet"
    """Bytes that are no packet of section 2 [MS-MQQB 3.1.5.1.2, 3.1.5.1.3]."""
    UNEXPECTED_PACKET = "unexpected_packet"
    """A good packet in the wrong state [MS-MQQB 3.1.5.3 to 3.1.5.8]."""
    WRONG_QUEUE_MANAGER = "wrong_queue_manager"
    """EstablishConnection names another ServerGuid or ClientGuid [MS-MQQB 3.1.5.3]."""
    REFUSED_BY_PEER = "refused_by_peer"
    """The response carries InternalHeader.Flags.CS [MS-MQQB 2.2.1]."""
    BAD_PARAMETERS = "bad_parameters"
    """ConnectionParameters outside their ranges (QB-A45)."""
    COUNT_MISMATCH = "count_mismatch"
    """The peer's counts are not what arrived [MS-MQQB 3.1.5.5.5]."""
    FALSE_ACKNOWLEDGEMENT = "false_acknowledgement"
    """An acknowledgement names a message that was never sent."""
    NOT_ADMITTED = "not_admitted"
    """`SessionConfig.admit` said no [MS-MQQB 2.2.1, 3.1.5.3.1]."""
    INITIALIZATION_TIMEOUT = "initialization_timeout"
    """The handshake took too long [MS-MQQB 3.1.6.6]."""
    ACK_TIMEOUT = "ack_timeout"
    """Messages await acknowledgement and nothing arrived for a whole period [MS-MQQB 3.1.6.3]."""
    IDLE = "idle"
    """No UserMessage for a whole cleanup period [MS-MQQB 3.1.6.2]."""
    RECYCLED = "recycled"
    """Drained ahead of the wrap of the u16 counters; reconnect at once (QB-A7)."""
    DISCONNECTED = "disconnected"
    """The transport ended [MS-MQQB 3.1.7.3]."""
    QUEUE_MANAGER_QUOTA = "queue_manager_quota"
    """Nothing can be stored now; the peer resends [MS-MQQB 3.1.5.8.8]."""
    PEER_ELSEWHERE = "peer_elsewhere"
    """A queue manager that speaks from another address than the one it is bound to."""
    NO_LEADER = "no_leader"
    """The edge has had no leader for too long (DESIGN section 7)."""
    LIMIT = "limit"
    """A limit of this node."""
    STOPPED = "stopped"
    """The queue manager stops, or the outgoing queue is gone [MS-MQQB 3.1.4.2]."""


BLAME: Final = {
    CloseReason.MALFORMED_PACKET: Blame.PEER,
    CloseReason.UNEXPECTED_PACKET: Blame.PEER,
    CloseReason.WRONG_QUEUE_MANAGER: Blame.PEER,
    CloseReason.REFUSED_BY_PEER: Blame.PEER,
    CloseReason.BAD_PARAMETERS: Blame.PEER,
    CloseReason.COUNT_MISMATCH: Blame.PEER,
    CloseReason.FALSE_ACKNOWLEDGEMENT: Blame.PEER,
    CloseReason.NOT_ADMITTED: Blame.LOCAL,
    CloseReason.INITIALIZATION_TIMEOUT: Blame.PEER,
    CloseReason.ACK_TIMEOUT: Blame.PEER,
    CloseReason.IDLE: Blame.NOBODY,
    CloseReason.RECYCLED: Blame.NOBODY,
    CloseReason.DISCONNECTED: Blame.NOBODY,
    CloseReason.QUEUE_MANAGER_QUOTA: Blame.LOCAL,
    CloseReason.PEER_ELSEWHERE: Blame.PEER,
    CloseReason.NO_LEADER: Blame.LOCAL,
    CloseReason.LIMIT: Blame.LOCAL,
    CloseReason.STOPPED: Blame.LOCAL,
}


class EstablishReceived(msgspec.Struct, frozen=True, gc=False):
    """Initiator: a good EstablishConnection response came [MS-MQQB 3.1.5.3.2]."""

    remote_guid: Guid
    """The peer's queue manager, 16 raw bytes; learnt here for direct names (QB-A30)."""


class Established(msgspec.Struct, frozen=True, gc=False):
    """The session is OPEN in both directions."""

    role: Role
    """Which end we are."""
    remote_guid: Guid
    """The peer's queue manager as the handshake gave it; a claim, not a proof."""
    received_window_size: int
    """The peer's WindowSize in messages."""
    ack_wait_timeout_ms: int
    """Agreed AckWaitTimeout."""
    recoverable_ack_send_timeout_ms: int
    """Agreed RecoverableAckSendTimeout."""


class PacketsArrived(msgspec.Struct, frozen=True, gc=False):
    """A run of UserMessages as they stood in the stream.

    Packet k has position `first_position + k` and is `block[offsets[k]:offsets[k + 1]]`. Trailing
    SessionHeaders are removed and Flags.SH is clear. The framing is checked, the headers inside are
    not: code that peeks at them calls `Session.close(MALFORMED_PACKET, ...)` when that fails. Facts
    of security are added here, as columns beside `offsets` in what the edge sends (design.md).
    """

    first_position: int
    """Position of the first packet."""
    block: bytes
    """The raw packets back to back."""
    offsets: list[int]
    """n + 1 boundaries in `block`, in bytes; the first is 0 and the last is len(block)."""
    kinds: bytes
    """n values, KIND_* of each packet."""


class OrderAckArrived(msgspec.Struct, frozen=True, gc=False):
    """An OrderAck for this queue manager; it takes a position and is committed like a message."""

    position: int
    """Its position."""
    order_ack: OrderAck
    """The parsed packet; its source is a claim."""


class FinalAckArrived(msgspec.Struct, frozen=True, gc=False):
    """A FinalAck for this queue manager; it takes a position and is committed like a message."""

    position: int
    """Its position."""
    final_ack: FinalAck
    """The parsed packet; its source is a claim."""


class AcksReceived(msgspec.Struct, frozen=True, gc=False):
    """The peer's session acknowledgement moved [MS-MQQB 3.1.5.5.1 to 3.1.5.5.3].

    A token is what `Session.offer` was given. A released message may be deleted (and journaled if
    it asks for it); a retained one is session-acked but waits for its OrderAck.
    """

    released: list[int]
    """Tokens of express and of persisted recoverable messages, in the order of sending."""
    retained: list[int]
    """Tokens of transactional messages, in the order of sending."""


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The last event: close the transport after writing what `take_outgoing` still returns."""

    reason: CloseReason
    """Why, as a metric label."""
    blame: Blame
    """Who caused it."""
    detail: str
    """For the log: field, offset and rule; never bytes of a message."""
    unacknowledged: list[int]
    """Tokens offered and not acknowledged, sent or not, in order; send them again."""


Event = (
    EstablishReceived
    | Established
    | PacketsArrived
    | OrderAckArrived
    | FinalAckArrived
    | AcksReceived
    | Closed
)

KIND_EXPRESS: Final = 0
KIND_RECOVERABLE: Final = 1
KIND_TRANSACTIONAL: Final = 2
