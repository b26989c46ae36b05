"""Misuse by our own callers, and faults of a peer, which end a session and never leave it."""

from qm.session.events import CloseReason


class SessionMisuse(Exception):
    """The owner of a session, link or table broke its contract; the text says what to do."""


class PeerFault(Exception):
    """What a peer sent ends the session; `Session.receive` turns this into `Closed`."""

    def __init__(self, reason: CloseReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
