"""Limits of the replicated state machine. They count logical things (DESIGN 1.3).

Changing a value changes what apply does: it needs a new apply version.
"""

from typing import Final

APPLY_VERSION: Final = 4
"""Newest behaviour of apply that this build knows."""
VERSION_OF_BLAKE3: Final = 2
"""Apply version from which on the chain has entries' data hashed with BLAKE3 instead of SHA-256."""
VERSION_OF_ENTRY_HASH: Final = 3
"""Apply version from which on stamps may say the hash of their entry."""
VERSION_OF_REFUSALS: Final = 4
"""Apply version from which on what is refused leaves nothing: a stream has no number and no rows
before something of it is remembered, and numbers that come to their end are carried or given again
only when they are free."""

CLOCK_MAX_MS: Final = 0xFFFF_FFFF * 1000
"""Cluster time ends where the seconds of packets end: a later stamp counts as this one."""
POSITIONS_PER_ENTRY_MAX: Final = 4_096
"""DESIGN 1.6: no entry touches more positions."""
SETTLED_PER_COMMAND_MAX: Final = POSITIONS_PER_ENTRY_MAX // 4
"""Positions that one command of delivery settles: each may leave a copy and an acknowledgement."""
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
"""Nodes whose address is kept."""
MEMBER_NAME_MAX_BYTES: Final = 255
QUEUES_MAX: Final = 100_000
OUTGOING_QUEUES_MAX: Final = 50_000
"""Of those, for other queue managers: a peer has one made by naming an administration queue."""
ORDER_ACK_ORDINALS: Final = 65_536
"""MessageIDs that a leader has for order acks that no entry asked for: one for each sequence that
was heard of lately, when it begins."""
ACKNOWLEDGEMENT_LIFETIME_S: Final = 4 * 24 * 3600
"""How long an administration acknowledgement is kept for a queue manager that is out of reach; on
the wire its TimeToReachQueue is infinite [MS-MQQB 3.1.7.15]."""
SUBQUEUES_PER_QUEUE_MAX: Final = 1_024
CURSORS_PER_CLIENT_MAX: Final = 1_024
WAITING_READERS_PER_CLIENT_MAX: Final = 4_096
OPEN_QUEUES_PER_CLIENT_MAX: Final = 1_024
CLIENTS_MAX: Final = 65_536
TRANSACTIONS_PER_CLIENT_MAX: Final = 256
CONTROL_RESULTS_MAX: Final = 8_192
"""Of control requests: for as long as one may be repeated, not for ever."""
UNCONFIRMED_RESULTS_PER_CLIENT_MAX: Final = 4_096
UNCONFIRMED_PER_CLIENT_MAX_BYTES: Final = 256 * 1024 * 1024
READS_PER_CLIENT_MAX: Final = 1_024
"""Two-phase reads without their second phase."""
TARGETS_PER_SEND_MAX: Final = 256
COPIES_PER_SEND_MAX_BYTES: Final = 12 << 20
"""Of the packets of a call's messages to several targets, which have one for each: those of one
message share an entry of the log, which `raft` bounds at 16 MiB."""
STREAMS_PER_SOURCE_MAX: Final = 65_536
HISTORY_ROWS_PER_SOURCE_MAX: Final = 262_144
"""16 MiB of bitmaps; the oldest bucket of that source goes first, with an alarm."""
HISTORY_HORIZON_DEFAULT_MS: Final = 7 * 24 * 3600 * 1000
"""How long an infinite TimeToReachQueue is remembered (DESIGN section 4, Duplicates)."""
ALARM_HISTORY_EVICTED: Final = "history_evicted"
ALARM_JOURNAL_DROPPED: Final = "journal_copy_dropped"
ALARM_STREAM_LIMIT: Final = "stream_limit"
"""A source, or those of one address, used more destination names or GUIDs than they may."""
SOURCES_PER_ADDRESS_MAX: Final = 4_096
"""Queue managers that sessions from one address may have remembered; what one entry adds to them
may go beyond it."""
STREAMS_PER_ADDRESS_MAX: Final = 131_072
"""Likewise, their destination names."""
SEQUENCE_KEPT_MS: Final = 180 * 24 * 3600 * 1000
"""An incoming sequence that was silent for so long is forgotten."""
SOURCES_MAX: Final = 1_000_000
"""Queue managers whose messages are remembered."""
