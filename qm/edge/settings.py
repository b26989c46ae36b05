"""What the node's configuration says about its MSMQ endpoint."""

import msgspec

from qm.edge.limits import NO_LEADER_MAX_S
from qm.session import SessionConfig


class EdgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one node: `[msmq]` of its file, with addresses resolved."""

    addresses: tuple[str, ...]
    """IPv4 or IPv6 literals to listen on, at least one."""
    port: int = 1801
    """TCP port; 0 lets the system choose, once per address."""
    ping_port: int = 3527
    """UDP port; 0 as above."""
    answer_pings: bool = True
    sessions_max: int = 4_000
    """Connections in any state."""
    sessions_per_address_max: int = 2_500
    """Connections from one address."""
    sessions_per_queue_manager_max: int = 2_500
    """Sessions past their handshake that claim one GUID."""
    session: SessionConfig = SessionConfig()
    """The edge itself sets `admit`."""
    no_leader_max_s: float = NO_LEADER_MAX_S
    """How long sessions outlive the loss of a leader."""
