"""UserMessages from the network: the hot path ([MS-MQQB] 3.1.5.8, guide 4.3 step 8).

For each packet of a batch, in order: duplicate or out of order, expired, destination, access and
policy, quota; then position, history or sequence, and consequences, all in this apply. A message is
remembered exactly when it was taken or refused for good (QB-A1 to A03, A20); one that cannot be
stored now is not, and its session closes so that the peer sends it again.
"""

from array import array
from typing import Final

from qm.model.acknowledgements import Acknowledgements, Subject
from qm.model.addressing import format_name_of
from qm.model.columns import IntArray
from qm.model.commands import EdgeBatch, Facts, SignatureFact, TransferVerdict
from qm.model.duplicates import Duplicates, History, Stream
from qm.model.effects import Outcome, SequenceSeen
from qm.model.elements import QueueKind, QueuePrivacyLevel
from qm.model.endings import Endings
from qm.model.enqueue import Enqueue, EnqueueStatus, NewMessage
from qm.model.granting import is_granted_on_queue
from qm.model.ledger import Ledger, QueueInHand
from qm.model.limits import ALARM_STREAM_LIMIT, POSITIONS_PER_ENTRY_MAX
from qm.model.plain_run import Lane, PlainRun, is_plain
from qm.model.records import Obligation
from qm.model.registry import Registry
from qm.model.rows import PositionFlag
from qm.wire.access_mask import QueueAccess
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.peek import (
    HEAD,
    Head,
    peek_destination,
    peek_transaction,
    properties_offset,
)
from qm.wire.queue_name import QUEUE_TYPE_DIRECT
from qm.wire.security_header import FLAG_EB
from qm.wire.user_header import (
    DM_RECOVERABLE,
    DM_SHIFT,
    DQ_SHIFT,
    FLAG_DM,
    FLAG_JN,
    FLAG_JP,
    FLAG_SH,
    FLAG_TH,
    QUEUE_TYPE_MASK,
)
from qm.wire.user_message import UserMessage, parse_user_message

_ACCEPTED: Final = int(TransferVerdict.ACCEPTED)
_RECEIVE_FLAGS: Final = int(AcknowledgeFlags.PR | AcknowledgeFlags.NR)
_ANY_FLAGS: Final = 0x0F
_GUIDS_AT: Final = 16
"""SourceQueueManager and QueueManagerAddress lie behind the BaseHeader."""
_GUIDS_END: Final = 48
_DESTINATION_AT: Final = 64
_DESTINATION_END: Final = (64, 64, 64, 68, 64, 80, 64, 66)
"""By Flags.DQ: where DestinationQueue ends in a packet; a direct name's byte count comes on top."""
_UNKNOWN: Final = "unknown"
_IGNORING_KINDS: Final = frozenset({QueueKind.ORDER, QueueKind.NOTIFICATION})


RouteKey = tuple[bytes, bytes, int, int]
"""Both GUIDs of the UserHeader, destination name, its type, number of the facts."""
ROUTES_MAX: Final = 65_536


class Route:
    """Where plain packets of one source to one destination go."""

    __slots__ = ("queue", "stream")

    def __init__(self, queue: QueueInHand, stream: Stream) -> None:
        self.queue = queue
        self.stream = stream


