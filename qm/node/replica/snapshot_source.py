"""Snapshots of the state for followers, made beside the event loop (DESIGN 1.6: no step grows).

Pinning takes milliseconds; listing bodies that are only in the log takes a read per entry. Raft
asks again after a pause, until the snapshot is there.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from qm.node.platform import Threads, Workers
from qm.store.snapshot import Pinned, SourceUnreadable, StoreSnapshot
from qm.store.store import Store
from raft.log.segment import may_pass

logger = logging.getLogger(__name__)

WAIT_S: Final = 0.01
"""A small state is ready within this time, so that a joining node need not be asked again."""
KEPT_S: Final = 60.0
"""A snapshot that is not asked for again is dropped: it pins the log."""


class Pictures:
    """Holds the snapshot that is being made, or waits to be taken. Used in the event loop."""

    def __init__(
        self, wait_s: float = WAIT_S, kept_s: float = KEPT_S, workers: Workers | None = None
    ) -> None:
        self._wait_s = wait_s
        self._kept_s = kept_s
        self._workers = workers or Threads()
        self._making: _Making | None = None

    def ask(self, store: Store) -> tuple[int, StoreSnapshot] | None:
        """Return a snapshot and its index; None while it is being made, which this call starts."""
        making = self._making
        if making is None or (making.is_over and not making.has_failed):
            making = self._making = _Making(store.pin(), self._kept_s, self._workers)
        source = making.take(self._wait_s)
        if source is None:
            return None
        self._making = None
        return making.index, source

    def drop(self) -> None:
        """Drop a snapshot that was not taken. Waits for the thread that makes it."""
        making, self._making = self._making, None
        if making is not None:
            making.drop()


def _is_passing(error: Exception) -> bool:
    if isinstance(error, OSError):
        return may_pass(error)
    return isinstance(error, SourceUnreadable)


class _Making:
    """One snapshot in the making."""

    def __init__(self, pinned: Pinned, kept_s: float, workers: Workers) -> None:
        self.index = pinned.applied.index
        self._pinned = pinned
        self._lock = threading.Lock()
        self._source: StoreSnapshot | None = None
        self.is_over = False
        """It failed, was taken, or was dropped."""
        self._error: Exception | None = None
        """What is wrong with this node's own state."""
        self._kept_s = kept_s
        self._workers = workers
        self._call_off: Callable[[], None] | None = None
        with self._lock:  # `drop` may come from a thread before `begin` returns
            self._wait = workers.begin(self._make)

    @property
    def has_failed(self) -> bool:
        """Whether `take` raises."""
        return self._error is not None

    def _make(self) -> None:
        try:
            self._source = self._pinned.source()
        except Exception as error:
            logger.exception("a picture of the state for a follower could not be made")
            self.is_over = True
            self._pinned.close()
            if not _is_passing(error):
                self._error = error  # raised by `take`, in the event loop
        else:
            self._call_off = self._workers.later(self._kept_s, self.drop)

    def take(self, wait_s: float | None) -> StoreSnapshot | None:
        """Return it if it is ready within that time (None: without limit) and was not taken.

        Raises the error that made it fail unless that may pass: this node cannot trust its state.
        """
        with self._lock:
            wait = self._wait
        if not wait(wait_s):
            return None
        if self._call_off is not None:
            self._call_off()
        if self._error is not None:
            raise self._error
        with self._lock:
            source, self._source, self.is_over = self._source, None, True
        return source

    def drop(self) -> None:
        """Drop it unless it was taken."""
        self._error = None
        source = self.take(None)
        if source is not None:
            source.close()
