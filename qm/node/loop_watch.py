"""How late the event loop is, and what held it up.

Everything of a node runs in one loop: what holds it up delays heartbeats, and can cost the leader
its lead. A thread looks on, and writes down where the loop's thread is while it is held up, and how
much of a processor that had: if little, it is the machine, a disk or a lock that keeps it.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from time import monotonic
from typing import Final

import prometheus_client

from qm.observe.logs import LimitedLog

logger = logging.getLogger(__name__)

BEAT_S: Final = 0.2
"""Period of a timer whose lateness is measured."""
HELD_UP_S: Final = 0.3
"""Lateness that is written down: a follower waits about as long for its leader."""
FRAMES_MAX: Final = 12


class LoopWatch:
    """Watches the running loop. Create, start and stop it there."""

    def __init__(self, lag: prometheus_client.Histogram) -> None:
        self._lag = lag
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._thread_id)
        self._beat_due_s = self._beat_cpu_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop watch", daemon=True)
        self._log = LimitedLog(logger, monotonic)

    def start(self) -> None:
        """Begin."""
        self._expect()
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_over.set()

    def _expect(self) -> None:
        self._beat_due_s = monotonic() + BEAT_S
        self._beat_cpu_s = time.clock_gettime(self._cpu_clock)
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        self._lag.observe(max(monotonic() - self._beat_due_s, 0.0))
        self._expect()

    def _look(self) -> None:
        """Look on, in a thread of its own."""
        told_s = left_s = 0.0
        while not self._is_over.wait(left_s):
            due_s = self._beat_due_s
            late_s = monotonic() - due_s
            left_s = HELD_UP_S - late_s if late_s < HELD_UP_S else HELD_UP_S
            if late_s >= HELD_UP_S and due_s != told_s:
                told_s = due_s
                cpu_s = time.clock_gettime(self._cpu_clock) - self._beat_cpu_s
                self._log.warning(
                    "held_up",
                    f"the event loop has been held up for {late_s:.2f} s; its thread had"
                    f" {cpu_s:.2f} s of a processor",
                    at=_stack_of(self._thread_id),
                )


def _stack_of(thread_id: int) -> list[str]:
    """Return where a thread is, the innermost place first."""
    frame = sys._current_frames().get(thread_id)
    places = [] if frame is None else traceback.extract_stack(frame)
    return [f"{one.filename}:{one.lineno} {one.name}" for one in places[: -FRAMES_MAX - 1 : -1]]
