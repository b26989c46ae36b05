"""The history of events: what happened to the cluster and who had it done, the same on every node.

Leadership, members and control calls are recorded by the entries that change them; what only one
node saw is reported by that node (RecordEvents). Texts are cut, never refused: an event that is too
long is worth more than none.
"""

from collections.abc import Mapping
from typing import Final

from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import ControlCall, RecordEvents
from qm.model.values.effects import Outcome
from qm.model.values.elements import EventKind
from qm.model.values.event_records import (
    Event,
    EventNumbers,
    EventReporter,
    EventReporters,
    EventsOfKind,
)
from qm.model.values.limits import (
    EVENT_DETAIL_MAX_CHARS,
    EVENT_DETAILS_MAX,
    EVENT_NAME_MAX_CHARS,
    EVENT_PRINCIPAL_MAX_CHARS,
    EVENT_REPORTERS_MAX,
    EVENT_TEXT_MAX_CHARS,
    EVENTS_PER_COMMAND_MAX,
    EVENTS_PER_KIND_MAX,
    VERSION_OF_EVENTS,
)
from qm.model.values.rows import EVENT_KEY
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
META_EVENTS: Final = b"events"
META_REPORTERS: Final = b"reporters"
_KINDS: Final = frozenset(EventKind)
_NUMBER_MAX: Final = (1 << 64) - 1


class Events:
    """Keeps events; a part of the machine."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(
        self,
        kind: EventKind,
        name: str,
        text: str,
        *,
        node: str = "",
        principal: str = "",
        details: Mapping[str, str] | None = None,
        seen_ms: int = 0,
    ) -> None:
        """Keep an event, and forget the oldest one of its kind if there are too many."""
        ledger = self._ledger
        if ledger.behaviour < VERSION_OF_EVENTS:
            return
        numbers = ledger.record(Table.META, META_EVENTS, EventNumbers) or EventNumbers()
        numbers.last += 1
        event = Event(
            ledger.index,
            ledger.now_ms,
            seen_ms,
            node[:EVENT_PRINCIPAL_MAX_CHARS],
            name[:EVENT_NAME_MAX_CHARS],
            principal[:EVENT_PRINCIPAL_MAX_CHARS],
            text[:EVENT_TEXT_MAX_CHARS],
            _cut(details or {}),
        )
        ledger.put_record(Table.EVENT, EVENT_KEY.pack(kind, numbers.last), event)
        kept = next((one for one in numbers.kinds if one.kind == kind), None)
        if kept is None:
            kept = EventsOfKind(kind, 0, numbers.last)
            numbers.kinds.append(kept)
        kept.count += 1
        if kept.count > EVENTS_PER_KIND_MAX:
            self._forget_oldest(kept)
        ledger.put_record(Table.META, META_EVENTS, numbers)

    def _forget_oldest(self, kept: EventsOfKind) -> None:
        low, high = EVENT_KEY.pack(kept.kind, kept.first), EVENT_KEY.pack(kept.kind + 1, 0)
        ((key, _), (following, _)) = self._ledger.state.scan(Table.EVENT, low, high, 2)
        self._ledger.state.delete(Table.EVENT, key)
        kept.count -= 1
        kept.first = EVENT_KEY.unpack(following)[1]

    def called(self, call: ControlCall, status: int) -> None:
        """Keep a control call that this entry carried out or refused."""
        who = call.principal or "an unknown caller"
        code = "OK" if status == MQ_OK else f"{status:#010x}"
        self.add(
            EventKind.CONTROL,
            call.method,
            f"{call.method} by {who[:EVENT_PRINCIPAL_MAX_CHARS]}: {code}",
            node=call.node,
            principal=call.principal,
            details=call.details | {"code": code},
        )

    def apply_record_events(self, command: RecordEvents) -> Outcome:
        """Keep what a node saw, unless it is known."""
        count = len(command.events)
        is_sound = (
            1 <= count <= EVENTS_PER_COMMAND_MAX
            and 1 <= command.sequence <= _NUMBER_MAX - EVENTS_PER_COMMAND_MAX
            and 1 <= len(command.node) <= EVENT_PRINCIPAL_MAX_CHARS
            and all(event.kind in _KINDS for event in command.events)
        )
        if not is_sound or self._ledger.behaviour < VERSION_OF_EVENTS:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        last = command.sequence + count - 1
        known = self._known_of(command, last)
        for event in command.events[max(0, known + 1 - command.sequence) :]:
            self.add(
                EventKind(event.kind),
                event.name,
                event.text,
                node=command.node,
                principal=event.principal,
                details=event.details,
                seen_ms=event.seen_ms,
            )
        return Outcome(MQ_OK)

    def _known_of(self, command: RecordEvents, last: int) -> int:
        """Note the last event that a process reports; return the last one known before."""
        ledger = self._ledger
        reporters = ledger.record(Table.META, META_REPORTERS, EventReporters) or EventReporters()
        known = 0
        for reporter in reporters.known:
            if (reporter.node, reporter.incarnation) == (command.node, command.incarnation):
                known = reporter.sequence
                reporters.known.remove(reporter)
                break
        reporters.known.append(EventReporter(command.node, command.incarnation, max(known, last)))
        del reporters.known[:-EVENT_REPORTERS_MAX]
        ledger.put_record(Table.META, META_REPORTERS, reporters)
        return known


def _cut(details: Mapping[str, str]) -> dict[str, str]:
    """Return details with an end; the same ones on every node."""
    return {
        key[:EVENT_NAME_MAX_CHARS]: details[key][:EVENT_DETAIL_MAX_CHARS]
        for key in sorted(details)[:EVENT_DETAILS_MAX]
    }
