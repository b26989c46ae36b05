"""The replicated state machine: one entry in, what came of it out (design.md)."""

from collections.abc import Callable
from typing import Any, Final

from qm.model import commands
from qm.model.acknowledgements import Acknowledgements
from qm.model.administration import Administration
from qm.model.arrivals import Arrivals
from qm.model.commands import CommandBatch
from qm.model.duplicates import Duplicates
from qm.model.effects import Applied, Outcome
from qm.model.endings import Endings
from qm.model.enqueue import Enqueue
from qm.model.ledger import Ledger
from qm.model.outgoing import OutgoingQueues
from qm.model.records import QueueManager
from qm.model.registry import Registry
from qm.model.state import State

Handler = Callable[[Any], Outcome]


class UnknownVersion(Exception):
    """The entry needs a newer build; nothing of it was applied. The node must stop."""


class Machine:
    """Applies entries to a state. It alone writes the state's replicated tables."""

    def __init__(self, state: State) -> None:
        ledger = Ledger(state)
        registry = Registry(ledger)
        enqueue = Enqueue(ledger)
        outgoing = OutgoingQueues(ledger, registry)
        duplicates = Duplicates(ledger)
        acknowledgements = Acknowledgements(ledger, registry, enqueue, outgoing)
        endings = Endings(ledger, registry, enqueue, acknowledgements)
        arrivals = Arrivals(ledger, registry, duplicates, enqueue, endings, acknowledgements)
        administration = Administration(ledger, registry, outgoing)
        self._ledger: Final = ledger
        self._registry: Final = registry
        self._duplicates: Final = duplicates
        self._handlers: Final[dict[type[Any], Handler]] = {
            commands.EdgeBatch: arrivals.apply_edge_batch,
            commands.Provision: administration.apply_provision,
            commands.SetQueueManager: administration.apply_set_queue_manager,
            commands.CreateQueue: administration.apply_create_queue,
            commands.SetQueue: administration.apply_set_queue,
            commands.EnsureOutgoingQueue: administration.apply_ensure_outgoing_queue,
            commands.SetOutgoingAdminState: administration.apply_set_outgoing_admin_state,
            commands.RemoveOutgoingQueue: administration.apply_remove_outgoing_queue,
            commands.LeaderActivated: administration.apply_leader_activated,
            commands.RaiseApplyVersion: administration.apply_raise_apply_version,
        }

    def apply(self, batch: CommandBatch) -> Applied:
        """Apply one entry and return what came of it. Raises UnknownVersion alone."""
        if batch.stamp.version > commands.COMMAND_VERSION:
            raise UnknownVersion(f"entry {batch.index}: version {batch.stamp.version}")
        ledger = self._ledger
        ledger.begin(batch.index, batch.stamp.now_ms)
        outcomes = [self._handlers[type(command)](command) for command in batch.commands]
        self._duplicates.finish()
        applied = ledger.finish()
        applied.outcomes = outcomes
        return applied

    @property
    def manager(self) -> QueueManager | None:
        """The queue manager, None before Provision."""
        return self._ledger.manager

    def forget(self) -> None:
        """Drop everything derived from rows (design.md, rule 6); only between entries."""
        self._ledger.forget()
        self._registry.forget()
        self._duplicates.forget()
