"""Processes of a test: started with their own id kept, ended by it, lines read with a bound."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

ValueT = TypeVar("ValueT")

END_WAIT_S = 5.0


@contextlib.contextmanager
def process(
    argv: Sequence[str], *, ready: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a process, wait for its first line to be `ready` if one is given, and end it."""
    running = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    assert running.stdout is not None
    try:
        if ready:
            line = running.stdout.readline()
            assert line == f"{ready}\n", f"{argv} said {line!r}"
        yield running
    finally:
        running.terminate()
        try:
            running.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stdout.close()


def python(source: str, *arguments: str) -> list[str]:
    """Return the command line of a small program."""
    return [sys.executable, "-c", source, *arguments]


def until(ask: Callable[[], ValueT], wanted: Callable[[ValueT], bool], seconds: float) -> ValueT:
    """Ask again and again until the answer is wanted; fail with the last one after a time."""
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if wanted(answer):
            return answer
        assert time.monotonic() < end, f"after {seconds} s still {answer!r}"
