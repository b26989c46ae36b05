"""MSMQ over TCP and UDP: a node's endpoint for other queue managers. See design.md."""

from qm.edge.edge import Edge
from qm.edge.settings import EdgeSettings

__all__ = ["Edge", "EdgeSettings"]
