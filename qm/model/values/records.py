"""Rows that change rarely: the elements of the data model, each in one canonical encoding.

Array-like msgpack: fields are only ever appended, with defaults, under a new apply version.
Attribute names are the specification's in snake case; quotas are in KB, times in epoch seconds
where the specification says so and in milliseconds of cluster time where a name ends in `_ms`.
"""

from typing import Any, ClassVar, TypeVar

import msgspec

from qm.model.values.elements import (
    BindingMode,
    DirectoryServerType,
    LockKind,
    OperatingSystemType,
    OperationType,
    OutboxKind,
    OutgoingAdminState,
    PoisonAction,
    QueueKind,
    QueuePrivacyLevel,
    QueueScope,
    QueueType,
    SealedBodies,
    TransactionState,
)
from qm.wire.enums import HashAlgorithm

GUID_NULL = bytes(16)
QUOTA_UNLIMITED_KB = 0xFFFF_FFFF
QUEUE_MANAGER_QUOTA_DEFAULT_KB = 0x0010_0000
"""[MS-MQDMPR] 3.1.1.1 says bytes; all similar attributes are in KB (DM-A7)."""
_UNLIMITED_BYTES = 1 << 62
_KB = 1024


def quota_bytes(quota_kb: int) -> int:
    """Return the bytes that a quota in KB admits; an unreachable number if it is unlimited."""
    return _UNLIMITED_BYTES if quota_kb == QUOTA_UNLIMITED_KB else quota_kb * _KB


class Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of all records."""

    appended: ClassVar[int] = 0
    """Number of last fields that a row lacks while they have their defaults: builds that do not
    know them yet write the same bytes."""


RecordT = TypeVar("RecordT", bound=Record)

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_APPENDED_DEFAULTS: dict[type[Record], tuple[Any, ...]] = {}
_DECODERS: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {}


def encode(record: Record) -> bytes:
    """Return the row: the same bytes for equal records, on every replica."""
    if not record.appended:
        return _ENCODER.encode(record)
    values = msgspec.structs.astuple(record)
    defaults = _APPENDED_DEFAULTS.get(type(record)) or _appended_defaults(type(record))
    end = len(values)
    for default in defaults:
        if values[end - 1] != default:
            break
        end -= 1
    return _ENCODER.encode(values[:end])


def _appended_defaults(kind: type[Record]) -> tuple[Any, ...]:
    """Return the defaults of the fields that a row may lack, the last first."""
    fields = msgspec.structs.fields(kind)[-kind.appended :]
    defaults = tuple(field.default for field in reversed(fields))
    _APPENDED_DEFAULTS[kind] = defaults
    return defaults


def decode(kind: type[RecordT], row: bytes) -> RecordT:
    """Return the record in a row made by `encode`. Raises msgspec.DecodeError for other bytes."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.msgpack.Decoder(kind)
    record: RecordT = decoder.decode(row)
    return record


class Counters(Record):
    """High-water marks, which never decrease; META `counters`."""

    sequential_id: int = 0
    """[MS-MQDMPR] 3.1.1.1 SequentialID: raised once per accepted enqueue."""
    message_ordinal: int = 0
    """Last MessageID assigned; 0 is never assigned (QB-A12)."""
    tx_ordinal: int = 0
    tx_time_stamp: int = 0
    queue_id: int = 0
    queue_count: int = 0
    """Number of existing queues of every kind."""
    private_queue_number: int = 0
    stream_id: int = 0
    source_count: int = 0
    """Sources of which anything is remembered."""
    client_count: int = 0
    """Clients that are known, whether open or not."""
    outbox_id: int = 0
    handle: int = 0
    clock_ms: int = 0
    epoch: int = 0
    """Raised by every LeaderActivated."""
    total_bytes: int = 0
    """Bytes in all queues, journals and outgoing queues."""
    journal_bytes: int = 0
    """Bytes in the system journal and the dead-letter queues."""
    leader_since_ms: int = 0
    """When the present leader's term began: leases get their full time from then."""
    apply_version: int = 1
    directory_object_count: int = 0
    usn: int = 0
    transaction_tag: int = 0
    """Last transaction tag assigned (MQ-A7)."""
    outgoing_queue_count: int = 0
    source_id: int = 0
    deadlines_from_ms: int = 0
    """No row of DEADLINE lies before this. It and the next two exist because settled or withdrawn
    rows leave tombstones behind, which a scan must not cross at every tick."""
    leases_from_ms: int = 0
    """No row of LEASE lies before this."""
    memories_from_ms: int = 0
    """No bucket of HISTORY_BUCKET is forgotten before this."""


