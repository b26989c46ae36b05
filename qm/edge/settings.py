"""What the node's configuration says about its MSMQ endpoint."""

import msgspec

from qm.edge.limits import NO_LEADER_MAX_S
from qm.session import SessionConfig


class EdgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node; `[msmq]` of its file, with addresses resolved."""

    addresses: tuple[str, ...]
    """IPv4 or IPv6 literals to listen on, at least one."""
    port: int = 1801
    """TCP; 0 lets the system choose, per address, once."""
    ping_port: int = 3527
    """UDP; 0 as above."""
    answer_pings: bool = True
    sessions_max: int = 4_000
    """Connections, whatever their state."""
    sessions_per_address_max: int = 2_500
    """Of those, from one address."""
    sessions_per_queue_manager_max: int = 2_500
    """Sessions past their handshake that claim one GUID."""
    session: SessionConfig = SessionConfig()
    """`admit` is the edge's to set."""
    no_leader_max_s: float = NO_LEADER_MAX_S
    """How long sessions outlive the loss of a leader."""
