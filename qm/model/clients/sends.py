"""Messages that clients send ([MS-MQDMPR] 3.1.7.1.9, .27)."""

from types import MappingProxyType
from typing import Final, NamedTuple

from qm.model.arrivals.message_security import MessageSecurity
from qm.model.clients.clients import Clients
from qm.model.clients.opens import READING, Opens
from qm.model.clients.transactions import Transactions
from qm.model.messages.endings import Endings
from qm.model.messages.enqueue import Enqueue, EnqueueStatus, NewMessage
from qm.model.messages.seek import select
from qm.model.state.addressing import is_service_queue, label_bytes, stored_name
from qm.model.state.directory_rows import attribute, object_row
from qm.model.state.granting import is_granted_on_queue
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.people import with_groups
from qm.model.state.registry import Registry, Route
from qm.model.values.commands import (
    Facts,
    Selector,
    SelectorKind,
    Send,
    SignatureFact,
    Target,
    TransferVerdict,
)
from qm.model.values.effects import Outcome
from qm.model.values.elements import (
    DirectoryObjectType,
    LockKind,
    OperationType,
    QueueKind,
    QueuePrivacyLevel,
)
from qm.model.values.limits import (
    PACKET_MAX_BYTES,
    TARGETS_PER_SEND_MAX,
    VERSION_OF_PEOPLE,
    VERSION_OF_PRIVATE_BODIES,
    VERSION_OF_SEALED_BODIES,
    VERSION_OF_SIGNED_SENDS,
    VERSION_OF_TIME_TO_REACH,
)
from qm.model.values.records import GUID_NULL, Lock, Obligation, TransactionalOperation
from qm.model.values.rows import Position, PositionFlag
from qm.names.direct import AnyDirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, PrivateName, parse_format_name
from qm.security.body_encryption import (
    NoUsableKey,
    is_by_connector,
    is_privacy_level,
    published_key,
)
from qm.security.body_seals import SEAL_BYTES
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.enums import PrivacyLevel
from qm.wire.errors import ProtocolError
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.message_class import MessageClass, MessageClassRole, message_class_role
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.public_key import parse_mqds_public_keys

MQ_OK: Final = 0
_STATUS_OF_CLASS: Final = MappingProxyType(
    {
        MessageClass.NACK_BAD_SIGNATURE: ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA,
        MessageClass.NACK_BAD_ENCRYPTION: ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
            ErrorCode.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED
        ),
    }
)
"""How a sender of this cluster is told what a peer gets as the class of a negative ack."""


