"""The commands of the replicated state machine (mqdmpr-guide section 10, DESIGN section 4).

A Raft entry is one batch of commands under one `Stamp`. Values here are what apply sees; the
protobuf form under proto/qm/pb is `qm.store.codec`'s. Everything that needs a clock, random, a
resolver or a key was decided before the proposal and travels in the command; every verdict is
taken in apply from replicated state. Ids and sizes are chosen by the proposer; GUIDs are 16 raw
packet bytes.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from qm.model.values.columns import IntArray


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Once per entry, by the leader that built it. Apply never moves the clock back."""

    now_ms: int
    """Cluster time, UTC milliseconds (DESIGN section 4, Time)."""
    node: str
    version: int = 1
    """An apply version that its leader knew the state to have reached: a build that does not know
    it stops before it diverges."""
    entry_hash: bytes = b""
    """BLAKE3 of the entry's data with zeros in place of this, so that one node hashes and not each
    for itself (qm/archive/design.md, Chain); b"": it says none."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """Numbers a client's command, so that a retry returns the first result (DESIGN section 4)."""

    client_id: str
    number: int
    """Starts at 1; u64."""
    confirmed_upto: int
    """The client holds every result up to here; they may be forgotten."""
    control_id: bytes = b""
    """Of a control request, which has no client: 16 bytes that name it among the last ones; a
    repeat returns the first result. b"": it is done each time."""


# Arrivals from the network -----------------------------------------------------------------


class SignatureFact(IntEnum):
    """What the edge found when it verified; apply decides what it means."""

    ABSENT = 0
    VALID = 1
    INVALID = 2
    UNVERIFIED = 3
    """Present, and this build cannot verify it: nothing is accepted unchecked."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What an edge knows of a message beyond its bytes. Shared by the messages of a session."""

    session: int
    """The edge's number of the MSMQ session, for late acknowledgements."""
    peer_queue_manager: bytes
    """GUID proven by the session's handshake."""
    peer_address: str
    """Where the peer was seen, without port (DESIGN section 7)."""
    sender_sids: tuple[bytes, ...]
    """Of the authenticated sender; empty = anonymous."""
    signature: SignatureFact = SignatureFact.ABSENT
    certificate_digest: bytes = b""
    was_encrypted: bool = False
    decryption_failed: bool = False


class EdgeBatch(msgspec.Struct, frozen=True, gc=False):
    """A run of UserMessages as they arrived, columnar; the raw packets travel untouched."""

    edge: str
    number: int
    """Of this batch on the edge's stream."""
    packets: memoryview
    """Raw packets back to back, without trailing SessionHeaders."""
    body_offset: int
    """Where `packets` begins within the entry's data: offset + body_offset is a body's place."""
    offsets: IntArray
    """n + 1 u32 values: packet k is packets[offsets[k]:offsets[k + 1]]."""
    checksums: IntArray
    """n u32 values: crc32 of each packet."""
    facts_of: bytes
    """n values: index into `facts`."""
    facts: tuple[Facts, ...]
    body_index: int
    """Index of the entry."""
    first_ordinal: int
    """Body ordinal of the first packet within the entry; the others follow."""


