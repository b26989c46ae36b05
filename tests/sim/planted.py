"""The bugs that tests.sim.mutants plants: as (file, text, other text), one or more each."""

from dataclasses import dataclass

Patch = tuple[str, str, str]


@dataclass(frozen=True)
class Mutant:
    """A plausible bug."""

    name: str
    rule: str
    """What it breaks."""
    patches: tuple[Patch, ...]


def mutant(name: str, rule: str, *patches: Patch) -> Mutant:
    """Return a mutant."""
    return Mutant(name, rule, patches)


DURABILITY = (
    mutant(
        "skip_fsync",
        "A sync makes durable (DESIGN section 3)",
        (
            "raft/log/group_commit.py",
            "        for file in self._files:\n            file.fdatasync()\n",
            "",
        ),
    ),
    mutant(
        "forget_vote",
        "The vote is remembered across restarts (Raft 5.2)",
        (
            "raft/log/record.py",
            '_COMMIT.pack(state.commit) + (state.vote or "").encode()',
            "_COMMIT.pack(state.commit)",
        ),
    ),
    mutant(
        "vote_before_sync",
        "A vote is durable before it is told (Raft figure 2)",
        (
            "raft/core/election.py",
            "state.send_synced(candidate, VoteReply(True))",
            "state.send(candidate, VoteReply(True))",
        ),
    ),
    mutant(
        "commit_before_its_entries",
        "The commit index on disk holds without the entries written behind it",
        (
            "raft/core/core.py",
            "commit = min(state.commit, entries[0].index - 1) if entries else state.commit",
            "commit = state.commit",
        ),
    ),
    mutant(
        "acknowledge_before_sync",
        "A follower acknowledges what is durable",
        (
            "raft/core/follower.py",
            "    state.send_synced(\n        leader, AppendReply(match",
            "    state.send(\n        leader, AppendReply(match",
        ),
    ),
    mutant(
        "answers_leave_with_the_sync_before",
        "An answer waits for a sync that began after its write",
        (
            "raft/outbox.py",
            "        if needs_sync:\n",
            "        if needs_sync and not is_syncing:\n",
        ),
    ),
    mutant(
        "sync_covers_later_writes",
        "A sync covers what was written before it began",
        (
            "raft/log/log.py",
            "        self._durable_index = max(self._durable_index, sync.index)\n",
            "        self._durable_index = self.last_index()\n",
        ),
    ),
    mutant(
        "leader_counts_itself_early",
        "The leader counts itself only when fsynced (DESIGN section 3)",
        (
            "raft/core/leader.py",
            "state.node, state.log.durable_index, self.progress",
            "state.node, state.log.last_index, self.progress",
        ),
    ),
    mutant(
        "apply_above_own_fsync",
        "A node applies up to min(commit, own fsynced index) (DESIGN section 3)",
        (
            "raft/replica.py",
            "return min(self._core.commit, self._core.durable_index)",
            "return self._core.commit",
        ),
    ),
    mutant(
        "trust_the_page_cache",
        "What recovery found is synced before it counts as durable",
        (
            "raft/log/log.py",
            "            log._sync_now()\n            log._top_up",
            "            log._durable_index = log.last_index()\n            log._top_up",
        ),
    ),
    mutant(
        "stale_record_accepted",
        "Records of a segment's former life never look valid (DESIGN section 3)",
        (
            "raft/log/record.py",
            "digest = blake2b(_NUMBER.pack(incarnation), key",
            "digest = blake2b(_NUMBER.pack(0 * incarnation), key",
        ),
        (
            "raft/log/recovery.py",
            "            if header.previous != self.checksum:\n",
            "            if header.previous == self.checksum + 1:\n",
        ),
    ),
    mutant(
        "next_segment_named_before_its_sync",
        "A segment names the next one when that is durable (docs/log.md)",
        (
            "raft/log/group_commit.py",
            "        for file in self._files:\n",
            "        self._mark and self._mark()\n        for file in self._files:\n",
        ),
    ),
    mutant(
        "cut_instead_of_refuse",
        "Damage to what was synced is refused, never cut (DESIGN section 3)",
        (
            "raft/log/recovery.py",
            "        if not successor and proven <= segment.end_position:\n",
            "        if proven >= 0:\n",
        ),
    ),
)

