"""Which packet may come in which state: the complete table of transitions.

Theory of operation
1. One `Session` is one transport connection; it starts in the state of its role and ends in CLOSED.
   WAITING_RECONNECT has no connection and belongs to `qm.session.link`.
2. `TRANSITIONS` is the whole table. A packet whose kind has no entry for the state ends the session
   (MS-MQQB 3.1.5.3, 3.1.5.4, 3.1.5.5 to 3.1.5.8). There is no other way to refuse a packet by
   state, so an illegal packet has no code path to run.
3. The entry names the state that follows if the packet's contents are good. Bad contents lead to
   CLOSED from every state.
4. The table does not know which side we are: the initial state already says it.
5. OrderAck and FinalAck are UserMessages to the session (they take a position), so they share
   the kind MESSAGE here and are distinguished only where they are handed out.
"""

from enum import Enum
from typing import Final

from qm.wire.packets.packet import PacketKind


class Role(Enum):
    """Which end of the transport connection we are [MS-MQQB 3.1.5.2, 3.1.5.10]."""

    INITIATOR = "initiator"
    ACCEPTOR = "acceptor"


class SessionState(Enum):
    """SessionState [MS-MQQB 3.1.1.3.1]; the values are the specification's words."""

    WAITING_EC_MSG = "WAITING_EC_MSG"
    WAITING_CP_MSG = "WAITING_CP_MSG"
    WAITING_ECR_MSG = "WAITING_ECR_MSG"
    WAITING_CPR_MSG = "WAITING_CPR_MSG"
    OPEN = "OPEN"
    CLOSED = "CLOSED"
    WAITING_RECONNECT = "WAITING_RECONNECT"


INITIAL_STATE: Final = {
    Role.ACCEPTOR: SessionState.WAITING_EC_MSG,
    Role.INITIATOR: SessionState.WAITING_ECR_MSG,
}

TRANSITIONS: Final[dict[SessionState, dict[PacketKind, SessionState]]] = {
    SessionState.WAITING_EC_MSG: {
        PacketKind.ESTABLISH_CONNECTION: SessionState.WAITING_CP_MSG,
    },
    SessionState.WAITING_CP_MSG: {
        PacketKind.CONNECTION_PARAMETERS: SessionState.OPEN,
    },
    SessionState.WAITING_ECR_MSG: {
        PacketKind.ESTABLISH_CONNECTION: SessionState.WAITING_CPR_MSG,
    },
    SessionState.WAITING_CPR_MSG: {
        PacketKind.CONNECTION_PARAMETERS: SessionState.OPEN,
    },
    SessionState.OPEN: {
        PacketKind.SESSION_ACK: SessionState.OPEN,
        PacketKind.MESSAGE: SessionState.OPEN,
    },
    SessionState.CLOSED: {},
    SessionState.WAITING_RECONNECT: {},
}
