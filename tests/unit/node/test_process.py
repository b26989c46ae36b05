"""The status with which a node ends that cannot start."""

import errno

import pytest

from qm.node.process import status_of
from raft.log.files import FatalDiskError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FatalDiskError("the log cannot be synced"), 74),
        (OSError(errno.EIO, "Input/output error"), 74),
        (OSError(errno.EROFS, "Read-only file system"), 74),
        (OSError(errno.EADDRINUSE, "Address already in use"), 69),
        (OSError("cannot listen on 127.0.0.1:1"), 69),
    ],
)
def test_a_disk_is_not_taken_for_an_address(error: OSError, status: int) -> None:
    assert status_of(error) == status
