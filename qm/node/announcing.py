"""Keeps the addresses of members as the cluster replicated them, and this node's own up to date."""

from typing import Final

from qm.model.commands import SetMember
from qm.model.queries import member_addresses
from qm.node.addresses import AddressBook, NodeAddress
from qm.node.config import NodeConfig
from qm.node.replicated import ReplicatedStore
from qm.store.cluster import Unavailable

REFRESH_EVERY_S: Final = 1.0


class Announcer:
    """See the module."""

    def __init__(
        self, replicated: ReplicatedStore, addresses: AddressBook, config: NodeConfig
    ) -> None:
        self._replicated = replicated
        self._addresses = addresses
        self._own = NodeAddress(
            config.host, config.raft.port, config.raft.relay_port, config.api.port
        )

    async def announce(self) -> None:
        """Take over what was replicated; correct what it says of this node."""
        self.refresh()
        name = self._replicated.node
        if self._addresses.replicated(name) != self._own and self._replicated.leadership.node:
            await self.set_address(name, self._own)

    async def set_address(self, name: str, address: NodeAddress) -> None:
        """Replicate where a node is. Raises Unavailable, OutcomeUnknown."""
        command = SetMember(
            name, address.host, address.raft_port, address.relay_port, address.api_port
        )
        (outcome,) = await self._replicated.propose(command)
        if outcome.status:
            raise Unavailable(f"the address of {name} is refused: {outcome.status:#010x}")
        self.refresh()

    async def forget(self, name: str) -> None:
        """Forget a node that left. Raises Unavailable, OutcomeUnknown."""
        await self._replicated.propose(SetMember(name, "", 0, 0, 0))
        self.refresh()

    def refresh(self) -> None:
        """Read the replicated addresses; connect to where members are now."""
        rows = member_addresses(self._replicated.view)
        fresh = {
            name: NodeAddress(row.host, row.raft_port, row.relay_port, row.api_port)
            for name, row in rows.items()
        }
        if self._addresses.replace(fresh):
            self._replicated.driver.renew_addresses()