class Sending:
    """Applies Send."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        clients: Clients,
        enqueue: Enqueue,
        endings: Endings,
        outgoing: OutgoingQueues,
        transactions: Transactions,
        opens: Opens,
        security: MessageSecurity,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clients = clients
        self._enqueue = enqueue
        self._endings = endings
        self._outgoing = outgoing
        self._transactions = transactions
        self._opens = opens
        self._security = security

    def apply_send(self, command: Send) -> Outcome:
        """Enqueue once per target; the value is (MessageID, [(queue_id, key), ...]).

        Several targets share one MessageID. The first failure ends the command and is its status;
        copies made before it remain (DM-A27).
        """
        if not 1 <= len(command.targets) <= TARGETS_PER_SEND_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        copies = _copies(command, self._ledger.behaviour)
        if copies is None:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if self._ledger.manager is None or any(
            copy.size_bytes > PACKET_MAX_BYTES for copy in copies
        ):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        if command.application_deadletter_queue:
            try:
                parse_format_name(command.application_deadletter_queue)
            except QueueNameError as error:
                return Outcome(error.code)
        if command.transaction is not None:
            refusal = self._transactions.refusal(command.transaction, command.request.client_id)
            if refusal:
                return Outcome(refusal)
            needed = len(command.targets) + bool(command.replaced_handle)
            if self._transactions.room(command.transaction) < needed:
                return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        replaced: tuple[QueueInHand, int, Position] | None = None
        if command.replaced_handle:
            refusal, replaced = self._replaced(command)
            if replaced is None:
                return Outcome(refusal)
        places: list[tuple[int, int]] = []
        ordinal = 0
        for copy in copies:
            status, queue = self._target(command, copy)
            if queue is None:
                return Outcome(status, value=(ordinal, places))
            ordinal = ordinal or self._ledger.next_message_ordinal()
            places.append((queue.record.queue_id, self._put(command, copy, queue, ordinal)))
        if replaced is not None:
            self._end_replaced(command, *replaced)
        return Outcome(MQ_OK, value=(ordinal, places))

    def _replaced(self, command: Send) -> tuple[int, tuple[QueueInHand, int, Position] | None]:
        """Find the message from which this one is made, by the rules of a receive."""
        if len(command.targets) != 1:
            return ErrorCode.MQ_ERROR_INVALID_PARAMETER, None
        opened = self._opens.find(command.replaced_handle, command.request.client_id)
        if opened is None:
            return ErrorCode.MQ_ERROR_INVALID_HANDLE, None
        if opened.access not in READING:
            return ErrorCode.MQ_ERROR_ACCESS_DENIED, None
        queue = self._ledger.queue(opened.queue_id)
        if queue is None or queue.record.is_deleting:
            return ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE, None
        selector = Selector(SelectorKind.EXACT, command.replaced_lookup_identifier)
        status, found = select(self._ledger, queue, selector)
        return status, None if found is None else (queue, *found)

    def _end_replaced(
        self, command: Send, queue: QueueInHand, key: int, position: Position
    ) -> None:
        if command.transaction is None:
            self._endings.end(queue, key, position, MessageClass.ACK_RECEIVE)
            return
        operation = TransactionalOperation(OperationType.DEQUEUE, queue.record.queue_id, key)
        place = self._transactions.add(command.transaction, operation)
        lock = Lock(LockKind.TX_DEQUEUE, command.transaction, place)
        self._ledger.lock(queue, key, position, lock)

    def _target(self, command: Send, copy: "_Copy") -> tuple[int, QueueInHand | None]:
        try:
            name = parse_format_name(copy.target.format_name)
        except QueueNameError as error:
            return error.code, None
        found = self._registry.format_name(name)
        if found == Route.ELSEWHERE:
            found = self._outgoing.ensure(name)
            if found <= 0:
                return ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, None
        queue = self._ledger.queue(found) if found > 0 else None
        if queue is None or queue.record.is_deleting:
            return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, None
        refusal = self._refusal(queue, command, copy)
        return (refusal, None) if refusal else (MQ_OK, queue)

    def _refusal(self, queue: QueueInHand, command: Send, copy: "_Copy") -> int:
        record = queue.record
        is_transactional = command.transaction is not None
        if record.kind is not QueueKind.OUTGOING:
            if record.kind not in (QueueKind.APPLICATION, QueueKind.CONNECTOR):
                return ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
            sids = with_groups(self._ledger, command.sender_sids)
            if not is_granted_on_queue(queue, sids, QueueAccess.WRITE_MESSAGE):
                return ErrorCode.MQ_ERROR_ACCESS_DENIED
            if record.transactional != is_transactional:
                return ErrorCode.MQ_ERROR_TRANSACTION_USAGE
            refusal = self._unproven(queue, command, copy)
            if refusal:
                return refusal
            if not self._has_privacy(record.privacy_level, copy):
                return ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION
        elif not self._is_encryptable(copy):
            return ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND
        if is_transactional != (copy.message.transaction is not None):
            return ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        status = self._enqueue.quota_status(queue, copy.size_bytes)
        return MQ_OK if status is EnqueueStatus.OK else ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES

    def _facts(self, command: Send, copy: "_Copy") -> Facts | None:
        """Return what was found in a target's packet, None if nobody looked."""
        if not command.facts or self._ledger.behaviour < VERSION_OF_SIGNED_SENDS:
            return None
        return command.facts[copy.place]

    def _unproven(self, queue: QueueInHand, command: Send, copy: "_Copy") -> int:
        """Return why a local queue refuses what the packet says of its sender and its body.

        QB-A73: where a signature is asked for, it must count as a peer's would; elsewhere one that
        does not is worth nothing. Access is the caller's.
        """
        is_demanded, facts = queue.record.authentication, self._facts(command, copy)
        if facts is None or (is_demanded and facts.signature is SignatureFact.ABSENT):
            return ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED if is_demanded else MQ_OK
        if facts.decryption_failed:
            verdict = self._security.privacy(queue, facts, is_encrypted=False)
            return _STATUS_OF_CLASS[MessageClass(verdict)]
        verdict = self._security.signature(queue, facts)
        if not is_demanded or verdict == TransferVerdict.ACCEPTED:
            return MQ_OK
        is_right = bool(facts.signature_version) and facts.signature is not SignatureFact.INVALID
        if is_right and verdict == MessageClass.NACK_BAD_SIGNATURE:
            return ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED  # it matches, but does not count
        return _STATUS_OF_CLASS[MessageClass(verdict)]

    def _has_privacy(self, wanted: QueuePrivacyLevel, copy: "_Copy") -> bool:
        """Whether a local queue takes the message. QB-A71: what does not leave is not encrypted;
        that encryption was asked for counts.
        """
        if self._ledger.behaviour < VERSION_OF_PEOPLE:
            return wanted is not QueuePrivacyLevel.BODY
        is_private = copy.message.properties.privacy_level != PrivacyLevel.NONE
        if wanted is QueuePrivacyLevel.OPTIONAL:
            return True
        return is_private == (wanted is QueuePrivacyLevel.BODY)

    def _is_encryptable(self, copy: "_Copy") -> bool:
        """Whether the directory has the key that the message's body will be encrypted with.

        Direct names have none: their messages end when they would leave (QB-A72).
        """
        level = copy.message.properties.privacy_level
        name = parse_format_name(copy.target.format_name)
        if level == PrivacyLevel.NONE or self._ledger.behaviour < VERSION_OF_PEOPLE:
            return True
        if isinstance(name, AnyDirectName) or is_by_connector(copy.message):
            return True
        manager = object_row(self._ledger.state, _host(name), DirectoryObjectType.QUEUE_MANAGER)
        if manager is None or not is_privacy_level(level):
            return False
        encoded = attribute(manager.attributes, "public_encryption_key_list", b"")
        keys = parse_mqds_public_keys(encoded, 0, len(encoded))[0] if encoded else ()
        try:
            published_key(level, keys)
        except NoUsableKey:
            return False
        return True

    def _put(self, command: Send, copy: "_Copy", queue: QueueInHand, ordinal: int) -> int:
        ledger, message = self._ledger, copy.message
        manager = ledger.manager
        assert manager is not None
        is_outgoing = queue.record.kind is QueueKind.OUTGOING
        new = NewMessage(
            command.body_index,
            copy.offset,
            copy.stored_bytes,
            copy.body_ordinal,
            copy.target.checksum,
            0 if command.transaction is not None else message.priority,
            _flags(message, queue, command) | self._proven(queue, command, copy),
            manager.identifier,
            ordinal,
            ledger.now_ms // 1000 if is_outgoing else message.user_header.sent_time,
            self._lifetime_s(message) if is_outgoing else message.user_header.time_to_be_received,
            self._obligation(message, command.application_deadletter_queue),
            seal_bytes=copy.stored_bytes - copy.size_bytes,
        )
        lock = None
        if command.transaction is not None:
            lock = Lock(LockKind.ENQ_PENDING, command.transaction)
        key, position = self._enqueue.insert(queue, new, lock=lock)
        if command.transaction is not None:
            self._transactions.add(
                command.transaction,
                TransactionalOperation(OperationType.ENQUEUE, queue.record.queue_id, key),
            )
        elif is_outgoing:
            self._outgoing.entered(queue, key, position)
        else:
            self._endings.reached(queue, key, position)
        is_here = command.transaction is None and not is_outgoing
        if is_here and position.deadline_ms and position.deadline_ms <= ledger.now_ms:
            self._endings.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)
        return key

    def _obligation(
        self, message: UserMessage, application_deadletter_queue: str
    ) -> Obligation | None:
        """Return the obligation of a message sent here; other queue managers send final acks."""
        header, properties = message.user_header, message.properties
        if not properties.flags and not application_deadletter_queue:
            return None
        is_known = self._ledger.behaviour >= VERSION_OF_PRIVATE_BODIES
        return Obligation(
            acknowledgements=properties.flags,
            administration_queue=stored_name(header.admin_queue, header),
            application_deadletter_queue=application_deadletter_queue,
            priority=message.priority,
            application_tag=properties.application_tag,
            label=label_bytes(properties.label),
            destination=stored_name(header.destination_queue, header),
            is_private=is_known and properties.privacy_level != PrivacyLevel.NONE,
        )

    def _lifetime_s(self, message: UserMessage) -> int:
        """Return how long it may be in transit: until the first of its times is over.

        At an age of TimeToReachQueue it is not too late yet ([MS-MQQB] 3.1.7.1.2).
        """
        reach = message.time_to_reach_queue
        if self._ledger.behaviour >= VERSION_OF_TIME_TO_REACH:
            reach = min(reach + 1, TIME_INFINITE_S)
        return min(message.user_header.time_to_be_received, reach)

    def _proven(self, queue: QueueInHand, command: Send, copy: "_Copy") -> int:
        """Return the flags that say what was proven of a message in a queue here."""
        facts, flags = self._facts(command, copy), PositionFlag(0)
        if facts is not None and facts.was_encrypted:
            flags |= PositionFlag.WAS_ENCRYPTED
        if facts is not None and facts.signature_version and self._security.is_authenticated(facts):
            is_right = self._security.signature(queue, facts) == TransferVerdict.ACCEPTED
            flags |= PositionFlag.AUTHENTICATED if is_right else 0
        return int(flags)


