"""Replicas whose disk was set back to an older copy (raft/design.md, Rolled back).

What a replica acknowledged, and the group committed, it must hold for ever. One that lacks some of
it has been rolled back: it owes the group entries until it holds them again.
"""

from collections.abc import Mapping

from raft.core.progress import Progress
from raft.core.state import RolledBack, State
from raft.types import AppendReply, Heartbeat, NodeId

REFUSALS_MIN = 2
"""A follower that refuses what it acknowledged, so many times in a row, has been rolled back. One
refusal may be an old frame that arrives late."""


def note_held(state: State, followers: Mapping[NodeId, Progress]) -> None:
    """Remember what is committed and durable on followers, also for later terms."""
    for node in [node for node in state.held if node not in followers]:
        del state.held[node]
    for node, progress in followers.items():
        held = min(progress.match, state.commit)
        if held > state.held.get(node, 0):
            state.held[node] = held


def refuses_what_it_held(state: State, node: NodeId, progress: Progress, body: AppendReply) -> bool:
    """Return, and count, whether a follower refuses what it acknowledged.

    A refusal says up to where the logs may agree. That is never below what the follower holds for
    good, except when it refuses an entry below that.
    """
    held = max(progress.match, state.held.get(node, 0))
    if body.hint_index >= min(held, body.rejected_index):
        progress.refusals = 0
        return False
    progress.refusals += 1
    return True


def forgive(state: State, node: NodeId, progress: Progress, body: AppendReply) -> None:
    """Count a follower only for what it holds now, and tell it what it owes.

    A lower match is always safe: nothing that is committed depends on it any more.
    """
    held = max(min(progress.match, state.commit), state.held.get(node, 0))
    progress.match = min(progress.match, body.hint_index)
    progress.refusals = 0
    progress.owed = max(progress.owed, held)
    state.rolled_back.append(RolledBack(node, held, body.hint_index))
    state.send(node, Heartbeat(held, 0))


def owe(state: State, index: int) -> None:
    """Note that this replica once acknowledged entries up to `index`, which are committed, and that
    its log ends before.
    """
    if not state.owes():
        state.rolled_back.append(RolledBack(state.node, index, state.log.last_index))
    state.owed = max(state.owed, index)


def owing(followers: Mapping[NodeId, Progress]) -> tuple[NodeId, ...]:
    """Return the followers that have not got back yet what they once held."""
    return tuple(node for node, progress in followers.items() if progress.match < progress.owed)


__all__ = ["RolledBack", "forgive", "note_held", "owe", "owing", "refuses_what_it_held"]
