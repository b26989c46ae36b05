"""Control requests: done once, though their callers have no session (DESIGN section 4, Clients).

The last CONTROL_RESULTS_MAX results are kept by the id that the caller's node gave the request,
which is the same on every node. The oldest are dropped first; repeats come within seconds.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

from qm.model.state.events import Events
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import ControlCall
from qm.model.values.effects import Outcome
from qm.model.values.event_records import ControlRequests, ControlResult
from qm.model.values.limits import CONTROL_RESULTS_MAX
from qm.wire.codes import ErrorCode

CONTROL_ID_BYTES: Final = 16
META_CONTROL: Final = b"control"
"""In META: which results are kept, once there is one."""
_RESULT: Final = b"control/"
"""Precedes the id."""
_ORDER: Final = b"control#"
"""Precedes the place, u64."""
_PLACE: Final = Struct(">Q")
_VALUES: Final = msgspec.msgpack.Encoder(order="deterministic")


def control_result(ledger: Ledger, control_id: bytes) -> Outcome | None:
    """Return the kept result of a control request, None if there is none."""
    known = ledger.record(Table.META, _RESULT + control_id, ControlResult)
    if known is None:
        return None
    value = msgspec.msgpack.decode(known.value) if known.value else None
    return Outcome(known.status, value=value)


class ControlResults:
    """Results of the last control requests."""

    def __init__(self, ledger: Ledger, events: Events) -> None:
        self._ledger = ledger
        self._events = events

    def once(
        self, control_id: bytes, call: ControlCall | None, work: Callable[[], Outcome]
    ) -> Outcome:
        """Do a request's work unless it has a result, and record the call; return the result."""
        if len(control_id) != CONTROL_ID_BYTES:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        known = control_result(self._ledger, control_id)
        if known is None:
            known = work()
            self._keep(control_id, known)
            if call is not None:
                self._events.called(call, known.status)
        return known

    def _keep(self, control_id: bytes, outcome: Outcome) -> None:
        ledger = self._ledger
        kept = ledger.record(Table.META, META_CONTROL, ControlRequests) or ControlRequests()
        value = b"" if outcome.value is None else _VALUES.encode(outcome.value)
        ledger.put_record(Table.META, _RESULT + control_id, ControlResult(outcome.status, value))
        ledger.state.put(Table.META, _ORDER + _PLACE.pack(kept.following), control_id)
        kept.following += 1
        if kept.following - kept.first > CONTROL_RESULTS_MAX:
            self._forget(kept.first)
            kept.first += 1
        ledger.put_record(Table.META, META_CONTROL, kept)

    def _forget(self, place: int) -> None:
        key = _ORDER + _PLACE.pack(place)
        control_id = self._ledger.state.get(Table.META, key)
        assert control_id is not None, "a place without its result"
        self._ledger.state.delete(Table.META, key)
        self._ledger.state.delete(Table.META, _RESULT + control_id)
