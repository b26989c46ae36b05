"""Delivery to other queue managers."""

from qm.model.values.columns import U64Column
from qm.model.values.commands.declaration import Command, Fixed, RowsOf, declared
from qm.model.values.limits import SETTLED_PER_COMMAND_MAX


@declared(weight=RowsOf("lookup_identifiers"), since=1)
class AssignTransfer(Command, frozen=True, gc=False):
    """Assign sequence numbers to positions before the first byte of any is sent."""

    queue_id: int
    lookup_identifiers: U64Column


@declared(weight=RowsOf("lookup_identifiers"), since=1)
class TransferAcked(Command, frozen=True, gc=False):
    """Session acknowledgements: these positions reached the peer."""

    queue_id: int
    lookup_identifiers: U64Column


@declared(weight=Fixed(SETTLED_PER_COMMAND_MAX), since=1)
class OrderAcked(Command, frozen=True, gc=False):
    """[MS-MQQB] 3.1.5.6: each sequence has arrived up to its number. Columns."""

    sequence_identifiers: U64Column
    sequence_numbers: U64Column
    queue_managers: bytes = b""
    """16 bytes per row: the GUID that the peer claims which sent it; since version 5."""
    addresses: tuple[str, ...] = ()
    """One per row: the address of that peer, without port."""


@declared(weight=RowsOf("message_ordinals"), since=1)
class FinalAcked(Command, frozen=True, gc=False):
    """[MS-MQQB] 3.1.5.7: how transactional messages ended. Columns."""

    message_ordinals: U64Column
    message_classes: U64Column
    queue_managers: bytes = b""
    """As in OrderAcked."""
    addresses: tuple[str, ...] = ()


@declared(weight=RowsOf("lookup_identifiers"), since=1)
class TransferFailed(Command, frozen=True, gc=False):
    """Positions that cannot be delivered, each with its nack class."""

    queue_id: int
    lookup_identifiers: U64Column
    message_class: int


@declared(weight=Fixed(1), since=1)
class OutboxDone(Command, frozen=True, gc=False):
    """These outbox rows reached their peer."""

    outbox_ids: U64Column


@declared(weight=RowsOf("message_ordinals"), since=1)
class TransferTraced(Command, frozen=True, gc=False):
    """[MS-MQQB] 3.1.7.1.7: traced messages left for their next hop; each owes a report. Columns."""

    queue_id: int
    message_ordinals: U64Column
    report_queues: bytes
    """16 bytes per ordinal: DebugHeader.QueueIdentifier."""
    next_hop: str
    """IP address without port."""


@declared(weight=Fixed(1), since=5)
class TransferOpened(Command, frozen=True, gc=False):
    """A session for a queue's messages is open: their acknowledgements may come from there."""

    queue_id: int
    queue_manager: bytes
    """GUID that the peer answered with."""
    address: str
    """Address that was connected to, without port."""
