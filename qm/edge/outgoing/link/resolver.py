"""Finds the addresses where a destination's queue manager may be [MS-MQQB 3.1.5.2.1, 3.1.7.4].

Format names carry no port (DESIGN section 7), so only addresses are looked up. A direct name
contains the host; a private name contains the queue manager's GUID, which the configuration maps
to an address. Routing by other servers is not offered.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Protocol

from typing_extensions import override

from qm.edge.outgoing.limits import RESOLVE_TIMEOUT_S, RESOLVING_MAX
from qm.edge.outgoing.link.destination_rules import EVERYWHERE, DestinationRules
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
    """Asks the operating system, a few requests at a time: each occupies a thread."""

    def __init__(self) -> None:
        self._gate = asyncio.Semaphore(RESOLVING_MAX)

    @override
    async def addresses(self, host: str) -> Sequence[str]:
        """Ask the system's resolver. Raises TimeoutError, an OSError, after RESOLVE_TIMEOUT_S."""
        literal = ip_literal(host)
        if literal is not None:
            return [str(literal)]
        async with self._gate:
            asked = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = await asyncio.wait_for(asked, RESOLVE_TIMEOUT_S)
        return list(dict.fromkeys(str(place[0]) for *_, place in found))


class Destinations:
    """Finds the next hops of outgoing queues and of peers that something is owed to."""

    def __init__(
        self,
        resolver: Resolver,
        peers: Mapping[Guid, str],
        rules: DestinationRules = EVERYWHERE,
    ) -> None:
        """`peers`: queue manager GUID -> host name or address, from the configuration, to which
        `rules` do not apply.
        """
        self._rules = rules
        self._resolver = resolver
        self._peers = peers

    def address_of(self, guid: Guid) -> str:
        """Return a queue manager's address in the configuration, "" if there is none."""
        return self._peers.get(guid, "")

    async def next_hops(self, name: FormatName) -> list[NextHop]:
        """Return the next hops of a destination. Raises Unresolved."""
        if isinstance(name, AnyDirectName):
            try:
                check_transport(name)
            except QueueNameError as error:
                raise Unresolved(ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE, str(error)) from None
            return await self.hops_at(name.address.host)
        if isinstance(name, PrivateName):
            return await self.hops_of(name.guid, "")
        raise Unresolved(
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
            "only direct and private format names have a destination of their own",
        )

    async def hops_of(self, guid: Guid, address: str) -> list[NextHop]:
        """Return the next hops of a queue manager that is known by GUID, seen at `address`."""
        host = self.address_of(guid) or address
        if not host:
            raise Unresolved(
                ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
                f"the address of queue manager {guid_text(guid)} is not known: add it to [peers]",
            )
        return await self.hops_at(host, guid, is_named_here=guid in self._peers)

    async def hops_at(
        self, host: str, guid: Guid = GUID_NULL, *, is_named_here: bool = False
    ) -> list[NextHop]:
        """Return the next hops of a host. Raises Unresolved."""
        try:
            found = await self._resolver.addresses(host)
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
