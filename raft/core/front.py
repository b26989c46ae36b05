"""Which followers a majority waits for, and which can wait (raft/design.md, Replication)."""

from collections.abc import Mapping, Sequence

from raft.core.progress import Progress, ProgressState
from raft.core.quorum import majority
from raft.types import NodeId


class Front:
    """The followers that a commit needs besides the leader; the others are the rear.

    A frame costs both ends, and a sync its node, as much as many messages do. So the rear gets the
    entries of a tick together, and sends fewer answers as well.
    """

    __slots__ = ("_nodes", "_rear_ticks", "has_put_off")

    def __init__(self, rear_ticks: int) -> None:
        self._rear_ticks = rear_ticks
        self._nodes: frozenset[NodeId] = frozenset()
        self.has_put_off = False
        """Whether the rear waits for the next tick."""

    def choose(
        self, leader: NodeId, voters: Sequence[NodeId], progress: Mapping[NodeId, Progress]
    ) -> None:
        """Make the front of the followers that have most, preferring its members among equals.

        Call it every tick, and when a follower has to be probed: it leaves the front.
        """
        ranked = sorted(
            [
                (progress[voter].match, voter in self._nodes, voter)
                for voter in voters
                if voter != leader and progress[voter].state is ProgressState.REPLICATE
            ],
            reverse=True,
        )
        needed = majority(len(voters)) - (leader in voters)
        self._nodes = frozenset([voter for _, _, voter in ranked[:needed]])

    def before_rear(self, progress: Mapping[NodeId, Progress]) -> list[tuple[NodeId, Progress]]:
        """Return all followers, the rear last."""
        return sorted(progress.items(), key=lambda item: item[0] not in self._nodes)

    def puts_off(self, node: NodeId, progress: Progress, now: int) -> bool:
        """Return whether a follower was sent everything in this tick and can wait for the next. One
        with a backlog gets more whenever its window has room.
        """
        if not self._nodes or node in self._nodes:
            return False
        if progress.state is not ProgressState.REPLICATE:
            return False
        return now - progress.fed_at < self._rear_ticks
