"""Finds stale looks at queues: rule 6 of `qm.load.checker`.

Nothing is taken from a watched queue and its messages have one priority, so it only grows at its
end. For such a queue linearizable means: a look shows no less than was acknowledged before it
began, and no less than a look that had ended before it began.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from qm.load.history import EventKind, HistoryEvent

LOOKS: Final = frozenset({EventKind.PEEKED, EventKind.COUNTED})


class _Known:
    """The least that a look of one kind must show, and the event that requires it."""

    def __init__(self) -> None:
        self.least = 0
        self.why = ""

    def raise_to(self, value: int, why: str) -> None:
        if value > self.least:
            self.least, self.why = value, why


class _Queue(msgspec.Struct):
    looks: list[HistoryEvent] = []
    known: list[HistoryEvent] = []
    """Acknowledgements and looks, in the order in which they ended."""


def stale_looks(history: Iterable[HistoryEvent], places: Mapping[str, int]) -> list[str]:
    """Return each stale look: its client, what it showed, and after which event.

    `history` is in order of time; `places`: LookupIdentifiers of messages, by name.
    """
    queues: dict[str, _Queue] = defaultdict(_Queue)
    for event in history:
        if event.kind in LOOKS:
            queues[event.queue].looks.append(event)
        if event.kind in LOOKS or event.kind is EventKind.ACKNOWLEDGED:
            queues[event.queue].known.append(event)
    found: list[str] = []
    for queue in queues.values():
        queue.looks.sort(key=attrgetter("began_ns"))
        found += _stale(queue.looks, queue.known, places)
    return found


def _stale(
    looks: Sequence[HistoryEvent], known: Sequence[HistoryEvent], places: Mapping[str, int]
) -> Iterable[str]:
    """Yield the stale looks at a queue; `looks` are in the order in which they began."""
    last, count = _Known(), _Known()
    acknowledged: set[str] = set()
    at = 0
    for look in looks:
        while at < len(known) and known[at].time_ns < look.began_ns:
            event = known[at]
            at += 1
            if event.kind is EventKind.ACKNOWLEDGED:
                acknowledged.add(event.message)
                why = f"{event.message} was acknowledged"
                last.raise_to(places.get(event.message, 0), why)
                count.raise_to(len(acknowledged), why)
            elif event.kind is EventKind.PEEKED:
                last.raise_to(event.lookup_identifier, f"{event.client} saw {event.message}")
            else:
                count.raise_to(event.number, f"{event.client} counted {event.number}")
        if look.kind is EventKind.PEEKED and look.lookup_identifier < last.least:
            yield f"{look.client} saw {look.message or 'nothing'} last after {last.why}"
        if look.kind is EventKind.COUNTED and look.number < count.least:
            yield f"{look.client} counted {look.number} after {count.why}"
