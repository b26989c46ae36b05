"""How nodes become a cluster, and how a node joins one: `qm cluster init` and `qm node join`.

Both call the relay endpoints of running nodes, with a node's certificate. Each step may be repeated
after a failure and then finds what is done already.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
import grpc.aio

from qm.cluster.membership import ChangeKind
from qm.model.values.commands import Provision, RaiseApplyVersion
from qm.node.config.schema import NodeConfig
from qm.node.membership import birth
from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.node.relay.outcome_codec import decode_outcome
from qm.pb import relay_pb2
from qm.store.codec import encode_command
from qm.wire.codes import ErrorCode
from raft.core.membership import name_and_incarnation

if TYPE_CHECKING:
    from qm.pb.relay_pb2_grpc import RelayAsyncStub

CALL_TIMEOUT_S: Final = 20.0
"""For one call; requests that a join depends on are repeated (ANSWER_WAIT_S)."""
REACH_WAIT_S: Final = 60.0
"""For nodes that are still starting."""
LEADER_WAIT_S: Final = 60.0
"""For a leader to be elected, and for the effect of what it was asked."""
ANSWER_WAIT_S: Final = 120.0
"""For a node that answered before: a machine may be busy, especially while a node starts up."""
CATCH_UP_WAIT_S: Final = 3_600.0
"""For a learner to receive a snapshot."""
POLL_S: Final = 0.2

Say = Callable[[str], None]
ReplyT = TypeVar("ReplyT")

_SILENT: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        # Of calls whose stream or connection ended without a status: "Stream removed".
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
"""Codes after which a repeated call may succeed."""


class JoinRefused(Exception):
    """It cannot be done; the text says why and what to do."""


class NoAnswer(JoinRefused):
    """The node does not answer: it is down, or busy."""


def is_membership_committed(state: relay_pb2.InspectReply) -> bool:
    """Return whether the members that a node knows are so for good: the entry that made them is
    committed. One that is not may go with its leader.
    """
    return state.membership_index <= state.commit


class Steps:
    """The calls of which birth and joining consist."""

    def __init__(self, config: NodeConfig, channels: Channels, say: Say) -> None:
        self._config = config
        self._channels = channels
        self._say = say

    # Birth

    async def init(self, provision: Provision, sealing_key: bytes, fresh: bytes = b"") -> bytes:
        """Make the configured members one cluster and a queue manager; return the cluster's id.

        `fresh`: the id, unless a birth was interrupted; empty = a random one. Members are adopted
        in the order of their names. Raises JoinRefused, also when there is a cluster already.
        """
        names = sorted(member.name for member in self._config.members)
        states = await self._reach(names)
        cluster = self._common_cluster(states) or fresh or secrets.token_bytes(16)
        founders = [f"{name}.1" for name in names]
        for name in names:
            request = relay_pb2.AdoptRequest(
                cluster=cluster,
                raft_id=f"{name}.1",
                founders=founders,
                sealing_key=sealing_key,
            )
            await self.adopt(name, request)
            self._say(f"{name} is a founder")
        await self.provision(provision)
        return cluster

    async def provision(self, provision: Provision) -> None:
        """Make the cluster a queue manager, once it has a leader. Raises JoinRefused."""
        names = sorted(member.name for member in self._config.members)
        leader = await self._leader(names)
        self._say(f"{leader} leads")
        await self._raise_version(leader, names)
        await self._provision(leader, provision)

    def _common_cluster(self, states: Mapping[str, relay_pb2.InspectReply]) -> bytes:
        """Return the cluster's id if a birth was interrupted, empty if there was none."""
        born = sorted(name for name, state in states.items() if state.is_provisioned)
        if born:
            raise JoinRefused(
                f"{', '.join(born)} belong to a cluster that is born already: a second birth would"
                " make two queue managers of one; use `qm node join` for a node that lacks"
            )
        clusters = {state.cluster for state in states.values() if state.cluster}
        if len(clusters) > 1:
            raise JoinRefused(
                "the nodes belong to different clusters: stop them and empty the data folders of"
                " those that are in the wrong one"
            )
        return clusters.pop() if clusters else b""

    async def _raise_version(self, leader: str, names: list[str]) -> None:
        """Have the cluster begin at the version that its founders know, if they all answer.

        The leader would find out by itself, but programs that were faster were told to upgrade.
        """
        states = await self.states(names)
        if len(states) < len(names):
            return
        known = min(state.command_version for state in states.values())
        if known > states[leader].apply_version:
            payload = encode_command(RaiseApplyVersion(known))
            await self._propose(leader, relay_pb2.ProposeRequest(payloads=[payload]))

    async def _provision(self, leader: str, provision: Provision) -> None:
        request = relay_pb2.ProposeRequest(
            payloads=[encode_command(provision), encode_command(birth.protection())]
        )
        reply = await self._propose(leader, request)
        outcome = decode_outcome(reply.outcomes[0])
        if outcome.status == ErrorCode.MQ_ERROR_MACHINE_EXISTS:
            raise JoinRefused("the cluster is a queue manager already")
        if outcome.status:
            raise JoinRefused(
                f"the queue manager is refused with {outcome.status:#010x}: are its name and its"
                " aliases valid?"
            )

    async def _propose(
        self, leader: str, request: relay_pb2.ProposeRequest
    ) -> relay_pb2.ProposeReply:
        """Propose, as soon as the leader serves."""
        end = asyncio.get_running_loop().time() + LEADER_WAIT_S
        while True:
            stub = await self._stub(leader)
            try:
                return await stub.Propose(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                is_early = error.code() is grpc.StatusCode.FAILED_PRECONDITION
                if not is_early or asyncio.get_running_loop().time() > end:
                    raise JoinRefused(f"{leader}: {error.details()}; run it again") from error
            await asyncio.sleep(POLL_S)

    # Joining

    async def join(self, sealing_key: bytes) -> str:
        """Make this configuration's node a voter of its seeds' cluster; return its id.

        A name that was a member before gets its next incarnation. Raises JoinRefused.
        """
        name = self._config.name
        seeds = [member.name for member in self._config.members if member.name != name]
        states = await self._reach([name], seeds)
        own = states[name]
        seed = await self._cluster_state(seeds)
        raft_id = own.raft_id or _next_id(name, seed)
        if own.cluster and own.cluster != seed.cluster:
            raise JoinRefused(
                f"{name} belongs to cluster {own.cluster.hex()}, the seeds to"
                f" {seed.cluster.hex()}: empty its data folder if that is meant"
            )
        if own.command_version < seed.apply_version:
            raise JoinRefused(
                f"the build of {name} knows apply version {own.command_version}, the cluster is at"
                f" {seed.apply_version}: upgrade {name}"
            )
        await self.adopt(
            name,
            relay_pb2.AdoptRequest(cluster=seed.cluster, raft_id=raft_id, sealing_key=sealing_key),
        )
        await self._enter(seeds, raft_id)
        await self._catch_up(seeds, raft_id)
        return raft_id

    async def leave(self) -> None:
        """Remove this configuration's node from the members for good. Raises JoinRefused."""
        name = self._config.name
        seeds = [member.name for member in self._config.members if member.name != name]
        change = relay_pb2.MemberChange(kind=ChangeKind.REMOVE.value, node=name)
        refusal = ""
        end = asyncio.get_running_loop().time() + LEADER_WAIT_S
        while asyncio.get_running_loop().time() < end:
            state = await self._cluster_state(seeds)
            if name not in map(_name, (*state.voters, *state.learners)):
                self._say(f"{name} is no longer a member")
                return
            if refusal:
                raise JoinRefused(refusal)
            refusal = await self._lead(state.node, change)
            await asyncio.sleep(POLL_S)
        raise JoinRefused(f"{name} is not removed: `qm cluster remove {name}` does it")

    async def _cluster_state(self, seeds: list[str]) -> relay_pb2.InspectReply:
        """Return the most advanced answer of a seed that belongs to a cluster with a leader."""
        end = asyncio.get_running_loop().time() + LEADER_WAIT_S
        while asyncio.get_running_loop().time() < end:
            states: list[relay_pb2.InspectReply] = []
            for seed in seeds:
                with contextlib.suppress(JoinRefused):
                    states.append(await self._inspect(seed))
            known = [state for state in states if state.cluster and state.leader]
            if known:
                return max(known, key=lambda state: (state.term, state.commit))
            await asyncio.sleep(POLL_S)
        raise JoinRefused("no seed belongs to a cluster that has a leader: see `members`")

    async def _enter(self, seeds: list[str], raft_id: str) -> None:
        """Have the leader add the node as a learner."""
        name, incarnation = name_and_incarnation(raft_id)
        state = await self._cluster_state(seeds)
        if raft_id in (*state.voters, *state.learners):
            return
        old = [node for node in (*state.voters, *state.learners) if _name(node) == name]
        change = relay_pb2.MemberChange(
            kind=(ChangeKind.REPLACE if old else ChangeKind.ADD).value,
            node=name,
            incarnation=incarnation,
            address=relay_pb2.Address(
                host=self._config.host,
                raft_port=self._config.raft.port,
                relay_port=self._config.raft.relay_port,
                api_port=self._config.api.port,
            ),
        )
        end = asyncio.get_running_loop().time() + LEADER_WAIT_S
        refusal = ""
        while raft_id not in (*state.voters, *state.learners):
            if refusal or asyncio.get_running_loop().time() > end:
                raise JoinRefused(
                    refusal or f"{raft_id} is not taken in: does the cluster have a majority?"
                )
            refusal = await self._lead(state.node, change)
            await asyncio.sleep(POLL_S)
            state = await self._cluster_state(seeds)
        self._say(f"{raft_id} is a learner" + (f" in the place of {old[0]}" if old else ""))

    async def _catch_up(self, seeds: list[str], raft_id: str) -> None:
        """Wait until the learner has what the leader has committed, then make it a voter."""
        name, refusal = _name(raft_id), ""
        end = asyncio.get_running_loop().time() + CATCH_UP_WAIT_S
        while asyncio.get_running_loop().time() < end:
            state = await self._cluster_state(seeds)
            own = await self._answer(name, self._inspect)
            if raft_id in state.voters:
                if is_membership_committed(state):
                    self._say(f"{raft_id} is a voter")
                    return
            elif refusal:
                raise JoinRefused(refusal)
            elif own.applied >= state.commit > 0:
                change = relay_pb2.MemberChange(kind=ChangeKind.PROMOTE.value, node=name)
                refusal = await self._lead(state.node, change)
            await asyncio.sleep(POLL_S)
        raise JoinRefused(f"{raft_id} does not catch up: is its log full of errors?")

    # Calls

    async def states(self, names: Iterable[str]) -> dict[str, relay_pb2.InspectReply]:
        """Return the answers of those of the named nodes that answer."""
        wanted = list(names)
        replies = await asyncio.gather(*map(self._inspect, wanted), return_exceptions=True)
        states: dict[str, relay_pb2.InspectReply] = {}
        for name, reply in zip(wanted, replies, strict=True):
            if isinstance(reply, relay_pb2.InspectReply):
                states[name] = reply
            elif not isinstance(reply, JoinRefused):
                raise reply
        return states

    async def _reach(
        self, required: list[str], wanted: list[str] | None = None
    ) -> dict[str, relay_pb2.InspectReply]:
        """Ask nodes for their state until all required ones, and one of `wanted`, have answered."""
        states: dict[str, relay_pb2.InspectReply] = {}
        end = asyncio.get_running_loop().time() + REACH_WAIT_S
        while True:
            errors: list[str] = []
            for name in dict.fromkeys((*required, *(wanted or ()))):
                if name in states:
                    continue
                try:
                    states[name] = await self._inspect(name)
                except JoinRefused as error:
                    errors.append(str(error))
            has_required = all(name in states for name in required)
            if has_required and (wanted is None or any(name in states for name in wanted)):
                return states
            if asyncio.get_running_loop().time() > end:
                raise JoinRefused("; ".join(sorted(errors)) + ": is `qm node run` running there?")
            await asyncio.sleep(POLL_S)

    async def _leader(self, names: list[str]) -> str:
        """Return the leader, once there is one."""
        end = asyncio.get_running_loop().time() + LEADER_WAIT_S
        while asyncio.get_running_loop().time() < end:
            for name in names:
                try:
                    state = await self._inspect(name)
                except JoinRefused:
                    continue
                if state.role == "leader":
                    return name
            await asyncio.sleep(POLL_S)
        raise JoinRefused("no node leads: can the nodes reach each other's `raft.port`?")

    async def _stub(self, name: str) -> "RelayAsyncStub":
        try:
            return await self._channels.stub(name)
        except Unreachable as error:
            raise NoAnswer(str(error)) from error

    async def _inspect(self, name: str) -> relay_pb2.InspectReply:
        stub = await self._stub(name)
        try:
            return await reply_to(
                stub.Inspect, relay_pb2.InspectRequest(), timeout_s=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            raise _refusal(name, error) from error

    async def _answer(self, name: str, ask: Callable[[str], Awaitable[ReplyT]]) -> ReplyT:
        """Ask a node until it answers. Raises JoinRefused."""
        end = asyncio.get_running_loop().time() + ANSWER_WAIT_S
        while True:
            try:
                return await ask(name)
            except NoAnswer:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(POLL_S)

    async def adopt(self, name: str, request: relay_pb2.AdoptRequest) -> None:
        """Give a running node an identity; a repeated call succeeds. Raises JoinRefused."""

        async def ask(name: str) -> None:
            stub = await self._stub(name)
            try:
                await reply_to(stub.Adopt, request, timeout_s=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise _refusal(name, error) from error

        await self._answer(name, ask)

    async def _lead(self, node: str, change: relay_pb2.MemberChange) -> str:
        """Have the leader change the members; return why it refuses, or nothing.

        The caller looks whether it is done, and repeats: the leader may be busy, or another one by
        now. A refusal counts only if it is not: an earlier call whose answer was lost may have
        done it.
        """
        request = relay_pb2.LeadRequest(change_members=change)
        try:
            stub = await self._stub(node)
            await reply_to(stub.Lead, request, timeout_s=CALL_TIMEOUT_S)
        except NoAnswer:
            pass
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                return f"{node}: {error.details()}"
        return ""


def _refusal(name: str, error: grpc.aio.AioRpcError) -> JoinRefused:
    kind = NoAnswer if error.code() in _SILENT else JoinRefused
    return kind(f"{name}: {error.details()}")


def _next_id(name: str, seed: relay_pb2.InspectReply) -> str:
    """Return the first id of a name above all present and former members."""
    known = [0]
    for node in (*seed.voters, *seed.learners, *seed.retired):
        of_name, incarnation = name_and_incarnation(node)
        if of_name == name:
            known.append(incarnation)
    return f"{name}.{max(known) + 1}"


def _name(node: str) -> str:
    return name_and_incarnation(node)[0]
