"""Refusal of new messages while the leader's disk is nearly full, before they enter the log.

Receiving, purging, acknowledgements and everything else that frees space continue (DESIGN section
6). A peer's messages get the verdict that ends its session, so that it keeps and resends them.
"""

from array import array

from qm.model.values.commands import EdgeBatch, Send, TransferVerdict
from qm.model.values.effects import Outcome
from qm.store.codec import Inspected


def is_send(command: Inspected) -> bool:
    """Return whether an encoded command is a client's Send."""
    return command.declaration.kind is Send


def is_edge_batch(command: Inspected) -> bool:
    """Return whether an encoded command is a run of arrivals."""
    return command.declaration.kind is EdgeBatch


def sessions_of(command: Inspected) -> set[int]:
    """Return the edge's numbers of the sessions whose messages are in an EdgeBatch."""
    return {facts.session for facts in command.message.facts}


def refusal(command: Inspected) -> Outcome:
    """Return the outcome of an EdgeBatch none of whose messages can be stored now."""
    return Outcome(0, array("H", [TransferVerdict.CLOSE_SESSION]) * len(command.message.facts_of))