class Arrivals:
    """Applies EdgeBatch."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        duplicates: Duplicates,
        enqueue: Enqueue,
        endings: Endings,
        acknowledgements: Acknowledgements,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self.duplicates = duplicates
        self._enqueue = enqueue
        self._endings = endings
        self._acknowledgements = acknowledgements
        self._routes: dict[RouteKey, Route | None] = {}
        self._routes_version = -1
        self._facts_numbers: dict[Facts, int] = {}

    def apply_edge_batch(self, command: EdgeBatch) -> Outcome:
        """Take or refuse each message; `Outcome.verdicts` says which."""
        count = len(command.offsets) - 1
        if count > POSITIONS_PER_ENTRY_MAX or self._ledger.manager is None:
            closed = array("H", [TransferVerdict.CLOSE_SESSION]) * count
            return Outcome(0, closed)
        return Outcome(0, _Batch(self, self._ledger, command).take_all())

    def take(
        self,
        arrival: "_Arrival",
        policies: dict[tuple[int, int, bool], int],
        histories: dict[int, History],
    ) -> int:
        """Judge one packet by all rules; return its verdict."""
        head = arrival.head
        stream = self.duplicates.stream(head[5], arrival.destination)
        if stream is None:
            self._ledger.applied.alarms.append(ALARM_STREAM_LIMIT)
            return TransferVerdict.CLOSE_SESSION
        if head[10] & FLAG_TH:
            return self._take_transactional(arrival, stream, policies)
        history = histories.get(stream.stream_id)
        if history is None:
            history = histories[stream.stream_id] = self.duplicates.history(stream)
        if history.is_known(head[8], head[9]):
            return TransferVerdict.DUPLICATE
        verdict = self._admit(arrival, False, policies)
        if verdict == _ACCEPTED or arrival.has_consequence:
            history.remember(head[9], self.lifetime_ms(head))
        return verdict

    def _take_transactional(
        self, arrival: "_Arrival", stream: Stream, policies: dict[tuple[int, int, bool], int]
    ) -> int:
        sequence, number, previous = peek_transaction(
            arrival.command.packets, arrival.offset, arrival.head
        )
        self._ledger.applied.incoming_sequences[stream.stream_id] = arrival.seen()
        if not stream.admits(sequence, number, previous):
            self.duplicates.reject(stream)
            is_repeat = sequence == stream.sequence and number <= stream.number
            return TransferVerdict.DUPLICATE if is_repeat else TransferVerdict.OUT_OF_ORDER
        verdict = self._admit(arrival, True, policies)
        if verdict != TransferVerdict.CLOSE_SESSION:
            self.duplicates.advance(stream, sequence, number)
        return verdict

    def lifetime_ms(self, head: Head) -> int:
        """Return for how long after SentTime the sender may repeat a message."""
        if head[4] != TIME_INFINITE_S:
            return head[4] * 1000
        manager = self._ledger.manager
        assert manager is not None
        return manager.duplicate_horizon_ms

    def route(self, arrival: "_Arrival") -> Route | None:
        """Return where a plain packet and all like it go.

        None: messages like this one are to be judged one by one.
        """
        queue_id = self._registry.wire(arrival.destination, arrival.head[6])
        queue = self._ledger.queue(queue_id) if queue_id > 0 else None
        if queue is None or queue.record.privacy_level is QueuePrivacyLevel.BODY:
            return None
        if _policy(queue, arrival.facts, False) != _ACCEPTED or arrival.facts.was_encrypted:
            return None
        stream = self.duplicates.stream(arrival.head[5], arrival.destination)
        return None if stream is None else Route(queue, stream)

    def routes(self) -> dict[RouteKey, Route | None]:
        """Return the routes that still hold."""
        if self._routes_version != self._ledger.version or len(self._routes) > ROUTES_MAX:
            self._routes.clear()
            self._facts_numbers.clear()
            self._routes_version = self._ledger.version
        return self._routes

    def facts_number(self, facts: Facts) -> int:
        """Return a number for equal facts, as long as the routes hold."""
        return self._facts_numbers.setdefault(facts, len(self._facts_numbers))

    def room_bytes(self, queue: QueueInHand) -> tuple[int, int]:
        """Return what the quotas of a queue and of the queue manager still admit."""
        return self._enqueue.room_bytes(queue)

    def _admit(
        self,
        arrival: "_Arrival",
        is_transactional: bool,
        policies: dict[tuple[int, int, bool], int],
    ) -> int:
        """Return ACCEPTED after inserting, CLOSE_SESSION, IGNORED, or the class of a refusal."""
        head = arrival.head
        queue_id = self._registry.wire(arrival.destination, head[6])
        lifetime_s = head[4]
        if lifetime_s != TIME_INFINITE_S and self._ledger.now_ms // 1000 - head[8] > lifetime_s:
            return self._refuse(arrival, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        queue = self._ledger.queue(queue_id) if queue_id > 0 else None
        if queue is None:
            return self._refuse(arrival, MessageClass.NACK_BAD_DST_Q)
        fact = arrival.command.facts_of[arrival.k]
        key = (queue_id, fact, is_transactional)
        policy = policies.get(key)
        if policy is None:
            facts = arrival.command.facts[fact]
            policy = policies[key] = _policy(queue, facts, is_transactional)
        if policy == _ACCEPTED and head[10] & FLAG_SH:
            policy = self._privacy(arrival, queue)
        elif policy == _ACCEPTED and queue.record.privacy_level is QueuePrivacyLevel.BODY:
            policy = MessageClass.NACK_BAD_ENCRYPTION
        if policy != _ACCEPTED:
            if policy == TransferVerdict.IGNORED:
                return policy
            return self._refuse(arrival, policy)
        size = arrival.size_bytes
        status = self._enqueue.quota_status(queue, size)
        if status is EnqueueStatus.MANAGER_QUOTA:
            return TransferVerdict.CLOSE_SESSION
        if status is EnqueueStatus.QUEUE_QUOTA:
            self._keep_for_quota(arrival, is_transactional)
            return self._refuse(arrival, MessageClass.NACK_Q_EXCEED_QUOTA)
        self._accept(arrival, queue, is_transactional)
        return _ACCEPTED

    def _privacy(self, arrival: "_Arrival", queue: QueueInHand) -> int:
        """Whether the queue takes a body that travelled as this one did (3.1.1.2 PrivacyLevel)."""
        facts = arrival.facts
        # The edge decrypted what it could and says so; EB still set means that it could not.
        is_sealed = arrival.security_flags() & FLAG_EB and not facts.was_encrypted
        if is_sealed or facts.decryption_failed:
            return MessageClass.NACK_BAD_ENCRYPTION
        level = queue.record.privacy_level
        if facts.was_encrypted and level is QueuePrivacyLevel.NONE:
            return MessageClass.NACK_BAD_ENCRYPTION
        if not facts.was_encrypted and level is QueuePrivacyLevel.BODY:
            return MessageClass.NACK_BAD_ENCRYPTION
        return _ACCEPTED

    def _accept(self, arrival: "_Arrival", queue: QueueInHand, is_transactional: bool) -> None:
        head = arrival.head
        flags = PositionFlag.RECOVERABLE if head[10] & FLAG_DM else 0
        if head[10] & FLAG_JN:
            flags |= PositionFlag.NEGATIVE_JOURNALING
        if head[10] & FLAG_JP:
            flags |= PositionFlag.POSITIVE_JOURNALING
        if arrival.facts.was_encrypted:
            flags |= PositionFlag.WAS_ENCRYPTED
        acknowledgements = arrival.acknowledge_flags()
        obligation = None
        if is_transactional:
            flags |= PositionFlag.TRANSACTIONAL
            obligation = arrival.obligation()
            if not obligation.final_ack and not acknowledgements & _RECEIVE_FLAGS:
                obligation = None
        elif acknowledgements & _RECEIVE_FLAGS:
            obligation = arrival.obligation()
        message = arrival.new_message(0 if is_transactional else head[1] & 7, int(flags))
        message.obligation = obligation
        key, position = self._enqueue.insert(queue, message)
        if acknowledgements & AcknowledgeFlags.PA:
            self._acknowledgements.acknowledge(arrival.subject(), MessageClass.ACK_REACH_QUEUE)
        if position.deadline_ms and position.deadline_ms <= self._ledger.now_ms:
            self._endings.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)

    def _refuse(self, arrival: "_Arrival", message_class: int) -> int:
        """Say so to whoever asked to hear it; a transactional sender always gets a final ack."""
        if arrival.acknowledge_flags() & AcknowledgeFlags.NA:
            arrival.has_consequence = True
            self._acknowledgements.acknowledge(arrival.subject(), message_class)
        if arrival.head[10] & FLAG_TH:
            self._acknowledgements.finally_acknowledge(arrival.subject(), message_class)
        return int(message_class)

    def _keep_for_quota(self, arrival: "_Arrival", is_transactional: bool) -> None:
        """QB-A47: of a refused message with JN, keep the copy that 3.1.5.8.8 asks for."""
        manager = self._ledger.manager
        assert manager is not None
        if is_transactional or not arrival.head[10] & FLAG_JN:
            return
        target = self._ledger.queue(manager.system_deadletter_queue)
        if target is None or not manager.copy_to_deadletter_on_quota:
            return
        if self._enqueue.quota_status(target, arrival.size_bytes) is not EnqueueStatus.OK:
            return
        arrival.has_consequence = True
        message = arrival.new_message(arrival.head[1] & 7, int(PositionFlag.SYSTEM))
        message.time_to_be_received = TIME_INFINITE_S
        message.message_class = MessageClass.NACK_Q_EXCEED_QUOTA
        self._enqueue.insert(target, message)


def _policy(queue: QueueInHand, facts: Facts, is_transactional: bool) -> int:
    """Return what a queue says to all messages of a sender, ACCEPTED or the class of a refusal."""
    record = queue.record
    if record.kind in _IGNORING_KINDS:
        return TransferVerdict.IGNORED
    if record.kind not in (QueueKind.APPLICATION, QueueKind.CONNECTOR) or record.is_deleting:
        return MessageClass.NACK_BAD_DST_Q
    if facts.signature in (SignatureFact.INVALID, SignatureFact.UNVERIFIED):
        return MessageClass.NACK_BAD_SIGNATURE
    if record.authentication and facts.signature is not SignatureFact.VALID:
        return MessageClass.NACK_BAD_SIGNATURE
    if not is_granted_on_queue(queue, facts.sender_sids, QueueAccess.WRITE_MESSAGE):
        return MessageClass.NACK_ACCESS_DENIED
    if is_transactional and not record.transactional:
        return MessageClass.NACK_NOT_TRANSACTIONAL_Q
    if record.transactional and not is_transactional:
        return MessageClass.NACK_NOT_TRANSACTIONAL_MSG
    return _ACCEPTED


class _Batch:
    """One EdgeBatch on its way through: plain runs, and single messages between them."""

    def __init__(self, arrivals: Arrivals, ledger: Ledger, command: EdgeBatch) -> None:
        self._arrivals = arrivals
        self._ledger = ledger
        self._command = command
        self._run = PlainRun(ledger, command)
        self._routes = arrivals.routes()
        self._facts_numbers = [arrivals.facts_number(facts) for facts in command.facts]
        self._lanes: dict[RouteKey, Lane] = {}
        self._queues: set[int] = set()
        self._histories: dict[int, History] = {}
        self._policies: dict[tuple[int, int, bool], int] = {}
        self._manager_room_bytes = 0

    def take_all(self) -> IntArray:
        """Return the verdicts."""
        command, run = self._command, self._run
        data, offsets, facts_of = bytes(command.packets), command.offsets, command.facts_of
        now_s = self._ledger.now_ms // 1000
        verdicts = array("H", bytes(2 * len(facts_of)))
        lanes, facts_numbers = self._lanes, self._facts_numbers
        offset = 0
        for k, fact in enumerate(facts_of):
            size = offsets[k + 1] - offset
            head = HEAD.unpack_from(data, offset)
            lane = None
            if is_plain(head):
                queue_type = head[10] >> DQ_SHIFT & QUEUE_TYPE_MASK
                end = offset + _DESTINATION_END[queue_type]
                if queue_type == QUEUE_TYPE_DIRECT:
                    end += head[11]
                name = data[offset + _DESTINATION_AT : end]
                guids = data[offset + _GUIDS_AT : offset + _GUIDS_END]
                key = (guids, name, queue_type, facts_numbers[fact])
                lane = lanes.get(key) or self._open(key, k, offset, head)
            if lane is None or (head[4] != TIME_INFINITE_S and now_s - head[8] > head[4]):
                verdicts[k] = self._take_one(k, offset, head)
            elif lane.history.is_known(head[8], head[9]):
                verdicts[k] = TransferVerdict.DUPLICATE
            elif size > lane.room_bytes or size > self._manager_room_bytes - run.taken_bytes:
                verdicts[k] = self._take_one(k, offset, head)
            else:
                lifetime_s = head[4]
                lane.history.remember(
                    head[9],
                    lifetime_s * 1000
                    if lifetime_s != TIME_INFINITE_S
                    else self._arrivals.lifetime_ms(head),
                )
                run.take(lane, k, offset, size, head)
            offset += size
        self._close_run()
        for history in self._histories.values():
            history.close()
        return verdicts

    def _open(self, key: RouteKey, k: int, offset: int, head: Head) -> Lane | None:
        route = self._routes.get(key, _UNKNOWN)
        if isinstance(route, str):
            route = self._arrivals.route(_Arrival(self._command, k, head, offset))
            self._routes[key] = route
        if route is None:
            return None
        queue_id = route.queue.record.queue_id
        if queue_id in self._queues:
            # Another lane leads there: settle it, so that both see one count.
            self._close_run()
        self._queues.add(queue_id)
        history = self._histories.get(route.stream.stream_id)
        if history is None:
            history = self._arrivals.duplicates.history(route.stream)
            self._histories[route.stream.stream_id] = history
        queue_room, self._manager_room_bytes = self._arrivals.room_bytes(route.queue)
        self._manager_room_bytes += self._run.taken_bytes
        lane = self._lanes[key] = Lane(route.queue, history, queue_room)
        return lane

    def _take_one(self, k: int, offset: int, head: Head) -> int:
        self._close_run()
        arrival = _Arrival(self._command, k, head, offset)
        return self._arrivals.take(arrival, self._policies, self._histories)

    def _close_run(self) -> None:
        self._run.close(list(self._lanes.values()))
        self._lanes.clear()
        self._queues.clear()


class _Arrival:
    """One packet of a batch; what costs more than a glance is found when it is asked for."""

    __slots__ = (
        "_message",
        "_obligation",
        "_properties_at",
        "command",
        "destination",
        "has_consequence",
        "head",
        "k",
        "offset",
    )

    def __init__(self, command: EdgeBatch, k: int, head: Head, offset: int) -> None:
        self.command = command
        self.k = k
        self.head = head
        self.offset = offset
        self.destination = peek_destination(command.packets, offset, head)
        self.has_consequence = False
        self._properties_at = 0
        self._message: UserMessage | None = None
        self._obligation: Obligation | None = None

    @property
    def facts(self) -> Facts:
        """What the edge knows of it."""
        return self.command.facts[self.command.facts_of[self.k]]

    @property
    def size_bytes(self) -> int:
        """Of the packet, as it is charged."""
        return self.command.offsets[self.k + 1] - self.offset

    def acknowledge_flags(self) -> int:
        """MessagePropertiesHeader.Flags."""
        if not self._properties_at:
            self._properties_at = properties_offset(self.command.packets, self.offset, self.head)
        return self.command.packets[self._properties_at] & _ANY_FLAGS

    def security_flags(self) -> int:
        """Low byte of SecurityHeader.Flags, 0 without one."""
        security = self.message().security
        return FLAG_EB if security is not None and security.is_body_encrypted else 0

    def message(self) -> UserMessage:
        """Return the whole packet as a value."""
        if self._message is None:
            end = self.command.offsets[self.k + 1]
            self._message, _ = parse_user_message(self.command.packets, self.offset, end)
        return self._message

    def new_message(self, priority: int, flags: int) -> NewMessage:
        """Return what becomes the position."""
        command, k, head = self.command, self.k, self.head
        return NewMessage(
            command.body_index,
            command.body_offset + self.offset,
            command.offsets[k + 1] - self.offset,
            command.first_ordinal + k,
            command.checksums[k],
            priority,
            flags,
            head[5],
            head[9],
            head[8],
            head[7],
        )

    def obligation(self) -> Obligation:
        """Return what is owed for this message."""
        if self._obligation is None:
            message = self.message()
            header, properties = message.user_header, message.properties
            transaction = message.transaction
            self._obligation = Obligation(
                acknowledgements=properties.flags,
                administration_queue=format_name_of(header.admin_queue, header),
                source_address=self._return_address(),
                priority=message.priority,
                application_tag=properties.application_tag,
                label=properties.label or "",
                destination=format_name_of(header.destination_queue, header),
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
        """Whether it was sent to a direct name, and is answered by one (QB-A22)."""
        return not any(self.head[6])

    def _return_address(self) -> str:
        """Return where its queue manager was seen; "" when another one's session brought it.

        Whoever merely names a source is told nothing that belongs to it (DESIGN section 7).
        """
        facts = self.facts
        return facts.peer_address if facts.peer_queue_manager == self.head[5] else ""

    def seen(self) -> SequenceSeen:
        """Return where the order acks of its sequence go."""
        return SequenceSeen(self.head[5], self._return_address(), self._is_direct)

    def subject(self) -> Subject:
        """Return it as the subject of an acknowledgement."""
        obligation = self.obligation()
        is_recoverable = (self.head[10] & FLAG_DM) >> DM_SHIFT == DM_RECOVERABLE
        is_sealed = self.facts.was_encrypted or self.security_flags() & FLAG_EB
        return Subject(
            self.head[5],
            self.head[9],
            is_recoverable,
            obligation.destination,
            obligation,
            None if is_sealed else (self.command.body_index, self.command.first_ordinal + self.k),
        )
