"""The caches of [MS-MQQB] 3.1.1.3 and their clean-up timers, 3.1.2.10 and 3.1.2.13. No I/O."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

CLEANUP_SLACK_S: Final = 60.0
"""Added to the lifetime when the timer is started again (3.1.6.10, 3.1.6.13)."""


class AgedCache(Generic[KeyT, ValueT]):
    """Values with their CachedTime; the oldest half goes when there is no room."""

    def __init__(self, size_max_count: int, lifetime_s: float) -> None:
        self._size_max = size_max_count
        self._lifetime_s = lifetime_s
        # Insertion order is the order of CachedTime: time does not go back.
        self._entries: dict[KeyT, tuple[float, ValueT]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: KeyT) -> ValueT | None:
        """Return what is cached, whatever its age: the timer is what ends it."""
        found = self._entries.get(key)
        return None if found is None else found[1]

    def put(self, key: KeyT, value: ValueT, now: float) -> None:
        """Cache a value; if there is no room, half of all entries go first, the oldest ones."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._size_max:
            for old in list(self._entries)[: max(1, self._size_max // 2)]:
                del self._entries[old]
        self._entries[key] = (now, value)

    def first_cleanup_at(self, now: float) -> float:
        """Return when a timer that is started now is due."""
        return now + self._lifetime_s

    def clean(self, now: float) -> float | None:
        """Drop what is older than the lifetime; return when the timer is due again, None: never."""
        for key, (cached_at, _) in list(self._entries.items()):
            if now - cached_at <= self._lifetime_s:
                return cached_at + self._lifetime_s + CLEANUP_SLACK_S
            del self._entries[key]
        return None

    def clear(self) -> None:
        """Drop everything."""
        self._entries.clear()
