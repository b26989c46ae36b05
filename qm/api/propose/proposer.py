"""Proposals: commands of one round of the loop share them, and numbered commands are repeated
until their outcome is known.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from qm.cluster.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.model.values.commands import Command, Send
from qm.model.values.effects import Outcome

COMMANDS_PER_PROPOSAL_MAX: Final = 1_024
PROPOSAL_MAX_BYTES: Final = 8 << 20
"""Bytes of packets, a soft limit: one call's commands are never split."""
REPEAT_FOR_S: Final = 30.0
"""How long a call waits for an outcome; then its client asks another node."""
RETRY_PAUSE_S: Final = 0.05
"""After an immediate refusal; the cluster itself waits for a leader."""

_Job = tuple[tuple[Command, ...], asyncio.Future[Sequence[Outcome]]]


class Proposer:
    """Proposes for all calls of a node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs: list[_Job] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def once(self, *commands: Command) -> Sequence[Outcome]:
        """Propose commands that have no number. Raises Unavailable, OutcomeUnknown."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Outcome]] = loop.create_future()
        if not self._jobs:
            loop.call_soon(self._flush)
        self._jobs.append((commands, future))
        return await future

    async def repeat(self, *commands: Command) -> Sequence[Outcome]:
        """Propose commands that may be repeated until there are outcomes, within REPEAT_FOR_S.

        The caller's own deadline cancels the call, so it is not known here.
        """
        end = monotonic() + REPEAT_FOR_S
        while True:
            try:
                return await self.once(*commands)
            except (Unavailable, OutcomeUnknown):
                if monotonic() + RETRY_PAUSE_S >= end:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    def _flush(self) -> None:
        """Split the collected commands into proposals.

        Sends are proposed separately: a node with too little disk space refuses only them.
        """
        jobs, self._jobs = self._jobs, []
        self._part([job for job in jobs if isinstance(job[0][0], Send)])
        self._part([job for job in jobs if not isinstance(job[0][0], Send)])

    def _part(self, jobs: list[_Job]) -> None:
        """Propose jobs in order, as many at once as the limits allow."""
        while jobs:
            count = size = taken = 0
            for commands, _ in jobs:
                count += len(commands)
                size += sum(len(one.packets) for one in commands if isinstance(one, Send))
                if taken and (count > COMMANDS_PER_PROPOSAL_MAX or size > PROPOSAL_MAX_BYTES):
                    break
                taken += 1
            task = asyncio.ensure_future(self._propose(jobs[:taken]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            jobs = jobs[taken:]

    async def _propose(self, jobs: list[_Job]) -> None:
        commands = [command for job, _ in jobs for command in job]
        try:
            outcomes = await self._cluster.propose(*commands)
        except asyncio.CancelledError:
            for _, future in jobs:
                future.cancel()
            raise
        except Exception as error:
            for _, future in jobs:
                if not future.done():
                    future.set_exception(error)
            return
        at = 0
        for job, future in jobs:
            if not future.done():
                future.set_result(outcomes[at : at + len(job)])
            at += len(job)

    async def close(self) -> None:
        """Give up what is in progress: no call waits for it any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
