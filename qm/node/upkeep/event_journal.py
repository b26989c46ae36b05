"""Records changes of the cluster, as this node sees them, in its event log."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import Counter
from typing_extensions import override

from qm.api.gate.events import EventLog
from qm.cluster.cluster import ClusterListener, Leadership
from qm.model.values.commands import Facts
from qm.model.values.effects import Applied, Suspicion
from qm.model.values.limits import (
    ALARM_DIVERGED,
    ALARM_NAMING_LIMIT,
    ALARM_PEER_ELSEWHERE,
    ALARM_PEER_MOVED,
    ALARM_SEQUENCE_AHEAD,
)
from qm.names.guid import guid_text
from qm.observe.logs import LimitedLog

logger = logging.getLogger(__name__)

INSECURE_EVERY_S: Final = 60.0
"""Refused messages of one class enter the history once in this time: peers send as many as they
like.
"""
_SUSPICIONS: Final = {
    ALARM_PEER_ELSEWHERE: (
        "what queue manager {queue_manager} sends from {address} is refused: it belongs to"
        " {expected}; if it is right there, also as one that only receives and acknowledges through"
        " a proxy, give both addresses in `peers`, or use `qm peer forget --address-only`"
    ),
    ALARM_PEER_MOVED: (
        "queue manager {queue_manager} was silent at {expected} and is bound to {address} from now"
        " on; give its address in `peers` if that is wrong"
    ),
    ALARM_NAMING_LIMIT: (
        "an acknowledgement was dropped: messages of queue manager {queue_manager}, or from"
        " {address}, named too many administration queues elsewhere"
    ),
    ALARM_SEQUENCE_AHEAD: (
        "a message of queue manager {queue_manager} from {address} is refused: its TxSequenceID"
        " lies in the future; set that computer's clock"
    ),
}


class Journal(ClusterListener):
    """Keeps events that operators may ask about later."""

    def __init__(
        self,
        events: EventLog,
        alarms: Counter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alarms`: quorate_alarms_total; `clock`: monotonic seconds."""
        self._events = events
        self._alarms = alarms
        self._lines = LimitedLog(logger, clock)
        self._clock = clock
        self._leadership = Leadership(None, 0, False)
        self._insecure_due_at: dict[str, float] = {}
        """By class."""

    @override
    def on_applied(self, applied: Applied) -> None:
        """Keep alarms that apply raised; those about peers say which."""
        peers = {suspicion.alarm for suspicion in applied.suspicions}
        for suspicion in applied.suspicions:
            self._suspect(suspicion)
        for alarm in applied.alarms:
            if alarm not in peers:
                text = f"{alarm} in entry {applied.index}"
                self._raise(alarm, text, is_everywhere=True)

    def _suspect(self, suspicion: Suspicion) -> None:
        details = {
            "queue_manager": guid_text(suspicion.queue_manager),
            "address": suspicion.address,
            "expected": suspicion.expected,
        }
        text = _SUSPICIONS[suspicion.alarm].format(**details)
        self._raise(suspicion.alarm, text, details, is_everywhere=True)
        self._lines.warning(suspicion.alarm, text, **details)

    @override
    def on_restored(self, index: int) -> None:
        self._events.add("member", "restored", f"a snapshot brought this node to entry {index}")

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        before, self._leadership = self._leadership, leadership
        if leadership.node is None:
            text = f"no leader in term {leadership.term}"
        elif (leadership.node, leadership.term) == (before.node, before.term):
            return
        else:
            text = f"{leadership.node} leads in term {leadership.term}"
        self._events.add(
            "leadership",
            "leader",
            text,
            details={"node": leadership.node or "", "term": str(leadership.term)},
            is_in_history=True,
        )

    def note(self, name: str, text: str) -> None:
        """Keep an event about this member."""
        self._events.add("member", name, text)

    def insecure(self, refused_as: str, count: int, facts: Facts) -> None:
        """Keep that messages were refused for want of a right signature or encryption."""
        now = self._clock()
        if now < self._insecure_due_at.get(refused_as, now):
            return
        self._insecure_due_at[refused_as] = now + INSECURE_EVERY_S
        details = {
            "class": refused_as,
            "count": str(count),
            "queue_manager": guid_text(facts.peer_queue_manager),
            "address": facts.peer_address,
        }
        text = "messages of queue manager {queue_manager} from {address} are refused: {class}"
        self._events.add("session", "message_insecure", text.format(**details), details=details)

    def alarm(self, name: str, text: str, details: Mapping[str, str] | None = None) -> None:
        """Count and keep an alarm."""
        self._raise(name, text, details)

    def _raise(
        self,
        name: str,
        text: str,
        details: Mapping[str, str] | None = None,
        *,
        is_everywhere: bool = False,
    ) -> None:
        """Count and keep an alarm. One that all nodes see enters the history by the leader, or by
        its entry.
        """
        self._alarms.labels(alarm=name).inc()
        is_in_history = is_everywhere and (not self._leadership.is_here or name == ALARM_DIVERGED)
        self._events.add("alarm", name, text, details=details, is_in_history=is_in_history)
