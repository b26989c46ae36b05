"""What a node asks of the members of its cluster."""

from typing import NamedTuple, Protocol

from qm.pb import relay_pb2


class ClockReading(NamedTuple):
    """A member's wall clock, and when it was read. Times are milliseconds."""

    wall_ms: int
    """UTC."""
    asked_ms: int
    """Monotonic time of the node that asked."""
    answered_ms: int
    """The same, when the answer came."""


class Peers(Protocol):
    """The members as this node knows them, itself among them."""

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        """Ask every member at once; return the answers that came, by name."""

    async def read_clocks(self, enough: int) -> dict[str, ClockReading]:
        """Ask every member for its wall clock; return the answers, by name, when `enough` came or
        nobody is left who could answer.
        """

    def majority(self) -> int:
        """Return how many of the present voters are a majority."""

    def count(self) -> int:
        """Return the present number of members, learners included."""
