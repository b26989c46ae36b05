"""Failures by who and from where, within a time: what slows down those who guess."""

from collections.abc import Callable, Hashable


class Guesses:
    """Remembers failures of a bounded number of keys; the key that failed least recently goes."""

    def __init__(
        self, failures_max: int, window_s: float, keys_max: int, now_s: Callable[[], float]
    ) -> None:
        """`now_s`: monotonic seconds."""
        self._failures_max = failures_max
        self._window_s = window_s
        self._keys_max = keys_max
        self._now_s = now_s
        self._failed_at: dict[Hashable, list[float]] = {}

    def is_over(self, key: Hashable) -> bool:
        """Whether a key has failed too often for another attempt."""
        return len(self._recent(key)) >= self._failures_max

    def note(self, key: Hashable) -> None:
        """Count a failure."""
        recent = self._recent(key)
        self._failed_at.pop(key, None)
        while len(self._failed_at) >= self._keys_max:
            del self._failed_at[next(iter(self._failed_at))]
        self._failed_at[key] = [*recent[1 - self._failures_max :], self._now_s()]

    def take_back(self, key: Hashable) -> None:
        """Do not count the last failure: it was none."""
        if failed_at := self._failed_at.get(key):
            failed_at.pop()

    def forget(self, key: Hashable) -> None:
        """Forget the failures of a key."""
        self._failed_at.pop(key, None)

    def _recent(self, key: Hashable) -> list[float]:
        since = self._now_s() - self._window_s
        return [at for at in self._failed_at.get(key, ()) if at > since]
