"""What all parts of one leadership's sending side share."""

from collections.abc import Callable
from typing import Final

import msgspec

from qm.cluster.cluster import Cluster
from qm.edge.outgoing.encrypting import BodyEncryption
from qm.edge.outgoing.link.destination_rules import EVERYWHERE, DestinationRules
from qm.edge.outgoing.link.resolver import Destinations
from qm.edge.outgoing.link.timers import TimerQueue
from qm.edge.outgoing.proposal_queue import ProposalQueue
from qm.edge.relay.relay import Relay
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.security.body_encryption import EncryptionPolicy
from qm.session import SessionConfig, resend_timer_table
from qm.wire.guid import Guid

MSMQ_PORT: Final = 1801
"""Format names carry no port [MS-MQQB 2.1]."""
ORDINARY: Final = SessionConfig()
DEFAULT_ENCRYPTION: Final = EncryptionPolicy()


class OutgoingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the node's configuration says about sending."""

    source_address: str = ""
    """Local address of sessions, such as a virtual IP; "" = the system's choice."""
    port: int = MSMQ_PORT
    """Different only in tests."""
    peers: dict[Guid, str] = {}
    """Queue manager GUID -> host or address at which it is reached."""
    rules: DestinationRules = EVERYWHERE
    """Which addresses may be connected to."""
    session: SessionConfig = ORDINARY
    """Checked."""
    encryption: EncryptionPolicy = DEFAULT_ENCRYPTION
    """Which ciphers bodies are encrypted with."""
    are_order_acks_prompt: bool = True
    """Otherwise they follow the timer of [MS-MQQB] 3.1.2.7."""
    resend_timer_table: tuple[int, ...] = resend_timer_table()
    """ResendTimerTable [MS-MQQB 3.1.1.3], in seconds."""


class OutgoingContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts of one leadership's sending side share."""

    cluster: Cluster
    own_guid: Guid
    settings: OutgoingSettings
    clock: Callable[[], float]
    """Monotonic seconds."""
    timers: TimerQueue
    proposals: ProposalQueue
    destinations: Destinations
    encryption: BodyEncryption
    relay: Relay
    """Receives what peers send back over sessions of this side."""
    metrics: Metrics
    lines: LimitedLog

    def utc_s(self) -> int:
        """Return cluster time in epoch seconds."""
        return self.cluster.now_ms() // 1000
