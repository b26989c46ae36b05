"""Report messages: where a traced message arrived, and where it was sent.

The report of an arrival is made in the apply that accepts the message ([MS-MQQB] 3.1.5.8.9), that
of a sending when the leader reports that the packet left ([MS-MQQB] 3.1.7.1.7).
"""

from typing import Final

from qm.model.messages.enqueue import Enqueue, EnqueueStatus, NewMessage
from qm.model.state.addressing import stored_name
from qm.model.state.ledger import Ledger
from qm.model.state.registry import Registry
from qm.model.values.commands import TransferTraced
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueKind
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, VERSION_OF_HOST_ADDRESSES
from qm.model.values.records import GUID_NULL
from qm.model.values.rows import PositionFlag
from qm.names.format_name import PublicName
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.guid import Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.report import Report, Traced, received_report, report_queue, sent_report
from qm.wire.packets.user_message import UserMessage, write_user_message

PRIORITY: Final = 3
NEXT_HOP_MAX_CHARS: Final = 64
"""An IPv6 address with its zone."""
_GUID_BYTES: Final = 16
_U32_MAX: Final = 0xFFFF_FFFF


class Reports:
    """Makes report messages."""

    def __init__(self, ledger: Ledger, registry: Registry, enqueue: Enqueue) -> None:
        self._ledger = ledger
        self._registry = registry
        self._enqueue = enqueue

    def received(self, message: UserMessage) -> None:
        """Report an arrival if the message requests it."""
        wanted = report_queue(message.is_traced, message.debug)
        if wanted is None:
            return
        header = message.user_header
        traced = Traced(
            header.source_queue_manager,
            header.message_id,
            header.hop_count,
            stored_name(header.destination_queue, header),
        )
        self._send(received_report(traced, wanted, self._ledger.now_ms // 1000), wanted)

    def apply_transfer_traced(self, command: TransferTraced) -> Outcome:
        """Report sendings. The messages may already have arrived and be gone.

        Everything sent is this queue manager's own, so it has made no hop yet.
        """
        queue, manager = self._ledger.queue(command.queue_id), self._ledger.manager
        if queue is None or manager is None or queue.record.kind is not QueueKind.OUTGOING:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        ordinals, wanted = command.message_ordinals, command.report_queues
        is_sound = (
            0 < len(ordinals) <= POSITIONS_PER_ENTRY_MAX
            and len(wanted) == len(ordinals) * _GUID_BYTES
            and max(ordinals) <= _U32_MAX
            and len(command.next_hop) <= NEXT_HOP_MAX_CHARS
        )
        if not is_sound:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        now_s = self._ledger.now_ms // 1000
        for at, ordinal in enumerate(ordinals):
            traced = Traced(manager.identifier, ordinal, 0, queue.record.pathname)
            to = wanted[at * _GUID_BYTES : (at + 1) * _GUID_BYTES]
            self._send(sent_report(traced, to, now_s, command.next_hop), to)
        return Outcome(MQ_OK)

    def _send(self, report: Report, wanted: Guid) -> None:
        """Put a report into the wanted queue, if that can be opened for sending.

        A public queue that the directory does not know cannot be opened.
        """
        found = self._registry.format_name(PublicName(wanted))
        queue = self._ledger.queue(found) if found > 0 else None
        if queue is None or queue.record.transactional or queue.record.is_deleting:
            return
        if queue.record.kind is not QueueKind.APPLICATION:
            return
        manager = self._ledger.manager
        assert manager is not None, "a message without a queue manager"
        packet = self._packet(report, manager.identifier)
        if self._enqueue.quota_status(queue, len(packet)) is not EnqueueStatus.OK:
            return
        index, ordinal = self._ledger.synthetic(packet, None)
        self._enqueue.insert(
            queue,
            NewMessage(
                index,
                0,
                len(packet),
                ordinal,
                0,
                PRIORITY,
                PositionFlag.SYSTEM | PositionFlag.FROM_THIS_MANAGER,
                manager.identifier,
                self._ledger.counters.message_ordinal,
                self._ledger.now_ms // 1000,
            ),
        )

    def _packet(self, report: Report, own: Guid) -> bytes:
        is_named = self._ledger.behaviour >= VERSION_OF_HOST_ADDRESSES
        header = UserHeader(
            source_queue_manager=own,
            destination_queue=report.destination,
            queue_manager_address=own if is_named else GUID_NULL,
            sent_time=self._ledger.now_ms // 1000,
            message_id=self._ledger.next_message_ordinal(),
        )
        properties = MessagePropertiesHeader(
            report.body, label=report.label, message_class=report.message_class
        )
        return write_user_message(UserMessage(header, properties, priority=PRIORITY))
