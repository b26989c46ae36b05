"""A cluster whose answers to proposals are configured."""

from collections.abc import Sequence
from typing import Any

from qm.model.queries import View
from qm.model.state.tables import MemoryState
from qm.model.values.commands import Command
from qm.model.values.effects import Outcome


class ScriptedCluster:
    """Answers proposals as configured; others succeed."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self.proposals: list[int] = []
        self.status = 0
        self.view = View.of(MemoryState())

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        self.proposals.append(len(commands))
        self.last = commands[-1]
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return [
            Outcome(self.status, value=getattr(command, "confirmed_upto", None))
            for command in commands
        ]

    async def read_barrier(self) -> int:
        return 1


def scripted(*errors: Exception | None) -> tuple[ScriptedCluster, Any]:
    cluster = ScriptedCluster(*errors)
    return cluster, cluster
