"""Events on this node, kept for a while: control calls, changes of leader, alarms."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from typing import Final

import msgspec

EVENTS_KEPT_MAX: Final = 10_000
"""The oldest are dropped first; numbers tell a reader that it missed some."""
TEXT_MAX_CHARS: Final = 500
DETAILS_MAX: Final = 16
"""Entries of `Event.details`."""


class Event(msgspec.Struct, frozen=True):
    """One event."""

    number: int
    """From 1 on, without gaps on one node since it started."""
    time_ms: int
    """UTC."""
    kind: str
    """control, leadership, member, alarm or session."""
    name: str
    """Stable name: a method, or the kind of event."""
    principal: str
    """Who requested it; "" = no principal."""
    text: str
    details: Mapping[str, str]


class EventLog:
    """The last events, and the readers that follow them."""

    def __init__(self, clock_ms: Callable[[], int], kept_max: int = EVENTS_KEPT_MAX) -> None:
        """`clock_ms`: UTC milliseconds."""
        self._clock_ms = clock_ms
        self._events: deque[Event] = deque(maxlen=kept_max)
        self._number = 0
        self._news = asyncio.Event()
        self.on_add: Callable[[Event], None] | None = None
        """Called for each event that the replicated history does not have yet."""

    def add(
        self,
        kind: str,
        name: str,
        text: str,
        *,
        principal: str = "",
        details: Mapping[str, str] | None = None,
        is_in_history: bool = False,
    ) -> None:
        """Append an event; text that is too long is cut.

        `is_in_history`: the replicated history has it from elsewhere.
        """
        self._number += 1
        kept = {
            key: value[:TEXT_MAX_CHARS]
            for key, value in list((details or {}).items())[:DETAILS_MAX]
        }
        text = text[:TEXT_MAX_CHARS]
        event = Event(self._number, self._clock_ms(), kind, name, principal, text, kept)
        self._events.append(event)
        if self.on_add is not None and not is_in_history:
            self.on_add(event)
        self._news.set()
        self._news = asyncio.Event()

    def after(self, number: int) -> list[Event]:
        """Return the kept events after a number, oldest first."""
        wanted = self._number - number
        if wanted <= 0:
            return []
        return list(islice(self._events, max(0, len(self._events) - wanted), None))

    async def read(self, after: int, *, follow: bool) -> AsyncIterator[Event]:
        """Yield events after a number; with `follow`, continue as they happen."""
        while True:
            news = self._news
            for event in self.after(after):
                after = event.number
                yield event
            if not follow:
                return
            await news.wait()
