"""Keeps the addresses of members as the cluster replicated them, and this node's own up to date.

The replicated address of a name also shows which process the name belongs to. A process that finds
another one serving there with the same identity (a copied data folder, a second release on the
first one's volumes) came second, and ends.
"""

import asyncio
from typing import Final

import grpc.aio

from qm.cluster.cluster import Unavailable
from qm.model.queries import member_addresses
from qm.model.values.commands import SetMember
from qm.node.config.addresses import AddressBook, NodeAddress, address_of
from qm.node.config.schema import NodeConfig
from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.node.replica.replicated_store import ReplicatedStore
from qm.pb import relay_pb2
from raft.core.membership import name_and_incarnation
from raft.identity import IdentityRefused

REFRESH_EVERY_S: Final = 1.0
INSPECT_TIMEOUT_S: Final = 2.0


class Announcer:
    """Maintains the replicated addresses, this node's own included."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        addresses: AddressBook,
        channels: Channels,
        config: NodeConfig,
    ) -> None:
        self._replicated = replicated
        self._addresses = addresses
        self._channels = channels
        self._own = address_of(config)

    async def announce(self) -> None:
        """Take over the replicated addresses; correct this node's own.

        Raises IdentityRefused as `refuse_second` does.
        """
        self.refresh()
        name = self._replicated.node
        has_leader = self._replicated.leadership.node is not None
        is_known = self._addresses.replicated(name) == self._own
        if not (has_leader and is_known):
            await self.refuse_second()
        if has_leader and not is_known:
            await self.set_address(name, self._own)

    async def refuse_second(self) -> None:
        """Look for a process with this node's identity at the replicated address of this node.

        Raises IdentityRefused if there is one. Takes a second if members do not answer.
        """
        name, identity = self._replicated.node, self._replicated.config
        configuration = self._replicated.configuration
        members = configuration.voters + configuration.learners
        others = dict.fromkeys(name_and_incarnation(node)[0] for node in members)
        others.pop(name, None)
        claims = dict.fromkeys([self._addresses.replicated(name)])
        for reply in await asyncio.gather(*map(self.inspect, others)):
            if reply.cluster == identity.cluster and name in reply.addresses:
                claims[NodeAddress.decoded(reply.addresses[name])] = None
        for claim in claims:
            if claim in (None, self._own):
                continue
            reply = await self.inspect(name, claim)
            where = NodeAddress.decoded(reply.address)
            if where == self._own:  # a former address of this process
                continue
            if (reply.cluster, reply.raft_id) == (identity.cluster, identity.node):
                raise IdentityRefused(
                    f"{identity.node} of cluster {identity.cluster.hex()} runs at {where.host}"
                    " already: a data folder serves one process; stop the other, or empty this"
                    " folder and join"
                )

    async def inspect(self, name: str, at: NodeAddress | None = None) -> relay_pb2.InspectReply:
        """Ask a node for its state; return an empty reply if it does not answer."""
        try:
            stub = await self._channels.stub(name, at.relay if at is not None else None)
            return await reply_to(
                stub.Inspect, relay_pb2.InspectRequest(), timeout_s=INSPECT_TIMEOUT_S
            )
        except (Unreachable, grpc.aio.AioRpcError):
            return relay_pb2.InspectReply()

    async def set_address(self, name: str, address: NodeAddress) -> None:
        """Replicate a node's address. Raises Unavailable, OutcomeUnknown."""
        command = SetMember(
            name, address.host, address.raft_port, address.relay_port, address.api_port
        )
        (outcome,) = await self._replicated.propose(command)
        if outcome.status:
            raise Unavailable(f"the address of {name} is refused: {outcome.status:#010x}")
        self.refresh()

    async def forget(self, name: str) -> None:
        """Remove the address of a node that left. Raises Unavailable, OutcomeUnknown."""
        await self._replicated.propose(SetMember(name, "", 0, 0, 0))
        self.refresh()

    def refresh(self) -> None:
        """Read the replicated addresses; connect to members at their new ones."""
        if self.read():
            self._replicated.driver.renew_addresses()

    def read(self) -> bool:
        """Read the replicated addresses; return whether they changed."""
        rows = member_addresses(self._replicated.view)
        fresh = {
            name: NodeAddress(row.host, row.raft_port, row.relay_port, row.api_port)
            for name, row in rows.items()
        }
        return self._addresses.replace(fresh)
