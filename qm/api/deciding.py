"""Control commands, which have no number: repeated all the same, and never counted twice.

When the outcome of a try stayed unknown and the next one is refused, the first may have been the
reason. `is_done` then tells, from the state behind a barrier, whether what was wanted is so.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

from qm.api.proposing import REPEAT_FOR_S, RETRY_PAUSE_S, Proposer
from qm.model.commands import Command, Request
from qm.model.effects import Outcome
from qm.store.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.wire.codes import MQ_OK

UNNUMBERED = Request("", 0, 0)
"""The request of a control command: done each time it is applied."""


class Decider:
    """See the module."""

    def __init__(self, cluster: Cluster, proposer: Proposer) -> None:
        self._cluster = cluster
        self._proposer = proposer

    async def decide(
        self, command: Command, is_done: Callable[[], bool] = lambda: False
    ) -> Outcome:
        """Return the outcome, refusals included, once the state here shows it.

        Raises Unavailable, OutcomeUnknown after REPEAT_FOR_S.
        """
        end = monotonic() + REPEAT_FOR_S
        outcome, is_unknown = await self._propose(command, end)
        await self._barrier(end)
        if outcome.status != MQ_OK and is_unknown and is_done():
            return Outcome(MQ_OK)
        return outcome

    async def _propose(self, command: Command, end: float) -> tuple[Outcome, bool]:
        """Return the first known outcome, and whether there was an unknown one before."""
        is_unknown = False
        while True:
            try:
                (outcome,) = await self._proposer.once(command)
            except (Unavailable, OutcomeUnknown) as error:
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
                if monotonic() + RETRY_PAUSE_S >= end:
                    raise
            else:
                return outcome, is_unknown
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _barrier(self, end: float) -> None:
        while True:
            try:
                await self._cluster.read_barrier()
            except Unavailable:
                if monotonic() + RETRY_PAUSE_S >= end:
                    raise
            else:
                return
            await asyncio.sleep(RETRY_PAUSE_S)
