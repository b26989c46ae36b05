"""How far this node has applied the log, for answers that need the contents of an entry."""

import asyncio

from typing_extensions import override

from qm.api.gate.errors import OutOfTime
from qm.cluster.cluster import Cluster, ClusterListener, Leadership
from qm.model.values.effects import Applied


class AppliedWatch(ClusterListener):
    """Waits for entries. A follower may learn an outcome before it has applied its entry."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._index = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stop = cluster.listen(self)

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    def has_reached(self, index: int) -> bool:
        """Whether the entry at `index` is applied here, as far as this knows."""
        return index <= self._index

    async def reached(self, index: int, wait_s: float) -> None:
        """Return when the committed entry at `index` is applied here.

        Raises OutOfTime, Unavailable.
        """
        if index <= self._index:
            return
        if self._index == 0:
            self._move(await self._cluster.read_barrier())
            if index <= self._index:
                return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, future))
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            raise OutOfTime(
                f"this node has applied entry {self._index} and {index} is needed: it is behind;"
                " ask another node"
            ) from None
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not future]

    def _move(self, index: int) -> None:
        self._index = max(self._index, index)
        for wanted, future in self._waiting:
            if wanted <= self._index and not future.done():
                future.set_result(None)

    @override
    def on_applied(self, applied: Applied) -> None:
        self._index = applied.index
        if self._waiting:
            self._move(applied.index)

    @override
    def on_restored(self, index: int) -> None:
        self._move(index)

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        pass