class TransferVerdict(IntEnum):
    """Results of arrivals, one u16 per message; a MessageClass >= 0x8000 is a refusal."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    IGNORED = 3
    """Counted and acknowledged without effect: an order or final ack that matches nothing."""
    CLOSE_SESSION = 4
    """Cannot be stored now (quota of the queue manager): not acknowledged, the peer resends."""
    NEVER_SENT = 5
    """An order or final ack for what was never sent: no honest peer has anything like it."""


# Clients -----------------------------------------------------------------------------------


class SelectorKind(IntEnum):
    """How a read finds its position; apply resolves it."""

    FIRST = 0
    AFTER = 1
    EXACT = 2
    SEEK_PREVIOUS = 3
    SEEK_NEXT = 4
    SEEK_LAST = 5


class Selector(msgspec.Struct, frozen=True, gc=False):
    """`lookup_identifier` is meant by all kinds but FIRST and SEEK_LAST."""

    kind: SelectorKind = SelectorKind.FIRST
    lookup_identifier: int = 0


class Target(msgspec.Struct, frozen=True, gc=False):
    """One destination of a send."""

    format_name: str
    """As the application gave it; the leader resolved distribution lists before."""
    packet_bytes: int
    """Of its own packet, which names it."""
    checksum: int
    """CRC-32 of that packet."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """Enqueue a client's message: for each target a raw packet, whose MessageID apply assigns.

    The packets lie one behind the other; that of target k is body `first_ordinal` + k of the entry.
    """

    request: Request
    packets: memoryview
    body_index: int
    body_offset: int
    first_ordinal: int
    targets: tuple[Target, ...]
    sender_sids: tuple[bytes, ...]
    transaction: bytes | None = None
    application_deadletter_queue: str = ""
    """Format name, "" for the system's; it stays with the sender [MS-MQDMPR 3.1.1.12]."""
    allow_peek_when_locked: bool = False
    """AllowPeekWhenLocked (3.1.1.12): a property of the queue's message, in no packet."""
    replaced_handle: int = 0
    """Of a queue open for receiving, 0 = none: the message there that this one is made of ends in
    the same apply, or with the transaction, when the send succeeds. One target then."""
    replaced_lookup_identifier: int = 0

    @classmethod
    def of(
        cls,
        request: Request,
        copies: Sequence[tuple[str, bytes]],
        sender_sids: tuple[bytes, ...] = (),
        **others: Any,
    ) -> "Send":
        """Return the command for (format name, packet) pairs, without a place in an entry."""
        return cls(
            request,
            memoryview(b"".join(packet for _, packet in copies)),
            0,
            0,
            0,
            tuple(Target(name, len(packet), crc32(packet)) for name, packet in copies),
            sender_sids,
            **others,
        )


class ReceiveRun(msgspec.Struct, frozen=True, gc=False):
    """Destructive reads number `first_request` ... + count - 1 of one client on one queue.

    Credit k of a stream is request number k. Numbers that find no message get no result and stay
    open; those that find one get it as their committed result.
    """

    client_id: str
    handle: int
    queue_id: int
    first_request: int
    count: int
    confirmed_upto: int
    selector: Selector = Selector()
    transaction: bytes | None = None
    is_two_phase: bool = False
    allow_peek_when_locked: bool = False
    """What a transaction locks stays visible to peeks ([MC-MQAC] 3.11.4.1.33)."""


class CancelRequests(msgspec.Struct, frozen=True, gc=False):
    """Timeout or cancel as a committed result: cancelled, or the message if that was first."""

    client_id: str
    first_request: int
    count: int
    status: int
    """MQ_ERROR code that a cancelled number answers."""


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """The client holds every result up to here."""

    client_id: str
    confirmed_upto: int


class ReadEnd(msgspec.Struct, frozen=True, gc=False):
    """Second phase of a two-phase read ([MS-MQDMPR] 3.1.7.1.12)."""

    request: Request
    queue_id: int
    lookup_identifier: int
    delete: bool
    reason: int = 0x4000
    """MessageClass: ACK_RECEIVE, or RECEIVE_REJECTED 0xC004."""


class Move(msgspec.Struct, frozen=True, gc=False):
    """Move a position to another queue or subqueue ([MS-MQDMPR] 3.1.7.1.16)."""

    request: Request
    source_queue_id: int
    lookup_identifier: int
    target_queue_id: int
    sender_sids: tuple[bytes, ...]
    transaction: bytes | None = None


class OpenClient(msgspec.Struct, frozen=True, gc=False):
    """Begin or resume a client's session."""

    client_id: str
    principal: str
    lease_ms: int


class RenewClients(msgspec.Struct, frozen=True, gc=False):
    """Keep leases alive."""

    client_ids: tuple[str, ...]
    lease_ms: int


class CloseClient(msgspec.Struct, frozen=True, gc=False):
    """End a client's session: locks released, transactions aborted, results dead-lettered."""

    client_id: str


