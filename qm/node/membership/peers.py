"""What a node asks of the members of its cluster."""

from typing import Protocol

from qm.pb import relay_pb2


class Peers(Protocol):
    """The members as this node knows them, itself among them."""

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        """Ask every member at once; return the answers that came, by name."""

    def majority(self) -> int:
        """Return how many of the present voters are a majority."""

    def count(self) -> int:
        """Return the present number of members, learners included."""
