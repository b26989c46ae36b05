"""The leader's outgoing queues, outbox and order acknowledgements. See design.md."""

from qm.edge.outgoing.link.context import OutgoingSettings
from qm.edge.outgoing.link.resolver import Resolver
from qm.edge.outgoing.link_report import LinkReport
from qm.edge.outgoing.manager import OutgoingManager

__all__ = [
    "LinkReport",
    "OutgoingManager",
    "OutgoingSettings",
    "Resolver",
]
