"""Which user of a connection sends next ([MS-MQDMPR] 3.1.1.18, 3.1.7.3.9).

This is DispatchCollection for one connection: its entries are not messages but users that have
something to send, each with the priority of what it would send next.
"""

from qm.edge.outgoing.link.user import User


class SendOrder:
    """Users that wait for their turn: the highest priority first, the longest wait among equals
    (DM-A35).
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[int, User]] = {}
        self._priorities: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, user: User) -> None:
        """Add a user; one that waits already keeps its place, unless its priority changed."""
        number, priority = user.number, user.priority
        if self._priorities.get(number) == priority:
            return
        self.discard(number)
        self._priorities[number] = priority
        self._by_priority.setdefault(priority, {})[number] = user

    def discard(self, number: int) -> None:
        """Remove a user."""
        priority = self._priorities.pop(number, None)
        if priority is not None:
            line = self._by_priority[priority]
            del line[number]
            if not line:
                del self._by_priority[priority]

    def take(self) -> User:
        """Remove and return the user whose turn it is; there must be one."""
        user = next(iter(self._by_priority[max(self._by_priority)].values()))
        self.discard(user.number)
        return user

    def clear(self) -> None:
        """Forget all users."""
        self._by_priority.clear()
        self._priorities.clear()
