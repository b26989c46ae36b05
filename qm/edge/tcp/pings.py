"""Answers to pings on UDP 3527 [MS-MQQB 2.2.7, 3.1.7.7]: would a session be accepted?

A source address may be forged, so no address gets more than a few answers a second, and no answer
is longer than its question.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from typing_extensions import override

from qm.edge.edge_metrics import EdgeMetrics
from qm.edge.limits import PINGS_MAX_COUNT, PINGS_PER_ADDRESS_MAX_COUNT
from qm.edge.tcp.admission import place_of
from qm.session import answer_ping, asking_queue_manager
from qm.wire.guid import Guid

_SECOND: Final = 1.0


class PingAnswerer(asyncio.DatagramProtocol):
    """One per UDP socket."""

    def __init__(
        self,
        queue_manager: Callable[[], Guid | None],
        is_accepting: Callable[[str, Guid], bool],
        metrics: EdgeMetrics,
        clock: Callable[[], float],
    ) -> None:
        """`queue_manager`: our GUID, None while we have none; `is_accepting`: whether a session
        from an address and a queue manager would be accepted; `clock`: monotonic seconds.
        """
        self._queue_manager = queue_manager
        self._is_accepting = is_accepting
        self._metrics = metrics
        self._clock = clock
        self._transport: asyncio.DatagramTransport | None = None
        self._second_began = -_SECOND
        self._answered: Counter[str] = Counter()
        self._answered_all = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    @override
    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer to exactly the address and port that asked [MS-MQQB 2.1.2]."""
        host: str = addr[0]
        if not self._is_affordable(place_of(host)):
            self._metrics.ping("limited", host)
            return
        local_guid = self._queue_manager()
        if self._transport is None or local_guid is None:
            self._metrics.ping("unanswered")
            return
        asking = asking_queue_manager(data)
        if asking is None:
            self._metrics.ping("malformed", host)
            return
        is_accepting = self._is_accepting(host, asking)
        answer = answer_ping(data, local_guid, is_accepting=is_accepting)
        assert answer is not None, "a request without its answer"
        self._metrics.ping("accepting" if is_accepting else "refusing")
        self._transport.sendto(answer, addr)

    @override
    def error_received(self, exc: Exception) -> None:
        """An answer could not be delivered, which does not matter here."""
        del exc
        self._metrics.ping("unreachable")

    def _is_affordable(self, host: str) -> bool:
        """Count a datagram; the table of addresses is cleared every second, so it stays small."""
        now = self._clock()
        if now - self._second_began >= _SECOND:
            self._second_began = now
            self._answered.clear()
            self._answered_all = 0
        if (
            self._answered_all >= PINGS_MAX_COUNT
            or self._answered[host] >= PINGS_PER_ADDRESS_MAX_COUNT
        ):
            return False
        self._answered_all += 1
        self._answered[host] += 1
        return True
