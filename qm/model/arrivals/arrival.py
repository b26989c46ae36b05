"""One packet of an EdgeBatch, as apply judges it; expensive facts are computed on demand."""

from typing import Final

from qm.model.messages.acknowledgements import Subject
from qm.model.messages.enqueue import NewMessage
from qm.model.state.addressing import label_bytes, stored_name
from qm.model.values.commands import EdgeBatch, Facts
from qm.model.values.effects import SequenceSeen
from qm.model.values.records import Obligation
from qm.wire.headers.security_header import FLAG_EB
from qm.wire.headers.user_header import DM_RECOVERABLE, DM_SHIFT, FLAG_DM
from qm.wire.packets.peek import Head, peek_destination, peek_head, properties_offset
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT

_ANY_FLAGS: Final = 0x0F
_HTTP: Final = "http".encode("utf-16-le")


class Arrival:
    """Packet k of a batch."""

    __slots__ = (
        "_message",
        "_obligation",
        "_properties_at",
        "base_flags",
        "command",
        "destination",
        "has_consequence",
        "has_no_room",
        "head",
        "is_homeless",
        "k",
        "message_id",
        "offset",
        "queue_manager_address",
        "seal_bytes",
        "sent_time",
        "source_queue_manager",
        "time_to_be_received",
        "time_to_reach_queue",
        "user_flags",
    )

    def __init__(self, command: EdgeBatch, k: int, seal_bytes: int = 0) -> None:
        """`seal_bytes`: size of the seal that follows the packet."""
        self.command = command
        self.k = k
        self.seal_bytes = seal_bytes
        self.offset = command.offsets[k]
        self.head: Head = peek_head(command.packets, self.offset)
        # Each is read several times, and reading a slot takes a third of a named tuple's attribute.
        (
            _,
            self.base_flags,
            _,
            _,
            self.time_to_reach_queue,
            self.source_queue_manager,
            self.queue_manager_address,
            self.time_to_be_received,
            self.sent_time,
            self.message_id,
            self.user_flags,
            _,
        ) = self.head
        self.destination = peek_destination(command.packets, self.offset, self.head)
        self.has_consequence = False
        self.has_no_room = False
        """Whether the queue manager cannot store the message now."""
        self.is_homeless = False
        """Whether the destination queue does not exist."""
        self._properties_at = 0
        self._message: UserMessage | None = None
        self._obligation: Obligation | None = None

    @property
    def facts(self) -> Facts:
        """What the edge knows of the message."""
        return self.command.facts[self.command.facts_of[self.k]]

    @property
    def size_bytes(self) -> int:
        """Size of the packet, as charged to quotas."""
        return self.stored_bytes - self.seal_bytes

    @property
    def stored_bytes(self) -> int:
        """Size of the packet with its seal."""
        return self.command.offsets[self.k + 1] - self.offset

    def acknowledge_flags(self) -> int:
        """MessagePropertiesHeader.Flags."""
        if not self._properties_at:
            self._properties_at = properties_offset(self.command.packets, self.offset, self.head)
        return self.command.packets[self._properties_at] & _ANY_FLAGS

    def security_flags(self) -> int:
        """Low byte of SecurityHeader.Flags, 0 without the header."""
        security = self.message().security
        return FLAG_EB if security is not None and security.is_body_encrypted else 0

    def message(self) -> UserMessage:
        """Return the whole packet as a value."""
        if self._message is None:
            end = self.command.offsets[self.k + 1]
            self._message, _ = parse_user_message(self.command.packets, self.offset, end)
        return self._message

    def new_message(self, priority: int, flags: int) -> NewMessage:
        """Return the message that becomes the position."""
        command, k = self.command, self.k
        return NewMessage(
            command.body_index,
            command.body_offset + self.offset,
            self.stored_bytes,
            command.first_ordinal + k,
            command.checksums[k],
            priority,
            flags,
            self.source_queue_manager,
            self.message_id,
            self.sent_time,
            self.time_to_be_received,
            seal_bytes=self.seal_bytes,
        )

    def obligation(self) -> Obligation:
        """Return the obligation that the message creates."""
        if self._obligation is None:
            message = self.message()
            header, properties = message.user_header, message.properties
            transaction = message.transaction
            self._obligation = Obligation(
                acknowledgements=properties.flags,
                administration_queue=stored_name(header.admin_queue, header),
                source_address=self._return_address(),
                priority=message.priority,
                application_tag=properties.application_tag,
                label=label_bytes(properties.label),
                destination=stored_name(header.destination_queue, header),
            )
            if transaction is not None:
                self._obligation.final_ack = (
                    transaction.is_final_ack_wanted
                    or header.has_negative_journaling
                    or header.has_positive_journaling
                )
                self._obligation.sequence_identifier = transaction.tx_sequence_id.to_int()
                self._obligation.sequence_number = transaction.tx_sequence_number
                self._obligation.previous_sequence_number = transaction.previous_tx_sequence_number
                self._obligation.is_direct = self._is_direct
        return self._obligation

    @property
    def _is_direct(self) -> bool:
        """Whether it was sent to a direct name and is answered with one (QB-A22)."""
        return not any(self.queue_manager_address)

    def _return_address(self) -> str:
        """Return the address of its queue manager; "" if another one's session brought it.

        A peer that merely names a source is told nothing that belongs to it (DESIGN section 7).
        """
        return self.facts.peer_address if self.is_own else ""

    @property
    def is_by_http(self) -> bool:
        """Whether the destination is a direct name for HTTP."""
        name = self.destination
        return name[0] == QUEUE_TYPE_DIRECT and name[1:9].lower() == _HTTP

    @property
    def is_own(self) -> bool:
        """Whether its own queue manager's session brought it."""
        return self.facts.peer_queue_manager == self.source_queue_manager

    def seen(self, message_ordinal: int) -> SequenceSeen:
        """Return where the order acks of its sequence go, and the MessageID of the next one."""
        return SequenceSeen(
            self.source_queue_manager, self._return_address(), self._is_direct, message_ordinal
        )

    def subject(self) -> Subject:
        """Return it as the subject of an acknowledgement."""
        obligation = self.obligation()
        is_recoverable = (self.user_flags & FLAG_DM) >> DM_SHIFT == DM_RECOVERABLE
        is_sealed = self.facts.was_encrypted or self.security_flags() & FLAG_EB
        command, k = self.command, self.k
        body = (
            command.body_index,
            command.body_offset + self.offset,
            self.stored_bytes,
            command.first_ordinal + k,
            command.checksums[k],
        )
        return Subject(
            self.source_queue_manager,
            self.message_id,
            is_recoverable,
            obligation.destination,
            obligation,
            None if is_sealed else body,
        )
