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


def refuses_what_it_held(state: State, node: NodeId, progress: Progress, place: int) -> bool:
    """Return, and count, whether a follower refuses what it acknowledged.

    `place`: the logs agree up to there at most. It is never below what a follower holds for good.
    """
    is_known = progress.match < progress.owed
    held = progress.match if is_known else max(progress.match, state.held.get(node, 0))
    if place >= held:
        progress.refusals = 0
        if is_known:
            state.send(node, Heartbeat(progress.owed, 0))
        return False
    progress.refusals += 1
    return True


def forgive(state: State, node: NodeId, progress: Progress, body: AppendReply, place: int) -> int:
    """Count a follower only for what it holds now, and tell it what it owes. Returns behind which
    place it is to be probed: its log may be so long that it has to refuse what it owes first.

    A lower match is always safe: nothing that is committed depends on it any more. Where the logs
    may agree they need not: the copy may end with entries that never counted.
    """
    held = max(min(progress.match, state.commit), state.held.get(node, 0))
    is_alike = state.log.matches(body.hint_index, body.hint_term)
    progress.match = min(progress.match, body.hint_index) if is_alike else 0
    progress.refusals = 0
    progress.owed = max(progress.owed, held)
    state.rolled_back.append(RolledBack(node, held, place))
    state.send(node, Heartbeat(held, 0))
    return place if min(body.hint_index, body.rejected_index - 1) < held else held


def owe(state: State, index: int) -> None:
    """Note that this replica once acknowledged entries up to `index`, which are committed, and that
    its log ends before, or holds others. One that no configuration names had another log before.
    """
    if not state.is_named():
        state.counters.id_reused += 1
    elif not state.owes():
        state.rolled_back.append(RolledBack(state.node, index, state.agreed_at_most()))
    state.owed = max(state.owed, index)


def owing(followers: Mapping[NodeId, Progress]) -> tuple[NodeId, ...]:
    """Return the followers that have not got back yet what they once held."""
    return tuple(node for node, progress in followers.items() if progress.match < progress.owed)


__all__ = ["RolledBack", "forgive", "note_held", "owe", "owing", "refuses_what_it_held"]