def _host(name: FormatName) -> bytes:
    """Return the queue manager of a private name; a public one has none before it is routed."""
    return name.guid if isinstance(name, PrivateName) else GUID_NULL


class _Copy(NamedTuple):
    """The message for one target."""

    target: Target
    message: UserMessage
    offset: int
    """Ordinal of its packet in the entry."""
    size_bytes: int
    """Of the packet, as charged to quotas."""
    stored_bytes: int
    """The same with the seal that may follow it."""
    body_ordinal: int
    place: int
    """Of the target in the command."""


def _copies(command: Send, behaviour: int) -> list[_Copy] | None:
    """Return the copies, None if the targets' packets do not match the command."""
    seal_bytes = SEAL_BYTES if behaviour >= VERSION_OF_SEALED_BODIES else 0
    copies: list[_Copy] = []
    begin = 0
    for k, target in enumerate(command.targets):
        stored = target.packet_bytes
        size = stored - seal_bytes if target.is_sealed else stored
        try:
            message, end = parse_user_message(command.packets[begin : begin + stored], 0, stored)
        except ProtocolError:
            return None
        if end != size:
            return None
        place = command.body_offset + begin
        copies.append(_Copy(target, message, place, size, stored, command.first_ordinal + k, k))
        begin += stored
    return copies if begin == len(command.packets) else None


