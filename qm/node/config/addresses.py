"""Addresses of nodes: of founders and seeds from the configuration, of others as replicated."""

from collections.abc import Iterable, Mapping

import msgspec

from qm.names.guid import guid_from_text
from qm.node.config.schema import MemberSection, NodeConfig
from qm.pb import relay_pb2
from qm.wire.guid import Guid


class NodeAddress(msgspec.Struct, frozen=True):
    """A node's host and ports."""

    host: str
    raft_port: int
    relay_port: int
    api_port: int = 0
    """0 while only the configuration gives the node's address."""

    def encoded(self) -> relay_pb2.Address:
        """Return it as a message for other nodes."""
        return relay_pb2.Address(
            host=self.host,
            raft_port=self.raft_port,
            relay_port=self.relay_port,
            api_port=self.api_port,
        )

    @staticmethod
    def decoded(address: relay_pb2.Address) -> "NodeAddress":
        """Return the address that a message holds."""
        return NodeAddress(address.host, address.raft_port, address.relay_port, address.api_port)

    @property
    def raft(self) -> str:
        """`host:port` of its Raft endpoint."""
        return host_and_port(self.host, self.raft_port)

    @property
    def relay(self) -> str:
        """`host:port` of its relay endpoint."""
        return host_and_port(self.host, self.relay_port)


def address_of(config: NodeConfig) -> NodeAddress:
    """Return the address that a node's configuration gives it."""
    return NodeAddress(config.host, config.raft.port, config.raft.relay_port, config.api.port)


def peer_hosts(config: NodeConfig) -> dict[Guid, tuple[str, ...]]:
    """Return the addresses, host names and networks of each queue manager in `peers`."""
    found = {}
    for text, hosts in config.peers.items():
        guid = guid_from_text(text)
        if guid is not None:
            found[guid] = (hosts,) if isinstance(hosts, str) else hosts
    return found


class AddressBook:
    """Addresses by node name. A replicated address wins over this node's configuration."""

    def __init__(self, configured: Iterable[MemberSection]) -> None:
        self._configured = {
            member.name: NodeAddress(member.host, member.raft_port, member.relay_port)
            for member in configured
        }
        self._replicated: dict[str, NodeAddress] = {}

    def get(self, name: str) -> NodeAddress | None:
        """Return a node's address, None if it is not known."""
        return self._replicated.get(name) or self._configured.get(name)

    def relay_of(self, name: str) -> str | None:
        """Return `host:port` of a node's relay endpoint."""
        address = self.get(name)
        return None if address is None else address.relay

    @property
    def members(self) -> Mapping[str, NodeAddress]:
        """Every address that the cluster replicated, by name."""
        return self._replicated

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
