"""The leader's outgoing queues, outbox and order acknowledgements. See design.md."""

from qm.edge.outgoing.manager import OutgoingManager
from qm.edge.outgoing.report import LinkReport
from qm.edge.outgoing.resolving import Resolver
from qm.edge.outgoing.surroundings import OutgoingSettings

__all__ = [
    "LinkReport",
    "OutgoingManager",
    "OutgoingSettings",
    "Resolver",
]
