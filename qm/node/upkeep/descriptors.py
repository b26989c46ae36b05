"""File descriptors: raises the process's limit, and keeps enough of them for files.

A process without descriptors cannot open the next segment of its log. So the number that peers can
make it open is bounded below the system's limit, and the rest is for files.
"""

import logging
import os
import resource
from pathlib import Path
from typing import Final

from qm.api import server as api
from qm.edge.outgoing import limits as outgoing
from qm.node import http_guard
from qm.node.relay import channels
from qm.observe.metrics import Metrics
from qm.rpc import limits as rpc
from raft.transport import door, grpc_transport

logger = logging.getLogger(__name__)

RESERVE_COUNT: Final = 1_024
"""For log, state, bodies, snapshots, the archive and this node's own connections."""
SESSIONS_MIN_COUNT: Final = 64
"""MSMQ sessions allowed however low the system's limit is."""
LOOK_EVERY_S: Final = 5.0
_OTHERS_COUNT: Final = (
    api.CONNECTIONS_MAX
    + channels.CONNECTIONS_MAX
    + grpc_transport.CONNECTIONS_MAX
    + 2 * door.LIMITS.total  # the caller's, and the one through which it is forwarded
    + 2 * http_guard.LIMITS.total  # health and metrics; the console
    + rpc.CONNECTIONS_MAX
    + outgoing.CONNECTIONS_MAX
)
"""What may be open apart from MSMQ sessions."""
_OWN: Final = Path("/proc/self/fd")


def raise_limit() -> int:
    """Raise the limit as far as the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def sessions_allowed(wanted: int, limit: int) -> int:
    """Return how many MSMQ sessions may be open beside everything else."""
    left = max(limit - RESERVE_COUNT - _OTHERS_COUNT, SESSIONS_MIN_COUNT)
    if left >= wanted:
        return wanted
    logger.warning(
        "of %d MSMQ sessions %d may be open: the system allows %d file descriptors, of which %d are"
        " for everything else; raise LimitNOFILE of the unit, or the container's limit",
        wanted, left, limit, RESERVE_COUNT + _OTHERS_COUNT,
    )  # fmt: skip
    return left


class Descriptors:
    """Shows how many descriptors are open."""

    def __init__(self, metrics: Metrics) -> None:
        self._open = metrics.gauge("quorate_descriptors")

    async def look(self) -> None:
        """Count them."""
        self._open.labels(state="open").set(len(os.listdir(_OWN)))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open.labels(state="allowed").set(soft)
