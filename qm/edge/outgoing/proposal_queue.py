"""Makes durable what the sending side learns: commands of many queues in few proposals.

One proposal is in progress at a time; commands that are requested meanwhile share the next one. All
these commands may be applied twice, so one whose outcome is unknown is simply requested again by
the part that still needs it.
"""

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from qm.cluster.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.edge.outgoing.limits import (
    COMMANDS_PER_PROPOSAL_MAX,
    KEYS_PER_COMMAND_MAX,
    PROPOSE_RETRY_S,
)
from qm.model.values.columns import IntArray
from qm.model.values.commands import Command
from qm.model.values.effects import Outcome
from qm.observe.logs import LimitedLog

Then = Callable[[Sequence[Outcome] | None], None]
"""Receives the outcomes of a group in order, or None: whether it was applied is not known."""


class ProposalQueue:
    """Proposes groups of commands in the order in which they were requested."""

    def __init__(self, cluster: Cluster, lines: LimitedLog) -> None:
        self._cluster = cluster
        self._lines = lines
        self._waiting: deque[tuple[tuple[Command, ...], Then]] = deque()
        self._task: asyncio.Task[None] | None = None

    def ask(self, commands: Sequence[Command], then: Then) -> None:
        """Have a group committed together; `then` is called once, unless `stop` comes first."""
        self._waiting.append((tuple(commands), then))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def stop(self) -> None:
        """Drop what waits; the outcome of a proposal in progress is ignored."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _work(self) -> None:
        while self._waiting:
            groups = self._take()
            outcomes = await self._propose([one for group, _ in groups for one in group])
            at = 0
            for group, then in groups:
                then(None if outcomes is None else outcomes[at : at + len(group)])
                at += len(group)
            if outcomes is None:
                await asyncio.sleep(PROPOSE_RETRY_S)
        self._task = None

    def _take(self) -> list[tuple[tuple[Command, ...], Then]]:
        """Return the groups of the next proposal, at least one."""
        groups = [self._waiting.popleft()]
        count = len(groups[0][0])
        while self._waiting and count + len(self._waiting[0][0]) <= COMMANDS_PER_PROPOSAL_MAX:
            groups.append(self._waiting.popleft())
            count += len(groups[-1][0])
        return groups

    async def _propose(self, commands: Sequence[Command]) -> Sequence[Outcome] | None:
        try:
            return await self._cluster.propose(*commands)
        except (Unavailable, OutcomeUnknown) as error:
            self._lines.warning(
                "outgoing_commit_failed",
                "results of deliveries could not be committed; they are proposed again",
                error=str(error),
                commands=len(commands),
            )
            return None


class KeyBatch:
    """Keys for commands of one kind: those added while a command is in progress share the next."""

    def __init__(
        self,
        proposals: ProposalQueue,
        make: Callable[[IntArray], Command],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """`done` is called whenever keys were committed."""
        self._proposals = proposals
        self._make = make
        self._done = done
        self._pending: dict[int, None] = {}
        self._is_asking = False

    def __contains__(self, key: int) -> bool:
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, keys: Iterable[int]) -> None:
        """Have these committed eventually, each at least once; until then they are in here."""
        self._pending.update(dict.fromkeys(keys))
        self._ask()

    def _ask(self) -> None:
        if self._is_asking or not self._pending:
            return
        self._is_asking = True
        asked = array("Q", islice(self._pending, KEYS_PER_COMMAND_MAX))

        def then(outcomes: Sequence[Outcome] | None) -> None:
            self._is_asking = False
            if outcomes is not None:
                for key in asked:
                    del self._pending[key]
                self._done()
            self._ask()

        self._proposals.ask([self._make(asked)], then)
