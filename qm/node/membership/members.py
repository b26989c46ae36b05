"""Implements `qm.cluster.membership.Membership`, the members of the cluster and changes of them,
and `Peers`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import grpc
import grpc.aio
from typing_extensions import override

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.cluster.membership import (
    Change,
    ChangeKind,
    ChangeRefused,
    Member,
    Membership,
    NodeStatus,
)
from qm.node.config.addresses import NodeAddress
from qm.node.membership.address_announcer import Announcer
from qm.node.membership.peers import ClockReading, Peers
from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.node.relay.forwarding import NotTaken
from qm.node.replica.replicated_store import ReplicatedStore
from qm.pb import relay_pb2
from raft.core.core import Busy, NotLeader
from raft.core.membership import (
    AddLearner,
    BadChange,
    MemberChange,
    PromoteLearner,
    RemoveMember,
    ReplaceMember,
    name_and_incarnation,
)
from raft.driver import Stopping
from raft.proposals import CommitUnknown as ChangeUnknown
from raft.proposals import ProposalLost
from raft.types import NodeId

INSPECT_TIMEOUT_MS: Final = 1_000
LEAD_TIMEOUT_MS: Final = 15_000
"""For a member change to be committed, or the other node to be elected after a transfer."""


class Members(Membership, Peers):
    """The members as this node knows them."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        channels: Channels,
        announcer: Announcer,
        inspect_here: Callable[[], relay_pb2.InspectReply],
    ) -> None:
        """`inspect_here`: this node's own answer to Inspect."""
        self._announcer = announcer
        self._replicated = replicated
        self._channels = channels
        self._inspect_here = inspect_here

    # Membership

    @property
    @override
    def members(self) -> Sequence[Member]:
        configuration = self._replicated.configuration
        return [
            *(self._member(node, is_voter=True) for node in configuration.voters),
            *(self._member(node, is_voter=False) for node in configuration.learners),
        ]

    @property
    @override
    def left(self) -> Mapping[str, int]:
        return dict(map(name_and_incarnation, self._replicated.configuration.retired))

    def others(self) -> list[str]:
        """Return the names of the other members."""
        own = self._replicated.node
        return [member.name for member in self.members if member.name != own]

    def _member(self, node: NodeId, *, is_voter: bool) -> Member:
        name, incarnation = name_and_incarnation(node)
        address = self._replicated.addresses.get(name)
        if address is None:
            return Member(name, incarnation, is_voter, "")
        return Member(name, incarnation, is_voter, address.host, address.api_port)

    @override
    def majority(self) -> int:
        """Return how many of the voters are a majority."""
        return len(self._replicated.configuration.voters) // 2 + 1

    @override
    def count(self) -> int:
        """Return the number of members, learners included."""
        configuration = self._replicated.configuration
        return len(configuration.voters) + len(configuration.learners)

    @override
    async def inspect(self, node: str) -> NodeStatus:
        if self._id_of(node) is None:
            raise KeyError(node)
        reply = await self.inspect_reply(node)
        return NodeStatus(
            node=reply.node,
            role=reply.role,
            term=reply.term,
            leader=reply.leader or None,
            commit=reply.commit,
            applied=reply.applied,
            wall_clock_ms=reply.wall_clock_ms,
            digest=reply.digest,
            version=reply.version,
            command_version=reply.command_version,
        )

    async def inspect_reply(self, node: str) -> relay_pb2.InspectReply:
        """Ask a node, which may be this one, for its state. Raises Unavailable."""
        if node == self._replicated.node:
            return self._inspect_here()
        try:
            stub = await self._channels.stub(node)
            return await reply_to(
                stub.Inspect, relay_pb2.InspectRequest(), timeout_s=INSPECT_TIMEOUT_MS / 1000
            )
        except (Unreachable, grpc.aio.AioRpcError) as error:
            raise Unavailable(f"{node} does not answer: {error}") from error

    @override
    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        """Ask every member at once; return the answers that came."""
        names = [member.name for member in self.members]
        replies = await asyncio.gather(*map(self.inspect_reply, names), return_exceptions=True)
        return {
            name: reply
            for name, reply in zip(names, replies, strict=True)
            if isinstance(reply, relay_pb2.InspectReply)
        }

    @override
    async def read_clocks(self, enough: int) -> dict[str, ClockReading]:
        asked = {
            member.name: asyncio.create_task(self._read_clock(member.name))
            for member in self.members
        }
        readings: dict[str, ClockReading] = {}
        waiting = set(asked.values())
        try:
            while waiting and len(readings) < enough:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                readings = {
                    name: task.result()
                    for name, task in asked.items()
                    if task.done() and task.exception() is None
                }
        finally:
            for task in asked.values():
                task.cancel()
        return readings

    async def _read_clock(self, node: str) -> ClockReading:
        asked_ms = time.monotonic_ns() // 1_000_000
        reply = await self.inspect_reply(node)
        return ClockReading(reply.wall_clock_ms, asked_ms, time.monotonic_ns() // 1_000_000)

    @override
    async def change_members(self, change: Change) -> None:
        address = relay_pb2.Address(
            host=change.host,
            raft_port=change.raft_port,
            relay_port=change.relay_port,
            api_port=change.api_port,
        )
        request = relay_pb2.LeadRequest(
            change_members=relay_pb2.MemberChange(
                kind=change.kind.value,
                node=change.node,
                incarnation=change.incarnation,
                address=address,
            )
        )
        await self.ask_leader(request)

    @override
    async def transfer(self, to: str) -> None:
        try:
            await self.ask_leader(relay_pb2.LeadRequest(transfer_to=to))
        except OutcomeUnknown as error:
            raise Unavailable(f"it is not known whether {to} took over: {error}") from error

    async def ask_leader(self, request: relay_pb2.LeadRequest) -> None:
        """Have the leader do it. Raises Unavailable, OutcomeUnknown, ChangeRefused."""
        leadership = self._replicated.leadership
        if leadership.node is None:
            raise Unavailable("there is no leader")
        try:
            if leadership.is_here:
                await self._lead(request)
                return
            if request.is_passed_on:
                raise Unavailable(f"{self._replicated.node} does not lead")
            request.is_passed_on = True
            stub = await self._channels.stub(leadership.node)
            await reply_to(stub.Lead, request, timeout_s=LEAD_TIMEOUT_MS / 1000)
        except (NotTaken, Unreachable) as error:
            raise Unavailable(str(error)) from error
        except grpc.aio.AioRpcError as error:
            kind = _ERRORS.get(error.code(), OutcomeUnknown)
            raise kind(error.details()) from error

    # The leader's side

    async def _lead(self, request: relay_pb2.LeadRequest) -> None:
        driver = self._replicated.driver
        try:
            if request.WhichOneof("kind") == "transfer_to":
                await driver.transfer(self._member_id(request.transfer_to))
            else:
                await self._change_members(request.change_members)
        except (NotLeader, Stopping, ProposalLost) as error:
            raise NotTaken(str(error)) from error
        except BadChange as error:
            raise ChangeRefused(str(error)) from error
        except Busy as error:
            raise Unavailable(str(error)) from error
        except ChangeUnknown as error:
            raise OutcomeUnknown(str(error)) from error

    async def _change_members(self, wanted: relay_pb2.MemberChange) -> None:
        change = self._change(wanted)
        if isinstance(change, AddLearner | ReplaceMember):
            where = wanted.address
            if not (where.host and where.raft_port and where.relay_port):
                raise ChangeRefused(f"where is {wanted.node}? Give its host and its ports")
            # This comes first, so that this node and the next leader know where to send entries.
            address = NodeAddress(where.host, where.raft_port, where.relay_port, where.api_port)
            if isinstance(change, ReplaceMember):
                await self._refuse_living(change.lost, address)
            await self._announcer.set_address(wanted.node, address)
        await self._replicated.driver.change_members(change)
        if isinstance(change, RemoveMember):
            await self._announcer.forget(wanted.node)

    async def _refuse_living(self, old: NodeId, fresh: NodeAddress) -> None:
        """Refuse to replace a node that runs elsewhere: two machines would have one name."""
        name, _ = name_and_incarnation(old)
        held = self._replicated.addresses.get(name)
        if held is None or held.relay == fresh.relay:
            return  # the node that runs there is the one that asks
        try:
            reply = await self.inspect_reply(name)
        except Unavailable:
            return
        if reply.raft_id == old:
            raise ChangeRefused(
                f"{old} runs at {held.host}: stop it first if the node at {fresh.host} is to take"
                " its place, or give that one a name of its own"
            )

    def _change(self, change: relay_pb2.MemberChange) -> MemberChange:
        try:
            kind = ChangeKind(change.kind)
        except ValueError:
            raise ChangeRefused(f"{change.kind!r} is not a change of members") from None
        fresh = f"{change.node}.{change.incarnation}"
        if kind is ChangeKind.ADD:
            return AddLearner(fresh)
        if kind is ChangeKind.REPLACE:
            return ReplaceMember(self._member_id(change.node), fresh)
        if kind is ChangeKind.PROMOTE:
            return PromoteLearner(self._member_id(change.node))
        return RemoveMember(self._member_id(change.node))

    def _member_id(self, name: str) -> NodeId:
        node = self._id_of(name)
        if node is None:
            raise ChangeRefused(f"{name} is not a member; `qm cluster members` lists them")
        return node

    def _id_of(self, name: str) -> NodeId | None:
        configuration = self._replicated.configuration
        for node in configuration.voters + configuration.learners:
            if name_and_incarnation(node)[0] == name:
                return node
        return None


_ERRORS: Final[dict[grpc.StatusCode, type[Exception]]] = {
    grpc.StatusCode.FAILED_PRECONDITION: Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unavailable,
    grpc.StatusCode.INVALID_ARGUMENT: ChangeRefused,
}
