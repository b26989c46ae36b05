"""Errors of our own callers, and those that end a session without leaving it."""

from qm.session.events import CloseReason


class SessionMisuse(Exception):
    """The owner of a session, link or table broke its contract; the text says what to do."""


class PeerFault(Exception):
    """What a peer sent ends the session; `Session.receive` makes `Closed` of it."""

    def __init__(self, reason: CloseReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
