"""How much of a core a thread demands, which is more than it gets when others compete for it."""

import time
from pathlib import Path
from typing import Final

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds that the thread ran, nanoseconds that it waited while it could have run, slices."""


def core_wanted_s() -> float:
    """Return the seconds that this thread has run or waited for a core; CPU time alone where the
    kernel does not report how long it waited.
    """
    try:
        _, waited_ns, _ = map(int, _SCHEDSTAT.read_bytes().split())
    except (OSError, ValueError):
        waited_ns = 0
    return time.thread_time() + waited_ns / 1e9
