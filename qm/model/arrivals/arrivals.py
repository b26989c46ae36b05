"""UserMessages from the network: the hot path ([MS-MQQB] 3.1.5.8, guide 4.3 step 8).

For each packet of a batch, in order: duplicate or out of order (a repeat of a message that was
taken must not be refused for another reason, QB-A20), destination, kind, signature, encryption,
access, expired, quota; then position, history or sequence, and consequences, all in this apply. A
message is remembered exactly when it was accepted or refused for good (QB-A1 to A03, A20); one that
cannot be stored now is not, and its session closes so that the peer sends it again: nothing behind
it in that session is taken.
"""

from array import array
from collections.abc import Iterable
from typing import Final

from qm.model.arrivals.arrival import Arrival
from qm.model.arrivals.duplicates import Duplicates
from qm.model.arrivals.fast_arrivals import PlainRun, row_begins
from qm.model.arrivals.incoming_streams import Stream
from qm.model.arrivals.lanes import Lane, Lanes, Speaker
from qm.model.arrivals.message_security import MessageSecurity
from qm.model.arrivals.refused_sessions import BatchSessions, RefusedSessions
from qm.model.messages.acknowledgements import Acknowledgements
from qm.model.messages.endings import Endings
from qm.model.messages.enqueue import Enqueue, EnqueueStatus
from qm.model.messages.reports import Reports
from qm.model.state.bindings import Bindings
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.registry import Registry
from qm.model.values.columns import IntArray
from qm.model.values.commands import EdgeBatch, Facts, TransferVerdict
from qm.model.values.effects import EffectKind, Outcome
from qm.model.values.elements import QueueKind, QueuePrivacyLevel
from qm.model.values.limits import (
    ALARM_SEQUENCE_AHEAD,
    ALARM_STREAM_LIMIT,
    POSITIONS_PER_ENTRY_MAX,
    SEQUENCE_AHEAD_MAX_S,
    VERSION_OF_BINDINGS,
    VERSION_OF_JUDGEMENT,
    VERSION_OF_REFUSALS,
    VERSION_OF_REFUSED_SESSIONS,
    VERSION_OF_RENEWED_MEMORY,
    VERSION_OF_SEALED_BODIES,
)
from qm.model.values.rows import PositionFlag
from qm.security.body_seals import SEAL_BYTES
from qm.wire.headers.base_header import FLAG_PR, FLAG_TR
from qm.wire.headers.security_header import FLAG_EB
from qm.wire.headers.user_header import FLAG_DM, FLAG_JN, FLAG_JP, FLAG_RC, FLAG_SH, FLAG_TH
from qm.wire.limits import HOPS_MAX, TIME_INFINITE_S
from qm.wire.message_class import (
    MESSAGE_CLASS_NEGATIVE_BIT,
    AcknowledgeFlags,
    MessageClass,
)
from qm.wire.packets.peek import peek_source, peek_transaction

LANES_MAX: Final = 65_536
"""Cached lanes and their senders; peers can send any number of names."""
_ACCEPTED: Final = int(TransferVerdict.ACCEPTED)
_RECEIVE_FLAGS: Final = int(AcknowledgeFlags.PR | AcknowledgeFlags.NR)
_IGNORING_KINDS: Final = frozenset({QueueKind.ORDER, QueueKind.NOTIFICATION})

Policies = dict[tuple[int, int, bool], tuple[int, int]]
"""(queue_id, facts, whether transactional) -> the queue's verdicts on all such messages: before it
is asked how the body is protected, and after."""


