"""Time and chance of this process, taken over; import it before anything of the product.

Only a process of its own may do so: `tests.sim.nodes.__main__` is one.
"""

import os
import random
import secrets
import time
from types import SimpleNamespace
from typing import Protocol


class Source(Protocol):
    """What tells time and throws dice: a `World`."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, by the clock of the process that runs now."""

    def now_ns(self) -> int:
        """Nanoseconds that never step."""

    def entropy(self, size: int) -> bytes:
        """Bytes for the process that runs now."""


REAL = SimpleNamespace(
    time_ns=time.time_ns,
    monotonic_ns=time.monotonic_ns,
    perf_counter=time.perf_counter,
    urandom=os.urandom,
)
"""As Python has them."""
_sources: list[Source] = []


def ask(source: Source) -> None:
    """From now on it is this one that tells the time."""
    _sources[:] = [source]


def _time_ns() -> int:
    return _sources[0].wall_ns() if _sources else int(REAL.time_ns())


def _monotonic_ns() -> int:
    return _sources[0].now_ns() if _sources else int(REAL.monotonic_ns())


def _urandom(size: int) -> bytes:
    return _sources[0].entropy(size) if _sources else bytes(REAL.urandom(size))


def _token_bytes(size: int | None = None) -> bytes:
    return _urandom(32 if size is None else size)


def _randbits(bits: int) -> int:
    return int.from_bytes(_urandom((bits + 7) // 8), "big") >> (-bits % 8)


def install() -> None:
    """Take them over."""
    replaced = (
        (time, "time_ns", _time_ns),
        (time, "monotonic_ns", _monotonic_ns),
        (time, "perf_counter_ns", _monotonic_ns),
        (time, "time", lambda: _time_ns() / 1e9),
        (time, "monotonic", lambda: _monotonic_ns() / 1e9),
        (time, "perf_counter", lambda: _monotonic_ns() / 1e9),
        (time, "thread_time", lambda: 0.0),
        (os, "urandom", _urandom),
        (random, "_urandom", _urandom),
        (secrets, "token_bytes", _token_bytes),
        (secrets, "token_hex", lambda size=None: _token_bytes(size).hex()),
        (secrets, "randbits", _randbits),
    )
    for module, name, function in replaced:
        setattr(module, name, function)


install()
