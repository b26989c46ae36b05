"""What a follower does with its leader's messages (Raft 5.3, 7). Term and sender are checked."""

from collections.abc import Sequence

from raft.core.membership import check_configuration, decode_configuration, is_member
from raft.core.rollback import owe
from raft.core.state import State
from raft.log_view import Compacted
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    NodeId,
    Role,
    SnapshotMeta,
    SnapshotReply,
)

Configurations = list[tuple[int, Configuration]]


def append(state: State, leader: NodeId, body: Append) -> None:
    """Take entries that follow a place where the logs agree, or reply where they may agree."""
    log = state.log
    is_full = state.unsynced.size_bytes >= state.config.unsynced_bytes_max
    if is_full or not state.is_writable or state.is_installing:
        state.counters.overload += 1
        return
    if body.prev_index < state.commit:
        if _contradicts(state, body):
            state.counters.contradicted += 1
            return
        # Committed entries are equal on both sides (leader completeness): skip them.
        entries = body.entries[state.commit - body.prev_index :]
        prev_index = state.commit
    else:
        entries, prev_index = body.entries, body.prev_index
        if not log.matches(prev_index, body.prev_term):
            _reject(state, leader, body)
            return
    new = _unknown(state, entries)
    if new:
        configurations = _configurations(state, new)
        if configurations is None:
            return
        first = new[0].index
        if first <= log.last_index:
            state.members.truncate(first)
            state.unsynced.truncate(first)
        log.append(new)
        state.unsynced.add(new[-1].index, sum([len(entry.data) for entry in new]))
        for index, configuration in configurations:
            state.members.append(index, configuration)
    match = prev_index + len(entries)
    state.agree(match)
    state.commit_to(min(body.commit, match))
    _accept(state, leader, match, _echo(state, body.read_context))


def _contradicts(state: State, body: Append) -> bool:
    """Return whether a leader has another entry than one that is committed and still known here:
    then two groups have one identity, or an older copy of a disk came to lead.
    """
    known = state.commit - body.prev_index
    places = [(body.prev_index, body.prev_term)]
    places += [(entry.index, entry.term) for entry in body.entries[:known]]
    for index, term in places:
        try:
            if state.log.term(index) != term:
                return True
        except Compacted:
            continue
    return False


def _unknown(state: State, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries from the first one that the log does not hold."""
    for position, entry in enumerate(entries):
        if not state.log.matches(entry.index, entry.term):
            return entries[position:]
    return ()


def _configurations(state: State, entries: Sequence[Entry]) -> Configurations | None:
    """Read the CONFIG entries; None, and counted, when one is not acceptable."""
    found: Configurations = []
    named = is_member(state.members.at(entries[0].index - 1), state.node)
    for entry in entries:
        if entry.kind is not EntryKind.CONFIG:
            continue
        try:
            configuration = decode_configuration(entry.data)
        except ValueError:
            state.counters.malformed += 1
            return None
        if not named and state.node in configuration.voters:
            state.counters.id_reused += 1
            return None
        named = named or is_member(configuration, state.node)
        found.append((entry.index, configuration))
    return found


def _reject(state: State, leader: NodeId, body: Append) -> None:
    index, term = state.log.common_place(body.prev_index, body.prev_term)
    state.refuse(min(index, body.prev_index - 1))
    reply = AppendReply(
        match_index=0,
        is_rejected=True,
        hint_index=index,
        hint_term=term,
        applied_index=state.applied,
        read_context=_echo(state, body.read_context),
        rejected_index=body.prev_index,
    )
    state.send(leader, reply)


def _accept(state: State, leader: NodeId, match: int, read_context: int) -> None:
    synced = state.synced
    if synced:
        # Of acknowledgements that wait for the same sync, the last one covers the others.
        last = synced[-1]
        waiting = last.body
        if (
            isinstance(waiting, AppendReply)
            and last.to == leader
            and last.term == state.term
            and waiting.match_index <= match
        ):
            synced.pop()
    state.send_synced(
        leader, AppendReply(match, False, 0, 0, state.applied, read_context=read_context)
    )


def heartbeat(state: State, leader: NodeId, body: Heartbeat) -> None:
    """Note that the leader is alive, and what is committed of the entries here.

    A leader names no entries that this replica did not acknowledge. After a disk was set back the
    log may hold others in their place, so only what was compared since this process began counts.
    """
    if state.agrees_to(body.commit):
        state.commit_to(body.commit)
    elif body.commit > state.agreed_at_most():
        owe(state, body.commit)
    state.send(leader, HeartbeatReply(_echo(state, body.read_context), state.applied))


def _echo(state: State, read_context: int) -> int:
    """Return the read barrier to confirm: none while this replica may have forgotten votes too."""
    return 0 if state.owes() else read_context


def offered(state: State, leader: NodeId, body: InstallSnapshot) -> None:
    """Answer the offer of a snapshot if it is not needed."""
    if body.meta.index <= state.commit and state.is_writable:
        state.send_synced(leader, SnapshotReply(state.commit, True))


def wants_snapshot(state: State, meta: SnapshotMeta) -> bool:
    """Return whether installing `meta` would advance this replica.

    A snapshot is a committed prefix, so it may be taken from any member, in any term.
    """
    if meta.index <= state.commit or state.role is Role.LEADER or not state.is_writable:
        return False
    if state.log.matches(meta.index, meta.term):
        # The log has all of it, and maybe more that was acknowledged and must not be dropped.
        state.commit_to(meta.index)
        return False
    try:
        check_configuration(meta.configuration)
    except ValueError:
        state.counters.malformed += 1
        return False
    if not state.is_named() and state.node in meta.configuration.voters:
        state.counters.id_reused += 1
        return False
    return True


def restore(state: State, meta: SnapshotMeta) -> None:
    """Restart the log behind `meta`, at which the state machine now is."""
    state.log.restore(meta.index, meta.term)
    state.members.reset(meta.index, meta.configuration)
    state.commit = meta.index
    state.applied = meta.index