ELECTIONS = (
    mutant(
        "vote_for_shorter_log",
        "A vote goes only to a log at least as up to date (Raft 5.4.1)",
        (
            "raft/core/election.py",
            "            and state.log.is_up_to_date(body.last_index, body.last_term)\n",
            "",
        ),
        (
            "raft/core/election.py",
            "        if not state.log.is_up_to_date(body.last_index, body.last_term):\n",
            "        if not body.last_index:\n",
        ),
    ),
    mutant(
        "campaign_on_a_reset",
        "A lost connection alone is no evidence of death (DESIGN section 3)",
        (
            "raft/core/election.py",
            "if link is PeerState.REFUSED and state.role is Role.FOLLOWER and",
            "if state.role is Role.FOLLOWER and",
        ),
        (
            "raft/core/election.py",
            "return lost is not None and lost[0] is PeerState.REFUSED",
            "return lost is not None",
        ),
    ),
    mutant(
        "grant_early_while_connected",
        "An early pre-vote is granted only without an own connection to the leader",
        (
            "raft/core/election.py",
            "return Verdict.GRANT if state.leader in self._lost else Verdict.HOLD",
            "return Verdict.GRANT",
        ),
    ),
    mutant(
        "wiped_node_keeps_its_id",
        "An id that ever voted is never worn by an empty log (DESIGN section 3)",
        (
            "raft/founding.py",
            "    if found is None or not found.is_started:\n",
            "    if found is not None and not found.is_started:\n",
        ),
        (
            "raft/core/state.py",
            "    def is_named(self) -> bool:\n",
            "    def is_named(self) -> bool:\n        return True\n\n    def was(self) -> bool:\n",
        ),
    ),
)

REPLICATION = (
    mutant(
        "commit_older_term",
        "Entries of older terms are committed only along with one of the own (Raft 5.4.2)",
        (
            "raft/core/leader.py",
            "if index <= state.commit or state.log.term(index) != state.term:",
            "if index <= state.commit:",
        ),
    ),
    mutant(
        "accept_any_append",
        "An append must follow an entry that is here (Raft 5.3)",
        (
            "raft/core/follower.py",
            "if not log.matches(prev_index, body.prev_term):",
            "if prev_index > log.last_index:",
        ),
    ),
    mutant(
        "stale_append_truncates",
        "An append that was seen before erases nothing, least of all what is committed (Raft 5.3)",
        (
            "raft/core/follower.py",
            "    new = _unknown(state, entries)\n",
            "    new = entries\n",
        ),
        (
            "raft/core/follower.py",
            "if body.prev_index < state.commit:",
            "if body.prev_index < 0:",
        ),
    ),
    mutant(
        "heartbeat_commits_unmatched",
        "A heartbeat's commit index never passes what the follower has matched",
        (
            "raft/core/leader.py",
            "        commit = min(self._state.commit, progress.match)\n",
            "        commit = self._state.commit\n",
        ),
    ),
)

READS_AND_MEMBERS = (
    mutant(
        "read_without_quorum",
        "A read is confirmed by a majority (Raft thesis 6.4)",
        (
            "raft/core/read_index.py",
            "        while self._barriers and self._barriers[0].number <= reached:\n",
            "        while self._barriers and reached >= 0:\n",
        ),
    ),
    mutant(
        "read_before_own_commit",
        "A new leader reads only behind an entry of its own term (Raft thesis 6.4)",
        (
            "raft/core/leader.py",
            "is_sealed = self.reads.has_waiting and state.commit >= self.first_index",
            "is_sealed = self.reads.has_waiting",
        ),
    ),
    mutant(
        "read_before_apply",
        "A read is served once its index is applied (Raft thesis 6.4)",
        (
            "raft/replica.py",
            "while self._reads and self._reads[0][0] <= self._applied and self._install is None:",
            "while self._reads and self._install is None:",
        ),
    ),
    mutant(
        "change_before_own_commit",
        "Members change only after a commit in the own term (Ongaro 2015)",
        (
            "raft/core/leader.py",
            'if state.commit < self.first_index:\n            raise Busy("this leader has',
            'if state.commit < 0:\n            raise Busy("this leader has',
        ),
    ),
    mutant(
        "two_changes_at_once",
        "One membership change at a time (Raft thesis 4.1)",
        (
            "raft/core/leader.py",
            "if state.members.index > state.commit:",
            "if state.members.index < 0:",
        ),
    ),
    mutant(
        "snapshot_forgets_configuration",
        "A snapshot carries the members (Raft 7)",
        (
            "raft/core/follower.py",
            "state.members.reset(meta.index, meta.configuration)",
            "state.members.reset(meta.index, state.members.current)",
        ),
    ),
    mutant(
        "compact_what_is_not_durable",
        "The log reaches back to the durable applied index (DESIGN section 3)",
        (
            "raft/replica.py",
            "index = min(self._machine.durable_index(), droppable",
            "index = min(self._machine.applied_index(), droppable",
        ),
    ),
)

STATE_AND_LOG = (
    mutant(
        "commit_far_ahead_of_apply",
        "A leader commits a limited number of entries ahead of what it has applied",
        (
            "raft/core/leader.py",
            "        index = min(index, limit)\n",
            "",
        ),
    ),
    mutant(
        "count_on_what_was_set_back",
        "A follower counts for what it holds, whatever it acknowledged (design.md, Rolled back)",
        (
            "raft/core/leader.py",
            "if rollback.refuses_what_it_held(state, sender, progress, place):",
            "if progress.match < 0:",
        ),
    ),
)

MUTANTS = (*DURABILITY, *ELECTIONS, *REPLICATION, *READS_AND_MEMBERS, *STATE_AND_LOG)
