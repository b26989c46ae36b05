"""Limits on connections of gRPC's listeners by address: gRPC itself has one for all.

It accepts in threads of its own and shows nobody its sockets. So this process looks at its own
descriptors from time to time, and shuts down connections of addresses that hold too many: those
that have said least, since strangers do not get beyond a handshake.
"""

import asyncio
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from qm.api import server as api
from qm.node.relay import channels
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from raft.transport.accepting import place_of, plain_address

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
_OWN: Final = Path("/proc/self/fd")
_TCP_INFO_BYTES: Final = 136
_RECEIVED: Final = struct.Struct("=Q")
_RECEIVED_AT: Final = 128
"""Of tcpi_bytes_received in `struct tcp_info` of linux/tcp.h, whose first byte is the state."""
_ESTABLISHED: Final = 1


class GrpcLimits(msgspec.Struct, frozen=True):
    """Of one listener. An address is an IPv4 address or an IPv6 /64."""

    total: int
    per_address: int
    few: int
    """The last quarter of `total` is for addresses with fewer than this."""


API_LIMITS: Final = GrpcLimits(api.CONNECTIONS_MAX, api.CONNECTIONS_MAX * 3 // 4, 64)
"""Behind a balancer many clients have one address."""
RELAY_LIMITS: Final = GrpcLimits(channels.CONNECTIONS_MAX, 128, 8)


class _Connection(msgspec.Struct, frozen=True):
    descriptor: int
    inode: int
    place: str
    received_bytes: int


class GrpcGuard:
    """Applies the limits of this process's listeners."""

    def __init__(self, limits: Mapping[int, GrpcLimits], metrics: Metrics) -> None:
        """`limits`: by port."""
        self._limits = limits
        self._ended = metrics.counter("quorate_grpc_connections_ended_total")
        self._log = LimitedLog(logger, monotonic)

    async def look(self) -> None:
        """Shut down what is too much."""
        for port, place in await asyncio.to_thread(self._end_excess):
            self._ended.labels(port=str(port)).inc()
            text = "too many connections of one address: one that said little is ended"
            self._log.warning("connections", text, peer=place, port=port)

    def _end_excess(self) -> list[tuple[int, str]]:
        by_port: dict[int, list[_Connection]] = {port: [] for port in self._limits}
        for port, connection in _connections(frozenset(self._limits)):
            by_port[port].append(connection)
        return [
            (port, connection.place)
            for port, found in by_port.items()
            for connection in _chosen(found, self._limits[port])
            if _shut_down(connection)
        ]


def excess(counts: Mapping[str, int], limits: GrpcLimits) -> dict[str, int]:
    """Return how many connections of which addresses are too many."""
    left = {place: min(count, limits.per_address) for place, count in counts.items()}
    too_many = sum(left.values()) - limits.total * 3 // 4
    while too_many > 0:
        place, most = max(left.items(), key=lambda item: item[1])
        if most < limits.few:
            break
        second = max((count for one, count in left.items() if one != place), default=0)
        cut = min(too_many, max(most - max(second, limits.few - 1), 1))
        left[place] -= cut
        too_many -= cut
    return {place: count - left[place] for place, count in counts.items() if count > left[place]}


def _chosen(found: list[_Connection], limits: GrpcLimits) -> Iterator[_Connection]:
    wanted = excess(Counter(one.place for one in found), limits)
    if wanted:
        for one in sorted(found, key=lambda one: one.received_bytes):
            if wanted.get(one.place, 0):
                wanted[one.place] -= 1
                yield one


def _connections(ports: frozenset[int]) -> Iterator[tuple[int, _Connection]]:
    """Yield the connections of this process to its own ports."""
    for name in os.listdir(_OWN):
        descriptor = int(name)
        try:
            # Borrowed for a moment, closed by nobody here; names of both kinds fit into IPv6's.
            borrowed = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, descriptor)
        except OSError:  # gone meanwhile
            continue
        try:
            local = borrowed.getsockname()
            if not isinstance(local, tuple) or local[1] not in ports:
                continue
            address = borrowed.getpeername()[0]
            info: bytes = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if info[0] != _ESTABLISHED:
                continue
            (received,) = _RECEIVED.unpack_from(info, _RECEIVED_AT)
            inode = os.fstat(descriptor).st_ino
        except (OSError, struct.error):  # no socket, or a listener
            continue
        finally:
            borrowed.detach()
        yield local[1], _Connection(descriptor, inode, place_of(plain_address(address)), received)


def _shut_down(connection: _Connection) -> bool:
    """End a connection, unless its descriptor is another one's by now."""
    try:
        copy = os.dup(connection.descriptor)
    except OSError:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, copy) as same:
        try:
            if os.fstat(copy).st_ino != connection.inode:
                return False
            same.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True
