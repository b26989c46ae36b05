"""Report messages: a traced message says where it arrived ([MS-MQQB] 3.1.5.8.9).

Made in the apply that takes the message. What a sending to the next hop reports is for whoever
sends it ([MS-MQQB] 3.1.7.1.7).
"""

from typing import Final

from qm.model.addressing import stored_name
from qm.model.elements import QueueKind
from qm.model.enqueue import Enqueue, EnqueueStatus, NewMessage
from qm.model.ledger import Ledger
from qm.model.records import GUID_NULL
from qm.model.registry import Registry
from qm.model.rows import PositionFlag
from qm.names.format_name import PublicName
from qm.wire.guid import Guid
from qm.wire.message_properties import MessagePropertiesHeader
from qm.wire.report import Report, Traced, received_report, report_queue
from qm.wire.user_header import UserHeader
from qm.wire.user_message import UserMessage, write_user_message

PRIORITY: Final = 3


class Reports:
    """Makes report messages."""

    def __init__(self, ledger: Ledger, registry: Registry, enqueue: Enqueue) -> None:
        self._ledger = ledger
        self._registry = registry
        self._enqueue = enqueue

    def received(self, message: UserMessage) -> None:
        """Report an arrival to the queue that the message names, if it can be opened for sending.

        A public queue that the directory does not know cannot.
        """
        wanted = report_queue(message.is_traced, message.debug)
        if wanted is None:
            return
        found = self._registry.format_name(PublicName(wanted))
        queue = self._ledger.queue(found) if found > 0 else None
        if queue is None or queue.record.transactional or queue.record.is_deleting:
            return
        if queue.record.kind is not QueueKind.APPLICATION:
            return
        header = message.user_header
        traced = Traced(
            header.source_queue_manager,
            header.message_id,
            header.hop_count,
            stored_name(header.destination_queue, header),
        )
        report = received_report(traced, wanted, self._ledger.now_ms // 1000)
        manager = self._ledger.manager
        assert manager is not None, "a message at no queue manager"
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
        header = UserHeader(
            source_queue_manager=own,
            destination_queue=report.destination,
            queue_manager_address=GUID_NULL,
            sent_time=self._ledger.now_ms // 1000,
            message_id=self._ledger.next_message_ordinal(),
        )
        properties = MessagePropertiesHeader(
            report.body, label=report.label, message_class=report.message_class
        )
        return write_user_message(UserMessage(header, properties, priority=PRIORITY))
