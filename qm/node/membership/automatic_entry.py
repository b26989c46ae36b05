"""How a node gets into its cluster without an operator: `[birth] automatic`.

An empty node asks the configured members for their state. If all of them answer that they are empty
too, the one with the lowest name founds the cluster, and adopts itself first: so it can be empty
later only if it lost its disk. If one belongs to a cluster, the node joins that cluster, as a
learner under its next incarnation (DESIGN section 3, Identity). In any other case it waits: an
empty folder proves nothing about the cluster.

A pod whose member was removed runs only because its StatefulSet wants it again: it returns under
the next incarnation (`former_member`). Elsewhere somebody removed the node and did not stop it.

A member does the same after each start until it is a voter and the cluster is a queue manager, so
that an interrupted birth or join is completed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from qm.model.values.commands import Provision
from qm.node.config.schema import NodeConfig
from qm.node.membership.birth import fresh_cluster, is_cluster_of
from qm.node.membership.first_start import birth_of, known_key, open_steps
from qm.node.membership.join import JoinRefused, Steps, is_membership_committed
from qm.pb import relay_pb2
from raft.founding import FOUNDING_TERM

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 0.5

State = relay_pb2.InspectReply


class MemberRemoved(Exception):
    """This pod's member was removed for good, and the pod runs again; the text is the id."""


def is_removed(own: State, states: Iterable[State]) -> bool:
    """Return whether a member's removal is certain: a majority of the leader's voters has it, so
    that no later leader can lack it.
    """
    peers = [state for state in states if state.cluster == own.cluster]
    leader = max(
        (state for state in peers if state.role == "leader"),
        key=lambda state: state.term,
        default=None,
    )
    if leader is None or own.raft_id in (*leader.voters, *leader.learners):
        return False
    having = {state.raft_id for state in peers if own.raft_id in state.retired}
    return len(having & set(leader.voters)) > len(leader.voters) // 2


class Entry:
    """An empty node's way into its cluster. Made and used in one loop."""

    def __init__(self, config: NodeConfig, begun: Callable[[], bytes]) -> None:
        """`begun`: the id of a cluster whose founding stopped before this node's first start."""
        self._config = config
        self._begun = begun
        self._founders = sorted(member.name for member in config.members)
        self.waits_for = "it asks the configured members"
        """Why it is not done yet, in words for an operator."""

    async def run(self) -> None:
        """Return once the node is a voter in a cluster that is a queue manager. Raises
        MemberRemoved.
        """
        async with open_steps(self._config, self._say) as steps:
            while True:
                try:
                    if await self._step(steps):
                        return
                except JoinRefused as error:
                    self._wait_for(str(error))
                await asyncio.sleep(ASK_EVERY_S)

    def _say(self, text: str) -> None:
        logger.info("%s", text)

    def _wait_for(self, text: str) -> None:
        if text != self.waits_for:
            logger.info("this node is not settled yet: %s", text)
        self.waits_for = text

    async def _step(self, steps: Steps) -> bool:
        """Do what the members' states require; return whether nothing is left to do."""
        name = self._config.name
        states = await steps.states({*self._founders, name})
        own = states.get(name)
        if own is None:
            self._wait_for(f"{name} does not reach itself: does `host` name this machine?")
        elif own.raft_id:
            return await self._settle(steps, own, states)
        elif any(state.cluster for state in states.values()):
            await self._join(steps, states)
        else:
            await self._found(steps, states)
        return False

    # Empty

    async def _found(self, steps: Steps, states: Mapping[str, State]) -> None:
        first = self._founders[0]
        silent = self._silent(states)
        if silent:
            self._wait_for(
                f"{silent} does not answer: a cluster is founded when every member reports that it"
                " is empty"
            )
        elif self._config.name != first:
            self._wait_for(f"{first} founds the cluster")
        else:
            await self._give_birth(steps)

    async def _join(self, steps: Steps, states: Mapping[str, State]) -> None:
        known = [state for state in states.values() if state.cluster]
        for state in known:
            if not is_cluster_of(self._config.birth, state.cluster):
                raise JoinRefused(
                    f"{state.node} belongs to a cluster with another `birth.cluster`: do `members`"
                    " name the right hosts?"
                )
        first = self._founders[0]
        if self._config.name == first or any(state.is_provisioned for state in known):
            await steps.join(known_key(self._config, self._say))
        else:
            self._wait_for(f"{first} finishes the birth of the cluster")

    # With an identity

    async def _settle(self, steps: Steps, own: State, states: Mapping[str, State]) -> bool:
        if any(own.raft_id in state.retired for state in states.values()):
            if self._config.kubernetes.stateful_set and is_removed(own, states.values()):
                raise MemberRemoved(own.raft_id)
            raise JoinRefused(
                f"{own.raft_id} was removed from the cluster: empty the data folder if this node"
                " is to return"
            )
        if own.raft_id not in own.voters:
            await steps.join(known_key(self._config, self._say))
            return False
        if not is_membership_committed(own):
            # Its log may have it alone: another leader's log makes it a learner again.
            self._wait_for("a majority has yet to confirm that it is a voter")
            return False
        if own.is_provisioned:
            return True
        if own.node == self._founders[0]:
            await self._finish_birth(steps, states)
        else:
            self._wait_for(f"{self._founders[0]} finishes the birth of the cluster")
        return False

    async def _finish_birth(self, steps: Steps, states: Mapping[str, State]) -> None:
        """Continue an interrupted birth, except for founders that may have lost a vote."""
        leader = next((state for state in states.values() if state.role == "leader"), None)
        if leader is not None:
            # A second birth would reset a queue manager's security: its leader must be up to date.
            if leader.is_provisioned or leader.applied < leader.commit:
                self._wait_for(f"it has not applied what {leader.node} has")
                return
            command, _ = await self._birth()
            await steps.provision(command)
        elif silent := self._silent(states):
            self._wait_for(f"there is no leader, and {silent} does not answer")
        elif max(state.term for state in states.values()) > FOUNDING_TERM:
            self._wait_for("there is no leader: a majority of the founders is needed")
        else:
            await self._give_birth(steps)

    # Birth

    async def _give_birth(self, steps: Steps) -> None:
        command, key = await self._birth()
        fresh = self._begun() or fresh_cluster(self._config.birth)
        cluster = await steps.init(command, key, fresh)
        self._say(f"cluster {cluster.hex()} is born: queue manager {command.computer_name}")

    async def _birth(self) -> tuple[Provision, bytes]:
        birth = self._config.birth
        return await asyncio.to_thread(
            birth_of, self._config, birth.computer_name.upper(), birth.dns_name
        )

    def _silent(self, states: Mapping[str, State]) -> str:
        return ", ".join(name for name in self._founders if name not in states)
