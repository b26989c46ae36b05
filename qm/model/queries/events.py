"""The history of events."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

import msgspec

from qm.model.queries.view import View, page_size
from qm.model.state.events import META_EVENTS
from qm.model.state.tables import Table
from qm.model.values.elements import EventKind
from qm.model.values.event_records import Event, EventNumbers
from qm.model.values.limits import EVENTS_PER_KIND_MAX
from qm.model.values.records import decode
from qm.model.values.rows import EVENT_KEY


class EventInfo(msgspec.Struct, frozen=True):
    """One event."""

    number: int
    """Rises through all kinds."""
    kind: EventKind
    event: Event


def last_event_number(view: View) -> int:
    """Return the number of the last event, 0 if there was none."""
    numbers = view.ledger.record(Table.META, META_EVENTS, EventNumbers)
    return 0 if numbers is None else numbers.last


def list_events(
    view: View,
    *,
    after: int = 0,
    since_ms: int = 0,
    kinds: Iterable[EventKind] = (),
    limit: int = 100,
    is_latest: bool = False,
) -> tuple[list[EventInfo], bool]:
    """Return events by ascending number, and whether there are more.

    Those after a number and not before a cluster time, of some kinds or of all: the first `limit`
    of them, or with `is_latest` the last.
    """
    numbers = view.ledger.record(Table.META, META_EVENTS, EventNumbers) or EventNumbers()
    wanted_kinds = frozenset(kinds) or frozenset(EventKind)
    found = [
        _of_kind(view, EventKind(kept.kind), max(after + 1, kept.first), is_latest=is_latest)
        for kept in numbers.kinds
        if kept.kind in wanted_kinds
    ]
    ordered = merge(*found, key=lambda info: info.number, reverse=is_latest)
    wanted = (info for info in ordered if info.event.time_ms >= since_ms)
    size = page_size(limit)
    items = list(islice(wanted, size + 1))
    has_more = len(items) > size
    del items[size:]
    return (items[::-1] if is_latest else items), has_more


def _of_kind(view: View, kind: EventKind, first: int, *, is_latest: bool) -> Iterator[EventInfo]:
    """Yield the events of a kind from a number on, or the last ones first."""
    low, high = EVENT_KEY.pack(kind, min(first, (1 << 64) - 1)), EVENT_KEY.pack(kind + 1, 0)
    rows = view.ledger.state.scan(Table.EVENT, low, high, EVENTS_PER_KIND_MAX, backward=is_latest)
    for key, row in rows:
        yield EventInfo(EVENT_KEY.unpack(key)[1], kind, decode(Event, row))
