"""Who runs the group: brings lost machines back under a new id, completes what was begun, and
changes members and moves leadership at bad times.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from raft.core.core import Busy, NotLeader
from raft.core.membership import (
    AddLearner,
    BadChange,
    MemberChange,
    PromoteLearner,
    RemoveMember,
    ReplaceMember,
)
from raft.replica import Alarm, AlarmKind
from raft.types import Configuration
from tests.sim.checkers import Violation

if TYPE_CHECKING:
    from tests.sim.host import Host, Input
    from tests.sim.world import World

VOTERS_MAX = 5
ROUND_MIN_US = 50_000
ROUND_MAX_US = 150_000
FULL_RETRY_US = 100_000


class Administrator:
    """One for the whole world; knows what is committed, as all administrators claim to."""

    def __init__(self, world: "World", chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.is_calm = False
        """Changes no more than is necessary."""

    def start(self) -> None:
        """Plan the first round."""
        self._later(self.chance.randint(ROUND_MIN_US, ROUND_MAX_US), self._round)

    def _later(self, wait_us: int, action: Callable[[], None]) -> None:
        self.world.at(self.world.now_us + wait_us, action)

    # Events

    def alarmed(self, host: "Host", alarm: Alarm) -> None:
        """A replica calls."""
        if alarm.kind is AlarmKind.DISK_FULL:
            self._later(FULL_RETRY_US, host.space_returned)
        elif alarm.kind is AlarmKind.ID_REUSED:
            self._is_unnamed(host)
        elif alarm.kind is AlarmKind.ROLLED_BACK and host.node not in self.world.faults.copies.told:
            raise Violation(f"{host.node} takes its disk for an older copy")

    def _is_unnamed(self, host: "Host") -> None:
        """A disk that was set back to a time before the group knew the machine is a lost one."""
        if host.node not in self.world.faults.copies.told:
            raise Violation(f"{host.node} takes itself for another that had this id")
        self.world.say("unnamed", host.node)
        host.is_lost = True
        self.world.faults.impaired.add(host.node)

    def leads(self, host: "Host") -> None:
        """A new leader: a bad time to change the members."""
        if not self.is_calm and self.chance.random() < self.world.knobs.churn:
            self._later(self.chance.randint(1, 4_000), lambda: self._hurry(host))

    def _hurry(self, host: "Host") -> None:
        """Try several changes at once; all but one must be turned down."""
        configuration = self.world.checker.model.configuration
        if not self.is_calm and host.leads and configuration is not None:
            changes = self._possible_changes(configuration)
            for change in self.chance.sample(changes, min(len(changes), 3)):
                self._change(host, change)

    # Rounds

    def _round(self) -> None:
        self.start()
        configuration = self.world.checker.model.configuration
        if configuration is None:
            return
        for host in self.world.hosts.values():
            if host.is_lost or host.node in configuration.retired:
                self._reincarnate(host)
        leading = [host for host in self.world.hosts.values() if host.leads]
        if leading:
            self._improve(self.chance.choice(leading), configuration)

    def _improve(self, leader: "Host", configuration: Configuration) -> None:
        members = {*configuration.voters, *configuration.learners}
        for lost in sorted(self.world.faults.impaired & members):
            fresh = self.world.host_of(lost)
            if fresh.node != lost and fresh.is_running:
                self._change(leader, ReplaceMember(lost, fresh.node))
                return
        if configuration.learners and len(configuration.voters) < VOTERS_MAX:
            self._change(leader, PromoteLearner(self.chance.choice(configuration.learners)))
        elif not self.is_calm and self.chance.random() < self.world.knobs.churn:
            changes = self._possible_changes(configuration)
            if changes:
                self._change(leader, self.chance.choice(changes))

    def _possible_changes(self, configuration: Configuration) -> list[MemberChange]:
        """Return what may be done to the members for no reason: never with a disk missing."""
        members = {*configuration.voters, *configuration.learners}
        if members & self.world.faults.impaired:
            return []
        spares = [h.node for h in self.world.hosts.values() if h.is_running]
        changes: list[MemberChange] = [AddLearner(node) for node in spares if node not in members]
        if len(configuration.voters) >= 3:
            changes += [RemoveMember(voter) for voter in configuration.voters]
        return changes + [RemoveMember(learner) for learner in configuration.learners]

    def _reincarnate(self, host: "Host") -> None:
        """Empty the machine and let it wait for its new id to be added."""
        if host.is_running:
            host.kill()
        self.world.checker.lost_ids.add(host.node)
        host.disk.wipe()
        host.disk.make_room()
        host.incarnation += 1
        host.is_lost = False
        host.found(Configuration(voters=()))
        host.start()

    # Commands

    def transfer(self) -> bool:
        """Move the leadership to any voter."""
        leading = [host for host in self.world.hosts.values() if host.leads]
        host = self.chance.choice(leading) if leading else None
        if host is None or host.configuration is None or not host.configuration.voters:
            return False
        to = self.chance.choice(host.configuration.voters)
        self.world.say("transfer", host.node, to)
        self._command(host, lambda replica: replica.transfer(to))
        return True

    def _change(self, host: "Host", change: MemberChange) -> None:
        self.world.say("change", host.node, *msgspec.to_builtins(change).values())
        self._command(host, lambda replica: ignore(replica.change_members(change)))

    def _command(self, host: "Host", give: "Input") -> None:
        try:
            host.command(give)
        except (NotLeader, Busy, BadChange) as refusal:
            self.world.say("refused", host.node, type(refusal).__name__, refusal)


def ignore(index: int) -> None:
    """The index of a change is never asked for."""
    del index
