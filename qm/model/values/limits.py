"""Limits of the replicated state machine. They count logical things (DESIGN 1.3).

Changing a value changes what apply does: it needs a new apply version.
"""

from typing import Final

APPLY_VERSION: Final = 9
"""Newest behaviour of apply that this build knows."""
VERSION_OF_BLAKE3: Final = 2
"""Apply version from which on the chain hashes entries' data with BLAKE3 instead of SHA-256."""
VERSION_OF_ENTRY_HASH: Final = 3
"""Apply version from which on a stamp may contain the hash of its entry."""
VERSION_OF_REFUSALS: Final = 4
"""Apply version from which on a refusal leaves no trace: a stream gets a number and rows only
when something of it is remembered, and numbers at the end of their range carry over or are
assigned again only if free."""
VERSION_OF_BINDINGS: Final = 5
"""Apply version from which on a queue manager's GUID is bound to the address that it speaks from,
and a TxSequenceID may not lie far in the future."""
VERSION_OF_JUDGEMENT: Final = 5
"""Apply version from which on a message is judged in the order of [MS-MQQB] 3.1.5.8."""
VERSION_OF_QUEUE_RIGHTS: Final = 5
"""Apply version from which on the entries of a queue's descriptor name MQQUEUEACCESSMASK alone."""
VERSION_OF_USER_FORMS: Final = 5
"""Apply version from which on a user's identifier is a SID and its certificates an MQUSERSIGNCERTS
([MS-MQDMPR] 3.1.1.15)."""
VERSION_OF_MESSAGE_SECURITY: Final = 6
"""Apply version from which on edges verify and decrypt, and what they find is judged by the
replicated policy; below it a signature is unverified and an encrypted body stays so."""
VERSION_OF_MANAGER_KEYS: Final = 6
"""Apply version from which on the queue manager's key pairs have generations."""
KEY_GENERATIONS_MAX: Final = 3
"""Generations of key pairs that are accepted at a time, the present one included."""
PUBLIC_KEY_LIST_MAX_BYTES: Final = 16_384
SEALED_KEYS_MAX_BYTES: Final = 65_536
SEALED_PASSWORD_MAX_BYTES: Final = 128
VERSION_OF_OPEN_STATUS: Final = 5
"""Apply version from which on a queue of another queue manager is not found by who wants to read it
([MS-MQDMPR] 3.1.7.1.5)."""
VERSION_OF_PEOPLE: Final = 6
"""Apply version from which on the directory has queue managers with their keys, and users with
names, groups and certificates that are registered one by one; access is judged with the groups."""
VERSION_OF_MULTIPLE_OPEN: Final = 6
"""Apply version from which on a name of several elements is opened for sending
([MS-MQDMPR] 3.1.1.16, 3.1.7.1.5)."""
VERSION_OF_TIME_TO_LIVE: Final = 6
"""Apply version from which on Enterprise.DefaultTimeToLive says how long administration
acknowledgements are kept ([MS-MQDMPR] 3.1.1.6)."""
VERSION_OF_RETURNS: Final = 6
"""Apply version from which on returns of a message to its queue are counted, and a queue may limit
them."""
VERSION_OF_SIGNED_SENDS: Final = 7
"""Apply version from which on messages that clients send to queues of this cluster are examined as
those of peers are, so that their signatures count."""
VERSION_OF_FINAL_CLAIMS: Final = 6
"""Apply version from which on a final ack from where its message did not go is kept, until it is
known whether that queue manager may speak from there."""
VERSION_OF_UNKNOWN_LOOKUPS: Final = 7
"""Apply version from which on a lookup identifier that was never given is not found, instead of
received already ([MS-MQDMPR] 3.1.7.3.3)."""
VERSION_OF_REFUSED_SESSIONS: Final = 7
"""Apply version from which on nothing is taken of a session behind a message that could not be
stored."""
REFUSED_SESSION_KEPT_MS: Final = 30_000
"""How long a session is remembered of which a message could not be stored: much longer than what it
sent before its edge closed it is under way."""
REFUSED_SESSIONS_MAX: Final = 1_024
REFUSED_SESSIONS_PER_ADDRESS_MAX: Final = 32
"""With more the oldest one is forgotten: of what its peer sent, the order may change, no more."""
VERSION_OF_ACCOUNTS: Final = 7
"""Apply version from which on users of the directory may have accounts to log on with by RPC."""
VERSION_OF_EVENTS: Final = 8
"""Apply version from which on events are kept in the state."""
EVENTS_PER_KIND_MAX: Final = 2_000
"""Events of one kind that are kept; the oldest go first, so that many of one kind displace none of
another."""
EVENTS_PER_COMMAND_MAX: Final = 64
EVENT_REPORTERS_MAX: Final = 128
"""Processes of nodes of which it is remembered which of their events are known already."""
EVENT_NAME_MAX_CHARS: Final = 64
EVENT_PRINCIPAL_MAX_CHARS: Final = 256
EVENT_TEXT_MAX_CHARS: Final = 500
EVENT_DETAILS_MAX: Final = 16
EVENT_DETAIL_MAX_CHARS: Final = 200
"""Longer texts of an event are cut, and further details left out."""
VERSION_OF_TIME_TO_REACH: Final = 9
"""Apply version from which on a message to another queue manager may leave in the whole of the
second in which its TimeToReachQueue ends ([MS-MQQB] 3.1.7.1.2)."""
VERSION_OF_PRIVATE_BODIES: Final = 9
"""Apply version from which on no negative acknowledgement returns the body of a message that was
sent here with a privacy level ([MS-MQQB] 3.1.7.15)."""
VERSION_OF_RENEWED_MEMORY: Final = 9
"""Apply version from which on a repeat renews the memory of its message ([MS-MQQB] 3.1.5.8.1)."""
VERSION_OF_HOST_ADDRESSES: Final = 9
"""Apply version from which on acknowledgements and reports to a public queue name its queue manager
([MS-MQMQ] 2.2.19.2)."""
VERSION_OF_FINAL_CLASSES: Final = 9
"""Apply version from which on a final ack says that a message was received by ACK_RECEIVE alone
([MS-MQQB] 3.1.5.7)."""
VERSION_OF_AUDITED_RIGHTS: Final = 9
"""Apply version from which on audit entries of the descriptors of the queue manager and of
directory objects, too, name the rights alone that there are ([MS-MQDMPR] 3.1.1.1)."""
VERSION_OF_SEALED_BODIES: Final = 8
"""Apply version from which on the node that takes a message may seal its body: quotas judge its
size without the seal."""

