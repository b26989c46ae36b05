"""Notifies listeners of changes of the replicated state, one after the other."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from qm.cluster.cluster import ClusterListener, Leadership
from qm.model.values.effects import Applied

logger = logging.getLogger(__name__)


class Listeners:
    """Calls listeners from the event loop, never from within Raft, in the order of events."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: list[ClusterListener] = []
        self._events: deque[Callable[[ClusterListener], None]] = deque()

    def add(self, listener: ClusterListener) -> Callable[[], None]:
        """Call a listener from now on; the returned function stops that."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def applied(self, run: Sequence[Applied]) -> None:
        """Entries were applied."""
        for applied in run:
            self._events.append(lambda listener, applied=applied: listener.on_applied(applied))  # type: ignore[misc]
        self._schedule()

    def restored(self, index: int) -> None:
        """A snapshot replaced the state."""
        self._events.append(lambda listener: listener.on_restored(index))
        self._schedule()

    def leadership(self, leadership: Leadership) -> None:
        """The leader or the term changed."""
        self._events.append(lambda listener: listener.on_leadership(leadership))
        self._schedule()

    def _schedule(self) -> None:
        self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        while self._events:
            event = self._events.popleft()
            for listener in tuple(self._listeners):
                try:
                    event(listener)
                except Exception:
                    # An error of one listener must not keep others from being called.
                    logger.exception("%s failed", type(listener).__name__)
