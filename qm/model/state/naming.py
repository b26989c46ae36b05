"""Outgoing queues whose destinations peers named, as administration queues: counted per peer.

A queue that an application uses as well is not counted any more. Those that are older than
VERSION_OF_BINDINGS never were.
"""

from typing import Final

from qm.model.state.ledger import Ledger
from qm.model.state.tables import State, Table
from qm.model.values.limits import (
    ALARM_NAMING_LIMIT,
    OUTGOING_QUEUES_NAMED_MAX,
    OUTGOING_QUEUES_PER_ADDRESS_MAX,
    OUTGOING_QUEUES_PER_SOURCE_MAX,
    VERSION_OF_BINDINGS,
)
from qm.model.values.records import NamedBy, NamingUse
from qm.model.values.rows import QUEUE_KEY

_NAMED: Final = b"\x03"
_SOURCE, _ADDRESS, _ALL = b"\x04", b"\x05", b"\x06"
"""In OUTGOING: precede a queue_id; a GUID, an address, and nothing."""
UNNAMED_IN_HAND_MAX: Final = 16_384


def is_named_by_peer(state: State, queue_id: int) -> bool:
    """Return whether only a peer named the destination of an outgoing queue."""
    return state.get(Table.OUTGOING, _NAMED + QUEUE_KEY.pack(queue_id)) is not None


class Naming:
    """Counts what peers named."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unnamed: dict[int, None] = {}
        """Queues known to have no row: applications use them again and again."""

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._unnamed.clear()

    def is_too_much(self, named_by: NamedBy) -> bool:
        """Return whether a peer may not name one more; raises an alarm then."""
        if self._ledger.behaviour < VERSION_OF_BINDINGS:
            return False
        limits = (
            OUTGOING_QUEUES_PER_SOURCE_MAX,
            OUTGOING_QUEUES_PER_ADDRESS_MAX,
            OUTGOING_QUEUES_NAMED_MAX,
        )
        uses = (self._use(key).queue_count for key in _keys(named_by))
        if all(use < limit for use, limit in zip(uses, limits, strict=True)):
            return False
        self._ledger.suspect(ALARM_NAMING_LIMIT, named_by.queue_manager, named_by.address)
        return True

    def keep(self, queue_id: int, named_by: NamedBy) -> None:
        """A queue was created because a peer named its destination."""
        if self._ledger.behaviour >= VERSION_OF_BINDINGS:
            self._unnamed.pop(queue_id, None)
            key = _NAMED + QUEUE_KEY.pack(queue_id)
            self._ledger.put_record(Table.OUTGOING, key, named_by)
            self._count(named_by, 1)

    def release(self, queue_id: int) -> None:
        """An application uses a queue, or it is gone."""
        if queue_id in self._unnamed:
            return
        key = _NAMED + QUEUE_KEY.pack(queue_id)
        named_by = self._ledger.record(Table.OUTGOING, key, NamedBy)
        if named_by is not None:
            self._ledger.state.delete(Table.OUTGOING, key)
            self._count(named_by, -1)
            self._ledger.applied.outgoing_queue_ids.add(queue_id)
        if len(self._unnamed) >= UNNAMED_IN_HAND_MAX:
            self._unnamed.clear()
        self._unnamed[queue_id] = None

    def _use(self, key: bytes) -> NamingUse:
        return self._ledger.record(Table.OUTGOING, key, NamingUse) or NamingUse()

    def _count(self, named_by: NamedBy, change: int) -> None:
        for key in _keys(named_by):
            use = self._use(key)
            use.queue_count += change
            if use.queue_count:
                self._ledger.put_record(Table.OUTGOING, key, use)
            else:
                self._ledger.state.delete(Table.OUTGOING, key)


def _keys(named_by: NamedBy) -> tuple[bytes, bytes, bytes]:
    return _SOURCE + named_by.queue_manager, _ADDRESS + named_by.address.encode(), _ALL