class QueueManager(Record):
    """LocalQueueManager (3.1.1.1): the cluster; META `qm`."""

    identifier: bytes
    computer_name: str
    qualified_computer_name: str
    aliases: tuple[str, ...] = ()
    """More names and addresses under which the cluster is local (DESIGN section 2, qm/names)."""
    queue_manager_version: str = ""
    operating_system_version: str = ""
    operating_system_type: OperatingSystemType = OperatingSystemType.FOREIGN
    create_time: int = 0
    modify_time: int = 0
    queue_manager_quota: int = QUEUE_MANAGER_QUOTA_DEFAULT_KB
    journal_quota: int = QUOTA_UNLIMITED_KB
    foreign_system: bool = False
    remote_access_server: bool = False
    supporting_server: bool = False
    directory_server: bool = False
    routing_server: bool = False
    directory_server_type: DirectoryServerType = DirectoryServerType.STANDALONE
    full_path: str = ""
    site_identifier_list: tuple[bytes, ...] = ()
    out_routing_server_identifier_list: tuple[bytes, ...] = ()
    in_routing_server_identifier_list: tuple[bytes, ...] = ()
    connected_network_identifier_list: tuple[bytes, ...] = ()
    public_encryption_key_list: bytes = b""
    public_signing_key_list: bytes = b""
    sealed_private_keys: bytes = b""
    security: bytes = b""
    clustered: bool = True
    machine_domain_id: bytes = GUID_NULL
    last_domain: bytes = b""
    directory_server_list: tuple[str, ...] = ()
    directory_integrated: bool = True
    srmp_http_support: bool = False
    srmp_pgm_support: bool = False
    hardened_security: bool = False
    initialization_retry_timer_duration: int = 120
    connection_active: bool = True
    version: int = 1
    """Incremented by every change; `if_version` of SetQueueManager is compared with it."""
    system_deadletter_queue: int = 0
    system_transactional_deadletter_queue: int = 0
    system_journal_queue: int = 0
    order_queue: int = 0
    notification_queue: int = 0
    send_insecure_nacks: bool = False
    """[MS-MQQB] 3.1.1.2 SendInsecureNacks."""
    duplicate_horizon_ms: int = 7 * 24 * 3600 * 1000
    result_retention_ms: int = 24 * 3600 * 1000
    transaction_retention_ms: int = 24 * 3600 * 1000
    copy_to_deadletter_on_quota: bool = True
    """QB-A47: whether a message refused for quota leaves a literal dead-letter copy."""


class Queue(Record):
    """Queue and OutgoingQueue (3.1.1.2, 3.1.1.3)."""

    queue_id: int
    identifier: bytes
    kind: QueueKind
    queue_type: QueueType
    pathname: str
    """Path name given at creation; for an outgoing queue its DestinationFormatName."""
    qualified_pathname: str = ""
    label: str = ""
    create_time: int = 0
    modify_time: int = 0
    type: bytes = GUID_NULL
    private_queue_number: int = 0
    journaling: bool = False
    quota: int = QUOTA_UNLIMITED_KB
    journal_quota: int = QUOTA_UNLIMITED_KB
    authentication: bool = False
    privacy_level: QueuePrivacyLevel = QueuePrivacyLevel.OPTIONAL
    transactional: bool = False
    multicast_address: str = ""
    security: bytes = b""
    sd_version: int = 1
    base_priority: int = 0
    full_path: str = ""
    directory_path: str = ""
    scope: QueueScope = QueueScope.ENTERPRISE
    journal_queue: int = 0
    """queue_id of the JournalQueueReference, 0 = none."""
    parent_queue: int = 0
    """queue_id of the queue to which a journal or subqueue belongs, 0 = none."""
    version: int = 1
    is_deleting: bool = False
    multicast: bool = False
    admin_state: OutgoingAdminState = OutgoingAdminState.NORMAL
    outgoing_key: bytes = b""
    """For an outgoing queue: the key that distinguishes its destination from others."""
    max_deliveries: int = 0
    """How often a message may be returned before `poison_action`; 0: without limit."""
    retry_delay_ms: int = 0
    """How long a returned message waits; those behind it overtake it."""
    poison_action: PoisonAction = PoisonAction.MOVE
    appended = 3


class Lock(Record):
    """Why a position is not Available, and who locked it."""

    kind: LockKind
    owner: bytes
    """Transaction id, or client id (utf-8) of a two-phase read."""
    number: int = 0
    """Number of the operation in its transaction, or request number of the read."""
    target_queue: int = 0
    reason: int = 0x4000

    def is_enqueue(self) -> bool:
        """Whether the position belongs to an uncommitted transaction and was never visible."""
        return self.kind is LockKind.ENQ_PENDING


