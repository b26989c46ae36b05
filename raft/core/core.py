"""One replica's consensus: a pure function of (state, input) that yields `Ready` values.

No clock, randomness or I/O: ticks are counted, the random generator is injected, the log is read
through `LogView`. Bad input from the network is counted (`Core.counters`) and dropped; it
never raises. The rules and their reasons are in raft/design.md.
"""

from collections.abc import Callable, Sequence

from raft.core import follower, rollback
from raft.core.election import Election
from raft.core.leader import Busy, LeaderRole, NotLeader
from raft.core.log_end import LogEnd
from raft.core.membership import MemberChange, Members
from raft.core.progress import FollowerStatus, statuses
from raft.core.state import CoreConfig, Counters, RolledBack, State
from raft.core.validation import is_wellformed
from raft.log_view import LogView
from raft.types import (
    Append,
    AppendReply,
    Body,
    Configuration,
    Entry,
    Envelope,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    NodeId,
    PeerState,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    ReadState,
    Ready,
    Role,
    SnapshotMeta,
    SnapshotReply,
    SoftState,
    TimeoutNow,
    Vote,
    VoteReply,
)

TICK_MS = 5
"""Length of a tick; the defaults of `CoreConfig` assume it."""

__all__ = ["TICK_MS", "Busy", "Core", "CoreConfig", "Counters", "FollowerStatus", "NotLeader"]


_FROM_LEADERS = Append | Heartbeat | InstallSnapshot | PreVote | Vote
"""Messages of leaders and candidates; all others are answers, or come from a known leader."""


