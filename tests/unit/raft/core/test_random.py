"""Cores under random schedules: loss, repetition, reordering, crashes, slow syncs, compaction,
membership changes. Checked after every step; then the faults stop and the group must go on.

The simulator (tests/sim) does this with the production log and replica; here a failure points
at the core alone, in milliseconds.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from raft.core.core import Busy, NotLeader
from raft.core.membership import AddLearner, BadChange, MemberChange, PromoteLearner, RemoveMember
from raft.types import Configuration, Entry, Envelope, NodeId, PeerState, Role
from tests.unit.raft.core.group import HEARTBEAT_TICKS, Group, Member

STEPS = 800


class Chaos:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.group = Group(
            "abcde"[: self.chance.choice([1, 2, 3, 3, 3, 4, 5])],
            recent_bytes_max=self.chance.choice([0, 200, 1 << 20]),
            append_bytes_max=self.chance.choice([1, 50, 1 << 20]),
            inflight_messages_max=self.chance.choice([1, 3, 256]),
        )
        for member in self.group.members.values():
            member.random = self.chance.randrange
            member.auto_sync = self.chance.random() < 0.5
            member.restart()
        self.next_name = 0
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, NodeId] = {}
        self.reads: dict[tuple[NodeId, int], int] = {}
        self.read_number = 0
        self.proposals = 0
        self.is_calm = False

    def run(self) -> None:
        """Faults, then calm."""
        for _ in range(STEPS):
            self.step()
            self.check()
        self.calm_down()

    def step(self) -> None:
        """One thing happens."""
        chance, group = self.chance, self.group
        member = chance.choice(list(group.members.values()))
        choice = chance.random()
        if choice < 0.35:
            self.deliver()
        elif choice < 0.65:
            member.core.tick(chance.choice([1, 1, 5, 20]))
        elif choice < 0.75:
            self.propose(member)
        elif choice < 0.80:
            member.sync()
        elif choice < 0.83:
            member.restart()
            self.forget_reads(member.node)
        elif choice < 0.87:
            other = chance.choice(list(group.members))
            member.core.peer(other, chance.choice(list(PeerState)))
        elif choice < 0.90:
            self.compact(member)
        elif choice < 0.93:
            self.change(member)
        elif choice < 0.96:
            self.read(member)
        elif member.core.role is Role.LEADER:
            with suppress(Busy):
                member.core.transfer(chance.choice(member.core.configuration.voters))
        if chance.random() < 0.8:
            self.pump(member)

    def pump(self, member: Member) -> None:
        """Handle one Ready, or all."""
        if self.chance.random() < 0.3 and member.core.has_ready():
            member.ready()
        else:
            member.pump()
        self.group.wire.extend(member.take_outbox())
        for state in member.reads:
            begun = self.reads.pop((member.node, state.request), None)
            assert begun is None or state.index >= begun, "a stale read"
        member.reads.clear()
        wanted, member.wanted = member.wanted, []
        for to in wanted:
            self.snapshot(member, to)
        del self.group.wire[:-300]

    def deliver(self) -> None:
        """Some messages arrive, in any order, perhaps twice, perhaps never."""
        chance, wire = self.chance, self.group.wire
        for _ in range(chance.randint(1, 8)):
            if not wire:
                return
            place = 0 if chance.random() < 0.6 else chance.randrange(len(wire))
            envelope: Envelope = wire[place] if chance.random() < 0.1 else wire.pop(place)
            if chance.random() < 0.9:
                self.group.deliver(envelope)
        self.group.log.clear()

    def propose(self, member: Member) -> None:
        """A client writes."""
        self.proposals += 1
        with suppress(NotLeader, Busy):
            member.core.propose(b"%d" % self.proposals + bytes(self.chance.choice([0, 20])))

    def read(self, member: Member) -> None:
        """A client reads: it must see at least what was committed when it asked."""
        self.read_number += 1
        member.core.read(self.read_number)
        self.reads[member.node, self.read_number] = max(self.committed, default=0)

    def forget_reads(self, node: NodeId) -> None:
        """The process that asked is gone."""
        for asker, request in list(self.reads):
            if asker == node:
                del self.reads[asker, request]

    def compact(self, member: Member) -> None:
        """Drop a part of what is applied."""
        if not member.is_dirty and member.applied > member.log.first_index():
            upto = self.chance.randint(member.log.first_index(), member.applied)
            member.compact(upto)
            member.sync()

    def snapshot(self, leader: Member, to: NodeId) -> None:
        """The replicas' part, at once or broken."""
        follower = self.group.members[to]
        if leader.applied == 0 or self.chance.random() < 0.3:
            leader.core.snapshot_done(to, False)
            return
        meta = leader.snapshot_meta()
        leader.core.offer_snapshot(to, meta)
        is_wanted = follower.core.begin_install(meta)
        if is_wanted:
            follower.core.end_install(meta)
            follower.pump()
        leader.core.snapshot_done(to, is_wanted)

    def change(self, member: Member) -> None:
        """One membership change."""
        chance, core = self.chance, member.core
        nodes = core.configuration.voters + core.configuration.learners
        kinds: list[Callable[[NodeId], MemberChange]] = [
            AddLearner,
            PromoteLearner,
            PromoteLearner,
            RemoveMember,
        ]
        kind = chance.choice(kinds)
        node = chance.choice(nodes) if nodes else "x.1"
        if kind is AddLearner:
            if len(self.group.members) > 6:
                return
            self.next_name += 1
            node = f"n{self.next_name}.1"
        try:
            core.change_members(kind(node))
        except (NotLeader, Busy, BadChange):
            return
        if node not in self.group.members:
            fresh = Member(node, Configuration(()), config=member.options)
            fresh.random = chance.randrange
            fresh.restart()
            self.group.add(fresh)

    def check(self) -> None:
        """Raft figure 3, after every step."""
        for node, member in self.group.members.items():
            core = member.core
            if core.role is Role.LEADER:
                assert self.leaders.setdefault(core.term, node) == node, "two leaders in a term"
                self.check_completeness(member)
            assert member.applied <= min(core.commit, core.durable_index)
            for entry in member.applied_entries:
                known = self.committed.setdefault(entry.index, entry)
                assert known == entry, "two entries were applied at one index"
            member.applied_entries.clear()

    def check_completeness(self, leader: Member) -> None:
        """A leader of the newest term has everything that was applied anywhere."""
        if leader.core.term < max(self.leaders) or not self.committed:
            return
        last = max(self.committed)
        assert leader.core.last_index >= last, "a committed entry is lost"
        if last >= leader.log.first_index():
            assert leader.core.term_at(last) == self.committed[last].term

    def calm_down(self) -> None:
        """No more faults: elect, commit, agree."""
        group = self.group
        group.wire.clear()
        for member in group.members.values():
            member.auto_sync = True
            member.sync()
            for other in group.members:
                member.core.peer(other, PeerState.CONNECTED)
        for _ in range(1000):
            for member in group.members.values():
                member.core.tick()
                self.pump(member)
            wire, group.wire = group.wire, []
            for envelope in wire:
                group.deliver(envelope)
            self.check()
        leader = group.leader()
        index = leader.core.propose(b"at last")
        for _ in range(6 * HEARTBEAT_TICKS):
            for member in group.members.values():
                member.core.tick()
                self.pump(member)
            wire, group.wire = group.wire, []
            for envelope in wire:
                group.deliver(envelope)
        self.check()
        configuration = leader.core.configuration
        for node in configuration.voters + configuration.learners:
            assert group.members[node].applied >= index, f"{node} does not follow"


@pytest.mark.parametrize("seed", range(60))
def test_a_random_schedule_is_safe_and_ends_well(seed: int) -> None:
    """Raft figure 3, and progress once the faults stop."""
    Chaos(seed).run()
