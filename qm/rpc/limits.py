"""Limits on what an RPC client can make this node keep or do ([MS-RPCE] 3.3.3.5, RP-A2 to A4)."""

from typing import Final

FRAGMENT_MAX_BYTES: Final = 5_840
"""Of a request, whatever was agreed; also the largest size that a bind is answered with."""
FRAGMENT_MIN_BYTES: Final = 2_048
"""The smallest size that a bind is answered with [C706 12.6.3.1]."""
BIND_MAX_BYTES: Final = 16_384
"""Of PDUs that carry tokens: a Kerberos ticket with a PAC is larger than a fragment."""
STUB_MAX_BYTES: Final = (4 << 20) + (64 << 10)
"""Of one call's fragments together."""
STUBS_MAX_BYTES: Final = 64 << 20
"""Of calls that are being received, of all connections; beyond it the oldest of them ends."""
CALLS_PER_CONNECTION_MAX: Final = 4_096
"""In progress: Windows multiplexes all of a machine's waiting reads on one connection."""
CALLS_FEW: Final = 64
"""What each connection may have of them; others come from CALLS_SHARED_MAX."""
CALLS_SHARED_MAX: Final = 16_384
CONTEXTS_PER_BIND_MAX: Final = 32
CONTEXTS_PER_CONNECTION_MAX: Final = 256
SYNTAXES_PER_CONTEXT_MAX: Final = 32
SECURITY_CONTEXTS_PER_CONNECTION_MAX: Final = 2_048
"""As Windows servers have it [MS-RPCE 3.3.1.5.4]: its clients build one for each logon session, up
to 1,000 of them, and none ends before its connection."""
SECURITY_CONTEXTS_FEW: Final = 64
"""What each connection may have of them, complete or not; others come from
SECURITY_CONTEXTS_SHARED_MAX, for those who have logged on in all they began."""
SECURITY_CONTEXTS_SHARED_MAX: Final = 32_768
HANDLES_PER_GROUP_MAX: Final = 1_024
GROUPS_MAX: Final = 8_192
LATE_CALLS_MAX: Final = 150
"""Calls that ended before their last fragment, and are remembered to ignore the rest of it."""
POINTER_DEPTH_MAX: Final = 16
POINTERS_PER_STUB_MAX: Final = 65_536
CONNECTIONS_MAX: Final = 4_096
CONNECTIONS_PER_ADDRESS_MAX: Final = 512
"""Of an IPv4 address, or an IPv6 /64: all of one host's."""
CONNECTIONS_FEW: Final = 16
"""The last quarter of all connections is for addresses that have at most so many."""
BIND_TIMEOUT_S: Final = 30.0
"""From accepting a connection to its bind."""
IDLE_TIMEOUT_S: Final = 900.0
"""Without a request, a call in progress or a context handle."""
UNSENT_MAX_BYTES: Final = 64 << 20
"""Written to a connection whose client does not read; beyond it the connection is closed."""
UNSENT_ALL_MAX_BYTES: Final = 128 << 20
"""The same of all connections; beyond it the one that has not read for longest is closed."""
