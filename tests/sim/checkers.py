"""What must hold after every step of the world. A checker sees what the replicas say and do,
and what the simulated disks really hold, and keeps an account of its own.

Election safety       one leader per term; one vote per id and term, also across restarts
Log matching          an (index, term) names one entry with one predecessor, on every replica
Leader completeness   a new leader's log contains what earlier terms committed
Commitment            a leader commits entries of its own term, and what a majority of its
                      voters really has on disk; no further ahead of what it applied than it may
Membership            changes one at a time, each behind a commit of the leader's own term
Promises              a vote, a term and an accepted append are on the sender's disk; a
                      restart finds them, and every committed entry that was there
State machine         the same digest after the same index; applied in order, once each, never
                      above the own disk; results equal those of a model
Acknowledgements      an acknowledged operation is committed, at that index, once
Reads                 a read sees everything acknowledged or read before it began (by index)
                      and what the model says at that index
Lost ids              an id whose disk was lost says nothing that a quorum counts
Early campaigns       only with a refused connection; granted only with the connection gone
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raft import batch
from raft.core.membership import decode_configuration
from raft.replica import AppliedEntry, Step
from raft.types import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Heartbeat,
    NodeId,
    PeerState,
    PreVote,
    PreVoteReply,
    Role,
    Vote,
    VoteReply,
)
from tests.sim.machine import OPERATION, next_digest
from tests.sim.slots import DIGEST_BYTES, Result

if TYPE_CHECKING:
    from tests.sim.host import Host, Results
    from tests.sim.world import World

READ_WHOLE_BYTES = 1 << 40
POLL_LATE_MAX_US = 3_000
"""A process may handle its inputs and poll only so much later (`HostFaults.poll_late`)."""


class Violation(Exception):
    """Something that must always hold does not."""


@dataclass(slots=True)
class Shadow:
    """What the checker knows of the log of one node id."""

    terms: dict[int, int] = field(default_factory=dict)
    last: tuple[int, int] = (0, 0)
    first: int = 0
    base: int = 0
    """Index of the newest snapshot that the log began behind."""
    applied: int | None = None
    """Of the present process."""
    commit: int = 0
    leads: int = 0
    """The term that it led after its last step; 0: none."""
    configuration: Configuration | None = None
    marks: deque[tuple[int, tuple[tuple[int, int], ...], int]] = field(default_factory=deque)
    """(disk sequence, entries written up to it, base): durable once the disk has that much."""
    durable_base: int = 0
    promised: HardState = field(default_factory=HardState)
    told: dict[NodeId, tuple[PeerState, int]] = field(default_factory=dict)
    """What this process was told of its connections, and when."""
    heard: NodeId | None = None
    """The leader that spoke last, and when."""
    heard_us: int = 0
    led_since_us: int = 0
    """When it began to follow its present leader."""
    refused_until_us: int = -POLL_LATE_MAX_US - 1
    """When it last heard that a connection is no longer refused."""


class Model:
    """The state machine that the committed log, taken alone, leads to."""

    def __init__(self) -> None:
        self.index = 0
        self.terms = [0]
        self.configuration: Configuration | None = None
        """The newest one committed."""
        self.observer_terms = [0]
        """The term in which an entry was first seen committed, at the latest."""
        self.digest = bytes(DIGEST_BYTES)
        self.digests: dict[int, bytes] = {0: self.digest}
        self.results: dict[int, tuple[Result, ...]] = {}
        self.registers: dict[int, list[tuple[int, int, int]]] = {}
        """Per key: (index, ordinal, operation) of every value it ever had, oldest first."""
        self.operations: dict[int, int] = {}
        """Operation to index."""
        self.expected: dict[int, bytes] = {}
        """Digests found on a disk before any node reported their entries as applied."""

    def apply(self, entry: Entry, observer_term: int) -> None:
        """Take the next committed entry."""
        assert entry.index == self.index + 1
        self.index = entry.index
        self.terms.append(entry.term)
        self.observer_terms.append(observer_term)
        if entry.kind is EntryKind.CONFIG:
            self.configuration = decode_configuration(entry.data)
        if entry.kind is EntryKind.DATA:
            self._apply_data(entry)

    def _apply_data(self, entry: Entry) -> None:
        results = []
        for ordinal, payload in enumerate(batch.split(entry.data)):
            operation, key = OPERATION.unpack_from(payload)
            if operation in self.operations:
                raise Violation(
                    f"operation {operation} is committed twice, at {self.operations[operation]} "
                    f"and {entry.index}"
                )
            self.operations[operation] = entry.index
            history = self.registers.setdefault(key, [])
            results.append((operation, entry.index, ordinal, history[-1][2] if history else 0))
            history.append((entry.index, ordinal, operation))
        self._note(entry, tuple(results), next_digest(self.digest, entry.index, entry.data))

    def _note(self, entry: Entry, results: tuple[Result, ...], digest: bytes) -> None:
        self.results[entry.index] = results
        self.digest = digest
        self.digests[entry.index] = self.digest
        if self.expected.pop(entry.index, self.digest) != self.digest:
            raise Violation(f"a disk held another state at {entry.index} than the log leads to")

    def value(self, key: int, index: int) -> Result:
        """Return (operation, index, ordinal) of a key after the entry at `index`."""
        history = self.registers.get(key, [])
        place = bisect_right(history, (index + 1, -1, -1))
        if not place:
            return (0, 0, 0)
        found, ordinal, operation = history[place - 1]
        return (operation, found, ordinal)


class Checker:
    """Watches every process of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.model = world.workload.model()
        self.leaders: dict[int, NodeId] = {}
        self.votes: dict[tuple[NodeId, int], NodeId] = {}
        self.entries: dict[tuple[int, int], tuple[Entry, int]] = {}
        """(index, term) to the entry and the term before it."""
        self.holders: dict[tuple[int, int], set[NodeId]] = {}
        """Ids on whose disks an entry was durable at some time."""
        self.shadows: dict[NodeId, Shadow] = {}
        self.lost_ids: set[NodeId] = set()
        self.counts = dict.fromkeys(("elections", "truncations", "compactions", "installs"), 0)
        """What the run led to."""
        self.acknowledged_index = 0
        """Newest entry that any client knows of: by an acknowledgement or a read."""

    def shadow(self, node: NodeId) -> Shadow:
        """Return the account of a node id."""
        found = self.shadows.get(node)
        if found is None:
            found = self.shadows[node] = Shadow()
        return found

    # Processes

    def started(self, host: "Host") -> None:
        """A process has recovered what its disk holds."""
        shadow = self.shadow(host.node)
        hard_state = host.log_now.hard_state
        promised = shadow.promised
        if hard_state.term < promised.term or (
            hard_state.term == promised.term and promised.vote not in (None, hard_state.vote)
        ):
            raise Violation(f"{host.node} promised {promised} and came back with {hard_state}")
        shadow.terms.clear()
        shadow.last = (0, 0)
        shadow.first = 0
        shadow.applied = None
        shadow.commit = host.replica_now.commit_index
        shadow.leads = 0
        shadow.marks.clear()
        shadow.told.clear()
        self._observe_log(host, shadow)
        self._find_committed(host, shadow)
        self._drain_trace(host)

    def set_back(self, host: "Host") -> None:
        """The disk of a machine is an older copy: it knows nothing of later promises."""
        shadow = self.shadow(host.node)
        shadow.promised = HardState()
        shadow.base = shadow.durable_base = 0
        for vote in [vote for vote in self.votes if vote[0] == host.node]:
            del self.votes[vote]
        for holders in self.holders.values():
            holders.discard(host.node)

    def _find_committed(self, host: "Host", shadow: Shadow) -> None:
        """The newest committed entry that was durable on this disk must still be there."""
        terms = self.model.terms
        for index in range(self.model.index, shadow.base, -1):
            if host.node in self.holders.get((index, terms[index]), ()):
                if shadow.terms.get(index) != terms[index]:
                    raise Violation(
                        f"{host.node} had the committed entry {index} of term {terms[index]} on "
                        f"its disk and came back with {shadow.terms.get(index)}"
                    )
                return

    def ended(self, host: "Host") -> None:
        """A process is gone; what it had written and not synced is undecided."""
        self.shadow(host.node).marks.clear()

    def told(self, host: "Host", peer: NodeId, state: PeerState) -> None:
        """A process heard of one of its connections."""
        shadow = self.shadow(host.node)
        if shadow.told.get(peer, (None, 0))[0] is PeerState.REFUSED:
            shadow.refused_until_us = self.world.now_us
        shadow.told[peer] = (state, self.world.now_us)

    def received(self, host: "Host", frame: tuple[Envelope, ...]) -> None:
        """A process takes a frame: a leader that speaks is alive."""
        for envelope in frame:
            if isinstance(envelope.body, Append | Heartbeat):
                shadow = self.shadow(host.node)
                shadow.heard, shadow.heard_us = envelope.sender, self.world.now_us

    def _is_just_now(self, at_us: int) -> bool:
        """Return whether a process may have decided before that moment and speak only now."""
        return self.world.now_us - at_us <= POLL_LATE_MAX_US

    def _was_told(self, shadow: Shadow, state: PeerState) -> bool:
        """Return whether some connection was in that state when the process decided."""
        if any(known is state for known, _ in shadow.told.values()):
            return True
        return self._is_just_now(shadow.refused_until_us)

    # After each poll and each sync

    def stepped(self, host: "Host", step: "Step[Results]") -> None:
        """A process has polled; nothing of the step has left it yet."""
        shadow = self.shadow(host.node)
        self._observe_log(host, shadow)
        self._observe_disk(host, shadow)
        if step.soft_state is not None:
            shadow.led_since_us = self.world.now_us
            if step.soft_state.role is Role.LEADER:
                self._observe_leader(host, step.soft_state.term)
        self.counts["installs"] += step.restored_index > 0
        for applied in step.results:
            self._observe_applied(host, shadow, applied)
        self._drain_trace(host)
        # The commit may have come before, or after, a change of members in the same step.
        before, shadow.configuration = shadow.configuration, host.configuration
        if host.role is not Role.LEADER:
            shadow.commit = host.replica_now.commit_index
            shadow.leads = 0
        else:
            known = [found for found in (before, host.configuration) if found is not None]
            self._observe_commit(host, shadow, known)
            shadow.leads = host.replica_now.term
        for envelope in step.messages:
            self._observe_message(host, shadow, envelope)

    def synced(self, host: "Host") -> None:
        """A background sync of this process has finished on its disk."""
        self._observe_disk(host, self.shadow(host.node))

    # Logs and disks

    def _observe_log(self, host: "Host", shadow: Shadow) -> None:
        log = host.log_now
        last = log.last_index()
        term = log.term(last)
        first = log.first_index()
        if first != shadow.first:
            self.counts["compactions"] += shadow.first > 0
            shadow.first = first
        if shadow.last == (last, term):
            return
        terms = shadow.terms
        low = last + 1
        while low > first and terms.get(low - 1) != log.term(low - 1):
            low -= 1
        if low == first and first > 1:
            self._observe_base(host, shadow, first - 1, log.term(first - 1))
        if shadow.applied is not None and min(low - 1, last) < shadow.applied:
            raise Violation(
                f"{host.node} changed its log from {low} on, having applied {shadow.applied}"
            )
        if low <= shadow.last[0]:
            self.counts["truncations"] += 1
            self.world.faults.replaced(host)
        for index in range(last + 1, shadow.last[0] + 1):
            terms.pop(index, None)
        written = []
        if low <= last:
            before = log.term(low - 1)
            for entry in log.entries(low, last + 1, READ_WHOLE_BYTES):
                self._observe_entry(host, entry, before)
                before = terms[entry.index] = entry.term
                written.append((entry.index, entry.term))
        shadow.last = (last, term)
        shadow.marks.append((host.disk.sequence, tuple(written), shadow.base))

    def _observe_base(self, host: "Host", shadow: Shadow, index: int, term: int) -> None:
        """The log begins behind `index`."""
        shadow.base = max(shadow.base, index)
        if index <= self.model.index and self.model.terms[index] != term:
            raise Violation(f"{host.node} stands behind {index} of term {term}: never committed")
        if shadow.applied is not None and shadow.applied < index:
            shadow.applied = index

    def _observe_entry(self, host: "Host", entry: Entry, before: int) -> None:
        known = self.entries.get((entry.index, entry.term))
        if known is None or self._was_never_told(host, entry):
            self.entries[entry.index, entry.term] = (entry, before)
            if entry.kind is EntryKind.CONFIG and host.leads:
                self._observe_change(host, entry)
        elif known[1] != before or known[0] != entry:
            raise Violation(
                f"{host.node} has another entry {entry.index} of term {entry.term} than before"
            )

    def _was_never_told(self, host: "Host", entry: Entry) -> bool:
        """Return whether an entry was only ever in the cache of a single voter, and lost there.

        Such a voter may lead the same term again: it needs no vote but the one it forgot,
        and sends no entry before one of its term is durable (raft/design.md).
        """
        configuration = host.configuration
        is_single = configuration is not None and configuration.voters == (host.node,)
        return is_single and not self.holders.get((entry.index, entry.term))

    def _observe_change(self, host: "Host", entry: Entry) -> None:
        """A leader changes the members: on firm ground, and one at a time."""
        log, commit = host.log_now, host.replica_now.commit_index
        if log.term(commit) != entry.term:
            raise Violation(
                f"{host.node} changes members at {entry.index} in term {entry.term} with nothing "
                f"but {commit} of term {log.term(commit)} committed"
            )
        earlier = [known.index for known in log.config_entries() if known.index < entry.index]
        if earlier and earlier[-1] > commit:
            raise Violation(
                f"{host.node} changes members at {entry.index} while the change at {earlier[-1]} "
                f"is not committed ({commit} is)"
            )

    def _observe_disk(self, host: "Host", shadow: Shadow) -> None:
        if not shadow.marks:
            return
        durable = host.durable_sequence()
        while shadow.marks and shadow.marks[0][0] <= durable:
            _, written, base = shadow.marks.popleft()
            shadow.durable_base = max(shadow.durable_base, base)
            for entry in written:
                holders = self.holders.get(entry)
                if holders is None:
                    holders = self.holders[entry] = set()
                holders.add(host.node)

    def has_on_disk(self, host: "Host", index: int) -> bool:
        """Return whether a running machine's disk holds an entry durably."""
        return self._has_on_disk(host, self.shadow(host.node), index)

    def _has_on_disk(self, host: "Host", shadow: Shadow, index: int) -> bool:
        if index <= shadow.durable_base:
            return True
        term = shadow.terms.get(index)
        return term is not None and host.node in self.holders.get((index, term), ())

    def _had_on_disk(self, host: "Host", shadow: Shadow, index: int, term: int) -> bool:
        """Whether an acknowledgement that was made in `term`, and left only now, was true then.

        A newer leader may have replaced the entry meanwhile. The late answer is harmless: it
        completes no majority, since the voters that elected that leader had the entry.
        """
        if not index or self._has_on_disk(host, shadow, index):
            return True
        return term < host.replica_now.term and any(
            host.node in self.holders.get((index, earlier), ()) for earlier in range(term + 1)
        )

    # Elections and commitment

    def _observe_leader(self, host: "Host", term: int) -> None:
        self.counts["elections"] += term not in self.leaders
        known = self.leaders.setdefault(term, host.node)
        if known != host.node:
            raise Violation(f"{known} and {host.node} both lead term {term}")
        model = self.model
        for index in range(model.index, 0, -1):
            if model.observer_terms[index] < term:
                log = host.log_now
                if index < log.first_index() - 1:
                    return
                if log.last_index() < index or log.term(index) != model.terms[index]:
                    raise Violation(
                        f"{host.node} leads term {term} without the committed entry {index}"
                    )
                return

    def _observe_commit(
        self, host: "Host", shadow: Shadow, configurations: list[Configuration]
    ) -> None:
        commit = host.replica_now.commit_index
        if commit <= shadow.commit:
            return
        shadow.commit = commit
        term = shadow.terms.get(commit)
        if term is None:
            return
        lead = host.config().core.apply_lead_entries_max
        if commit > host.replica_now.applied_index + lead and term == shadow.terms.get(commit - 1):
            raise Violation(
                f"{host.node} commits {commit}, having applied {host.replica_now.applied_index}"
            )
        if shadow.leads == host.replica_now.term != term:
            raise Violation(f"{host.node} commits {commit} of term {term} in term {shadow.leads}")
        holders = self.holders.get((commit, term), set())
        for configuration in configurations:
            having = [
                voter
                for voter in configuration.voters
                if voter in holders or commit <= self.shadow(voter).durable_base
            ]
            if len(having) * 2 > len(configuration.voters):
                return
        raise Violation(f"{host.node} commits {commit} that only {holders} have on disk")

    # The state machine

    def _observe_applied(
        self, host: "Host", shadow: Shadow, applied: "AppliedEntry[Results]"
    ) -> None:
        index = applied.index
        if shadow.applied is not None and index != shadow.applied + 1:
            raise Violation(f"{host.node} applied {index} after {shadow.applied}")
        shadow.applied = index
        if not self._has_on_disk(host, shadow, index):
            raise Violation(f"{host.node} applied {index}, which is not on its disk")
        self._advance_model(host, shadow, index)
        if self.model.terms[index] != applied.term:
            raise Violation(
                f"{host.node} applied {index} of term {applied.term}; "
                f"committed is term {self.model.terms[index]}"
            )
        if applied.kind is EntryKind.DATA and applied.result != self.model.results[index]:
            raise Violation(f"{host.node} computed another result at {index} than the model")

    def _advance_model(self, host: "Host", shadow: Shadow, index: int) -> None:
        """Entries that a process applied in its last breath are seen only now, by what follows:
        this log may begin behind them.
        """
        term = shadow.terms[index]
        unseen = []
        for missing in range(index, self.model.index, -1):
            if (missing, term) not in self.entries:
                raise Violation(f"{host.node} applied {index} behind {missing} that nobody had")
            entry, term = self.entries[missing, term]
            unseen.append(entry)
        for entry in reversed(unseen):
            self.model.apply(entry, host.replica_now.term)

    def _drain_trace(self, host: "Host") -> None:
        machine = host.machine
        assert machine is not None
        for index, digest in machine.trace:
            if index > self.model.index:
                if self.model.expected.setdefault(index, digest) != digest:
                    raise Violation(f"{host.node} has another state at {index} than others")
            elif self.model.digests.get(index) != digest:
                raise Violation(f"{host.node} has another state at {index} than the log leads to")
        machine.trace.clear()

    # Messages

    def _observe_message(self, host: "Host", shadow: Shadow, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, AppendReply):
            if not body.is_rejected:
                self._speaks_for_a_quorum(host)
                if not self._had_on_disk(host, shadow, body.match_index, envelope.term):
                    raise Violation(
                        f"{host.node} acknowledges {body.match_index}, which is not on its disk"
                    )
                self._promise(shadow, envelope.term, None)
        elif isinstance(body, VoteReply):
            if body.granted:
                self._speaks_for_a_quorum(host)
                self._vote(host.node, envelope.term, envelope.to)
                self._promise(shadow, envelope.term, envelope.to)
        elif isinstance(body, Vote):
            self._speaks_for_a_quorum(host)
            self._vote(host.node, envelope.term, host.node)
        elif isinstance(body, PreVote):
            if body.is_early and not self._was_told(shadow, PeerState.REFUSED):
                raise Violation(f"{host.node} campaigns early without a refused connection")
        elif isinstance(body, PreVoteReply) and body.granted and body.is_early:
            leader = host.leader
            state, since_us = shadow.told.get(leader or "", (PeerState.LOST, 0))
            lease_us = self.world.knobs.election_ticks * host.tick_us // 2
            is_heard = shadow.heard == leader and self.world.now_us - shadow.heard_us < lease_us
            known_us = max(since_us, shadow.led_since_us)
            if state is PeerState.CONNECTED and is_heard and not self._is_just_now(known_us):
                raise Violation(f"{host.node} grants an early vote though {leader} is connected")

    def _vote(self, voter: NodeId, term: int, candidate: NodeId) -> None:
        known = self.votes.setdefault((voter, term), candidate)
        if known != candidate:
            raise Violation(f"{voter} votes for {known} and for {candidate} in term {term}")

    def _promise(self, shadow: Shadow, term: int, vote: NodeId | None) -> None:
        if term > shadow.promised.term or (term == shadow.promised.term and vote is not None):
            shadow.promised = HardState(term, vote)

    def _speaks_for_a_quorum(self, host: "Host") -> None:
        if host.node in self.lost_ids:
            raise Violation(f"{host.node} lost its disk and still votes or acknowledges")

    # Clients

    def acknowledged(self, index: int, term: int, result: tuple[Result, ...]) -> None:
        """A client learns that its operations are done."""
        model = self.model
        if index > model.index or model.terms[index] != term or model.results[index] != result:
            raise Violation(f"acknowledged {result} at {index}, term {term}: not committed so")
        self.acknowledged_index = max(self.acknowledged_index, index)

    def read(self, host: "Host", key: int, floor: int) -> int:
        """A read is answered from this process; return the index of the state that it saw."""
        machine = host.machine
        assert machine is not None
        index = machine.applied_index()
        if index < floor:
            raise Violation(f"{host.node} reads at {index} what was known at {floor} before")
        value = machine.read(key)
        if value != self.model.value(key, index):
            raise Violation(f"{host.node} reads {value} at {index}; the log says otherwise")
        self.acknowledged_index = max(self.acknowledged_index, index)
        return index