class Obligation(Record):
    """What must be done when the position ends, and what has become of it before."""

    acknowledgements: int = 0
    """Bits of MessagePropertiesHeader.Flags."""
    administration_queue: str = ""
    """Format name, resolved to its absolute form."""
    final_ack: bool = False
    sequence_identifier: int = 0
    sequence_number: int = 0
    previous_sequence_number: int = 0
    source_address: str = ""
    """Address at which the sender was seen, without port; "" = only its GUID is known."""
    application_deadletter_queue: str = ""
    priority: int = 0
    application_tag: int = 0
    label: bytes = b""
    """UTF-16LE with any 16-bit units: what a packet holds need not be valid text."""
    destination: str = ""
    """Format name to which the message was sent."""
    is_direct: bool = False
    """Whether it was sent to a direct name, so that its final ack goes to one (QB-A22)."""
    returns: int = 0
    """How often a reader had it and did not take it."""
    aborts: int = 0
    """Those of them that ended a transaction ([MS-MQMQ] has no field for it: it stays here)."""
    moves: int = 0
    """How often it was moved to another queue or subqueue."""
    is_private: bool = False
    """Whether its body leaves this queue manager only encrypted."""
    appended = 4


class FinalAckRow(Record):
    """Contents of a FinalAck ([MS-MQQB] 2.2.5.1); payload of an outbox row."""

    sequence_identifier: int
    sequence_number: int
    previous_sequence_number: int
    message_class: int
    acknowledged_source: bytes
    acknowledged_message_id: int
    message_id: int = 0
    """Identifier of the FinalAck's own packet, the same each time it is sent."""
    is_direct: bool = False


class SyntheticPacket(Record):
    """A packet made by apply."""

    packet: bytes
    body_of: tuple[int, int, int, int, int] | None = None
    """Packet whose MessageBody it returns: index, offset, length, ordinal, crc32."""
    reference_count: int = 0


class MemberAddress(Record):
    """Where a node can be reached."""

    host: str
    raft_port: int
    relay_port: int
    api_port: int


class Source(Record):
    """A queue manager that sends to this one."""

    source_id: int
    history_row_count: int = 0
    stream_count: int = 0


class AddressUse(Record):
    """Counts of what is remembered because of messages in sessions from one address."""

    source_count: int = 0
    stream_count: int = 0


class Binding(Record):
    """The address that a queue manager's GUID is bound to."""

    address: str
    """Without port, as it was first seen."""
    heard_ms: int
    """Cluster time at which something came from there, up to BINDING_GRAIN_MS too early."""
    since_ms: int


class BindingPolicy(Record):
    """How GUIDs are bound to addresses; META `bindings`, from the leaders' configuration."""

    mode: BindingMode
    silence_ms: int
    """How long a bound address must have been silent before another one may follow it."""
    shared: tuple[str, ...]
    """Networks, of proxies for example, whose addresses count as one."""
    pins: tuple[str, ...]
    """Each a GUID and a network from which it may speak, with a space between them."""


class ManagerKeys(Record):
    """Which generation of the queue manager's key pairs is in use; META `keys`."""

    generation: int = 1
    """The first one is that of the birth."""
    since_ms: int = 0
    """Cluster time; 0: since the birth."""
    replaced: tuple[tuple[int, int], ...] = ()
    """Older generations that are still accepted, the newest first: number, and until when."""


class SecurityPolicy(Record):
    """What signatures, claims and ciphers are worth; META `security`, from the leaders'
    configuration.
    """

    appended: ClassVar[int] = 1

    trusts_sender_id: bool = False
    """Whether the SID that an unsigned message names counts in access checks."""
    hash_algorithms: tuple[int, ...] = (HashAlgorithm.SHA256, HashAlgorithm.SHA512)
    """Hashes of signatures that count; any other fails ([MS-MQQB] 6, note 1)."""
    accepts_strangers: bool = False
    """Whether a signature by a certificate that nobody registered authenticates a message
    (QB-A55)."""
    refuses_reduced_keys: bool = False
    """[MS-MQQB] 3.1.1.3 RejectEnhancedRC2Using40BitKeys."""
    accepts_expired: bool = False
    """Whether certificates count before and after their time, as the text has it (QB-A56)."""
    sealed_bodies: int = SealedBodies.NONE
    """Which bodies the nodes that take them seal for the disk."""


class RefusedSession(Record):
    """A session that brought a message which could not be stored."""

    edge: str
    number: int
    """The edge's."""
    address: str
    """Of the peer, which is counted."""
    until_ms: int
    """Cluster time until which it is remembered."""


class RefusedSessions(Record):
    """Those that are remembered, the oldest first; META `refused`."""

    sessions: tuple[RefusedSession, ...]


