"""Sessions of which a message could not be stored: what they sent behind it is not taken either.

Their edges close them as soon as they hear of it, and the peer sends everything from that message
on again. What is on its way by then would otherwise be taken where there is room again, and
overtake it.
"""

from typing import Final

from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import EdgeBatch, Facts
from qm.model.values.limits import (
    REFUSED_SESSION_KEPT_MS,
    REFUSED_SESSIONS_MAX,
    REFUSED_SESSIONS_PER_ADDRESS_MAX,
)
from qm.model.values.records import RefusedSession
from qm.model.values.records import RefusedSessions as Record

META_REFUSED: Final = b"refused"
"""In META, while a session is remembered."""
_Known = dict[tuple[str, int], RefusedSession]


class BatchSessions:
    """Of one batch: whose messages are not taken any more."""

    def __init__(self, command: EdgeBatch, refused: set[int]) -> None:
        self.command: Final = command
        self.closed: Final = refused
        """Indexes into `command.facts`."""
        self.fresh: Final[dict[int, Facts]] = {}
        """Sessions that were refused something in this batch for the first time."""

    def close(self, k: int) -> None:
        """Packet k could not be stored."""
        command = self.command
        facts = command.facts[command.facts_of[k]]
        self.fresh[facts.session] = facts
        for fact, other in enumerate(command.facts):
            if other.session == facts.session:
                self.closed.add(fact)


class RefusedSessions:
    """Remembers them for a while, by the edge and its number of the session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: _Known | None = None

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._known = None

    def in_batch(self, command: EdgeBatch) -> BatchSessions:
        """Return what is remembered of a batch's sessions, before anything of it is judged."""
        known, edge = self._remembered(), command.edge
        refused = (
            {k for k, facts in enumerate(command.facts) if (edge, facts.session) in known}
            if known
            else set()
        )
        return BatchSessions(command, refused)

    def remember(self, batch: BatchSessions) -> None:
        """Remember the sessions of which a message of this batch could not be stored."""
        if not batch.fresh:
            return
        known, edge = dict(self._remembered()), batch.command.edge
        until_ms = self._ledger.now_ms + REFUSED_SESSION_KEPT_MS
        for number, facts in batch.fresh.items():
            address = facts.peer_address
            same = [key for key, one in known.items() if one.address == address]
            if len(same) >= REFUSED_SESSIONS_PER_ADDRESS_MAX:
                del known[same[0]]
            elif len(known) >= REFUSED_SESSIONS_MAX:
                del known[next(iter(known))]
            known[edge, number] = RefusedSession(edge, number, address, until_ms)
        self._put(known)

    def _remembered(self) -> _Known:
        """Return those whose time is not over; the row ends with the last of them."""
        known = self._known
        if known is None:
            row = self._ledger.record(Table.META, META_REFUSED, Record)
            sessions = () if row is None else row.sessions
            known = self._known = {(one.edge, one.number): one for one in sessions}
        now_ms = self._ledger.now_ms
        if known and next(iter(known.values())).until_ms <= now_ms:
            known = {key: one for key, one in known.items() if one.until_ms > now_ms}
            self._put(known)
        return known

    def _put(self, known: _Known) -> None:
        self._known = known
        if known:
            self._ledger.put_record(Table.META, META_REFUSED, Record(tuple(known.values())))
        else:
            self._ledger.state.delete(Table.META, META_REFUSED)
