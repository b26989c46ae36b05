"""Acknowledgements by the queue manager: administration acknowledgements and final acks.

[MS-MQQB] 3.1.7.15 and 3.1.7.17. Both are made in the apply that causes them, so neither is lost
or doubled: an acknowledgement becomes a position in the administration queue or in an outgoing
queue, a final ack a row of the outbox.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from qm.model.messages.enqueue import Enqueue, EnqueueStatus, NewMessage
from qm.model.state.addressing import destination_of, label_text, reference_of
from qm.model.state.ledger import Ledger
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.registry import Registry, Route
from qm.model.state.tables import Table
from qm.model.values.elements import OutboxKind, QueueKind
from qm.model.values.limits import (
    TIME_TO_LIVE_DEFAULT_S,
    VERSION_OF_HOST_ADDRESSES,
    VERSION_OF_TIME_TO_LIVE,
)
from qm.model.values.records import FinalAckRow, NamedBy, Obligation, OutboxRow, encode
from qm.model.values.rows import OUTBOX_KEY, PositionFlag
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, PublicName, parse_format_name
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.message_class import AcknowledgeFlags, MessageClass, is_negative
from qm.wire.packets.user_message import UserMessage, write_user_message
from qm.wire.structures.identifiers import MessageIdentifier, write_message_identifier

INSECURE_NACKS: Final = frozenset(
    {
        MessageClass.NACK_BAD_DST_Q,
        MessageClass.NACK_ACCESS_DENIED,
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
"""Sent only if SendInsecureNacks: they would reveal to a stranger what exists here."""


class Subject(msgspec.Struct, gc=False):
    """The message that an acknowledgement is about."""

    source_queue_manager: bytes
    message_ordinal: int
    is_recoverable: bool
    destination: str
    """Its destination format name; the acknowledgement's response queue."""
    obligation: Obligation
    body: tuple[int, int, int, int, int] | None = None
    """Index, offset, length, ordinal, crc32 of its packet if a negative acknowledgement may return
    the body."""


class Acknowledgements:
    """Makes acknowledgements."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        enqueue: Enqueue,
        outgoing: OutgoingQueues,
        time_to_live_s: Callable[[], int],
    ) -> None:
        """`time_to_live_s`: how long one is kept for a queue manager that is not reached."""
        self._time_to_live_s = time_to_live_s
        self._ledger = ledger
        self._registry = registry
        self._enqueue = enqueue
        self._outgoing = outgoing

    def is_wanted(self, flags: int, message_class: int) -> bool:
        """Whether the sender requested this class ([MS-MQMQ] 2.2.19.3 Flags)."""
        is_receive = bool(message_class & 0x4000)
        if is_negative(message_class):
            return bool(flags & (AcknowledgeFlags.NR if is_receive else AcknowledgeFlags.NA))
        return bool(flags & (AcknowledgeFlags.PR if is_receive else AcknowledgeFlags.PA))

    def acknowledge(self, subject: Subject, message_class: int) -> bool:
        """Send an administration acknowledgement if wanted and possible; return whether it was.

        It is discarded if the administration queue cannot be opened for sending (3.1.7.15).
        """
        obligation = subject.obligation
        manager = self._ledger.manager
        if (
            manager is None
            or not obligation.administration_queue
            or not self.is_wanted(obligation.acknowledgements, message_class)
            or (message_class in INSECURE_NACKS and not manager.send_insecure_nacks)
        ):
            return False
        try:
            name = parse_format_name(obligation.administration_queue)
        except QueueNameError:
            return False
        queue_id = self._registry.format_name(name)
        if queue_id == Route.ELSEWHERE:
            queue_id = self._outgoing.ensure(name, _named_by(subject, manager.identifier))
        queue = self._ledger.queue(queue_id) if queue_id > 0 else None
        if queue is None or queue.record.transactional or queue.record.is_deleting:
            return False
        if queue.record.kind not in (QueueKind.APPLICATION, QueueKind.OUTGOING):
            return False
        packet = self._packet(name, subject, message_class, manager.identifier)
        if packet is None:
            return False
        if self._enqueue.quota_status(queue, len(packet)) is not EnqueueStatus.OK:
            return False
        has_body = message_class & 0x8000 and subject.body is not None
        index, ordinal = self._ledger.synthetic(packet, subject.body if has_body else None)
        flags = PositionFlag.SYSTEM | PositionFlag.FROM_THIS_MANAGER
        if subject.is_recoverable:
            flags |= PositionFlag.RECOVERABLE
        message = NewMessage(
            index,
            0,
            len(packet),
            ordinal,
            0,
            obligation.priority,
            flags,
            manager.identifier,
            self._ledger.counters.message_ordinal,
            self._ledger.now_ms // 1000,
        )
        if queue.record.kind is QueueKind.OUTGOING:
            is_set = self._ledger.behaviour >= VERSION_OF_TIME_TO_LIVE
            lifetime_s = self._time_to_live_s() if is_set else TIME_TO_LIVE_DEFAULT_S
            message.time_to_be_received = lifetime_s
        key, position = self._enqueue.insert(queue, message)
        if queue.record.kind is QueueKind.OUTGOING:
            self._outgoing.entered(queue, key, position)
        return True

    def _packet(
        self, name: FormatName, subject: Subject, message_class: int, own: bytes
    ) -> bytes | None:
        destination = destination_of(name)
        if destination is None:
            return None
        # A public queue that can be sent to is one of our own.
        is_named = self._ledger.behaviour >= VERSION_OF_HOST_ADDRESSES
        is_own = is_named and isinstance(name, PublicName)
        response = None
        if subject.destination:
            try:
                response = reference_of(parse_format_name(subject.destination))
            except QueueNameError:
                response = None
        identifier = MessageIdentifier(subject.source_queue_manager, subject.message_ordinal)
        header = UserHeader(
            source_queue_manager=own,
            destination_queue=destination[0],
            queue_manager_address=own if is_own else destination[1],
            sent_time=self._ledger.now_ms // 1000,
            message_id=self._ledger.next_message_ordinal(),
            response_queue=response,
            is_recoverable=subject.is_recoverable,
        )
        properties = MessagePropertiesHeader(
            label=label_text(subject.obligation.label),
            message_class=message_class,
            correlation_id=write_message_identifier(identifier),
            application_tag=subject.obligation.application_tag,
        )
        return write_user_message(
            UserMessage(header, properties, priority=subject.obligation.priority)
        )

    def finally_acknowledge(self, subject: Subject, message_class: int) -> None:
        """Queue a FinalAck for a transactional message's sender, sent until OutboxDone."""
        obligation = subject.obligation
        row = FinalAckRow(
            obligation.sequence_identifier,
            obligation.sequence_number,
            obligation.previous_sequence_number,
            message_class,
            subject.source_queue_manager,
            subject.message_ordinal,
            self._ledger.next_message_ordinal(),
            obligation.is_direct,
        )
        counters = self._ledger.counters
        counters.outbox_id += 1
        self._ledger.put_record(
            Table.OUTBOX,
            OUTBOX_KEY.pack(counters.outbox_id),
            OutboxRow(
                OutboxKind.FINAL_ACK,
                subject.source_queue_manager,
                obligation.source_address,
                encode(row),
                self._ledger.now_ms,
            ),
        )
        self._ledger.applied.outbox_ids.append(counters.outbox_id)


def _named_by(subject: Subject, own: bytes) -> NamedBy | None:
    """Return the peer that named a message's administration queue; None: an application here."""
    if subject.source_queue_manager == own:
        return None
    return NamedBy(subject.source_queue_manager, subject.obligation.source_address)
