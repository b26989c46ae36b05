"""Times in histories: gaps, latencies, seconds and faults."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from qm.load.history import EventKind, HistoryEvent
from qm.load.verdict import Fault, Latency, Mark, Second

FAULT_WINDOW_MS: Final = 2_000
"""A gap that begins within this time after a fault counts as its consequence."""
HISTOGRAM_STEPS_MS: Final = (0.1, 0.2, 0.5)
"""The first limits of a histogram; the next ones are ten times as large."""
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


class Gap(msgspec.Struct, frozen=True, gc=False):
    """A time without progress at one sender, monotonic nanoseconds."""

    start_ns: int
    end_ns: int

    @property
    def length_ms(self) -> float:
        """Length of the gap."""
        return round((self.end_ns - self.start_ns) / _NS_PER_MS, 3)


def acknowledgement_gaps(events: Iterable[HistoryEvent]) -> list[Gap]:
    """Return every gap between two advances of a sender while it had a message outstanding.

    A gap starts at an advance that left messages unacknowledged, or with the first message sent
    when none was; it ends with the next advance, or with the history.
    """
    outstanding: dict[str, int] = defaultdict(int)
    since: dict[str, int] = {}
    advancing: set[str] = set()
    gaps: list[Gap] = []
    last_ns = 0
    for event in events:
        last_ns, client = event.time_ns, event.client
        if event.kind is EventKind.SENT:
            outstanding[client] += 1
            since.setdefault(client, event.time_ns)
        elif event.kind is EventKind.ADVANCED:
            advancing.add(client)
            if (start := since.pop(client, None)) is not None:
                gaps.append(Gap(start, event.time_ns))
            outstanding[client] = event.number
            if event.number:
                since[client] = event.time_ns
    # Clients that never report an advance use calls, which are answered or raise.
    gaps += [Gap(start, last_ns) for client, start in since.items() if client in advancing]
    return gaps


def latency(samples_ns: Sequence[int]) -> Latency:
    """Return the percentiles of durations in nanoseconds."""
    if not samples_ns:
        return Latency()
    ordered = sorted(samples_ns)

    def at(share: float) -> float:
        place = min(len(ordered) - 1, int(share * len(ordered)))
        return round(ordered[place] / _NS_PER_MS, 3)

    return Latency(len(ordered), at(0.5), at(0.99), at(1.0), _histogram(ordered))


def _histogram(ordered: Sequence[int]) -> tuple[tuple[float, int], ...]:
    """Return how many durations end at each limit; three limits in each power of ten."""
    found: list[tuple[float, int]] = []
    before, limit = 0, 0
    while before < len(ordered):
        limit_ms = HISTOGRAM_STEPS_MS[limit % 3] * 10 ** (limit // 3)
        upto = bisect_right(ordered, int(limit_ms * _NS_PER_MS))
        if upto > before or found:
            found.append((round(limit_ms, 3), upto - before))
        before, limit = upto, limit + 1
    return tuple(found)


def seconds(events: Sequence[HistoryEvent]) -> tuple[Second, ...]:
    """Return a row for each second from the first event to the last."""
    if not events:
        return ()
    counts: dict[EventKind, Counter[int]] = defaultdict(Counter)
    waits: dict[int, list[int]] = defaultdict(list)
    sent_ns: dict[str, int] = {}
    start = events[0].time_ns
    for event in events:
        second = (event.time_ns - start) // _NS_PER_S
        counts[event.kind][second] += 1
        if event.kind is EventKind.SENT:
            sent_ns.setdefault(event.message, event.time_ns)
        elif event.kind is EventKind.ACKNOWLEDGED and event.message in sent_ns:
            waits[second].append(event.time_ns - sent_ns[event.message])
    last = (events[-1].time_ns - start) // _NS_PER_S
    return tuple(
        Second(
            second,
            counts[EventKind.SENT][second],
            counts[EventKind.ACKNOWLEDGED][second],
            counts[EventKind.RECEIVED][second],
            latency(waits[second]).p99_ms if second in waits else None,
        )
        for second in range(last + 1)
    )


def marks(events: Sequence[HistoryEvent]) -> tuple[Mark, ...]:
    """Return what the runner healed and which elections it saw."""
    return tuple(
        Mark(event.kind.value, event.detail, (event.time_ns - events[0].time_ns) // _NS_PER_MS)
        for event in events
        if event.kind in (EventKind.HEALED, EventKind.ELECTED)
    )


def faults(events: Sequence[HistoryEvent], gaps: Sequence[Gap]) -> tuple[Fault, ...]:
    """Return the runner's faults, each with the longest gap that belongs to it."""
    return tuple(
        Fault(
            event.detail,
            (event.time_ns - events[0].time_ns) // _NS_PER_MS,
            max((gap.length_ms for gap in gaps if _belongs(gap, event.time_ns)), default=0.0),
        )
        for event in events
        if event.kind is EventKind.FAULT
    )


def _belongs(gap: Gap, fault_ns: int) -> bool:
    return gap.end_ns >= fault_ns and gap.start_ns <= fault_ns + FAULT_WINDOW_MS * _NS_PER_MS
