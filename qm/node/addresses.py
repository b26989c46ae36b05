"""Where the nodes are: founders and seeds from the configuration, the others as they said."""

from collections.abc import Iterable

import msgspec

from qm.node.config import MemberSection


class NodeAddress(msgspec.Struct, frozen=True):
    """A node's host and ports."""

    host: str
    raft_port: int
    relay_port: int
    api_port: int = 0
    """0 while only the configuration knows the node."""

    @property
    def raft(self) -> str:
        """`host:port` of its consensus endpoint."""
        return host_and_port(self.host, self.raft_port)

    @property
    def relay(self) -> str:
        """`host:port` of its relay endpoint."""
        return host_and_port(self.host, self.relay_port)


class AddressBook:
    """By node name. What the cluster has replicated wins over this node's configuration."""

    def __init__(self, configured: Iterable[MemberSection]) -> None:
        self._configured = {
            member.name: NodeAddress(member.host, member.raft_port, member.relay_port)
            for member in configured
        }
        self._replicated: dict[str, NodeAddress] = {}

    def get(self, name: str) -> NodeAddress | None:
        """Return a node's address, None if nobody told."""
        return self._replicated.get(name) or self._configured.get(name)

    def relay_of(self, name: str) -> str | None:
        """Return `host:port` of a node's relay endpoint."""
        address = self.get(name)
        return None if address is None else address.relay

    def replicated(self, name: str) -> NodeAddress | None:
        """Return a node's address as the cluster replicated it."""
        return self._replicated.get(name)

    def replace(self, replicated: dict[str, NodeAddress]) -> bool:
        """Take over the replicated rows; return whether they changed."""
        has_changed = replicated != self._replicated
        self._replicated = replicated
        return has_changed


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
