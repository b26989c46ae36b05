"""Which addresses this cluster may connect to. Peers name destinations, in queues for
administration and responses, and must not make it connect to services of its own machine.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

import msgspec

Network: TypeAlias = IPv4Network | IPv6Network
LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
DENIED: Final[tuple[Network, ...]] = (
    *map(ip_network, ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")),
    *map(ip_network, ("::/128", "fe80::/10", "ff00::/8")),
)
"""Addresses without a queue manager: unspecified, link-local, multicast, reserved, broadcast."""


class DestinationRules(msgspec.Struct, frozen=True):
    """Networks; what is allowed wins over what is denied."""

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()

    def denies(self, address: str) -> bool:
        """Return whether nothing may be sent to a literal address."""
        place = ip_address(address.partition("%")[0])
        mapped = getattr(place, "ipv4_mapped", None)
        place = mapped or place  # ::ffff:127.0.0.1 is 127.0.0.1

        def is_in(networks: Sequence[Network]) -> bool:
            return any(place in network for network in networks)

        return is_in(self.deny) and not is_in(self.allow)


EVERYWHERE: Final = DestinationRules()


def rules_of(allow: Sequence[str], deny: Sequence[str], own: Sequence[str]) -> DestinationRules:
    """Return the rules of a configuration: the default denials, and its additions.

    `own`: addresses at which this node serves; loopback is denied unless one of them is loopback.
    Raises ValueError.
    """
    denied = [*DENIED, *map(ip_network, deny)]
    if not any(ip_address(address).is_loopback for address in own):
        denied += LOOPBACK
    return DestinationRules(tuple(map(ip_network, allow)), tuple(denied))
