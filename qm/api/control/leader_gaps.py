"""How long this node has known no leader: nothing is acknowledged meanwhile."""

import asyncio

from typing_extensions import override

from qm.cluster.cluster import Cluster, ClusterListener, Leadership
from qm.model.values.effects import Applied


class LeaderGaps(ClusterListener):
    """Counts them since it was made. Use it in the node's event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._loop = asyncio.get_event_loop()
        self._ended_s = 0.0
        self._since: float | None = None
        self.count = 0
        """Gaps, one that lasts included."""
        self.on_leadership(cluster.leadership)
        cluster.listen(self)

    @property
    def total_ms(self) -> int:
        """Length of all, one that lasts up to now."""
        lasting = 0.0 if self._since is None else self._loop.time() - self._since
        return round(1000 * (self._ended_s + lasting))

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        if leadership.node is None:
            if self._since is None:
                self._since = self._loop.time()
                self.count += 1
        elif self._since is not None:
            self._ended_s += self._loop.time() - self._since
            self._since = None

    @override
    def on_applied(self, applied: Applied) -> None:
        pass

    @override
    def on_restored(self, index: int) -> None:
        pass