class Arrivals:
    """Applies EdgeBatch."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        duplicates: Duplicates,
        bindings: Bindings,
        security: MessageSecurity,
        enqueue: Enqueue,
        endings: Endings,
        acknowledgements: Acknowledgements,
        reports: Reports,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self.duplicates = duplicates
        self._bindings = bindings
        self._security = security
        self._enqueue = enqueue
        self._endings = endings
        self._acknowledgements = acknowledgements
        self._reports = reports
        self._lanes = Lanes()
        self._lanes_version = -1
        self._refused: Final = RefusedSessions(ledger)

    def apply_edge_batch(self, command: EdgeBatch) -> Outcome:
        """Accept or refuse each message; `Outcome.verdicts` has one per message."""
        count = len(command.offsets) - 1
        if count > POSITIONS_PER_ENTRY_MAX or self._ledger.manager is None:
            closed = array("H", [TransferVerdict.CLOSE_SESSION]) * count
            return Outcome(0, closed)
        sessions = self._refused.in_batch(command)
        policies: Policies = {}
        lanes = self._known_lanes()
        lanes.heard.clear()
        run = PlainRun(
            self._ledger,
            self._ledger.manager,
            command,
            lanes,
            lambda k: self._open_lane(self._arrival(command, k)),
            lambda k: self._judge_of(sessions, k, policies),
            lambda k, stream, number: self._advance(self._arrival(command, k), stream, number),
            sessions.closed,
        )
        verdicts = run.take_all()
        self._refused.remember(sessions)
        self._note_speakers(command, verdicts, lanes.heard)
        return Outcome(0, verdicts)

    def _note_speakers(
        self, command: EdgeBatch, verdicts: IntArray, heard: Iterable[Speaker]
    ) -> None:
        """Note from where queue managers speak. The whole batch was judged by the bindings before.

        A GUID is bound to another address only if a message from there was accepted.
        """
        bindings = self._bindings
        if bindings.rules is None:
            return
        speakers = dict.fromkeys(heard)
        unsettled = {speaker for speaker in speakers if not bindings.is_settled(*speaker)}
        silent = unsettled - _accepted(command, verdicts) if unsettled else unsettled
        for speaker in speakers:
            if speaker not in silent:
                bindings.heard(*speaker)

    def _judge_of(self, sessions: BatchSessions, k: int, policies: Policies) -> int:
        """Judge one packet; behind one that cannot be stored its session is not asked again."""
        arrival = self._arrival(sessions.command, k)
        verdict = self._judge(arrival, policies)
        if arrival.has_no_room and self._ledger.behaviour >= VERSION_OF_REFUSED_SESSIONS:
            sessions.close(k)
        return verdict

    def _judge(self, arrival: Arrival, policies: Policies) -> int:
        """Judge one packet by all rules; return its verdict."""
        source, facts = arrival.source_queue_manager, arrival.facts
        if not self._bindings.admits(source, facts.peer_address):
            return TransferVerdict.ELSEWHERE
        self._lanes.heard.append((source, facts.peer_address))
        stream = self.duplicates.stream(source, arrival.destination, facts.peer_address)
        if stream is None:
            self._ledger.applied.alarms.append(ALARM_STREAM_LIMIT)
            return TransferVerdict.CLOSE_SESSION
        if arrival.user_flags & FLAG_TH:
            return self._take_transactional(arrival, stream, policies)
        history = self.duplicates.history(stream)
        if history.is_known(arrival.sent_time, arrival.message_id):
            if self._ledger.behaviour >= VERSION_OF_RENEWED_MEMORY:
                history.keep(self._lifetime_ms(arrival))
            return TransferVerdict.DUPLICATE
        verdict = self._admit(arrival, False, policies)
        if verdict == _ACCEPTED or arrival.has_consequence:
            history.remember(arrival.message_id, self._lifetime_ms(arrival))
        return verdict

    def _take_transactional(self, arrival: Arrival, stream: Stream, policies: Policies) -> int:
        sequence, number, previous = peek_transaction(
            arrival.command.packets, arrival.offset, arrival.head
        )
        if self._is_ahead(stream, sequence):
            self._ledger.suspect(
                ALARM_SEQUENCE_AHEAD, arrival.source_queue_manager, arrival.facts.peer_address
            )
            return TransferVerdict.OUT_OF_ORDER
        if not self.duplicates.admits(stream, sequence, number, previous):
            self.duplicates.reject(stream)
            self._owe_order_ack(stream, arrival)
            is_repeat = sequence == stream.sequence and number <= stream.number
            return TransferVerdict.DUPLICATE if is_repeat else TransferVerdict.OUT_OF_ORDER
        verdict = self._admit(arrival, True, policies)
        if stream.stream_id < 0 and self._is_strange(arrival) and not arrival.has_consequence:
            return verdict
        if verdict != TransferVerdict.CLOSE_SESSION:
            self.duplicates.advance(stream, sequence, number)
            if verdict != _ACCEPTED:
                self._note_refusal(arrival, verdict)
        self._owe_order_ack(stream, arrival)
        return verdict

    def _advance(self, arrival: Arrival, stream: Stream, number: int) -> None:
        """Note that the next message of a stream's sequence was accepted."""
        self.duplicates.advance(stream, stream.sequence, number)
        self._owe_order_ack(stream, arrival)

    def _arrival(self, command: EdgeBatch, k: int) -> Arrival:
        return Arrival(command, k, self._seal_bytes(command.facts[command.facts_of[k]]))

    def _seal_bytes(self, facts: Facts) -> int:
        """Return how many bytes of a packet with these facts are its seal."""
        is_known = self._ledger.behaviour >= VERSION_OF_SEALED_BODIES
        return SEAL_BYTES if facts.is_sealed and is_known else 0

    def _is_ahead(self, stream: Stream, sequence: int) -> bool:
        """Whether a new TxSequenceID is one that no clock can have given yet: once accepted, it
        would bar the sender's own ones.
        """
        if sequence <= stream.sequence or self._ledger.behaviour < VERSION_OF_BINDINGS:
            return False
        return sequence >> 32 > self._ledger.now_ms // 1000 + SEQUENCE_AHEAD_MAX_S

    def _owe_order_ack(self, stream: Stream, arrival: Arrival) -> None:
        """Have the sender told how far its sequence came, unless nothing of it is remembered."""
        if stream.stream_id < 0:
            return
        heard, ledger = self._ledger.applied.incoming_sequences, self._ledger
        known = heard.get(stream.stream_id)
        ordinal = known.message_ordinal if known is not None else 0
        if not ordinal and ledger.behaviour >= VERSION_OF_REFUSALS:
            ordinal = ledger.next_message_ordinal()
        heard[stream.stream_id] = arrival.seen(ordinal)

    def _note_refusal(self, arrival: Arrival, verdict: int) -> None:
        command = arrival.command
        self._ledger.applied.to_append().add(
            EffectKind.REFUSED,
            (0, 0),
            verdict if verdict & MESSAGE_CLASS_NEGATIVE_BIT else 0,
            (arrival.source_queue_manager, arrival.message_id),
            arrival.size_bytes,
            (command.body_index, command.first_ordinal + arrival.k),
            0,
        )

    def _lifetime_ms(self, arrival: Arrival) -> int:
        """Return how long after SentTime the sender may repeat a message."""
        if arrival.time_to_reach_queue != TIME_INFINITE_S:
            return arrival.time_to_reach_queue * 1000
        manager = self._ledger.manager
        assert manager is not None
        return manager.duplicate_horizon_ms

    def _open_lane(self, arrival: Arrival) -> Lane | None:
        """Return the lane of a plain packet and all like it.

        None: messages like this one must be judged one by one.
        """
        queue_id = self._registry.wire(arrival.destination, arrival.queue_manager_address)
        queue = self._ledger.queue(queue_id) if queue_id > 0 else None
        if queue is None or arrival.is_by_http:
            return None
        facts, is_transactional = arrival.facts, bool(arrival.user_flags & FLAG_TH)
        if any(self._policy(queue, facts, is_transactional)):
            return None
        if arrival.user_flags & FLAG_SH:  # a body that is still encrypted is in no lane
            privacy = self._security.privacy(queue, facts, is_encrypted=False)
        else:
            privacy = self._privacy(arrival, queue)
        if privacy != _ACCEPTED:
            return None
        source, address = arrival.source_queue_manager, arrival.facts.peer_address
        if not self._bindings.admits(source, address):
            return None
        stream = self.duplicates.stream(source, arrival.destination, address)
        if stream is None:
            return None
        begins = row_begins(int(self._proven(facts)))
        seal_bytes = self._seal_bytes(facts)
        return Lane(source, queue, stream, self.duplicates.history(stream), begins, seal_bytes)

    def _proven(self, facts: Facts) -> PositionFlag:
        """Return the flags that say what was proven of a message that is accepted."""
        flags = PositionFlag.WAS_ENCRYPTED if facts.was_encrypted else PositionFlag(0)
        if facts.signature_version and self._security.is_authenticated(facts):
            flags |= PositionFlag.AUTHENTICATED
        return flags

    def _known_lanes(self) -> Lanes:
        """Return the lanes, emptied if they are no longer valid."""
        lanes = self._lanes
        if self._lanes_version != self._ledger.version or lanes.size > LANES_MAX:
            lanes = self._lanes = Lanes()
            self._lanes_version = self._ledger.version
        return lanes

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._refused.forget()

    def forget_lanes(self, stream_ids: frozenset[int]) -> None:
        """Drop the lanes of streams that no longer exist."""
        self._lanes.forget(stream_ids)

    def _admit(
        self,
        arrival: Arrival,
        is_transactional: bool,
        policies: Policies,
    ) -> int:
        """Return ACCEPTED after inserting, CLOSE_SESSION, IGNORED, or the class of a refusal."""
        queue_id = self._registry.wire(arrival.destination, arrival.queue_manager_address)
        queue = self._ledger.queue(queue_id) if queue_id > 0 else None
        is_by_http = queue is not None and arrival.is_by_http
        if is_by_http and self._ledger.behaviour >= VERSION_OF_REFUSALS:
            queue = None  # such names lead here only over HTTP
        arrival.is_homeless = queue is None
        is_by_text = self._ledger.behaviour >= VERSION_OF_JUDGEMENT
        if not is_by_text and self._is_expired(arrival):
            return self._refuse(arrival, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        if queue is None:
            return self._refuse(arrival, MessageClass.NACK_BAD_DST_Q)
        is_far = arrival.user_flags & FLAG_RC > HOPS_MAX
        if is_far and self._ledger.behaviour >= VERSION_OF_REFUSALS:
            return self._refuse(arrival, MessageClass.NACK_HOP_COUNT_EXCEEDED)
        fact = arrival.command.facts_of[arrival.k]
        key = (queue_id, fact, is_transactional)
        policy = policies.get(key)
        if policy is None:
            facts = arrival.command.facts[fact]
            policy = policies[key] = self._policy(queue, facts, is_transactional)
        before, after = policy
        verdict = before or self._privacy(arrival, queue) or after
        if verdict == TransferVerdict.IGNORED:
            return verdict
        if verdict != _ACCEPTED:
            return self._refuse(arrival, verdict)
        if is_by_text and self._is_expired(arrival):
            return self._refuse(arrival, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        size = arrival.size_bytes
        status = self._enqueue.quota_status(queue, size)
        if status is EnqueueStatus.MANAGER_QUOTA:
            arrival.has_no_room = True
            return TransferVerdict.CLOSE_SESSION
        if status is EnqueueStatus.QUEUE_QUOTA:
            self._keep_for_quota(arrival, is_transactional)
            return self._refuse(arrival, MessageClass.NACK_Q_EXCEED_QUOTA)
        self._accept(arrival, queue, is_transactional)
        return _ACCEPTED

    def _is_expired(self, arrival: Arrival) -> bool:
        """Whether the message took longer than its time to reach the queue (QB-A41, MQ-A28)."""
        lifetime_s = arrival.time_to_reach_queue
        age_s = self._ledger.now_ms // 1000 - arrival.sent_time
        return lifetime_s != TIME_INFINITE_S and age_s > lifetime_s

    def _policy(self, queue: QueueInHand, facts: Facts, is_transactional: bool) -> tuple[int, int]:
        """Return a queue's verdicts on all messages of a sender: ACCEPTED or a refusal's class."""
        security = self._security
        signature, access = security.signature(queue, facts), security.access(queue, facts)
        kind = _kind(queue, is_transactional)
        if self._ledger.behaviour >= VERSION_OF_JUDGEMENT:
            return _home(queue) or kind or signature, access
        return _home(queue) or signature or access or kind, _ACCEPTED

    def _privacy(self, arrival: Arrival, queue: QueueInHand) -> int:
        """Return whether the queue accepts a body protected like this."""
        if not arrival.user_flags & FLAG_SH:
            is_demanded = queue.record.privacy_level is QueuePrivacyLevel.BODY
            return MessageClass.NACK_BAD_ENCRYPTION if is_demanded else _ACCEPTED
        is_encrypted = bool(arrival.security_flags() & FLAG_EB)
        return self._security.privacy(queue, arrival.facts, is_encrypted=is_encrypted)

    def _accept(self, arrival: Arrival, queue: QueueInHand, is_transactional: bool) -> None:
        flags = PositionFlag.RECOVERABLE if arrival.user_flags & FLAG_DM else 0
        if arrival.user_flags & FLAG_JN:
            flags |= PositionFlag.NEGATIVE_JOURNALING
        if arrival.user_flags & FLAG_JP:
            flags |= PositionFlag.POSITIVE_JOURNALING
        flags |= self._proven(arrival.facts)
        acknowledgements = arrival.acknowledge_flags()
        obligation = None
        if is_transactional:
            flags |= PositionFlag.TRANSACTIONAL
            obligation = arrival.obligation()
            if not obligation.final_ack and not acknowledgements & _RECEIVE_FLAGS:
                obligation = None
        elif acknowledgements & _RECEIVE_FLAGS:
            obligation = arrival.obligation()
        message = arrival.new_message(
            0 if is_transactional else arrival.base_flags & FLAG_PR, int(flags)
        )
        message.obligation = obligation
        key, position = self._enqueue.insert(queue, message)
        if arrival.base_flags & FLAG_TR:
            self._reports.received(arrival.message())
        if acknowledgements & AcknowledgeFlags.PA:
            self._acknowledgements.acknowledge(arrival.subject(), MessageClass.ACK_REACH_QUEUE)
        if position.deadline_ms and position.deadline_ms <= self._ledger.now_ms:
            self._endings.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)

    def _refuse(self, arrival: Arrival, message_class: int) -> int:
        """Acknowledge a refusal if requested. A transactional sender always gets a final ack,
        except for a message to a missing queue that came in another queue manager's session.
        """
        if arrival.acknowledge_flags() & AcknowledgeFlags.NA:
            is_told = self._acknowledgements.acknowledge(arrival.subject(), message_class)
            arrival.has_consequence = is_told or self._ledger.behaviour < VERSION_OF_REFUSALS
        if arrival.user_flags & FLAG_TH and not self._is_strange(arrival):
            self._acknowledgements.finally_acknowledge(arrival.subject(), message_class)
        return int(message_class)

    def _is_strange(self, arrival: Arrival) -> bool:
        """Whether a message to a missing queue merely names its source: then no final ack
        is owed, and nothing is remembered. Names and GUIDs can be made up, the source's own session
        cannot.
        """
        is_strange = arrival.is_homeless and not arrival.is_own
        return is_strange and self._ledger.behaviour >= VERSION_OF_REFUSALS

    def _keep_for_quota(self, arrival: Arrival, is_transactional: bool) -> None:
        """QB-A47: keep the copy that 3.1.5.8.8 demands of a refused message with JN."""
        manager = self._ledger.manager
        assert manager is not None
        if is_transactional or not arrival.user_flags & FLAG_JN:
            return
        target = self._ledger.queue(manager.system_deadletter_queue)
        if target is None or not manager.copy_to_deadletter_on_quota:
            return
        if self._enqueue.quota_status(target, arrival.size_bytes) is not EnqueueStatus.OK:
            return
        arrival.has_consequence = True
        message = arrival.new_message(arrival.base_flags & FLAG_PR, int(PositionFlag.SYSTEM))
        message.time_to_be_received = TIME_INFINITE_S
        message.message_class = MessageClass.NACK_Q_EXCEED_QUOTA
        self._enqueue.insert(target, message)


def _accepted(command: EdgeBatch, verdicts: IntArray) -> set[Speaker]:
    """Return from where messages were accepted."""
    addresses = [facts.peer_address for facts in command.facts]
    return {
        (peek_source(command.packets, command.offsets[k]), addresses[command.facts_of[k]])
        for k, verdict in enumerate(verdicts)
        if verdict == _ACCEPTED
    }


def _home(queue: QueueInHand) -> int:
    """Whether a queue takes messages from the network at all."""
    record = queue.record
    if record.kind in _IGNORING_KINDS:
        return TransferVerdict.IGNORED
    if record.kind not in (QueueKind.APPLICATION, QueueKind.CONNECTOR) or record.is_deleting:
        return MessageClass.NACK_BAD_DST_Q
    return _ACCEPTED


def _kind(queue: QueueInHand, is_transactional: bool) -> int:
    if is_transactional and not queue.record.transactional:
        return MessageClass.NACK_NOT_TRANSACTIONAL_Q
    if queue.record.transactional and not is_transactional:
        return MessageClass.NACK_NOT_TRANSACTIONAL_MSG
    return _ACCEPTED
