"""[MS-MQQB] section 3 as sans-IO state machines: sessions, links, schedules. See design.md. May
import `qm.wire` and `qm.names`.

`Session` is one transport connection in either role; `OutgoingLink`, `OutgoingTable` and the
schedules are what the leader keeps per outgoing queue and per sequence over sessions.
"""

from qm.session.config import SessionConfig
from qm.session.errors import SessionMisuse
from qm.session.events import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    AcksReceived,
    Blame,
    Closed,
    CloseReason,
    Established,
    EstablishReceived,
    Event,
    FinalAckArrived,
    OrderAckArrived,
    PacketsArrived,
)
from qm.session.link import ConnectionStatus, NextHop, OutgoingLink, OutgoingState
from qm.session.outgoing_table import OrderAckEffect, OutgoingTable
from qm.session.ping import (
    PingRequester,
    PingResult,
    PingVerdict,
    answer_ping,
    asking_queue_manager,
)
from qm.session.schedules import (
    OrderAckSchedule,
    OrderAckTimer,
    PromptOrderAckSchedule,
    ResendSchedule,
    resend_timer_table,
)
from qm.session.session import Session
from qm.session.states import Role, SessionState

__all__ = [
    "KIND_EXPRESS",
    "KIND_RECOVERABLE",
    "KIND_TRANSACTIONAL",
    "AcksReceived",
    "Blame",
    "CloseReason",
    "Closed",
    "ConnectionStatus",
    "EstablishReceived",
    "Established",
    "Event",
    "FinalAckArrived",
    "NextHop",
    "OrderAckArrived",
    "OrderAckEffect",
    "OrderAckSchedule",
    "OrderAckTimer",
    "OutgoingLink",
    "OutgoingState",
    "OutgoingTable",
    "PacketsArrived",
    "PingRequester",
    "PingResult",
    "PingVerdict",
    "PromptOrderAckSchedule",
    "ResendSchedule",
    "Role",
    "Session",
    "SessionConfig",
    "SessionMisuse",
    "SessionState",
    "answer_ping",
    "asking_queue_manager",
    "resend_timer_table",
]