class Core:
    """One replica's consensus. Call inputs in any order, then drain `ready`."""

    def __init__(
        self,
        config: CoreConfig,
        log: LogView,
        hard_state: HardState,
        configuration: Configuration,
        applied: int,
        random: Callable[[int], int],
        history: Sequence[tuple[int, Configuration]] = (),
    ) -> None:
        """Start as a follower. `configuration` is in force at or below `applied`, and `history` has
        the later ones in the log, as (index, configuration), oldest first. Everything in `log` is
        durable. `random(n)` returns 0..n-1.
        """
        members = Members(configuration, tuple(history))
        self._state = State(
            config, LogEnd(log, config.recent_bytes_max), members, hard_state, applied, random
        )
        self._election = Election(self._state)
        self._leadership: LeaderRole | None = None
        self._snapshot: SnapshotMeta | None = None
        self._installing: SnapshotMeta | None = None
        self._written = (hard_state.term, hard_state.vote)
        self._written_commit = hard_state.commit
        self._reported_commit = self._state.commit
        self._reported: SoftState | None = None

    # Inputs: time, peers, clients

    def tick(self, count: int = 1) -> None:
        """Note that `count` ticks passed. A late caller may pass them all at once: no call advances
        an election by more than `ticks_at_once_max`, so that waiting messages are read first.
        """
        state = self._state
        count = min(count, state.config.ticks_at_once_max)
        state.now += count
        leadership = self._leadership
        if leadership is not None:
            leadership.tick(count)
        elif self._election.tick(count):
            self._lead()
        self._settle()

    def ticks_until_due(self) -> int:
        """Return the number of ticks after which `tick` will have work, at least 1."""
        if self._leadership is not None:
            return self._leadership.ticks_until_due()
        due = self._election.ticks_until_due()
        if len(self._state.local_reads):
            due = min(due, self._state.config.heartbeat_ticks)
        return due

    def receive(self, envelope: Envelope) -> None:
        """Process a message from a peer."""
        state, counters = self._state, self._state.counters
        if envelope.group != state.config.group:
            counters.foreign_group += 1
        elif envelope.to != state.node or envelope.sender == state.node:
            counters.misaddressed += 1
        elif not is_wellformed(envelope):
            counters.malformed += 1
        elif state.is_from_retired(envelope.sender):
            counters.retired_sender += 1
        elif not self._hears(envelope.sender, envelope.body):
            counters.stranger += 1
        elif self._admit(envelope):
            self._dispatch(envelope)
            self._settle()

    def propose(self, data: bytes) -> int:
        """Append a DATA entry of the current term; return its index. If an entry of another term
        is applied at that index, the proposal is lost.

        Raises NotLeader, Busy, or ValueError for more than `entry_bytes_max`.
        """
        leadership = self._leading()
        if len(data) > self._state.config.entry_bytes_max:
            raise ValueError("the entry exceeds entry_bytes_max: split it")
        return leadership.propose(data)

    def change_members(self, change: MemberChange) -> int:
        """Append a CONFIG entry; return its index. Raises NotLeader, Busy, BadChange."""
        index = self._leading().change_members(change)
        self._settle()
        return index

    def transfer(self, to: NodeId) -> None:
        """Hand leadership to a voter. Raises NotLeader, BadChange, or Busy (try later).

        Proposals are refused until that is done or an election timeout has passed.
        """
        self._leading().transfer(to)

    def resign(self) -> None:
        """Stop leading, handing over to the best follower if there is one."""
        if self._leadership is not None:
            self._leadership.resign()
            self._settle()

    def read(self, request: int) -> None:
        """Ask for a linearizable read; `Ready.reads` answers with the same number.

        Works on every replica; without a leader it waits for one. A number must never be used
        twice, not even after a restart: answers may be late. Raises Busy.
        """
        if not self._state.local_reads.add(request):
            raise Busy("too many reads wait: reads_pending_max is reached")
        self._settle()

    def cancel_read(self, request: int) -> None:
        """Forget a read."""
        self._state.local_reads.remove(request)

    def peer(self, peer: NodeId, state: PeerState) -> None:
        """Note that this node's own connection to a peer changed."""
        if self._election.peer(peer, state):
            self._lead()
        if self._leadership is not None:
            self._leadership.peer(peer, state)
        self._settle()

    # Inputs: what the driver has done

    def stable(self, index: int, term: int) -> None:
        """Note that the log is durable up to the entry (index, term)."""
        state = self._state
        state.log.stable(index, term)
        state.unsynced.release(state.log.durable_index)
        if self._leadership is not None:
            self._leadership.stable()
            self._settle()

    def applied(self, index: int) -> None:
        """Note that the state machine contains everything up to `index`."""
        self._state.applied = max(self._state.applied, index)
        if self._leadership is not None:
            self._leadership.applied(index)
            self._settle()

    def compacted(self, index: int) -> None:
        """Forget the configurations at or below `index`, which will not be asked for again."""
        self._state.members.forget(index)

    def unwritten(self, ready: Ready) -> None:
        """Take back steps 1, 2, 4 and 5 of `ready`, which could not be done (disk full): they are
        handed out again after `writable(True)`.
        """
        floor = None
        if ready.snapshot is not None:
            self._snapshot = ready.snapshot
            floor = (ready.snapshot.index, ready.snapshot.term)
        self._state.log.put_back(floor, ready.entries)
        if ready.hard_state is not None:
            self._written = (0, None)
            self._written_commit = 0
        self._state.synced[:0] = ready.messages_after_sync
        self.writable(False)

    def writable(self, is_writable: bool) -> None:
        """Say whether the disk takes writes. While False, `ready` has nothing to write, and this
        replica refuses proposals and appends, and neither votes nor campaigns.
        """
        self._state.is_writable = is_writable

    def stand_back(self, is_standing_back: bool) -> None:
        """Say whether other replicas should lead. While True, this one campaigns only when none of
        them wins for a while, or when it is asked to take over.
        """
        self._state.is_standing_back = is_standing_back

    def owe(self, index: int) -> None:
        """Say what an earlier process of this replica found that it owed; see `owed`."""
        self._state.owed = index

    # Snapshots

    def offer_snapshot(self, to: NodeId, meta: SnapshotMeta) -> None:
        """Note that sending a snapshot to a follower in `Ready.snapshots_wanted` begins."""
        if self._leadership is not None:
            self._leadership.offer_snapshot(to, meta)

    def snapshot_done(self, to: NodeId, is_whole: bool) -> None:
        """Note that the sending of a snapshot ended, or never began."""
        if self._leadership is not None:
            self._leadership.snapshot_done(to, is_whole=is_whole)

    def wants_snapshot(self, sender: NodeId, meta: SnapshotMeta) -> bool:
        """Return whether to accept a snapshot from `sender`: it must advance this replica."""
        if self._state.is_from_retired(sender):
            self._state.counters.retired_sender += 1
            return False
        if not self._state.knows(sender) and self._election.is_in_lease(sender):
            self._state.counters.stranger += 1
            return False
        return follower.wants_snapshot(self._state, meta)

    def begin_install(self, meta: SnapshotMeta) -> bool:
        """Return whether to install a snapshot, all bytes of which have arrived.

        If so, the log does not change until `end_install`.
        """
        self._state.is_installing = follower.wants_snapshot(self._state, meta)
        self._installing = meta
        return self._state.is_installing

    def end_install(self, meta: SnapshotMeta | None) -> None:
        """Note that the state machine is at `meta`: `Ready.snapshot` will ask to restart the log.

        None: the bytes failed the verification, and the leader is told, which else would wait.
        """
        state, begun = self._state, self._installing
        state.is_installing, self._installing = False, None
        if meta is None:
            if state.leader is not None and begun is not None:
                state.send(state.leader, SnapshotReply(begun.index, False))
            return
        follower.restore(state, meta)
        self._snapshot = meta
        if state.role is not Role.FOLLOWER:
            self._election.become_follower(state.term, None)
        if state.leader is not None:
            state.send_synced(state.leader, SnapshotReply(meta.index, True))

    # Output

    def has_ready(self) -> bool:
        """Return whether there is anything for `ready` to return."""
        state = self._state
        if state.messages or state.reads or state.commit != self._reported_commit:
            return True
        if self._leadership is not None and self._leadership.needs_emit:
            return True
        if state.is_writable and (
            state.log.has_pending
            or state.synced
            or self._snapshot is not None
            or (state.term, state.vote) != self._written
        ):
            return True
        return self._changed_soft_state() is not None

    def ready(self) -> Ready:
        """Return what is to be done. The caller must do it in the order that Ready documents."""
        state = self._state
        wanted: tuple[NodeId, ...] = ()
        if self._leadership is not None and self._leadership.needs_emit:
            self._leadership.emit()
            wanted = self._leadership.take_wanted()
        snapshot: SnapshotMeta | None = None
        hard_state: HardState | None = None
        entries: tuple[Entry, ...] = ()
        after: tuple[Envelope, ...] = ()
        is_voted = False
        if state.is_writable:
            snapshot, self._snapshot = self._snapshot, None
            entries = state.log.take()
            after = tuple(state.synced)
            state.synced.clear()
            is_voted = (state.term, state.vote) != self._written
            # A crash may keep the hard state and lose the entries that follow it. The entries that
            # they were to replace must then not count as committed.
            commit = min(state.commit, entries[0].index - 1) if entries else state.commit
            stride = state.config.commit_stride_entries
            is_far = commit - self._written_commit >= stride
            if is_voted or (entries and is_far):
                # The commit index goes along; alone it is not worth a write (Raft figure 2).
                hard_state = HardState(state.term, state.vote, commit)
                self._written = (state.term, state.vote)
                self._written_commit = commit
        messages, reads = tuple(state.messages), tuple(state.reads)
        state.messages.clear()
        state.reads.clear()
        soft_state = self._changed_soft_state()
        if soft_state is not None:
            self._reported = soft_state
        self._reported_commit = state.commit
        return Ready(
            snapshot,
            hard_state,
            entries,
            bool(entries) or is_voted or snapshot is not None,
            messages,
            after,
            state.commit,
            reads,
            soft_state,
            wanted,
        )

    def take_rolled_back(self) -> tuple[RolledBack, ...]:
        """Return the replicas found not to hold what they acknowledged, since the last call."""
        found = tuple(self._state.rolled_back)
        self._state.rolled_back.clear()
        return found

    # Observation

    @property
    def role(self) -> Role:
        """The role of this replica."""
        return self._state.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._state.term

    @property
    def leader(self) -> NodeId | None:
        """The current leader, as far as this replica knows."""
        return self._state.leader

    @property
    def commit(self) -> int:
        """The last index known to be committed."""
        return self._state.commit

    @property
    def lags(self) -> bool:
        """Whether this replica has far more to apply than a leader may have."""
        return self._state.lags()

    @property
    def last_index(self) -> int:
        """The last index of the log, including entries that wait to be written."""
        return self._state.log.last_index

    @property
    def durable_index(self) -> int:
        """The last index known to be durable here."""
        return self._state.log.durable_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, committed or not."""
        return self._state.members.current

    @property
    def configuration_index(self) -> int:
        """Index of the entry that made it; 0 when it is older than the log."""
        return self._state.members.index

    @property
    def is_restoring(self) -> bool:
        """Whether the log has yet to restart behind an installed snapshot."""
        return self._snapshot is not None

    def configuration_at(self, index: int) -> Configuration:
        """Return the configuration in force at `index`, which must not be compacted."""
        return self._state.members.at(index)

    @property
    def counters(self) -> Counters:
        """Counts of dropped messages and of elections."""
        return self._state.counters

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`. Raises Compacted, Unavailable."""
        return self._state.log.term(index)

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Return entries of [low, high), at least one, within `max_bytes` of data.

        Raises Compacted, Unavailable. Recent ones are in memory.
        """
        return self._state.log.entries(low, high, max_bytes)

    @property
    def owed(self) -> int:
        """Up to where this replica acknowledged committed entries that it lacks; 0: it lacks none.

        While it lacks some, it neither votes nor campaigns.
        """
        return self._state.owed if self._state.owes() else 0

    @property
    def owing_followers(self) -> tuple[NodeId, ...]:
        """The followers of this leader that lack entries which they acknowledged."""
        return () if self._leadership is None else rollback.owing(self._leadership.progress)

    def heir(self, *, in_time: bool = False) -> NodeId | None:
        """Return the voter that should take over (see `LeaderRole.heir`), if this replica leads."""
        return None if self._leadership is None else self._leadership.heir(in_time=in_time)

    def followers(self) -> tuple[FollowerStatus, ...]:
        """Return what this leader knows of its followers; empty if it does not lead."""
        if self._leadership is None:
            return ()
        state, leadership = self._state, self._leadership
        return statuses(leadership.progress, state.now, state.config.election_ticks)

    # Parts

    def _leading(self) -> LeaderRole:
        if self._leadership is None:
            raise NotLeader(self._state.leader)
        return self._leadership

    def _lead(self) -> None:
        """Lead the term after a won election, beginning with a no-op (Raft 8)."""
        state = self._state
        state.role = Role.LEADER
        state.leader = state.node
        state.counters.elections_won += 1
        self._leadership = LeaderRole(state)

    def _settle(self) -> None:
        """Follow up on an input: end a leadership that is over, forward reads."""
        state = self._state
        if self._leadership is not None:
            if self._leadership.is_over:
                self._election.become_follower(state.term, None)
            if state.role is not Role.LEADER:
                self._leadership = None
        if len(state.local_reads) and state.leader is not None:
            self._forward_reads(state.leader)

    def _forward_reads(self, leader: NodeId) -> None:
        state = self._state
        again = state.now + state.config.heartbeat_ticks
        for request in state.local_reads.due((state.term, leader), state.now, again):
            if self._leadership is None:
                state.send(leader, ReadRequest(request))
            else:
                self._leadership.read(state.node, request)

    def _hears(self, sender: NodeId, body: Body) -> bool:
        """Return whether messages of this kind count from this sender (raft/design.md, Identity).

        A leader or candidate may belong to a configuration that is not known here yet (thesis 4.1),
        but not while a known leader is alive; answers count only from nodes that were asked.
        """
        if self._state.knows(sender):
            return True
        if isinstance(body, _FROM_LEADERS):
            return not self._election.is_in_lease(sender)
        return sender == self._state.leader and isinstance(body, TimeoutNow | ReadReply)

    def _admit(self, envelope: Envelope) -> bool:
        """Compare terms (Raft 5.1); return whether the message is for the current term."""
        state, body, term = self._state, envelope.body, envelope.term
        if isinstance(body, PreVote):
            return True
        if term < state.term:
            state.counters.stale_term += 1
            self._answer_stale(envelope)
            return False
        if term == state.term:
            return True
        if isinstance(body, PreVoteReply) and body.granted:
            return True  # its term is that of a campaign that has not begun
        if isinstance(body, Vote) and not self._election.admits(envelope.sender, term, body):
            state.counters.in_lease += 1
            return False
        is_leader = isinstance(body, Append | Heartbeat | InstallSnapshot | TimeoutNow)
        self._election.become_follower(term, envelope.sender if is_leader else None)
        self._leadership = None
        return True

    def _answer_stale(self, envelope: Envelope) -> None:
        """Answer a sender in an older term, so that it learns the current one."""
        state, body = self._state, envelope.body
        if isinstance(body, Append | Heartbeat | InstallSnapshot):
            state.send(envelope.sender, AppendReply(0, True, 0, 0, state.applied))
        elif isinstance(body, Vote):
            state.send(envelope.sender, VoteReply(False))
        elif isinstance(body, ReadRequest):
            state.send(envelope.sender, ReadReply(body.request, 0))

    def _dispatch(self, envelope: Envelope) -> None:
        sender, body, election = envelope.sender, envelope.body, self._election
        if isinstance(body, Append | Heartbeat | InstallSnapshot):
            self._from_leader(sender, body)
            return
        if isinstance(body, AppendReply | HeartbeatReply | SnapshotReply):
            self._from_follower(sender, body)
            return
        has_won = False
        match body:
            case PreVote():
                election.pre_vote(sender, envelope.term, body)
            case PreVoteReply():
                has_won = election.pre_vote_reply(sender, envelope.term, body)
            case Vote():
                election.vote(sender, body)
            case VoteReply():
                has_won = election.vote_reply(sender, body)
            case TimeoutNow():
                has_won = election.timeout_now(sender)
            case ReadRequest(request):
                leadership = self._leadership
                if leadership is None or not leadership.read(sender, request):
                    self._state.send(sender, ReadReply(request, 0))
            case ReadReply(request, index):
                self._read_reply(request, index)
        if has_won:
            self._lead()

    def _from_leader(self, sender: NodeId, body: Append | Heartbeat | InstallSnapshot) -> None:
        state = self._state
        if state.role is Role.LEADER or state.leader not in (None, sender):
            state.counters.malformed += 1  # a term has one leader
            return
        self._election.heard(sender)
        match body:
            case Append():
                follower.append(state, sender, body)
            case Heartbeat():
                follower.heartbeat(state, sender, body)
            case InstallSnapshot():
                follower.offered(state, sender, body)

    def _from_follower(
        self, sender: NodeId, body: AppendReply | HeartbeatReply | SnapshotReply
    ) -> None:
        leadership = self._leadership
        if leadership is None:
            self._state.counters.unexpected += 1
            return
        match body:
            case AppendReply():
                leadership.append_reply(sender, body)
            case HeartbeatReply():
                leadership.heartbeat_reply(sender, body)
            case SnapshotReply():
                leadership.snapshot_reply(sender, body)

    def _read_reply(self, request: int, index: int) -> None:
        state = self._state
        if index and state.local_reads.remove(request):
            state.reads.append(ReadState(request, index))

    def _changed_soft_state(self) -> SoftState | None:
        state, last = self._state, self._reported
        if last is None or (last.role, last.leader, last.term) != (
            state.role,
            state.leader,
            state.term,
        ):
            return SoftState(state.role, state.leader, state.term)
        return None
