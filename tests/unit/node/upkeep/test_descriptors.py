"""Listeners leave descriptors for the disk."""

import errno

import pytest

from qm.node.upkeep import descriptors
from qm.node.upkeep.descriptors import RESERVE_COUNT, sessions_allowed
from raft.log.segment import is_disk_full, may_pass


def test_sessions_are_bounded_by_what_the_system_allows() -> None:
    others = descriptors._OTHERS_COUNT + RESERVE_COUNT
    assert sessions_allowed(4_000, others + 4_000) == 4_000
    assert sessions_allowed(4_000, others + 500) == 500
    assert sessions_allowed(4_000, 1_024) == descriptors.SESSIONS_MIN_COUNT
    assert sessions_allowed(10, 1_024) == 10


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_is_no_damage_and_no_full_disk(number: int) -> None:
    """It passes; the log tries again, and no reserve is given up for it."""
    lack = OSError(number, "no descriptors")
    assert may_pass(lack)
    assert not is_disk_full(lack)
    assert not may_pass(OSError(errno.EIO, "damage"))