class OpenQueue(msgspec.Struct, frozen=True, gc=False):
    """Open with access and share mode; replicated and leased ([MS-MQDMPR] 3.1.7.1.5)."""

    request: Request
    format_name: str
    access: int
    """QueueAccessType."""
    share_mode: int
    """QueueShareMode."""
    sender_sids: tuple[bytes, ...]


class CloseQueue(msgspec.Struct, frozen=True, gc=False):
    """Close a handle."""

    request: Request
    handle: int


# Transactions ------------------------------------------------------------------------------


class TxBegin(msgspec.Struct, frozen=True, gc=False):
    """Create Transaction ([MS-MQDMPR] 3.1.7.1.8); SinglePhase is known at birth (DM-A25)."""

    request: Request
    transaction: bytes
    is_single_phase: bool
    coordinator: str
    timeout_ms: int


class TxPrepare(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.3."""

    request: Request
    transaction: bytes


class TxCommit(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.4."""

    request: Request
    transaction: bytes


class TxAbort(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.5."""

    request: Request
    transaction: bytes


# Queues and the queue manager --------------------------------------------------------------


class Provision(msgspec.Struct, frozen=True, gc=False):
    """Birth of the cluster: identity, system queues, defaults; accepted once."""

    queue_manager: bytes
    computer_name: str
    qualified_computer_name: str
    aliases: tuple[str, ...]
    realm: bytes
    tx_time_stamp: int
    sealed_private_keys: bytes
    public_keys: bytes


class SetQueueManager(msgspec.Struct, frozen=True, gc=False):
    """Change attributes, named as in the specification, values as canonical msgpack."""

    request: Request
    changes: dict[str, bytes]
    sender_sids: tuple[bytes, ...]
    if_version: int | None = None


class CreateQueue(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.3; a public queue and its directory object appear together."""

    request: Request
    identifier: bytes
    journal_identifier: bytes
    pathname: str
    attributes: dict[str, bytes]
    security_descriptor: bytes
    sender_sids: tuple[bytes, ...]


class DeleteQueue(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.4: hidden at once, settled by PurgeStep."""

    request: Request
    queue_id: int
    sender_sids: tuple[bytes, ...]


class SetQueue(msgspec.Struct, frozen=True, gc=False):
    """Change properties in place."""

    request: Request
    queue_id: int
    changes: dict[str, bytes]
    sender_sids: tuple[bytes, ...]
    if_version: int | None = None


class PurgeQueue(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.7.1.7: sets the watermark; PurgeStep settles."""

    request: Request
    queue_id: int
    sender_sids: tuple[bytes, ...]


class PurgeStep(msgspec.Struct, frozen=True, gc=False):
    """Settle at most `count` hidden positions with their consequences (at most 4,096)."""

    queue_id: int
    count: int


class SetOutgoingAdminState(msgspec.Struct, frozen=True, gc=False):
    """Pause or resume ([MS-MQDMPR] 3.1.7.2.3, .4)."""

    request: Request
    queue_id: int
    admin_state: int
    sender_sids: tuple[bytes, ...]


class RemoveOutgoingQueue(msgspec.Struct, frozen=True, gc=False):
    """Only if empty and nothing of its sequence is pending."""

    queue_id: int


# Delivery to other queue managers ----------------------------------------------------------


class AssignTransfer(msgspec.Struct, frozen=True, gc=False):
    """Give positions their MessageID's sequence numbers before the first byte leaves."""

    queue_id: int
    lookup_identifiers: IntArray


class TransferAcked(msgspec.Struct, frozen=True, gc=False):
    """Session acknowledgements: these positions reached the peer."""

    queue_id: int
    lookup_identifiers: IntArray


class OrderAcked(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQQB] 3.1.5.6: everything of each sequence up to its number arrived. Columns."""

    sequence_identifiers: IntArray
    sequence_numbers: IntArray


class FinalAcked(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQQB] 3.1.5.7: what became of transactional messages. Columns."""

    message_ordinals: IntArray
    message_classes: IntArray


class TransferFailed(msgspec.Struct, frozen=True, gc=False):
    """Positions that cannot be delivered, each with its nack class."""

    queue_id: int
    lookup_identifiers: IntArray
    message_class: int


class OutboxDone(msgspec.Struct, frozen=True, gc=False):
    """These outbox rows reached their peer."""

    outbox_ids: IntArray


class TransferTraced(msgspec.Struct, frozen=True, gc=False):
    """[MS-MQQB] 3.1.7.1.7: traced messages left for their next hop; each owes a report. Columns."""

    queue_id: int
    message_ordinals: IntArray
    report_queues: bytes
    """16 bytes per ordinal: DebugHeader.QueueIdentifier."""
    next_hop: str
    """IP address without port."""


# Time, leadership, audit -------------------------------------------------------------------


class LeaderActivated(msgspec.Struct, frozen=True, gc=False):
    """First entry of a term: leases get a full term, the epoch rises."""

    term: int
    node: str
    is_archived: bool = False
    """The leader's node exports to an archive: from here on entries are chained."""


class ClockTick(msgspec.Struct, frozen=True, gc=False):
    """Moves cluster time when nothing else does; expires at most `count` deadlines and leases."""

    count: int


class AuditMark(msgspec.Struct, frozen=True, gc=False):
    """Every node computes its own digest at this index and tells all members."""

    number: int


class AuditResult(msgspec.Struct, frozen=True, gc=False):
    """What the members reported for a mark: node -> digest (u128 as 16 bytes)."""

    number: int
    digests: dict[str, bytes]


class SetMember(msgspec.Struct, frozen=True, gc=False):
    """Where a node is reached, by name; an empty host forgets it."""

    node: str
    host: str
    raft_port: int
    relay_port: int
    api_port: int


class RaiseApplyVersion(msgspec.Struct, frozen=True, gc=False):
    """Every member supports it: entries above behave in the new way."""

    apply_version: int


class StateRestored(msgspec.Struct, frozen=True, gc=False):
    """This state is an older one of a queue manager that went on without it: a backup that was
    restored, or the log of a node that outlived its quorum.

    Whatever was given after it must not be given again: identifiers jump, sequences begin anew.
    """

    tx_time_stamp: int
    """Of TxSequenceIDs from now on, epoch seconds; at least one above the state's is taken."""
    aliases: tuple[str, ...]
    """Names and addresses of the new nodes, to be local beside those that are."""
    is_outgoing_held: bool
    """Outgoing queues wait for an administrator, who knows what has left already."""


class RenumberStep(msgspec.Struct, frozen=True, gc=False):
    """Take the numbers of sequences from before a StateRestored away from at most `count`
    positions: they get others, of new sequences.
    """

    count: int


class DirectoryWrite(msgspec.Struct, frozen=True, gc=False):
    """Create (no object yet), change or delete (attributes None) a directory object.

    No caller proposes it yet: the directory of keys will.
    """

    request: Request
    identifier: bytes
    object_type: int
    attributes: dict[str, bytes] | None
    sender_sids: tuple[bytes, ...]


Command: TypeAlias = (
    EdgeBatch
    | Send
    | ReceiveRun
    | CancelRequests
    | Confirm
    | ReadEnd
    | Move
    | OpenClient
    | RenewClients
    | CloseClient
    | OpenQueue
    | CloseQueue
    | TxBegin
    | TxPrepare
    | TxCommit
    | TxAbort
    | Provision
    | SetQueueManager
    | CreateQueue
    | DeleteQueue
    | SetQueue
    | PurgeQueue
    | PurgeStep
    | SetOutgoingAdminState
    | RemoveOutgoingQueue
    | AssignTransfer
    | TransferAcked
    | OrderAcked
    | FinalAcked
    | TransferFailed
    | OutboxDone
    | TransferTraced
    | LeaderActivated
    | ClockTick
    | AuditMark
    | AuditResult
    | RaiseApplyVersion
    | SetMember
    | StateRestored
    | RenumberStep
    | DirectoryWrite
)


class CommandBatch(msgspec.Struct, frozen=True, gc=False):
    """What one Raft entry carries."""

    index: int
    stamp: Stamp
    commands: tuple[Command, ...]
