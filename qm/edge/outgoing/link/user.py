"""Users that send over a connection: an outgoing queue, or acknowledgements owed to a peer.

Several users share one connection to a queue manager (QB-A36), in turns. A user sees only its own
keys; in the session's tokens its number stands above them.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from qm.session import Closed, ConnectionStatus
from qm.wire.guid import Guid

KEY_BITS: Final = 64
KEY_MASK: Final = (1 << KEY_BITS) - 1
ACKS_PRIORITY: Final = 1 << 16
"""Priority of acknowledgements to a peer: above that of every message."""


class SharedConnection(Protocol):
    """A connection as its users see it."""

    @property
    def address(self) -> str:
        """The peer's IP address, without port."""

    @property
    def remote_guid(self) -> Guid:
        """The peer's queue manager, zeros while unknown."""

    def ready(self, user: "User") -> None:
        """The user has something to send; `take_turn` will be called."""

    def set_held(self, user: "User", is_held: bool) -> None:
        """The user is on hold, or no longer [MS-MQQB 3.1.7.13, 3.1.7.14]."""

    def leave(self, user: "User") -> None:
        """Remove the user; it is not called again."""


class User(Protocol):
    """A user of a connection: an outgoing queue, or acknowledgements owed to a peer."""

    @property
    def number(self) -> int:
        """A number of its own among all users, not negative."""

    @property
    def priority(self) -> int:
        """Priority of what it would send next ([MS-MQDMPR] 3.1.1.18): higher is sooner."""

    @property
    def is_named_by_peer(self) -> bool:
        """Whether a peer, and no application, named where it sends to."""

    def on_connected(self, connection: SharedConnection) -> None:
        """EstablishConnection has been sent."""

    def on_connect_failed(self, status: ConnectionStatus) -> None:
        """There is no transport connection."""

    def on_establish_received(self) -> None:
        """The peer's answer came."""

    def on_established(self) -> None:
        """The session is open."""

    def take_turn(self, count: int, size_bytes: int) -> tuple[list[int], list[bytes]]:
        """Return keys and packets to send now, both empty when nothing is ready.

        `count` is a limit; the last packet may exceed `size_bytes`.
        """

    def on_acknowledged(self, released: Sequence[int], retained: Sequence[int]) -> None:
        """The session acknowledged keys (`qm.session.AcksReceived`)."""

    def on_withdrawn(self, keys: Sequence[int]) -> None:
        """These were taken but not sent after all: the session was paused."""

    def on_closed(self, closed: Closed) -> None:
        """The session is over; what it did not acknowledge must be sent again."""
