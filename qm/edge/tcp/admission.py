"""How many connections and sessions a node accepts, in total, per address and per queue manager.

Before the handshake a peer is known by its address, after it by a claimed GUID. Neither is proven,
so the limits protect this node's memory, not a peer's identity.
"""

import ipaddress
from collections import Counter
from collections.abc import Hashable
from typing import Final, TypeVar

from qm.edge.limits import FEW_SESSIONS_COUNT
from qm.edge.settings import EdgeSettings
from qm.wire.guid import Guid

TOO_MANY: Final = "sessions_max"
TOO_MANY_OF_ADDRESS: Final = "sessions_per_address_max"
KEPT_FOR_OTHERS: Final = "sessions_kept"
"""The last quarter is for addresses with few connections."""

_HOST_PREFIX_BITS: Final = 64

KeyT = TypeVar("KeyT", bound=Hashable)


class Admission:
    """Counts what is open and decides what may be added."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._connections = 0
        self._by_address: Counter[str] = Counter()
        self._by_queue_manager: Counter[Guid] = Counter()

    def refusal(self, address: str) -> str | None:
        """Return the limit that forbids another connection from an address, or None."""
        settings, own = self._settings, self._by_address.get(place_of(address), 0)
        if self._connections >= settings.sessions_max:
            return TOO_MANY
        if own >= settings.sessions_per_address_max:
            return TOO_MANY_OF_ADDRESS
        is_scarce = self._connections >= settings.sessions_max * 3 // 4
        return KEPT_FOR_OTHERS if is_scarce and own >= FEW_SESSIONS_COUNT else None

    def enter(self, address: str) -> None:
        """A connection was accepted."""
        self._connections += 1
        self._by_address[place_of(address)] += 1

    def leave(self, address: str) -> None:
        """It is gone."""
        self._connections -= 1
        _decrement(self._by_address, place_of(address))

    def admit(self, queue_manager: Guid, pinged: bool) -> bool:
        """Return whether another session may claim this GUID; `SessionConfig.admit`."""
        del pinged
        limit = self._settings.sessions_per_queue_manager_max
        return self._by_queue_manager.get(queue_manager, 0) < limit

    def join(self, queue_manager: Guid) -> bool:
        """A session is open; False, and not counted, if others reached the limit first."""
        if not self.admit(queue_manager, False):
            return False
        self._by_queue_manager[queue_manager] += 1
        return True

    def part(self, queue_manager: Guid) -> None:
        """A session that joined has ended."""
        _decrement(self._by_queue_manager, queue_manager)


def place_of(address: str) -> str:
    """Return the unit that is limited: an IPv4 address, or an IPv6 /64, all of one host's."""
    if ":" not in address:
        return address
    literal = address.partition("%")[0]
    return str(ipaddress.IPv6Network((literal, _HOST_PREFIX_BITS), strict=False))


def _decrement(counter: Counter[KeyT], key: KeyT) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
