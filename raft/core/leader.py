"""What a leader does (Raft 5.3, 5.4, thesis 3.10, 4, 6.4), for one term."""

from raft.core import rollback
from raft.core.backlog import Backlog
from raft.core.front import Front
from raft.core.membership import (
    BadChange,
    MemberChange,
    PromoteLearner,
    changed,
    encode_configuration,
)
from raft.core.progress import NEVER, Progress, ProgressState
from raft.core.quorum import majority, reached_by_majority
from raft.core.read_index import Barrier, ReadBarriers
from raft.core.state import State
from raft.log_view import Compacted
from raft.types import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    NodeId,
    PeerState,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
)

APPENDS_PER_READY_MAX = 4
"""Appends to one follower: reading a long backlog from disk must not delay everything else."""
PROMOTE_LAG_MAX_ENTRIES = 64
"""How far a learner that becomes a voter may be behind: under load it always is a little."""

LARGE_APPEND_BYTES = 256 << 10
"""An Append of this size goes to the rear together with the front: compared with its bytes a frame
costs little, and it is encoded already."""

_Shared = dict[tuple[int, int], tuple[Append, int, int]]
"""Appends of one `emit` by first index and limit, each with its last index and its bytes."""


class NotLeader(Exception):
    """Only the leader can do this; `leader` is the current one, None if unknown."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__(f"not the leader; ask {leader}" if leader else "no leader is known")
        self.leader = leader


class Busy(Exception):
    """A limit is reached or a transfer is under way, as the text says. Try again later."""


class LeaderRole:
    """Leadership of one term: progress of the followers, reads, transfer. Ends by `is_over`."""

    __slots__ = (
        "_front",
        "_heartbeat_elapsed",
        "_is_commit_held",
        "_is_idle",
        "_state",
        "_transfer",
        "_unapplied",
        "_wanted",
        "_was_term_durable",
        "first_index",
        "is_over",
        "needs_emit",
        "progress",
        "reads",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self.is_over = False
        """Step down: a majority does not answer, or this node was removed."""
        self.needs_emit = True
        """Whether `emit` may have something to send."""
        self.progress: dict[NodeId, Progress] = {}
        self.reads = ReadBarriers(state.config.reads_pending_max)
        self._front = Front(state.config.rear_ticks)
        self._transfer: tuple[NodeId, int] | None = None
        self._heartbeat_elapsed = 0
        self._is_idle = False
        """At the last round of heartbeats no follower needed anything, and nothing came since."""
        self._is_commit_held = False
        """More is on a majority than is committed: this node has to apply first."""
        self._unapplied = Backlog()
        self._wanted: list[NodeId] = []
        self._update_members()
        self.first_index = state.log.last_index + 1
        """Index of the no-op: older entries are not committed before it (Raft 5.4.2)."""
        self._append(EntryKind.NOOP, b"")
        self._was_term_durable = state.members.current.voters != (state.node,)

    # Inputs of the own node

    def propose(self, data: bytes) -> int:
        """Append a DATA entry. Raises Busy."""
        state, config = self._state, self._state.config
        self._check_ready_to_write()
        if self._unapplied.size_bytes >= config.backlog_bytes_max:
            raise Busy("proposals wait for commit or apply: backlog_bytes_max is reached")
        if state.lags():
            raise Busy("this leader applies too slowly: apply_lag_entries_max is reached")
        if state.commit - self._applied_by_majority() > config.apply_lag_entries_max:
            raise Busy("a majority applies too slowly: apply_lag_entries_max is reached")
        index = self._append(EntryKind.DATA, data)
        self._unapplied.add(index, len(data))
        return index

    def change_members(self, change: MemberChange) -> int:
        """Append a CONFIG entry, in force at once (thesis 4.1). Raises Busy, BadChange."""
        state = self._state
        self._check_ready_to_write()
        if state.commit < self.first_index:
            raise Busy("this leader has committed nothing of its term yet")
        if state.members.index > state.commit:
            raise Busy("the membership change before this one is not committed yet")
        after = changed(state.members.current, change)
        if isinstance(change, PromoteLearner) and not self._has_caught_up(change.node):
            raise Busy(f"{change.node} has not caught up yet")
        alive = sum([self._is_alive(voter) for voter in after.voters])
        if alive < majority(len(after.voters)):
            raise Busy("too few of the voters that this change leaves answer")
        index = self._append(EntryKind.CONFIG, encode_configuration(after))
        state.members.append(index, after)
        self._update_members()
        self._advance()
        return index

    def transfer(self, to: NodeId) -> None:
        """Begin to hand over. Raises Busy, BadChange."""
        state = self._state
        if to == state.node:
            return
        if to not in state.members.current.voters:
            raise BadChange(f"{to} is not a voter and cannot lead")
        if self._transfer is not None and self._transfer[0] != to:
            raise Busy(f"leadership is being handed to {self._transfer[0]}")
        if not self._is_alive(to):
            raise Busy(f"{to} does not answer")
        if self._lags(self.progress[to]):
            raise Busy(f"{to} has not applied what is committed yet")
        self._transfer = (to, state.now + state.config.election_ticks)
        self._finish_transfer(to)

    def resign(self) -> None:
        """Hand over to the best heir, even if it is behind, and stop leading."""
        heir = self.heir()
        if heir is not None:
            self._state.send(heir, TimeoutNow())
        self.is_over = True

    def heir(self, *, in_time: bool = False) -> NodeId | None:
        """Return the other voter that answers and has the longest log; None if none answers.

        One that applies too slowly is the last choice, and none if `in_time`.
        """
        state = self._state
        heirs = [
            (not self._lags(self.progress[voter]), self.progress[voter].match, voter)
            for voter in state.members.current.voters
            if voter != state.node and self._is_alive(voter)
        ]
        applies_in_time, _, heir = max(heirs, default=(False, 0, None))
        return None if in_time and not applies_in_time else heir

    def applied(self, index: int) -> None:
        """Note that this node's state machine contains `index`."""
        self._unapplied.release(index)
        if self._is_commit_held:
            self._advance()

    def stable(self) -> None:
        """Note that more of the own log is durable: now the leader counts itself."""
        self.needs_emit = self.needs_emit or not self._was_term_durable
        self._advance()

    def tick(self, count: int) -> None:
        """Send heartbeats and check the quorum (thesis 6.2)."""
        state = self._state
        if self._transfer is not None and state.now >= self._transfer[1]:
            self._transfer = None
        self._choose_front()
        self.needs_emit = self.needs_emit or self._front.has_put_off
        self._heartbeat_elapsed += count
        if self._heartbeat_elapsed >= self._interval():
            last_round, self._heartbeat_elapsed = state.now - self._heartbeat_elapsed, 0
            self._is_idle = state.applied == state.log.last_index and all(
                one.needs_nothing(state.applied, last_round) for one in self.progress.values()
            )
            self._check_quorum()
            rollback.note_held(state, self.progress)
            for node, progress in self.progress.items():
                if progress.state is ProgressState.SNAPSHOT and state.now >= progress.snapshot_wait:
                    progress.probe(progress.match + 1)
                self._heartbeat(node, progress)

    def ticks_until_due(self) -> int:
        """Return the number of ticks after which `tick` will have work."""
        if self._front.has_put_off:
            return 1
        return max(self._interval() - self._heartbeat_elapsed, 1)

    def _interval(self) -> int:
        return self._state.config.heartbeat_interval(is_idle=self._is_idle)

    def peer(self, peer: NodeId, link: PeerState) -> None:
        """Note that a connection changed: messages under way are probably lost."""
        progress = self.progress.get(peer)
        if progress is None:
            return
        if progress.state is ProgressState.SNAPSHOT:
            if not progress.is_sent or link is not PeerState.CONNECTED:
                return
            # It may have crashed before it had installed what was sent.
            progress.snapshot_wait = 0
        self._is_idle = False
        progress.has_told_applied = False
        progress.probe(progress.match + 1 if progress.match else progress.next)
        progress.is_paused = link is not PeerState.CONNECTED
        self._choose_front()
        self.needs_emit = True

    # Messages

    def append_reply(self, sender: NodeId, body: AppendReply) -> None:
        """Process a follower's acknowledgement or refusal of an Append."""
        state = self._state
        progress = self._answered(sender, body.applied_index, body.read_context)
        if progress is None:
            return
        if body.is_rejected:
            self._rejected(sender, progress, body)
            return
        if body.match_index > state.log.last_index:
            state.counters.malformed += 1
            return
        is_news = progress.accepted(body.match_index, state.now)
        if progress.state is ProgressState.PROBE:
            if body.match_index >= progress.match:
                progress.replicate()
        elif progress.state is ProgressState.SNAPSHOT and is_news and self._has(progress.next):
            progress.replicate()
        if is_news:
            self._advance()
            self._finish_transfer(sender)

    def _rejected(self, sender: NodeId, progress: Progress, body: AppendReply) -> None:
        state = self._state
        if progress.state is ProgressState.REPLICATE:
            if progress.match < body.rejected_index < progress.next:
                progress.probe(progress.match + 1)
                self._choose_front()
                return
        elif progress.state is ProgressState.PROBE and body.rejected_index == progress.next - 1:
            highest = min(body.hint_index, body.rejected_index - 1)
            place, _ = state.log.common_place(highest, body.hint_term)
            if rollback.refuses_what_it_held(state, sender, progress, place):
                if progress.refusals < rollback.REFUSALS_MIN:
                    progress.probe(progress.next)
                    return
                place = rollback.forgive(state, sender, progress, body, place)
            progress.probe(place + 1)
            return
        state.counters.unexpected += 1

    def heartbeat_reply(self, sender: NodeId, body: HeartbeatReply) -> None:
        """Note that a follower is alive, and repeat what it may have missed."""
        state = self._state
        progress = self._answered(sender, body.applied_index, body.read_context)
        if progress is None:
            return
        if progress.state is ProgressState.PROBE:
            progress.is_paused = False
        elif progress.state is ProgressState.REPLICATE:
            patience = state.config.heartbeat_ticks
            if progress.inflight and state.now - progress.stalled_from >= patience:
                # Lost, or a slow disk: the answer to an empty Append behind it will tell.
                progress.stalled_from = state.now
                self._nudge(sender, progress)
        elif progress.snapshot_index and body.applied_index >= progress.snapshot_index:
            self._installed(sender, progress, body.applied_index)
        self._finish_transfer(sender)

    def snapshot_reply(self, sender: NodeId, body: SnapshotReply) -> None:
        """Note that a follower installed a snapshot, or refuses it."""
        progress = self._answered(sender, None, 0)
        if progress is None:
            return
        if body.index > self._state.log.last_index:
            self._state.counters.malformed += 1
        elif body.is_installed:
            self._installed(sender, progress, body.index)
        elif progress.state is ProgressState.SNAPSHOT and body.index == progress.snapshot_index:
            self._snapshot_failed(progress)

    def _answered(self, sender: NodeId, applied: int | None, read_context: int) -> Progress | None:
        """Note what answers carry; None, and counted, if the sender is not a follower."""
        state = self._state
        progress = self.progress.get(sender)
        if progress is None:
            state.counters.unexpected += 1
            return None
        if (applied or 0) > state.log.last_index or read_context > self.reads.number:
            state.counters.malformed += 1
            return None
        progress.heard_at = state.now
        if applied is not None:
            progress.note_applied(applied)
        if not progress.needs_nothing(state.log.last_index, NEVER):
            self.needs_emit = True
        if read_context and self.reads.echoed(sender, read_context):
            self._confirm_reads()
        return progress

    # Snapshots

    def take_wanted(self) -> tuple[NodeId, ...]:
        """Return the followers that began to need a snapshot since the last call."""
        wanted = tuple(self._wanted)
        self._wanted.clear()
        return wanted

    def offer_snapshot(self, to: NodeId, meta: SnapshotMeta) -> None:
        """Offer a follower the snapshot that begins to be sent to it."""
        state = self._state
        progress = self.progress.get(to)
        if progress is None or progress.state is not ProgressState.SNAPSHOT:
            return
        progress.snapshot_index = meta.index
        progress.snapshot_wait = state.now + state.config.snapshot_wait_ticks
        state.counters.snapshots_offered += 1
        state.send(to, InstallSnapshot(meta))

    def snapshot_done(self, to: NodeId, *, is_whole: bool) -> None:
        """Note that the sending ended. The follower reports when it has installed a whole one."""
        progress = self.progress.get(to)
        if progress is None or progress.state is not ProgressState.SNAPSHOT:
            return
        if is_whole:
            progress.is_sent = True
            progress.snapshot_wait = self._state.now + self._state.config.snapshot_wait_ticks
        else:
            self._snapshot_failed(progress)

    def _snapshot_failed(self, progress: Progress) -> None:
        progress.probe(progress.match + 1)
        progress.is_paused = True
        progress.snapshot_wait = self._state.now + self._state.config.election_ticks

    def _installed(self, sender: NodeId, progress: Progress, index: int) -> None:
        is_news = progress.accepted(index, self._state.now)
        if progress.state is not ProgressState.REPLICATE:
            progress.replicate()
        if is_news:
            self._advance()
            self._finish_transfer(sender)

    # Commit

    def _advance(self) -> None:
        """Commit what is durable on a majority, if it is of this term (Raft 5.4.2), but not too far
        ahead of what this node has applied.
        """
        state = self._state
        voters = state.members.current.voters
        node, durable, progress = state.node, state.log.durable_index, self.progress
        index = reached_by_majority(
            [durable if voter == node else progress[voter].match for voter in voters]
        )
        limit = self._ahead_of(state.applied)
        self._is_commit_held = index > limit
        index = min(index, limit)
        if index <= state.commit or state.log.term(index) != state.term:
            return
        state.commit = index
        self.needs_emit = True
        if node not in voters and state.members.index <= index:
            # The removal of this node is committed: hand over (thesis 4.2.2). TimeoutNow goes
            # first, since nodes that know of the commit ignore messages from this id.
            self.resign()
            for peer, follower in self.progress.items():
                self._heartbeat(peer, follower)

    def _ahead_of(self, applied: int) -> int:
        """Return how far a node that has applied so much may be led. Up to the no-op in any case:
        before it is committed, nothing may be applied.
        """
        return max(applied + self._state.config.apply_lead_entries_max, self.first_index)

    def _lags(self, progress: Progress) -> bool:
        state = self._state
        return state.commit - progress.applied > state.config.apply_lag_entries_max

    def _applied_by_majority(self) -> int:
        state = self._state
        return reached_by_majority(
            [
                state.applied if voter == state.node else self.progress[voter].applied
                for voter in state.members.current.voters
            ]
        )

    # Reads

    def read(self, node: NodeId, request: int) -> bool:
        """Take a read; False for a node that has too many waiting, or is not a member."""
        if node != self._state.node:
            if node not in self.progress:
                return False
            self.progress[node].fed_at = NEVER  # it waits for what is committed
        self.needs_emit = True
        return self.reads.ask(node, request)

    def _confirm_reads(self) -> None:
        state = self._state
        for barrier in self.reads.confirmed(state.node, state.members.current.voters):
            self._release(barrier)

    def _release(self, barrier: Barrier) -> None:
        for asker, request in barrier.askers:
            self._state.answer_read(asker, request, barrier.index)

    # Sending

    def emit(self) -> None:
        """Send every follower the entries that its window has room for, and the commit index."""
        state = self._state
        self.needs_emit = self._front.has_put_off = False
        shared: _Shared = {}
        is_sealed = self.reads.has_waiting and state.commit >= self.first_index
        if is_sealed:
            self.reads.seal(state.commit)
            self._confirm_reads()
        is_term_durable = self._is_term_durable()
        for node, progress in self._front.before_rear(self.progress):
            is_put_off = self._front.puts_off(node, progress, state.now) and not any(
                size >= LARGE_APPEND_BYTES for _, _, size in shared.values()
            )
            if is_term_durable and not is_put_off:
                self._feed(node, progress, shared)
            is_behind = progress.commit_told < min(state.commit, progress.match)
            if is_sealed or (is_behind and not is_put_off):
                self._heartbeat(node, progress)
            elif is_put_off and (is_behind or progress.next <= state.log.last_index):
                self._front.has_put_off = True

    def _choose_front(self) -> None:
        self._front.choose(self._state.node, self._state.members.current.voters, self.progress)

    def _is_term_durable(self) -> bool:
        """Return whether this node would remember after a crash that it led this term.

        Requests for votes leave after the own vote is durable. A single voter sends none: it could
        win the term twice and put two entries at the same index.
        """
        if not self._was_term_durable:
            self._was_term_durable = self._state.log.durable_index >= self.first_index
        return self._was_term_durable

    def _feed(self, node: NodeId, progress: Progress, shared: _Shared) -> None:
        """Send Appends. Followers at the same place share the value, and so its encoding."""
        state, config = self._state, self._state.config
        for count in range(APPENDS_PER_READY_MAX):
            if not progress.has_room(config.inflight_messages_max, config.inflight_bytes_max):
                return
            low, high = progress.next, min(state.log.last_index, self._ahead_of(progress.applied))
            if low > high and progress.state is ProgressState.REPLICATE:
                if count:
                    progress.fed_at = state.now
                return
            if (low, high) not in shared:
                try:
                    shared[low, high] = self._append_from(low, high)
                except Compacted:
                    self._want_snapshot(node, progress)
                    return
            body, last, size = shared[low, high]
            state.send(node, body)
            progress.sent(last, size, state.now)
            progress.commit_told = max(progress.commit_told, min(body.commit, last))
        self.needs_emit = True

    def _append_from(self, low: int, high: int) -> tuple[Append, int, int]:
        """Return an Append of entries from `low` to `high` at most, its last index and its bytes.

        Raises Compacted.
        """
        state, log = self._state, self._state.log
        prev_term = log.term(low - 1)
        entries: tuple[Entry, ...] = ()
        if low <= high:
            entries = log.entries(low, high + 1, state.config.append_bytes_max)
        size = sum([len(entry.data) for entry in entries])
        body = Append(low - 1, prev_term, state.commit, entries, self.reads.number)
        return body, low - 1 + len(entries), size

    def _want_snapshot(self, node: NodeId, progress: Progress) -> None:
        if not self._is_alive(node) or self._state.now < progress.snapshot_wait:
            progress.probe(progress.next)
            progress.is_paused = True  # until an answer or the connection comes
            return
        progress.snapshot()
        progress.snapshot_wait = self._state.now + self._state.config.snapshot_wait_ticks
        self._wanted.append(node)

    def _nudge(self, node: NodeId, progress: Progress) -> None:
        """Send an empty Append behind what is in flight."""
        try:
            prev_term = self._state.log.term(progress.next - 1)
        except Compacted:
            # It was lost, or is very late, and cannot be repeated.
            progress.probe(progress.match + 1)
            return
        body = Append(progress.next - 1, prev_term, self._state.commit, (), self.reads.number)
        self._state.send(node, body)

    def _heartbeat(self, node: NodeId, progress: Progress) -> None:
        commit = min(self._state.commit, progress.match)
        progress.commit_told = max(progress.commit_told, commit)
        self._state.send(node, Heartbeat(commit, self.reads.number))

    # Parts

    def _append(self, kind: EntryKind, data: bytes) -> int:
        state = self._state
        index = state.log.last_index + 1
        state.log.append((Entry(index, state.term, kind, data),))
        self.needs_emit = True
        self._is_idle = False
        return index

    def _check_ready_to_write(self) -> None:
        if not self._state.is_writable:
            raise Busy("the disk is full")
        if self._transfer is not None:
            raise Busy(f"leadership is being handed to {self._transfer[0]}")

    def _check_quorum(self) -> None:
        voters = self._state.members.current.voters
        alive = sum([self._is_alive(voter) for voter in voters])
        if alive < majority(len(voters)):
            self.is_over = True

    def _is_alive(self, node: NodeId) -> bool:
        state = self._state
        if node == state.node:
            return True
        progress = self.progress.get(node)
        return progress is not None and progress.is_alive(state.now, state.config.election_ticks)

    def _has_caught_up(self, node: NodeId) -> bool:
        """Return whether `node` is close enough to become a voter (thesis 4.2.1).

        It must have the entry that made it a learner: a replica that its log first names as a voter
        concludes that its id had another log before.
        """
        state, progress = self._state, self.progress[node]
        if progress.state is not ProgressState.REPLICATE or not self._is_alive(node):
            return False
        if progress.match < state.members.index or self._lags(progress):
            return False
        return state.commit - progress.match <= PROMOTE_LAG_MAX_ENTRIES

    def _finish_transfer(self, to: NodeId) -> None:
        state = self._state
        if self._transfer is None or self._transfer[0] != to:
            return
        if self.progress[to].match == state.log.last_index:
            state.send(to, TimeoutNow())

    def _has(self, index: int) -> bool:
        """Return whether the log still has `index`."""
        try:
            self._state.log.term(index - 1)
        except Compacted:
            return False
        return True

    def _update_members(self) -> None:
        """Keep progress of exactly the other members of the configuration in force."""
        state = self._state
        current = state.members.current
        members = current.voters + current.learners
        for node in members:
            if node != state.node and node not in self.progress:
                progress = Progress(state.log.last_index + 1, state.now)
                progress.applied = state.commit  # unknown: do not throttle before it answers
                self.progress[node] = progress
        for node in [node for node in self.progress if node not in members]:
            del self.progress[node]
        if self._transfer is not None and self._transfer[0] not in current.voters:
            self._transfer = None