def _is_service(message: UserMessage, queue: QueueInHand) -> bool:
    """Whether it goes to an administration, notification or order queue: such a message is never
    journaled at its source ([MS-MQMQ] 2.2.19.2 JN and JP). An acknowledgement is recognized by
    class.
    """
    role = message_class_role(message.properties.message_class)
    if role in (MessageClassRole.ADMINISTRATION, MessageClassRole.ORDER):
        return True
    is_outgoing = queue.record.kind is QueueKind.OUTGOING
    return is_outgoing and is_service_queue(parse_format_name(queue.record.pathname))


def _flags(message: UserMessage, queue: QueueInHand, command: Send) -> int:
    header = message.user_header
    flags = PositionFlag.FROM_THIS_MANAGER
    if header.is_recoverable:
        flags |= PositionFlag.RECOVERABLE
    if command.transaction is not None:
        flags |= PositionFlag.TRANSACTIONAL
    if command.allow_peek_when_locked:
        flags |= PositionFlag.ALLOW_PEEK_WHEN_LOCKED
    is_journaled = header.has_negative_journaling or header.has_positive_journaling
    if is_journaled and not _is_service(message, queue):
        if header.has_negative_journaling:
            flags |= PositionFlag.NEGATIVE_JOURNALING
        if header.has_positive_journaling:
            flags |= PositionFlag.POSITIVE_JOURNALING
    if message.transaction is not None and message.transaction.is_final_ack_wanted:
        flags |= PositionFlag.FINAL_ACK_WANTED
    return int(flags)
