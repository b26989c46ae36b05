"""Process ids in files that stay locked as long as the process lives, so that no id is stale.

The lock belongs to the open file, which a child inherits: it ends with the last process that has
the file open.
"""

import fcntl
import os
import signal
from pathlib import Path


class StillRunning(Exception):
    """Another process holds the file."""


def lock(path: Path) -> int:
    """Return the descriptor of a locked file. Raises StillRunning."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StillRunning(f"{path} is held by a running process: use `qm dev down`") from None
    return descriptor


def write(descriptor: int, pid: int) -> None:
    """Write the process id into a locked file."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{pid}\n".encode(), 0)


def running(path: Path) -> int | None:
    """Return the id in a file if its process runs."""
    if not path.exists():
        return None
    try:
        os.close(lock(path))
    except StillRunning:
        text = path.read_text().strip()
        return int(text) if text.isdecimal() else None
    return None


def send(path: Path, number: signal.Signals) -> bool:
    """Send a signal to the process of a file; return whether it runs."""
    pid = running(path)
    if pid is None:
        return False
    os.kill(pid, number)
    return True
