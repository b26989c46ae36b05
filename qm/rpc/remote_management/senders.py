"""Streams into a queue, for EOD_SOURCE_INFO: found among those of all queues, a part at a time."""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Final

from qm.cluster.cluster import Cluster
from qm.model.queries.incoming import IncomingSequence, list_incoming_sequences
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics

_LOGGER: Final = logging.getLogger(__name__)
STREAMS_LISTED_MAX: Final = 10_000
"""In one answer: the property has no pages; `qm peer show` has."""
STREAMS_SCANNED_MAX: Final = 131_072
"""As many as the queue managers of one address may have."""
STREAMS_AT_A_TIME: Final = 500
"""Between which the node does other things."""


class Senders:
    """Looks for them on one node."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._cut = metrics.counter("quorate_remote_senders_cut_total")
        self._log = LimitedLog(_LOGGER, monotonic)
        self._turn = asyncio.Lock()

    async def of(self, queue_id: int) -> Sequence[IncomingSequence]:
        """Return the streams into a queue, by stream id. Raises Unavailable.

        A list that is not whole is counted and logged.
        """
        async with self._turn:  # one search at a time, however many ask
            found, is_whole = await self._found(queue_id)
        if not is_whole:
            self._cut.inc()
            text = "a list of a queue's senders is not whole: see `qm peer show`"
            self._log.warning("senders_cut", text, queue_id=queue_id, senders=len(found))
        return found

    async def _found(self, queue_id: int) -> tuple[Sequence[IncomingSequence], bool]:
        found: list[IncomingSequence] = []
        after, left = 0, STREAMS_SCANNED_MAX
        while left > 0:
            limit = min(left, STREAMS_AT_A_TIME)
            page = list_incoming_sequences(
                self._cluster.view, after=after, limit=limit, queue_id=queue_id
            )
            found += page.items
            if len(found) > STREAMS_LISTED_MAX:
                return found[:STREAMS_LISTED_MAX], False
            if page.next is None:
                return found, True
            after, left = page.next, left - limit
            await asyncio.sleep(0)
        return found, False
