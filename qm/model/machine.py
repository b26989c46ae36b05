"""The replicated state machine: applies an entry and returns its results (design.md)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from qm.model.arrivals.arrivals import Arrivals
from qm.model.arrivals.duplicates import Duplicates
from qm.model.arrivals.message_security import MessageSecurity
from qm.model.clients.clients import Clients
from qm.model.clients.opens import Opens
from qm.model.clients.reads import Reads
from qm.model.clients.sends import Sending
from qm.model.clients.transactions import Transactions
from qm.model.delivery import Delivery
from qm.model.management.administration import Administration
from qm.model.management.certificates import Certificates
from qm.model.management.directory import Directory
from qm.model.management.expiry import Expiry
from qm.model.management.manager_keys import Keys
from qm.model.management.members import Members
from qm.model.management.peers import Peers
from qm.model.management.purge import Purging
from qm.model.management.restore import Restoring
from qm.model.messages.acknowledgements import Acknowledgements
from qm.model.messages.endings import Endings
from qm.model.messages.enqueue import Enqueue
from qm.model.messages.move import Moving
from qm.model.messages.reports import Reports
from qm.model.messages.returns import Returns
from qm.model.queries.view import View
from qm.model.state.bindings import Bindings
from qm.model.state.events import Events
from qm.model.state.ledger import Ledger
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.principals import Principals
from qm.model.state.registry import Registry
from qm.model.state.tables import State
from qm.model.values.commands import DECLARATIONS, Command, CommandBatch, Declaration, Request
from qm.model.values.effects import Applied, Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.records import QueueManager
from qm.model.values.rows import LeaseKind, number_in

Handler = Callable[[Any], Outcome]


class UnknownVersion(Exception):
    """The entry needs a newer build; none of it was applied, and the node must stop."""


def handlers_of(
    parts: Sequence[object], declared: Mapping[type[Command], Declaration] = DECLARATIONS
) -> dict[type[Command], Handler]:
    """Return the handler of each command: the only method `apply_<op>` among the parts.

    Raises LookupError, naming the command, if there is none or more than one.
    """
    handlers: dict[type[Command], Handler] = {}
    for kind, declaration in declared.items():
        name = f"apply_{declaration.op}"
        found = [getattr(part, name) for part in parts if hasattr(part, name)]
        if len(found) != 1:
            raise LookupError(f"{kind.__name__}: {len(found)} parts of the machine have {name}")
        handlers[kind] = found[0]
    return handlers


class Machine:
    """Applies entries to a state. Only it writes the state's replicated tables."""

    def __init__(self, state: State) -> None:
        ledger = Ledger(state)
        registry = Registry(ledger)
        events = Events(ledger)
        enqueue = Enqueue(ledger)
        outgoing = OutgoingQueues(ledger, registry)
        bindings = Bindings(ledger)
        duplicates = Duplicates(ledger, bindings)
        directory = Directory(ledger)
        acknowledgements = Acknowledgements(
            ledger, registry, enqueue, outgoing, directory.default_time_to_live_s
        )
        endings = Endings(ledger, registry, enqueue, acknowledgements, outgoing)
        moving = Moving(ledger, enqueue)
        reports = Reports(ledger, registry, enqueue)
        security = MessageSecurity(ledger)
        arrivals = Arrivals(
            *(ledger, registry, duplicates, bindings, security),
            *(enqueue, endings, acknowledgements, reports),
        )
        principals = Principals(ledger)
        administration = Administration(ledger, registry, outgoing, principals, events)
        returns = Returns(ledger, endings, moving, administration.poison_queue)
        purging = Purging(ledger, registry, endings, returns, principals)
        clients = Clients(ledger, enqueue, principals, events)
        opens = Opens(ledger, registry, clients, outgoing, administration)
        transactions = Transactions(ledger, clients, endings, moving, returns, outgoing)
        reads = Reads(ledger, clients, opens, transactions, endings, moving, returns)
        sending = Sending(
            *(ledger, registry, clients, enqueue, endings),
            *(outgoing, transactions, opens, security),
        )
        delivery = Delivery(ledger, endings, outgoing, bindings)
        restoring = Restoring(ledger, registry, outgoing, delivery, events)
        expiry = Expiry(ledger, endings, returns, duplicates)
        clients.on_close += [reads.release_owner, transactions.release_owner, opens.release_owner]
        expiry.on_lease |= {
            LeaseKind.CLIENT: lambda key: clients.lease_due(key[:-1].decode()),
            LeaseKind.CLIENT_FORGOTTEN: lambda key: clients.forget_client(key[:-1].decode()),
            LeaseKind.TRANSACTION: transactions.lease_due,
            LeaseKind.OUTCOME_FORGOTTEN: transactions.forget,
            LeaseKind.SEQUENCE: lambda key: duplicates.sequence_due(number_in(key)[0]),
        }
        self.directory: Final = directory
        """Answers directory reads; at the leader, behind a read barrier."""
        self.view: Final = View(ledger, registry, self.directory)
        """What queries read between entries."""
        self._ledger: Final = ledger
        self._registry: Final = registry
        self._bindings: Final = bindings
        self._security: Final = security
        self._outgoing: Final = outgoing
        self._duplicates: Final = duplicates
        self._arrivals: Final = arrivals
        self._clients: Final = clients
        self._reads: Final = reads
        self._handlers: Final = handlers_of(
            (
                *(arrivals, sending, reads, clients, opens, transactions),
                *(administration, purging, restoring, self.directory, Members(ledger, events)),
                Certificates(ledger, self.directory),
                *(Peers(ledger, duplicates, bindings), bindings, security, Keys(ledger)),
                *(delivery, reports, expiry, events),
            )
        )

    def apply(self, batch: CommandBatch, *, settle: bool = True) -> Applied:
        """Apply one entry and return its results. Raises only UnknownVersion.

        Without `settle`, the caller calls `settle` before anything else reads the state: counts in
        memory are written back once for a run of entries, with the same result.
        """
        if batch.stamp.version > APPLY_VERSION:
            raise UnknownVersion(f"entry {batch.index}: version {batch.stamp.version}")
        ledger = self._ledger
        ledger.begin(batch.index, batch.stamp.now_ms, batch.stamp.version)
        applied = ledger.applied
        ends = applied.columns.command_ends
        for command in batch.commands:
            applied.outcomes.append(self._apply(command))
            ends.append(applied.effect_count)
        unused_streams = self._duplicates.finish()
        if unused_streams:
            self._arrivals.forget_lanes(unused_streams)
        if settle:
            self.settle()
        return applied

    def settle(self) -> None:
        """Write back the counts that entries changed in memory."""
        self._clients.settle()
        self._duplicates.settle()
        self._ledger.settle()

    def _apply(self, command: Command) -> Outcome:
        handler = self._handlers[type(command)]
        request: Request | None = getattr(command, "request", None)
        if request is None:
            return handler(command)
        return self._clients.once(request, lambda: handler(command))

    @property
    def manager(self) -> QueueManager | None:
        """The queue manager, None before Provision."""
        return self._ledger.manager

    def forget(self) -> None:
        """Drop everything derived from rows (design.md, rule 6); only after `settle`."""
        self._ledger.forget()
        self._registry.forget()
        self._bindings.forget()
        self._security.forget()
        self._arrivals.forget()
        self._outgoing.forget()
        self._duplicates.forget()
        self._clients.forget()
        self._reads.forget()
