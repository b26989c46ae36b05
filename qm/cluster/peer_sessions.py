"""MSMQ sessions of a node that live now, and what each has carried: the counters of the object
MSMQ Session, one instance per session.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from qm.wire.guid import Guid

SESSIONS_LISTED_MAX: Final = 1_000
"""Sessions in one answer."""


class SessionsWanted(msgspec.Struct, frozen=True):
    """Which sessions a list has, those with the most bytes first."""

    limit: int
    """At most SESSIONS_LISTED_MAX."""
    address: str = ""
    """Only those of this address of a peer; "" = any."""
    queue_manager: Guid = b""
    """Only those of this queue manager; b"" = any."""


class PeerSession(msgspec.Struct, frozen=True):
    """One session, as its node has counted it since it began."""

    number: int
    """Of this session alone while the node's process runs."""
    is_incoming: bool
    """Whether the peer connected; otherwise this queue manager did. Both ends send on either."""
    address: str
    """The peer's, without port."""
    queue_manager: Guid
    """The peer's, as it claims or is expected to be; b"" while neither is known."""
    is_open: bool
    """Whether the handshake is complete."""
    since_ms: int
    """When its connection was made, cluster time."""
    messages_in: int
    """UserMessages, acknowledgements of order and of receiving among them."""
    messages_out: int
    """The same; what was written, whether or not it is acknowledged."""
    bytes_in: int
    """Everything that was read, session packets included."""
    bytes_out: int
    """Everything that was handed to the transport."""


class SessionsFound(msgspec.Struct, frozen=True):
    """Sessions of one node."""

    sessions: Sequence[PeerSession]
    left_out: int
    """How many more there are."""


NO_SESSIONS: Final = SessionsFound((), 0)


def busiest_first(session: PeerSession) -> tuple[int, int]:
    """Return the key by which sessions are sorted."""
    return (-session.bytes_in - session.bytes_out, session.number)
