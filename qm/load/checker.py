"""Judges a run only from its clients' histories: `judge(events) -> Verdict`.

Rules, and what histories can and cannot show:

1. A message that its sender knows to be acknowledged is *lost* if no read of it took effect and
   it was not seen in a queue after the load.
2. A message is *duplicated* if two reads of it took effect, or one did and the message is still
there. 3. A read takes effect when it happens, or when its transaction commits; a two-phase read
that was
   returned does not. Where a transaction's outcome is unknown, its reads may count as received but
   never as one too many.
4. Messages of a transactional stream (one sender, one queue) lie in its queue in the order in which
   they were sent: LookupIdentifiers rise with numbers. Each reader gets them in that order,
   except for messages that came back after a returned, aborted or unknown read.
5. Everything that a committed transaction sent is there, and nothing that an aborted one sent; for
   an unknown one it is all or nothing.
6. A look at a queue from which no reader takes messages (the last message, or the number of them)
   is *stale* if it shows less than was acknowledged before it began, or than another look that had
   ended before it began (`qm.load.staleness`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from qm.load import timeline
from qm.load.history import EventKind, HistoryEvent
from qm.load.staleness import LOOKS, stale_looks
from qm.load.verdict import Findings, Verdict
from qm.load.workload import Delivery

EXAMPLES_MAX: Final = 20


def judge(events: Iterable[HistoryEvent]) -> Verdict:
    """Judge the events of all clients of a run, in any order."""
    history = sorted(events, key=attrgetter("time_ns"))
    run = _Run(history)
    lost = _findings(run.lost())
    duplicated = _findings(run.duplicated())
    out_of_order = _findings(run.out_of_order())
    torn = _findings(run.torn())
    invented = _findings(run.reads.keys() - run.sent.keys())
    stale = _findings(run.stale())
    gaps = timeline.acknowledgement_gaps(history)
    length_ns = history[-1].time_ns - history[0].time_ns if history else 0
    return Verdict(
        holds=not any(f.count for f in (lost, duplicated, out_of_order, torn, invented, stale)),
        sent=len(run.sent),
        acknowledged=len(run.acknowledged),
        received=sum(1 for name in run.reads if run.certain_reads(name)),
        remaining=len(run.remaining),
        lost=lost,
        duplicated=duplicated,
        out_of_order=out_of_order,
        torn=torn,
        invented=invented,
        stale=stale,
        looks=sum(1 for event in history if event.kind in LOOKS),
        unknown=len(run.unknown),
        reconnects=sum(1 for event in history if event.kind is EventKind.RECONNECTED),
        longest_gap_ms=max((gap.length_ms for gap in gaps), default=0.0),
        acknowledgement=timeline.latency(run.latencies(run.acknowledged)),
        delivery=timeline.latency(run.latencies(run.first_read())),
        duration_s=round(length_ns / 1e9, 3),
        seconds=timeline.seconds(history),
        faults=timeline.faults(history, gaps),
        marks=timeline.marks(history),
    )


class _Run:
    """Histories by message and by transaction."""

    def __init__(self, history: Sequence[HistoryEvent]) -> None:
        self._history = history
        self.sent: dict[str, HistoryEvent] = {}
        self.acknowledged: dict[str, int] = {}
        self.reads: dict[str, list[HistoryEvent]] = defaultdict(list)
        self._read_order: list[HistoryEvent] = []
        self.remaining: dict[str, HistoryEvent] = {}
        self.unknown: set[str] = set()
        self._ended: dict[str, EventKind] = {}
        self._returned: dict[tuple[str, str], int] = defaultdict(int)
        self._sends_of: dict[str, list[str]] = defaultdict(list)
        for event in history:
            self._take(event)

    def _take(self, event: HistoryEvent) -> None:
        name = event.message
        match event.kind:
            case EventKind.SENT:
                if name not in self.sent and event.transaction:
                    self._sends_of[event.transaction].append(name)
                self.sent.setdefault(name, event)
            case EventKind.ACKNOWLEDGED:
                self.acknowledged.setdefault(name, event.time_ns)
            case EventKind.RECEIVED:
                self.reads[name].append(event)
                self._read_order.append(event)
            case EventKind.RETURNED:
                self._returned[event.client, name] += 1
            case EventKind.REMAINING:
                self.remaining[name] = event
            case EventKind.COMMITTED | EventKind.ABORTED | EventKind.UNKNOWN:
                # A late answer replaces "unknown".
                self._ended[event.transaction] = event.kind
                if event.kind is EventKind.UNKNOWN:
                    self.unknown.add(event.transaction)
                else:
                    self.unknown.discard(event.transaction)
            case _:
                pass

    # Reads ---------------------------------------------------------------------------------

    def certain_reads(self, name: str) -> list[HistoryEvent]:
        """Reads of a message that took effect."""
        return [read for read in self._kept(name) if self._effect(read) is True]

    def possible_reads(self, name: str) -> list[HistoryEvent]:
        """Those, and reads whose transaction has no known outcome."""
        return [read for read in self._kept(name) if self._effect(read) is not False]

    def _kept(self, name: str) -> list[HistoryEvent]:
        """Reads, without those that their client returned; the earliest were returned first."""
        kept, returned = [], defaultdict[str, int](int)
        for read in self.reads.get(name, ()):
            returned[read.client] += 1
            if returned[read.client] > self._returned.get((read.client, name), 0):
                kept.append(read)
        return kept

    def _effect(self, read: HistoryEvent) -> bool | None:
        if not read.transaction:
            return True
        ended = self._ended.get(read.transaction, EventKind.UNKNOWN)
        return None if ended is EventKind.UNKNOWN else ended is EventKind.COMMITTED

    def first_read(self) -> dict[str, int]:
        """Time at which each message was first read for good."""
        return {
            name: reads[0].time_ns for name in self.reads if (reads := self.certain_reads(name))
        }

    def latencies(self, ends: dict[str, int]) -> list[int]:
        """Nanoseconds from the first send to the given ends."""
        return [at - self.sent[name].time_ns for name, at in ends.items() if name in self.sent]

    # Rules ---------------------------------------------------------------------------------

    def lost(self) -> list[str]:
        """Rule 1."""
        return [
            name
            for name in self.acknowledged
            if name not in self.remaining and not self.possible_reads(name)
        ]

    def duplicated(self) -> list[str]:
        """Rule 2."""
        return [
            name
            for name in self.reads
            if (count := len(self.certain_reads(name))) > 1 or (count and name in self.remaining)
        ]

    def out_of_order(self) -> set[str]:
        """Rule 4."""
        by_queue: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        for name, sent in self.sent.items():
            reads = self.certain_reads(name)
            place = reads[0] if reads else self.remaining.get(name)
            if _is_ordered(sent) and place is not None and place.lookup_identifier:
                entry = (sent.number, place.lookup_identifier, name)
                by_queue[sent.client, sent.queue].append(entry)
        by_reader: dict[tuple[str, str, str], list[tuple[int, str]]] = defaultdict(list)
        for read in self._read_order:
            sent_event = self.sent.get(read.message)
            is_read_once = len(self.reads[read.message]) == 1
            if sent_event is not None and _is_ordered(sent_event) and is_read_once:
                stream = (read.client, sent_event.client, sent_event.queue)
                by_reader[stream].append((sent_event.number, read.message))
        found: set[str] = set()
        for entries in by_queue.values():
            found |= _behind([(place, name) for _, place, name in sorted(entries)])
        for numbers in by_reader.values():
            found |= _behind(numbers)
        return found

    def torn(self) -> list[str]:
        """Rule 5."""
        found = []
        for transaction, names in self._sends_of.items():
            ended = self._ended.get(transaction, EventKind.UNKNOWN)
            here = sum(1 for n in names if n in self.remaining or self.possible_reads(n))
            complete, none = here == len(names), here == 0
            if not (
                (ended is EventKind.COMMITTED and complete)
                or (ended is EventKind.ABORTED and none)
                or (ended is EventKind.UNKNOWN and (complete or none))
            ):
                found.append(transaction)
        return found

    def stale(self) -> list[str]:
        """Rule 6."""
        places = {name: event.lookup_identifier for name, event in self.remaining.items()}
        return stale_looks(self._history, places)


def _is_ordered(sent: HistoryEvent) -> bool:
    return sent.delivery == Delivery.TRANSACTIONAL.value


def _behind(entries: Iterable[tuple[int, str]]) -> set[str]:
    """Names whose value is below one before it."""
    highest, found = 0, set[str]()
    for value, name in entries:
        if value < highest:
            found.add(name)
        highest = max(highest, value)
    return found


def _findings(names: Iterable[str]) -> Findings:
    ordered = sorted(names)
    return Findings(len(ordered), tuple(ordered[:EXAMPLES_MAX]))
