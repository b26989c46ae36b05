"""What connections may hold beyond a few: each has its few, and the rest comes from a share of all.

Windows clients put all calls of a machine on one connection, and a security context for each logon
session of theirs, so one connection may need many; all of them together may not.
"""

from qm.rpc.limits import (
    CALLS_FEW,
    CALLS_PER_CONNECTION_MAX,
    CALLS_SHARED_MAX,
    SECURITY_CONTEXTS_FEW,
    SECURITY_CONTEXTS_PER_CONNECTION_MAX,
    SECURITY_CONTEXTS_SHARED_MAX,
)


class Share:
    """What all connections may have of one kind, beyond their few."""

    def __init__(self, few: int, most: int, shared: int) -> None:
        self._few = few
        self._most = most
        self._left = shared

    def take(self, held: int) -> bool:
        """Whether a connection that holds so many may have one more."""
        if held < self._few:
            return True
        if held >= self._most or not self._left:
            return False
        self._left -= 1
        return True

    def give_back(self, held: int, left: int = 0) -> None:
        """Note that a connection that held so many has `left` of them."""
        self._left += max(held, self._few) - max(left, self._few)


class Shared:
    """The shares of a process."""

    def __init__(self) -> None:
        self.calls = Share(CALLS_FEW, CALLS_PER_CONNECTION_MAX, CALLS_SHARED_MAX)
        self.security_contexts = Share(
            SECURITY_CONTEXTS_FEW,
            SECURITY_CONTEXTS_PER_CONNECTION_MAX,
            SECURITY_CONTEXTS_SHARED_MAX,
        )
