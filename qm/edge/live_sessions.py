"""Sessions with other queue managers that live now, accepted or initiated, and their counters.

A session counts its messages anyway, so only bytes are added here, once per read and per write. A
session that ends takes its counters with it; the totals of all are metrics.
"""

from collections.abc import Callable
from heapq import nsmallest
from itertools import count
from typing import Final

from qm.cluster.peer_sessions import PeerSession, SessionsFound, SessionsWanted, busiest_first
from qm.session import Role, Session, SessionState
from qm.wire.guid import GUID_NULL


class LiveSession:
    """One of them."""

    __slots__ = ("_address", "_session", "_since_ms", "bytes_in", "bytes_out", "number")

    def __init__(self, number: int, session: Session, address: str, since_ms: int) -> None:
        self.number: Final = number
        self.bytes_in = 0
        """Added to by whoever reads."""
        self.bytes_out = 0
        """Added to by whoever writes."""
        self._session = session
        self._address = address
        self._since_ms = since_ms

    def is_of(self, wanted: SessionsWanted) -> bool:
        """Return whether a list has it."""
        if wanted.address not in ("", self._address):
            return False
        return wanted.queue_manager in (b"", self._session.remote_guid)

    def report(self) -> PeerSession:
        """Return its counters now."""
        session = self._session
        guid = session.remote_guid
        return PeerSession(
            number=self.number,
            is_incoming=session.role is Role.ACCEPTOR,
            address=self._address,
            queue_manager=b"" if guid == GUID_NULL else guid,
            is_open=session.state is SessionState.OPEN,
            since_ms=self._since_ms,
            messages_in=session.arrived_count,
            messages_out=session.sent_count,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
        )


class LiveSessions:
    """All of a node: at most `EdgeSettings.sessions_max` accepted ones, and CONNECTIONS_MAX of the
    leader's to others.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: cluster time."""
        self._now_ms = now_ms
        self._numbers = count(1)
        self._sessions: dict[int, LiveSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, session: Session, address: str) -> LiveSession:
        """A connection was made, for a new session."""
        live = LiveSession(next(self._numbers), session, address, self._now_ms())
        self._sessions[live.number] = live
        return live

    def end(self, live: LiveSession) -> None:
        """It is over; ending one twice does nothing."""
        self._sessions.pop(live.number, None)

    def found(self, wanted: SessionsWanted) -> SessionsFound:
        """Return those that are wanted, with the most bytes first."""
        reports = [live.report() for live in self._sessions.values() if live.is_of(wanted)]
        listed = nsmallest(wanted.limit, reports, busiest_first)
        return SessionsFound(listed, len(reports) - len(listed))