class HistoryBucket(Record):
    """The history of one stream and one second of SentTime."""

    source_guid: bytes
    forget_at_ms: int
    row_count: int
    highest: int = 0
    """No row lies above this ordinal >> HISTORY_BITS, as long as there are rows."""


class Transaction(Record):
    """3.1.1.14, with what the cluster adds."""

    state: TransactionState
    single_phase: bool
    owner: str
    coordinator: str
    operation_count: int
    deadline_ms: int
    timeout_ms: int = 0
    outcome_ms: int = 0


class TransactionalOperation(Record):
    """3.1.1.13."""

    operation_type: OperationType
    queue_id: int
    lookup_identifier: int
    target_queue: int = 0
    target_lookup_identifier: int = 0
    dequeue_reason: int = 0x4000


class Client(Record):
    """A client's session; kept after its lease for the retention, to recognize late retries."""

    principal: str
    epoch: int
    lease_deadline_ms: int
    lease_ms: int = 0
    confirmed_upto: int = 0
    highest_number: int = 0
    unconfirmed_count: int = 0
    unconfirmed_bytes: int = 0
    is_open: bool = True


class PrincipalUse(Record):
    """Counts of what belongs to one principal."""

    client_count: int = 0
    """Its sessions, open or remembered."""
    queue_count: int = 0
    """Queues that it created."""


class ClientHolder(Record):
    """Who opened a client's session last; a row of its own, since clients' rows are older."""

    instance: bytes
    session_epoch: int
    address: str
    """Address from which it called."""
    since_ms: int
    before_address: str = ""
    """Opener from which the session was taken over, "" if none."""
    before_since_ms: int = 0
    main_client_id: str = ""
    main_session_epoch: int = 0


class Restored(Record):
    """When this state was last found to be older than what others know (StateRestored)."""

    restored_ms: int
    """Cluster time; anything seen before it was seen by the older state."""
    count: int


class OutgoingTransferInfo(Record):
    """3.1.1.4, the replicated part: one live sequence per outgoing queue."""

    sequence_identifier: int = 0
    next_number: int = 1
    last_acked_number: int = 0
    pending_count: int = 0


class NamedBy(Record):
    """The peer whose message named the destination of an outgoing queue."""

    queue_manager: bytes
    address: str
    """Without port; "" = another queue manager's session brought the message."""


class NamingUse(Record):
    """How many outgoing queues one peer, all at one address, or all together named."""

    queue_count: int = 0


class TransferPeers(Record):
    """The peers that a queue's messages went to last, newest first."""

    peers: tuple[tuple[bytes, str], ...]
    """GUID and address, without port."""


class OutgoingPosition(Record):
    """The sender's numbers of a position in an outgoing queue."""

    sequence_identifier: int = 0
    sequence_number: int = 0
    previous_number: int = 0
    is_session_acked: bool = False
    is_order_acked: bool = False
    is_settled: bool = False
    """Delivered; only its final ack is still awaited."""
    transaction_tag: int = 0
    """TransactionHeader.Flags.ID: shared by the messages of a transaction, 0 = none."""


class AwaitingFinalAck(Record):
    """A transactional message that has arrived and whose end is not yet known (QB-A19)."""

    queue_id: int
    lookup_identifier: int
    since_ms: int


class FinalClaim(Record):
    """A final ack from an address that the message did not go to, and where the queue manager that
    it went to is not bound or pinned (yet).
    """

    queue_id: int
    message_class: int
    queue_manager: bytes
    """GUID that the session named."""
    address: str


class OutboxRow(Record):
    """Something to send to a peer, at least once; removed by OutboxDone."""

    kind: OutboxKind
    queue_manager: bytes
    """GUID of the peer."""
    address: str
    """Address at which the peer was seen, without port; "" = only its GUID is known."""
    payload: bytes
    since_ms: int = 0
    """Cluster time of creation: rows that no peer fetches are given up eventually."""


class OpenQueueRow(Record):
    """A replicated open: sharing holds across a change of leader."""

    queue_id: int
    access: int
    share_mode: int
    client_id: str
    format_name: str
    epoch: int


class PurgeRow(Record):
    """A purge or deletion in progress."""

    watermark: int
    reason: int
    """MessageClass: Q_PURGED or Q_DELETED."""
    is_deletion: bool
    next_key: int
    """Where the next step continues."""


class DirectoryObjectRow(Record):
    """Enterprise, Site, RoutingLink, ConnectedNetwork, User (3.1.1.6 to 3.1.1.15) in the embedded
    directory, and links to the queue manager and its public queues.
    """

    object_type: int
    usn: int
    attributes: dict[str, bytes]
    """Attribute name of the specification -> canonical msgpack of its value."""
