"""Has final acks count that came from where their messages had not gone, once they can be believed.

A queue manager sends a final ack once. Apply keeps one from another address (FinalClaim); when that
queue manager is bound or pinned there, or messages go there, the leader repeats it.
"""

from array import array
from typing import Final

from qm.cluster.cluster import Cluster
from qm.model.queries import claims_that_hold
from qm.model.values.commands import FinalAcked

LOOK_EVERY_S: Final = 10.0


class FinalClaims:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._above = 0
        """Ordinal of the last claim that was looked at."""

    async def look(self) -> None:
        """Repeat what holds by now of the next claims."""
        hold, self._above = claims_that_hold(self._cluster.view, self._above)
        if not hold:
            return
        claims = [claim for _, claim in hold]
        command = FinalAcked(
            array("Q", [ordinal for ordinal, _ in hold]),
            array("Q", [claim.message_class for claim in claims]),
            b"".join(claim.queue_manager for claim in claims),
            tuple(claim.address for claim in claims),
        )
        await self._cluster.propose(command)
