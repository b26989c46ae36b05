"""Messages that leave a replica: some at once, some after a sync."""

from collections.abc import Sequence

from raft.types import Envelope

PROMISES_MAX = 4096
"""Messages that wait for one sync. Beyond this the older half is dropped, as a network might do:
peers ask again, and a sync that hangs must not let their requests fill the memory."""


class Outbox:
    """A promise waits for the sync that runs, or for the next one if that must cover it."""

    __slots__ = ("_free", "_of_next_sync", "_of_running_sync")

    def __init__(self) -> None:
        self._free: list[Envelope] = []
        self._of_running_sync: list[Envelope] = []
        self._of_next_sync: list[Envelope] = []

    def __bool__(self) -> bool:
        return bool(self._free)

    def send(self, messages: Sequence[Envelope]) -> None:
        """Release messages that need no sync."""
        self._free.extend(messages)

    def promise(self, messages: Sequence[Envelope], *, needs_sync: bool, is_syncing: bool) -> None:
        """Release messages once everything written so far is durable.

        `needs_sync`: something was written since the last sync began. `is_syncing`: a sync runs.
        """
        if needs_sync:
            waiting = self._of_next_sync
        elif is_syncing:
            waiting = self._of_running_sync
        else:
            waiting = self._free
        waiting.extend(messages)
        if len(waiting) > PROMISES_MAX and waiting is not self._free:
            del waiting[: PROMISES_MAX // 2]

    def sync_begins(self) -> None:
        """The next sync is now the running one."""
        self._of_running_sync, self._of_next_sync = self._of_next_sync, []

    def sync_ended(self) -> None:
        """Release what waited for the running sync."""
        self._free.extend(self._of_running_sync)
        self._of_running_sync.clear()

    def take(self) -> tuple[Envelope, ...]:
        """Return the messages to send now."""
        free = tuple(self._free)
        self._free.clear()
        return free
