"""Metrics and rate-limited log lines of the RPC server."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.rpc.server.call import Call

_LOGGER: Final = logging.getLogger(__name__)
CALL_RESULTS_KEPT_MAX: Final = 256
"""Operations with a result whose counter is at hand: looking it up costs more than counting."""


class RpcMetrics:
    """What the RPC ports of a node count and log."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._log = LimitedLog(_LOGGER, now)
        self._connections = metrics.gauge("quorate_rpc_connections")
        self._calls = metrics.counter("quorate_rpc_calls_total")
        self._refused = metrics.counter("quorate_rpc_refused_total")
        self._labelled = lru_cache(CALL_RESULTS_KEPT_MAX)(self._calls.labels)
        self._count = 0

    def opened(self) -> None:
        """Count an accepted connection."""
        self._count += 1
        self._connections.set(self._count)

    def closed(self) -> None:
        """Count the end of an accepted connection."""
        self._count -= 1
        self._connections.set(self._count)

    def called(self, call: Call, result: str) -> None:
        """Count a call that ended."""
        self._labelled(call.interface.name, call.request.operation.name, result).inc()

    def failed(self, call: Call, error: Exception) -> None:
        """Log an error of a method that its caller is not told; `called` counts it."""
        interface, operation = call.interface.name, call.request.operation.name
        self._log.error(
            f"{interface}.{operation}",
            "a method failed; please report this",
            error,
            interface=interface,
            operation=operation,
            address=call.address,
        )

    def refused(self, reason: str, address: str, detail: str) -> None:
        """Count and log what was refused; `reason` is one of a few."""
        self._refused.labels(reason).inc()
        self._log.warning(
            reason, "refused an RPC client", reason=reason, address=address, detail=detail
        )
