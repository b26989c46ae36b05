"""Answers that their callers have not taken yet.

gRPC holds an answer until its caller makes room for it, which a caller need not do. So messages are
read for a principal only while little of what was read for it before is left; its further reads
wait, and those of others go on.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

UNREAD_PER_PRINCIPAL_MAX_BYTES: Final = 128 << 20
"""Of messages in answers at this node. A single answer may exceed it."""
UNREAD_MAX_BYTES: Final = 512 << 20
"""The same of all principals. Where it is reached, each may still have a single answer."""


class _Principal:
    """Bytes that were read for a principal, and those who want more, first come first served."""

    __slots__ = ("unread_bytes", "waiting")

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def has_room(self, size_bytes: int, all_bytes: int) -> bool:
        """Return whether so much may be read where `all_bytes` are unread of all principals."""
        if not self.unread_bytes:
            return True
        is_little = self.unread_bytes + size_bytes <= UNREAD_PER_PRINCIPAL_MAX_BYTES
        return is_little and all_bytes + size_bytes <= UNREAD_MAX_BYTES


class Answers:
    """What all calls of a server have read and not delivered. Use it in the server's event loop."""

    def __init__(self) -> None:
        self._principals: dict[str, _Principal] = {}
        """Only those for which something was read, or is to be."""
        self._waiting: dict[str, None] = {}
        """Principals with calls that wait; after its turn one goes behind the others."""
        self._unread_bytes = 0

    async def take(self, principal: str, size_bytes: int) -> None:
        """Wait until so much may be read for a principal; count it."""
        found = self._principals.setdefault(principal, _Principal())
        if not found.waiting and found.has_room(size_bytes, self._unread_bytes):
            self._count(found, size_bytes)
            return
        turn = asyncio.get_running_loop().create_future()
        found.waiting.append((size_bytes, turn))
        self._waiting[principal] = None
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn meanwhile
                self.give_back(principal, size_bytes)
            raise

    def _count(self, found: _Principal, size_bytes: int) -> None:
        found.unread_bytes += size_bytes
        self._unread_bytes += size_bytes

    def give_back(self, principal: str, size_bytes: int) -> None:
        """Count no longer what was delivered, or dropped."""
        self._count(self._principals[principal], -size_bytes)
        moved = True
        while moved:
            moved = False
            for name in list(self._waiting):
                moved = self._serve_one(name) or moved
        self._forget(principal)

    def _serve_one(self, name: str) -> bool:
        """Give the first call of a principal that waits its turn, if there is room for it."""
        found = self._principals[name]
        while found.waiting and found.waiting[0][1].done():
            found.waiting.popleft()
        if not found.waiting:
            del self._waiting[name]
            self._forget(name)
            return False
        wanted, turn = found.waiting[0]
        if not found.has_room(wanted, self._unread_bytes):
            return False
        found.waiting.popleft()
        self._count(found, wanted)
        turn.set_result(None)
        del self._waiting[name]
        if found.waiting:
            self._waiting[name] = None
        return True

    def _forget(self, name: str) -> None:
        found = self._principals.get(name)
        if found is not None and not found.unread_bytes and not found.waiting:
            del self._principals[name]


class Room:
    """What one call has read and not delivered."""

    def __init__(self, answers: Answers, principal: str, context: Any) -> None:
        self._answers, self._principal, self._context = answers, principal, context
        self._held_bytes = 0
        self._is_watched = False

    async def take(self, size_bytes: int) -> None:
        """Wait for room, which the call has until `give_back`, or its end."""
        await self._answers.take(self._principal, size_bytes)
        self._held_bytes += size_bytes
        if not self._is_watched:
            self._is_watched = True
            self._context.add_done_callback(lambda _: self.give_back())

    def give_back(self) -> None:
        """What was answered until now is delivered."""
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._answers.give_back(self._principal, held)


_ROOM: ContextVar[Room] = ContextVar("room")


def begin_answers(room: Room) -> Callable[[], None]:
    """Have this task's `answer_room` use a room; return what to call when all was delivered."""
    _ROOM.set(room)
    return room.give_back


async def answer_room(size_bytes: int) -> None:
    """Wait until the call being served may read so many bytes of messages for its answer."""
    room = _ROOM.get(None)
    if room is not None:
        await room.take(size_bytes)
