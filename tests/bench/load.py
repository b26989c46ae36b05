"""Load processes: they connect and wait, and work when they are told."""

import signal
import subprocess
import sys
import time
from typing import Generic, TypeVar

import msgspec

from tests.bench.cluster_load import Seen, Work

SeenT = TypeVar("SeenT", bound=Seen)


class Load(Generic[SeenT]):
    """A load process, connected and waiting."""

    def __init__(self, work: msgspec.Struct, module: str, seen: type[SeenT]) -> None:
        self._seen = seen
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, msgspec.json.encode(work).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a load process ended before its load: {work}")
        self._pauses: list[tuple[float, float]] = []
        self._paused_at: float | None = None

    def begin(self) -> None:
        """Let it work."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        """Stop sending; what is in flight continues."""
        self._process.send_signal(signal.SIGSTOP)
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Let it go on."""
        assert self._paused_at is not None
        self._pauses.append((self._paused_at, time.monotonic()))
        self._process.send_signal(signal.SIGCONT)

    def is_over(self, wait_s: float) -> bool:
        """Whether it has ended, or does so in that time."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def result(self) -> SeenT:
        """Wait for its end; return what it saw, without pauses while it worked: it may have been
        stopped when it was done and about to say so.
        """
        said, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError("a load process failed")
        seen = msgspec.json.decode(said, type=self._seen)
        seen.seconds -= sum(end - begin for begin, end in self._pauses if begin < seen.ended_at_s)
        return seen

    def run(self) -> SeenT:
        """Let it work; return what it saw."""
        self.begin()
        return self.result()


def load(work: Work) -> Load[Seen]:
    """Return a load process for a piece of work."""
    return Load(work, "tests.bench.cluster_load", Seen)
