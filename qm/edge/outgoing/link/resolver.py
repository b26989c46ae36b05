"""Finds the addresses where a destination's queue manager may be [MS-MQQB 3.1.5.2.1, 3.1.7.4].

Format names carry no port (DESIGN section 7), so only addresses are looked up. A direct name
contains the host; a private name contains the queue manager's GUID, which the configuration maps
to an address. Routing by other servers is not offered.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from typing_extensions import override

from qm.edge.outgoing.limits import RESOLVING_MAX
from qm.edge.outgoing.link.destination_rules import EVERYWHERE, DestinationRules
from qm.edge.outgoing.link.lookups import Lookups
from qm.names.capability import check_transport
from qm.names.direct import AnyDirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, PrivateName
from qm.names.grammar import ip_literal
from qm.names.guid import guid_text
from qm.session import ConnectionStatus, NextHop
from qm.wire.guid import GUID_NULL, Guid


class Unresolved(Exception):
    """There is no next hop; the text says what to do about it."""

    def __init__(self, status: ConnectionStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Resolver(Protocol):
    """Looks host names up."""

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a host name or address, best first. Raises OSError."""


class SystemResolver(Resolver):
    """Asks the operating system, a few requests at a time."""

    def __init__(self, count: int = RESOLVING_MAX) -> None:
        self._lookups = Lookups(count)

    @override
    async def addresses(self, host: str) -> Sequence[str]:
        """Ask the system's resolver. Raises TimeoutError, an OSError, after RESOLVE_TIMEOUT_S."""
        literal = ip_literal(host)
        return [str(literal)] if literal is not None else await self._lookups.addresses(host)


class Destinations:
    """Finds the next hops of outgoing queues and of peers that something is owed to."""

    def __init__(
        self,
        resolver: Resolver,
        peers: Mapping[Guid, str],
        rules: DestinationRules = EVERYWHERE,
        named_resolver: Resolver | None = None,
        directory: Callable[[Guid], Sequence[str]] = lambda _: (),
    ) -> None:
        """`peers`: queue manager GUID -> host name or address, from the configuration, to which
        `rules` do not apply; `named_resolver`: for what peers named, the same without it.
        `directory`: where other queue managers are, for GUIDs that are not among the peers.
        """
        self._named_resolver = named_resolver or resolver
        self._directory = directory
        self._rules = rules
        self._resolver = resolver
        self._peers = peers

    def address_of(self, guid: Guid) -> str:
        """Return a queue manager's address in the configuration, "" if there is none."""
        return self._peers.get(guid, "")

    async def next_hops(self, name: FormatName, *, is_named_by_peer: bool = False) -> list[NextHop]:
        """Return the next hops of a destination. Raises Unresolved."""
        if isinstance(name, AnyDirectName):
            try:
                check_transport(name)
            except QueueNameError as error:
                raise Unresolved(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, str(error)) from None
            return await self.hops_at(name.address.host, is_named_by_peer=is_named_by_peer)
        if isinstance(name, PrivateName):
            return await self.hops_of(name.guid, "")
        raise Unresolved(
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
            "only direct and private format names have a destination of their own",
        )

    async def hops_of(self, guid: Guid, address: str) -> list[NextHop]:
        """Return the next hops of a queue manager that is known by GUID, seen at `address`."""
        host = self.address_of(guid) or address
        if not host and (listed := self._directory(guid)):
            return await self._listed_hops(listed, guid)
        if not host:
            raise Unresolved(
                ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
                f"the address of queue manager {guid_text(guid)} is not known: add it to [peers]"
                " or to the directory (`qm directory manager`)",
            )
        return await self.hops_at(host, guid, is_named_here=guid in self._peers)

    async def _listed_hops(self, hosts: Sequence[str], guid: Guid) -> list[NextHop]:
        """Return the next hops of all hosts that can be resolved. Raises Unresolved for none."""
        found: list[NextHop] = []
        failure: Unresolved | None = None
        for host in hosts:
            try:
                found += await self.hops_at(host, guid)
            except Unresolved as error:
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    async def hops_at(
        self,
        host: str,
        guid: Guid = GUID_NULL,
        *,
        is_named_here: bool = False,
        is_named_by_peer: bool = False,
    ) -> list[NextHop]:
        """Return the next hops of a host. Raises Unresolved."""
        resolver = self._named_resolver if is_named_by_peer else self._resolver
        try:
            found = await resolver.addresses(host)
        except OSError as error:
            text = f"host {host!r} has no address: {error}"
            raise Unresolved(ConnectionStatus.DNS_FAILURE, text) from None
        if not found:
            raise Unresolved(ConnectionStatus.DNS_FAILURE, f"host {host!r} has no address")
        if not is_named_here:
            allowed = [address for address in found if not self._rules.denies(address)]
            if not allowed:
                raise Unresolved(
                    ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
                    f"nothing is sent to {host!r} ({', '.join(found)}): `outgoing.allow` in the"
                    " configuration permits it",
                )
            found = allowed
        return [NextHop(address, host, guid) for address in found]
