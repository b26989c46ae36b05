"""Brings the events of this node into the history that all nodes have.

They wait here until an entry has them, and are proposed again until that is known: the state knows
which ones it has from this process. What waited in a process that was killed is lost with it; what
must not be is recorded by the entry that does it.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from qm.api.gate.events import Event
from qm.cluster.cluster import Cluster
from qm.model.values.commands import RecordEvents, SeenEvent
from qm.model.values.elements import EventKind
from qm.model.values.limits import EVENTS_PER_COMMAND_MAX, VERSION_OF_EVENTS
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics

logger = logging.getLogger(__name__)

RECORD_EVERY_S: Final = 0.25
STOPPING_MAX_S: Final = 1.0
"""How long a node that stops tries to leave its last events."""
WAITING_MAX: Final = 1_024
BURST: Final = 100
"""Events of one kind at once; from then on EVENTS_PER_S, so that a node in trouble displaces
little of the history and costs the log little."""
EVENTS_PER_S: Final = 1.0


class EventRecorder:
    """The events of this process on their way into the state."""

    def __init__(
        self, cluster: Cluster, metrics: Metrics, clock: Callable[[], float] = monotonic
    ) -> None:
        """`clock`: seconds."""
        self._cluster = cluster
        self._dropped = metrics.counter("quorate_events_dropped_total")
        self._clock = clock
        self._log = LimitedLog(logger, clock)
        self._incarnation = int.from_bytes(os.urandom(8))
        self._sequence = 1
        """Number of the first event that waits."""
        self._waiting: deque[SeenEvent] = deque()
        self._budgets: dict[EventKind, _Budget] = {}

    def take(self, event: Event) -> None:
        """Have an event recorded, unless there are too many."""
        kind = EventKind[event.kind.upper()]
        budget = self._budgets.setdefault(kind, _Budget(self._clock()))
        if len(self._waiting) >= WAITING_MAX:
            self._drop("full", event)
        elif not budget.allows(self._clock()):
            self._drop("rate", event)
        else:
            self._waiting.append(
                SeenEvent(
                    event.time_ms,
                    kind,
                    _encodable(event.name),
                    _encodable(event.principal),
                    _encodable(event.text),
                    {_encodable(key): _encodable(text) for key, text in event.details.items()},
                )
            )

    def _drop(self, reason: str, event: Event) -> None:
        self._dropped.labels(reason=reason).inc()
        self._log.warning(
            f"event_{reason}", "an event is missing in the cluster's history", name=event.name
        )

    async def step(self) -> None:
        """Record what waits. Raises Unavailable, OutcomeUnknown: call it again."""
        while self._waiting:
            if self._cluster.view.counters().apply_version < VERSION_OF_EVENTS:
                return
            batch = tuple(self._waiting)[:EVENTS_PER_COMMAND_MAX]
            command = RecordEvents(self._cluster.node, self._incarnation, self._sequence, batch)
            (outcome,) = await self._cluster.propose(command)
            if outcome.status:
                self._dropped.labels(reason="refused").inc(len(batch))
                self._log.warning("refused", f"events are refused with {outcome.status:#x}")
            self._sequence += len(batch)
            for _ in batch:
                self._waiting.popleft()


class _Budget:
    """How many events of one kind may be recorded now."""

    def __init__(self, now_s: float) -> None:
        self._left = float(BURST)
        self._at_s = now_s

    def allows(self, now_s: float) -> bool:
        """Return whether there may be one more, and count it."""
        self._left = min(BURST, self._left + (now_s - self._at_s) * EVENTS_PER_S)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _encodable(text: str) -> str:
    """Return a text that has an encoding: file names and peers may bring one that has none."""
    return text.encode("utf-8", "replace").decode()
