"""Outgoing queues: one per distinct destination, created when a message must leave for it."""

from hashlib import sha256
from struct import Struct
from typing import Final

from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.naming import Naming
from qm.model.state.registry import Registry, Route, outgoing_key
from qm.model.state.tables import State, Table
from qm.model.values.elements import OutgoingAdminState, QueueKind, QueueType
from qm.model.values.limits import (
    OUTGOING_QUEUES_MAX,
    QUEUES_MAX,
    TRANSFER_PEERS_MAX,
    VERSION_OF_FINAL_CLAIMS,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import (
    FinalClaim,
    NamedBy,
    OutgoingPosition,
    OutgoingTransferInfo,
    Queue,
    QueueManager,
    TransferPeers,
    decode,
)
from qm.model.values.rows import POSITION_KEY, QUEUE_KEY, Position, PositionFlag
from qm.names.capability import check_sendable
from qm.names.direct import DirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, PrivateName, format_name_text
from qm.wire.guid import Guid
from qm.wire.limits import TRANSACTION_ID_MAX

_IDENTIFIER_BYTES: Final = 16
OUTGOING_RECORD: Final = b"\x00"
"""Precedes POSITION_KEY in the key of an OutgoingPosition record."""
NUMBERED_PREFIX: Final = b"\x01"
"""Precedes queue, sequence and number in the key of the row for a numbered position."""
_TAG: Final = b"\x02"
_BY_QUEUE, _BY_IDENTIFIER, _PEERS, _CLAIM = b"\x00", b"\x01", b"\x02", b"\x03"
NUMBERED_KEY: Final = Struct(">cIQI")
_SEQUENCE_KEY: Final = Struct(">cQ")
_KEY: Final = Struct(">Q")
_TAG_KEY: Final = Struct(">cI")
_COUNT: Final = Struct("<I")
_U32_MAX: Final = 0xFFFF_FFFF
TAG_TRIES_MAX: Final = 4_096
"""Tags in use skipped in the search for a free one; after that, a transaction gets no tag."""


def number_key(queue_id: int, sequence_identifier: int, number: int) -> bytes:
    """Return the OUTGOING key under which the position with a number is found."""
    return NUMBERED_KEY.pack(NUMBERED_PREFIX, queue_id, sequence_identifier, number)


def sequence_key(sequence_identifier: int) -> bytes:
    """Return the SEQUENCE_OUT key under which a sequence's queue is found."""
    return _SEQUENCE_KEY.pack(_BY_IDENTIFIER, sequence_identifier)


def admin_state_of(manager: QueueManager, record: Queue) -> OutgoingAdminState:
    """Return the administrative half of OutgoingQueue.State.

    HardenedSecurity locks what would not leave over HTTP ([MS-MQDMPR] 3.1.3), which is every
    queue: the lock follows from the queue manager's attribute and ends with it.
    """
    return OutgoingAdminState.LOCKED if manager.hardened_security else record.admin_state


def sequence_of(ledger: Ledger, queue_id: int) -> OutgoingTransferInfo:
    """Return a queue's outgoing sequence; a fresh record if it never had one."""
    key = _BY_QUEUE + QUEUE_KEY.pack(queue_id)
    found = ledger.record(Table.SEQUENCE_OUT, key, OutgoingTransferInfo)
    return found or OutgoingTransferInfo()


def claims_of(state: State, above: int, limit: int) -> list[tuple[int, FinalClaim]]:
    """Return kept final acks by the ordinals of their messages, from the first one above."""
    low, high = _CLAIM + QUEUE_KEY.pack(min(above + 1, _U32_MAX)), _CLAIM + b"\xff" * 5
    rows = state.scan(Table.SEQUENCE_OUT, low, high, limit)
    return [(int(QUEUE_KEY.unpack(key[1:])[0]), decode(FinalClaim, row)) for key, row in rows]


def peers_of(state: State, queue_id: int) -> tuple[tuple[Guid, str], ...]:
    """Return the peers that a queue's messages went to, GUID and address, newest first."""
    row = state.get(Table.SEQUENCE_OUT, _PEERS + QUEUE_KEY.pack(queue_id))
    return () if row is None else decode(TransferPeers, row).peers


class OutgoingQueues:
    """Finds and creates outgoing queues."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger = ledger
        self._registry = registry
        self._naming = Naming(ledger)

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._naming.forget()

    def ensure(self, name: FormatName, named_by: NamedBy | None = None) -> int:
        """Return the queue_id for a destination elsewhere, or Route.NOT_FOUND if none can exist.

        `named_by`: the peer whose message names it; None: an application does. The identifier is
        derived, so that every replica creates the same one.
        """
        found = self._registry.outgoing(name)
        if found > 0:
            if named_by is None:
                self._naming.release(found)
            return found
        # Lists, connectors and multicast are refused until they are supported, as is a public queue
        # that the directory does not know.
        if not isinstance(name, DirectName | PrivateName):
            return Route.NOT_FOUND
        try:
            check_sendable(name)
        except QueueNameError:
            return Route.NOT_FOUND
        manager = self._ledger.manager
        counters = self._ledger.counters
        if (
            manager is None
            or counters.queue_count >= QUEUES_MAX
            or counters.outgoing_queue_count >= OUTGOING_QUEUES_MAX
        ):
            return Route.NOT_FOUND
        if named_by is not None and self._naming.is_too_much(named_by):
            return Route.NOT_FOUND
        queue_id = self._ledger.next_queue_id()
        counters.outgoing_queue_count += 1
        if named_by is not None:
            self._naming.keep(queue_id, named_by)
        key = outgoing_key(name)
        seed = manager.identifier + queue_id.to_bytes(4, "big") + key
        record = Queue(
            queue_id=queue_id,
            identifier=sha256(seed).digest()[:_IDENTIFIER_BYTES],
            kind=QueueKind.OUTGOING,
            queue_type=QueueType.SYSTEM,
            pathname=format_name_text(name),
            label=format_name_text(name),
            create_time=self._ledger.now_ms // 1000,
            modify_time=self._ledger.now_ms // 1000,
            outgoing_key=key,
        )
        self._ledger.put_queue(record)
        self._registry.bind_queue(record)
        return record.queue_id

    def sequence(self, queue_id: int) -> OutgoingTransferInfo:
        """Return a queue's outgoing sequence; a fresh record if it never had one."""
        return sequence_of(self._ledger, queue_id)

    def put_sequence(self, queue_id: int, sequence: OutgoingTransferInfo) -> None:
        """Write a queue's outgoing sequence."""
        key = _BY_QUEUE + QUEUE_KEY.pack(queue_id)
        self._ledger.put_record(Table.SEQUENCE_OUT, key, sequence)

    @property
    def newest_sequence(self) -> int:
        """The last TxSequenceID assigned."""
        counters = self._ledger.counters
        return counters.tx_time_stamp << 32 | counters.tx_ordinal

    def begin_sequence(self, queue_id: int, sequence: OutgoingTransferInfo) -> None:
        """Start a new TxSequenceID; numbers restart at 1 and old acknowledgements are void.

        Unique in the cluster and rising: TimeStamp is that of its creation or last restore.
        """
        state, counters = self._ledger.state, self._ledger.counters
        if sequence.sequence_identifier:
            state.delete(Table.SEQUENCE_OUT, sequence_key(sequence.sequence_identifier))
        counters.tx_ordinal += 1
        if counters.tx_ordinal > _U32_MAX and self._ledger.behaviour >= VERSION_OF_REFUSALS:
            # Ordinals are used up: TimeStamp is incremented, so that the whole still rises.
            counters.tx_time_stamp, counters.tx_ordinal = counters.tx_time_stamp + 1, 0
        sequence.sequence_identifier = self.newest_sequence
        sequence.next_number, sequence.last_acked_number = 1, 0
        state.put(
            Table.SEQUENCE_OUT,
            sequence_key(sequence.sequence_identifier),
            QUEUE_KEY.pack(queue_id),
        )

    def forget_sequence(self, queue_id: int) -> bool:
        """Remove a queue's sequence if nothing of it is pending; return whether it was removed."""
        sequence = self.sequence(queue_id)
        if sequence.pending_count:
            return False
        state = self._ledger.state
        state.delete(Table.SEQUENCE_OUT, sequence_key(sequence.sequence_identifier))
        state.delete(Table.SEQUENCE_OUT, _BY_QUEUE + QUEUE_KEY.pack(queue_id))
        state.delete(Table.SEQUENCE_OUT, _PEERS + QUEUE_KEY.pack(queue_id))
        self._naming.release(queue_id)
        return True

    def peers(self, queue_id: int) -> tuple[tuple[Guid, str], ...]:
        """Return the peers that a queue's messages went to, GUID and address, newest first."""
        return peers_of(self._ledger.state, queue_id)

    def add_peer(self, queue_id: int, queue_manager: Guid, address: str) -> None:
        """Note a peer that a queue's messages go to now."""
        peer, known = (queue_manager, address), self.peers(queue_id)
        others = tuple(one for one in known if one != peer)
        peers = (peer, *others)[:TRANSFER_PEERS_MAX]
        if peers != known:
            key = _PEERS + QUEUE_KEY.pack(queue_id)
            self._ledger.put_record(Table.SEQUENCE_OUT, key, TransferPeers(peers))

    def queue_of_sequence(self, sequence_identifier: int) -> int:
        """Return the queue whose live sequence this is, 0 if none: old ones are void (QB-A8)."""
        if not 0 < sequence_identifier < 1 << 64:
            return 0
        row = self._ledger.state.get(Table.SEQUENCE_OUT, sequence_key(sequence_identifier))
        return int(QUEUE_KEY.unpack(row)[0]) if row else 0

    def left(self, queue: QueueInHand, key: int, position: Position) -> None:
        """Drop the numbers of a position about to leave an outgoing queue; gaps are legal."""
        state = self._ledger.state
        queue_id = queue.record.queue_id
        row_key = OUTGOING_RECORD + POSITION_KEY.pack(queue_id, key)
        row = self._ledger.record(Table.OUTGOING, row_key, OutgoingPosition)
        if row is None:
            return
        self.changed(queue_id)
        state.delete(Table.OUTGOING, row_key)
        self.end_final_ack(position)
        if row.transaction_tag:
            self._count_tag(row.transaction_tag, -1)
        if row.sequence_number:
            numbered = number_key(queue_id, row.sequence_identifier, row.sequence_number)
            state.delete(Table.OUTGOING, numbered)
            if not row.is_settled:
                sequence = self.sequence(queue_id)
                sequence.pending_count -= 1
                self.put_sequence(queue_id, sequence)

    def end_final_ack(self, position: Position) -> None:
        """Await no final ack of a message any more, and forget what was claimed about it."""
        key = QUEUE_KEY.pack(position.message_ordinal)
        self._ledger.state.delete(Table.AWAITING_FINAL_ACK, key)
        if position.flags & PositionFlag.TRANSACTIONAL:
            self.forget_claim(position.message_ordinal)

    def keep_claim(self, ordinal: int, claim: FinalClaim) -> bool:
        """Keep a final ack that cannot be believed yet; return False if another one is kept."""
        key = _CLAIM + QUEUE_KEY.pack(ordinal)
        known = self._ledger.record(Table.SEQUENCE_OUT, key, FinalClaim)
        if known is None:
            self._ledger.put_record(Table.SEQUENCE_OUT, key, claim)
        return known in (None, claim)

    def forget_claim(self, ordinal: int) -> None:
        """Forget it, if there is one."""
        key = _CLAIM + QUEUE_KEY.pack(ordinal)
        if (
            self._ledger.behaviour >= VERSION_OF_FINAL_CLAIMS
            and self._ledger.state.get(Table.SEQUENCE_OUT, key) is not None
        ):
            self._ledger.state.delete(Table.SEQUENCE_OUT, key)

    def row(self, queue_id: int, key: int) -> OutgoingPosition | None:
        """Return the sending side's numbers of a position."""
        row_key = OUTGOING_RECORD + POSITION_KEY.pack(queue_id, key)
        return self._ledger.record(Table.OUTGOING, row_key, OutgoingPosition)

    def put_row(self, queue_id: int, key: int, row: OutgoingPosition) -> None:
        """Write the sending side's numbers of a position."""
        self._ledger.put_record(
            Table.OUTGOING, OUTGOING_RECORD + POSITION_KEY.pack(queue_id, key), row
        )

    def numbered(self, queue_id: int, sequence_identifier: int, upto: int, limit: int) -> list[int]:
        """Return the keys of a sequence's positions up to a number, in the order of numbers."""
        low = number_key(queue_id, sequence_identifier, 0)
        high = number_key(queue_id, sequence_identifier, upto) + b"\0"
        rows = self._ledger.state.scan(Table.OUTGOING, low, high, limit)
        return [int(_KEY.unpack(row)[0]) for _, row in rows]

    def number(self, queue_id: int, key: int, row: OutgoingPosition) -> None:
        """Record which position has a number."""
        self._ledger.state.put(
            Table.OUTGOING,
            number_key(queue_id, row.sequence_identifier, row.sequence_number),
            _KEY.pack(key),
        )
        self.put_row(queue_id, key, row)

    def unnumber(self, queue_id: int, key: int, position: Position, row: OutgoingPosition) -> None:
        """Remove a position's number, so that it gets one in another sequence."""
        state = self._ledger.state
        numbered = number_key(queue_id, row.sequence_identifier, row.sequence_number)
        state.delete(Table.OUTGOING, numbered)
        self.end_final_ack(position)
        sequence = self.sequence(queue_id)
        sequence.pending_count -= 1
        self.put_sequence(queue_id, sequence)
        row.sequence_identifier = row.sequence_number = row.previous_number = 0
        row.is_session_acked = False
        self.put_row(queue_id, key, row)
        self.changed(queue_id)

    def free_tag(self) -> int:
        """Return a transaction tag that no message still to be sent has (MQ-A7), 0 if none."""
        counters = self._ledger.counters
        for _ in range(TAG_TRIES_MAX):
            counters.transaction_tag = counters.transaction_tag % TRANSACTION_ID_MAX + 1
            key = _TAG_KEY.pack(_TAG, counters.transaction_tag)
            if self._ledger.state.get(Table.OUTGOING, key) is None:
                return counters.transaction_tag
        return 0

    def tag(self, queue_id: int, key: int, tag: int) -> None:
        """Mark a position that has entered as one of a transaction."""
        self._count_tag(tag, 1)
        self.put_row(queue_id, key, OutgoingPosition(transaction_tag=tag))

    def _count_tag(self, tag: int, change: int) -> None:
        state, key = self._ledger.state, _TAG_KEY.pack(_TAG, tag)
        row = state.get(Table.OUTGOING, key)
        count = change + (_COUNT.unpack(row)[0] if row else 0)
        if count:
            state.put(Table.OUTGOING, key, _COUNT.pack(count))
        else:
            state.delete(Table.OUTGOING, key)

    def entered(self, queue: QueueInHand, key: int, position: Position) -> None:
        """Note that a position in an outgoing queue is Available: the leader has work."""
        queue_id = queue.record.queue_id
        position.flags |= PositionFlag.HAS_OUTGOING
        self._ledger.put_position(queue_id, key, position)
        self.put_row(queue_id, key, OutgoingPosition())
        self.changed(queue_id)

    def changed(self, queue_id: int) -> None:
        """Make the leader compare what it holds of this queue with the rows again."""
        self._ledger.applied.outgoing_queue_ids.add(queue_id)
