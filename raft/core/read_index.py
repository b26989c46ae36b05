"""Linearizable reads by read index (Raft thesis 6.4). No lease: a majority confirms each.

The leader collects requests into a barrier, notes the commit index, and sends the barrier's
number in heartbeats; once a majority has echoed it, it is certain that the leader still led when
it noted the index. Reads that arrive together share a barrier.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from raft.core.quorum import reached_by_majority
from raft.types import NodeId

Asker: TypeAlias = tuple[NodeId, int]
"""The node that asked, and the number it uses."""


class Barrier(msgspec.Struct, frozen=True, gc=False):
    """Read requests that share a confirmation."""

    number: int
    index: int
    askers: tuple[Asker, ...]


class ReadBarriers:
    """The leader's side; one for each leadership."""

    __slots__ = ("_barriers", "_count_by_node", "_echoed", "_limit", "_waiting", "number")

    def __init__(self, limit: int) -> None:
        """`limit` bounds the waiting requests of each node."""
        self._limit = limit
        self.number = 0
        """Number of the newest barrier, sent in Append and Heartbeat."""
        self._waiting: list[Asker] = []
        self._barriers: deque[Barrier] = deque()
        self._echoed: dict[NodeId, int] = {}
        self._count_by_node: dict[NodeId, int] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether requests wait for a barrier."""
        return bool(self._waiting)

    def ask(self, node: NodeId, request: int) -> bool:
        """Take a request; return False when its node has too many waiting."""
        count = self._count_by_node.get(node, 0)
        if count >= self._limit:
            return False
        self._count_by_node[node] = count + 1
        self._waiting.append((node, request))
        return True

    def seal(self, commit: int) -> None:
        """Make a barrier of the waiting requests. `commit` is of the leader's own term."""
        self.number += 1
        self._barriers.append(Barrier(self.number, commit, tuple(self._waiting)))
        self._waiting.clear()

    def echoed(self, node: NodeId, number: int) -> bool:
        """Note that a follower echoed a barrier; return whether it exists and that is news."""
        if number > self.number or number <= self._echoed.get(node, 0):
            return False
        self._echoed[node] = number
        return True

    def confirmed(self, node: NodeId, voters: Iterable[NodeId]) -> list[Barrier]:
        """Return the barriers confirmed by a majority of `voters`; `node` leads."""
        if not self._barriers:
            return []
        reached = reached_by_majority(
            [self.number if voter == node else self._echoed.get(voter, 0) for voter in voters]
        )
        done: list[Barrier] = []
        while self._barriers and self._barriers[0].number <= reached:
            barrier = self._barriers.popleft()
            for asker, _ in barrier.askers:
                self._count_by_node[asker] -= 1
            done.append(barrier)
        return done


class LocalReads:
    """The asker's side, on every replica: asks the current leader until it answers."""

    __slots__ = ("_limit", "_pending", "_route")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: dict[int, int] = {}
        """By request: the tick at which to ask (again)."""
        self._route: tuple[int, NodeId] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, request: int) -> bool:
        """Take a request; return False when too many wait."""
        if len(self._pending) >= self._limit:
            return False
        self._pending[request] = 0
        return True

    def remove(self, request: int) -> bool:
        """Drop a request; return False when it is not waiting."""
        return self._pending.pop(request, None) is not None

    def due(self, route: tuple[int, NodeId], now: int, again: int) -> list[int]:
        """Return the requests to send to the leader `route` (term, id) now, and again at `again`.

        A new leader gets all of them.
        """
        if route != self._route:
            self._route = route
            requests = list(self._pending)
        else:
            requests = [request for request, at in self._pending.items() if at <= now]
        for request in requests:
            self._pending[request] = again
        return requests