CLOCK_MAX_MS: Final = 0xFFFF_FFFF * 1000
"""Cluster time ends where the seconds of packets end: a later stamp counts as this value."""
POSITIONS_PER_ENTRY_MAX: Final = 4_096
"""No entry touches more positions (DESIGN 1.6)."""
POSITIONS_PER_QUEUE_MAX: Final = 0xFFFF_FFFF - (1 << 20)
"""QUEUE_STATS counts in 32 bits; what is left is more than one run of entries adds."""
SETTLED_PER_COMMAND_MAX: Final = POSITIONS_PER_ENTRY_MAX // 4
"""Positions one delivery command settles: each may create a copy and an acknowledgement."""
MESSAGE_LABEL_MAX_CHARS: Final = 249
"""Without the NUL; [MS-MQMQ] 2.2.19.3 LabelLength 250 (MQ-A33)."""
QUEUE_LABEL_MAX_CHARS: Final = 124
PACKET_MAX_BYTES: Final = 0x0040_0000
"""[MS-MQMQ] 2.2.19.1 PacketSize."""
PROPERTIES_PER_CALL_MAX: Final = 128
"""MQ_ERROR_TOO_MANY_PROPERTIES, [MS-MQMQ] 2.4."""
OPERATIONS_PER_TRANSACTION_MAX: Final = 2_048
"""A move touches two positions, so a commit stays below POSITIONS_PER_ENTRY_MAX."""
MEMBERS_MAX: Final = 64
"""Nodes whose address is stored."""
MEMBER_NAME_MAX_BYTES: Final = 255
QUEUES_MAX: Final = 100_000
OUTGOING_QUEUES_MAX: Final = 50_000
"""Those of them for other queue managers: a peer creates one by naming an administration queue."""
OUTGOING_QUEUES_NAMED_MAX: Final = OUTGOING_QUEUES_MAX // 2
"""Those of them that peers named and no application uses: so an application always gets its own."""
OUTGOING_QUEUES_PER_SOURCE_MAX: Final = 256
"""Those of them that one queue manager named."""
OUTGOING_QUEUES_PER_ADDRESS_MAX: Final = 4_096
"""Those of them that were named in sessions from one address."""
ORDER_ACK_ORDINALS: Final = 65_536
"""MessageIDs that a leader reserves when its term begins, for order acks not caused by an entry:
one for each sequence seen lately."""
TIME_TO_LIVE_DEFAULT_S: Final = 0x0005_4600
"""Four days: TimeToReachQueue of a message that sets none ([MS-MQDMPR] 3.1.1.12), and how long an
administration acknowledgement is kept for an unreachable queue manager, whose TimeToReachQueue is
infinite on the wire [MS-MQQB 3.1.7.15]. Enterprise.DefaultTimeToLive replaces it."""
SUBQUEUES_PER_QUEUE_MAX: Final = 1_024
CURSORS_PER_CLIENT_MAX: Final = 1_024
WAITING_READERS_PER_CLIENT_MAX: Final = 4_096
OPEN_QUEUES_PER_CLIENT_MAX: Final = 1_024
CLIENTS_MAX: Final = 65_536
CLIENTS_SHARED_MAX: Final = CLIENTS_MAX * 3 // 4
"""Beyond it, sessions are for principals that have fewer than CLIENTS_FEW_COUNT."""
CLIENTS_FEW_COUNT: Final = 256
QUEUES_PER_PRINCIPAL_MAX: Final = 12_500
"""Queues that one principal created, other than an admin: with their journals a quarter of
QUEUES_MAX."""
QUOTA_SESSIONS: Final = "sessions"
"""Value of a refused OpenClient: its principal has too many sessions."""
QUOTA_QUEUES: Final = "queues"
"""Value of a refused CreateQueue: its principal created too many."""
TRANSACTIONS_PER_CLIENT_MAX: Final = 256
CONTROL_RESULTS_MAX: Final = 8_192
"""Results of control requests that are kept: enough for repeats, not all."""
UNCONFIRMED_RESULTS_PER_CLIENT_MAX: Final = 4_096
UNCONFIRMED_PER_CLIENT_MAX_BYTES: Final = 256 * 1024 * 1024
READS_PER_CLIENT_MAX: Final = 1_024
"""Two-phase reads without their second phase."""
TARGETS_PER_SEND_MAX: Final = 256
COPIES_PER_SEND_MAX_BYTES: Final = 12 << 20
"""Bytes of the packets of a call's messages to several targets, one packet per target: those of
one message share an entry of the log, which `raft` limits to 16 MiB."""
STREAMS_PER_SOURCE_MAX: Final = 65_536
HISTORY_ROWS_PER_SOURCE_MAX: Final = 262_144
"""16 MiB of bitmaps; beyond it, the oldest bucket of that source is evicted, with an alarm."""
HISTORY_HORIZON_DEFAULT_MS: Final = 7 * 24 * 3600 * 1000
"""How long an infinite TimeToReachQueue is remembered (DESIGN section 4, Duplicates)."""
ALARM_DIVERGED: Final = "diverged"
"""Members have different digests."""
ALARM_HISTORY_EVICTED: Final = "history_evicted"
ALARM_JOURNAL_DROPPED: Final = "journal_copy_dropped"
ALARM_NAMING_LIMIT: Final = "naming_limit"
"""An acknowledgement was dropped: its message's source had named too many destinations."""
ALARM_STREAM_LIMIT: Final = "stream_limit"
"""A source, or all sources at one address, exceeded the limit of destination names or GUIDs."""
SOURCES_PER_ADDRESS_MAX: Final = 4_096
"""Queue managers remembered because of sessions from one address; a single entry may exceed it."""
STREAMS_PER_ADDRESS_MAX: Final = 131_072
"""Destination names remembered because of sessions from one address, likewise."""
SEQUENCE_KEPT_MS: Final = 180 * 24 * 3600 * 1000
"""An incoming sequence that was silent for this long is forgotten."""
SOURCES_MAX: Final = 1_000_000
"""Queue managers whose messages are remembered."""
ALARM_PEER_ELSEWHERE: Final = "peer_elsewhere"
"""Something was refused because it came from another address than its queue manager's."""
ALARM_PEER_MOVED: Final = "peer_moved"
"""A queue manager is bound to another address from now on: the old one had been silent."""
ALARM_SEQUENCE_AHEAD: Final = "sequence_ahead"
"""A message was refused because its TxSequenceID lies in the future."""
SEQUENCE_AHEAD_MAX_S: Final = 24 * 3600
"""How far TxSequenceID.TimeStamp may be ahead of cluster time: a sender's clock may be wrong."""
BINDING_GRAIN_MS: Final = 5_000
"""How exactly it is known when a bound address was heard last: a change needs that much more."""
ADDRESS_MAX_CHARS: Final = 64
"""An IP address with a zone."""
TRANSFER_PEERS_MAX: Final = 8
"""Peers of one outgoing queue from which acknowledgements of its messages are taken."""
PINS_MAX: Final = 8_192
"""Pairs of a pinned queue manager and a network."""
SHARED_NETWORKS_MAX: Final = 256
SUSPICIONS_PER_ENTRY_MAX: Final = 16
"""Different refused or moved peers that the effects of one entry name."""
ADDRESSES_PER_MANAGER_MAX: Final = 16
"""Hosts or addresses of a queue manager in the directory."""
DIRECTORY_NAME_MAX_CHARS: Final = 255
"""A name or an address of an object in the directory."""
GROUPS_PER_USER_MAX: Final = 1_024
CERTIFICATES_PER_USER_MAX: Final = 32
GROUPS_IN_HAND_MAX: Final = 16_384
"""SIDs whose groups are kept decoded."""
POISON_SUBQUEUE: Final = "poison"
"""Where `PoisonAction.MOVE` puts messages."""
RETRY_DELAY_MAX_MS: Final = 7 * 24 * 3_600_000
"""A queue's delay between returns."""
RETURNS_MAX: Final = 0xFFFF_FFFF
"""Counts of a message stop here."""
