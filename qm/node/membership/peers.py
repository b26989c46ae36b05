"""What a node's own work asks of the members of its cluster."""

from typing import Protocol

from qm.pb import relay_pb2


class Peers(Protocol):
    """The members as this node knows them, itself among them."""

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        """Ask every member at once; return by name the answers of those that gave one."""

    def majority(self) -> int:
        """Return how many of the voters are a majority now."""

    def count(self) -> int:
        """Return how many members there are now, learners among them."""
