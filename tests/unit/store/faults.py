"""A disk that refuses what is done to some of its files, under a store that uses the real one."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from raft.log.disk import DiskFile
from raft.log.files import Buffer, FatalDiskError


@contextmanager
def full_for(name: str, *, after_writes: int = 0) -> Iterator[list[str]]:
    """Let files whose path contains `name` grow no more once `after_writes` were done; yield the
    paths of those that were refused.
    """
    real_write, left = DiskFile.pwritev, after_writes
    refused: list[str] = []

    def pwritev(self: Any, buffers: Sequence[Buffer], offset: int) -> None:
        nonlocal left
        if name in str(self._path):
            if left <= 0:
                refused.append(str(self._path))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left -= 1
        real_write(self, buffers, offset)

    with patch.object(DiskFile, "pwritev", pwritev):
        yield refused


@contextmanager
def no_sync_for(name: str) -> Iterator[list[str]]:
    """Let the first sync of a file whose path contains `name` fail, and later ones succeed, as
    kernels do; yield all that were asked for.
    """
    real_sync = DiskFile.fdatasync
    asked: list[str] = []

    def fdatasync(self: Any) -> None:
        if name in str(self._path):
            asked.append(str(self._path))
            if len(asked) == 1:
                raise FatalDiskError(f"{self._path} cannot be synced: {os.strerror(errno.EIO)}")
        real_sync(self)

    with patch.object(DiskFile, "fdatasync", fdatasync):
        yield asked
