"""Arithmetic of majorities. Functions on plain values; no state, no I/O."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from raft.types import NodeId


class Tally(IntEnum):
    """The state of a vote."""

    PENDING = 0
    WON = 1
    LOST = 2


def majority(voters: int) -> int:
    """Return the size of a majority of `voters`: any two majorities share a voter."""
    return voters // 2 + 1


def reached_by_majority(values: Iterable[int]) -> int:
    """Return the largest value that a majority has reached; 0 without voters.

    `values` holds one number per voter: a match index, an applied index, a read context.
    """
    ordered = sorted(values, reverse=True)
    return ordered[len(ordered) // 2] if ordered else 0


def tally(voters: Sequence[NodeId], votes: Mapping[NodeId, bool]) -> Tally:
    """Return the outcome of a vote among `voters`; votes of others do not count."""
    granted = denied = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote:
            granted += 1
        elif vote is False:
            denied += 1
    needed = majority(len(voters))
    if voters and granted >= needed:
        return Tally.WON
    if denied > len(voters) - needed:
        return Tally.LOST
    return Tally.PENDING
