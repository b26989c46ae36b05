"""Proposals of a node's calls: numbered commands are repeated until their outcome is known.

Commands of several calls share an entry, or a call to the leader on another node, because the
cluster gathers them: each call proposes its own at once.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from qm.cluster.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.model.values.commands import Command
from qm.model.values.effects import Outcome

REPEAT_FOR_S: Final = 30.0
"""How long a call waits for an outcome; then its client asks another node."""
RETRY_PAUSE_S: Final = 0.05
"""After an immediate refusal; the cluster itself waits for a leader."""


class Proposer:
    """Proposes for all calls of a node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def once(self, *commands: Command) -> Sequence[Outcome]:
        """Propose commands that have no number. Raises Unavailable, OutcomeUnknown."""
        return await self._cluster.propose(*commands)

    async def repeat(self, *commands: Command) -> Sequence[Outcome]:
        """Propose commands that may be repeated until there are outcomes, within REPEAT_FOR_S.

        The caller's own deadline cancels the call, so it is not known here.
        """
        end = monotonic() + REPEAT_FOR_S
        while True:
            try:
                return await self._cluster.propose(*commands)
            except (Unavailable, OutcomeUnknown):
                if monotonic() + RETRY_PAUSE_S >= end:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
