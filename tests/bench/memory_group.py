"""A memory cgroup of our own for one process, where we may make one (root; version 1 or 2)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION_1 = Path("/sys/fs/cgroup/memory")
_VERSION_2 = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path | None]:
    """Yield the group's `cgroup.procs`, to which a process writes its id; None: not possible."""
    is_first = _VERSION_1.is_dir()
    group = (_VERSION_1 if is_first else _VERSION_2) / f"quorate-bench-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if is_first else "memory.max")
    try:
        group.mkdir()
        limit.write_text(f"{limit_bytes}\n", encoding="ascii")
    except OSError:
        if group.is_dir():
            group.rmdir()
        yield None
        return
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
