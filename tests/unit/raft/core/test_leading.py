"""What a leader does by its clock alone, and what it writes besides entries."""

from raft.types import Role
from tests.unit.raft.core.group import ELECTION_TICKS, Group


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    group = Group("abc")
    leader = group.elect("a")
    for _ in range(3 * ELECTION_TICKS):
        leader.tick()
    assert leader.role is not Role.LEADER


def test_the_commit_index_is_written_once_in_a_stride() -> None:
    stride, entries = 4, 20
    group = Group("a", commit_stride_entries=stride)
    leader = group.elect("a")
    written = 0
    for number in range(entries):
        leader.propose(b"%d" % number)
        while leader.has_ready():
            written += group["a"].ready().hard_state is not None
    assert entries // (2 * stride) <= written <= entries // stride + 1
