"""Every bound of the sending side; the unit comes last.

A peer that never answers, a backlog of millions and ten thousand destinations each cost no more
than these bounds allow.
"""

from typing import Final

from qm.model.values.limits import SETTLED_PER_COMMAND_MAX

# Connections -----------------------------------------------------------------------------------

CONNECTIONS_MAX: Final = 512
"""Connections to peers, open or opening; an idle one makes room for a new one."""
TENURE_S: Final = 10.0
"""After that a busy one gives way too, so that every destination is served in turn."""
CONNECTING_MAX: Final = 64
"""Connection attempts for applications' destinations in progress at a time."""
CONNECTING_NAMED_MAX: Final = 32
"""The same for destinations that peers named: of acknowledgements of every kind."""
HANDSHAKE_PATIENCE_S: Final = 1.0
"""For a peer that was reached to open its session, while others need the connection."""
BACKOFF_AFTER_COUNT: Final = 3
"""After so many failures in a row an address is tried less often than its users ask."""
BACKOFF_FIRST_S: Final = 5.0
"""First pause before such an address is tried again; it grows with each failure."""
BACKOFF_MAX_S: Final = 300.0
"""Longest such pause; a random half to all of it is used, to spread the attempts."""
ADDRESSES_KEPT_MAX: Final = 16_384
"""Addresses of which it is known whether they were reached; the oldest are dropped first."""
TIMERS_PER_TURN_MAX: Final = 256
"""Timers that fire in one turn of the event loop: when ten thousand destinations are tried again
at the same time, everything else goes on in between."""
RESOLVING_MAX: Final = 8
"""Host names looked up at a time."""
RESOLVING_NAMED_MAX: Final = 8
"""The same for names that peers gave: each may have a name server that never answers."""
RESOLVE_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 20.0
WRITE_HIGH_WATER_BYTES: Final = 0x0010_0000
"""Bytes in a transport beyond which a connection reads no further packet from storage."""

# Outgoing queues -------------------------------------------------------------------------------

TURN_MESSAGES_MAX: Final = 32
TURN_MAX_BYTES: Final = 0x0004_0000
"""Bytes of a queue's turn on a shared connection; a single message alone may exceed it."""
READ_AHEAD_MAX: Final = 256
"""Entries of a queue that are loaded and have not left."""
TABLE_ENTRIES_MAX: Final = 2_048
"""Entries of a queue that are loaded, sent ones that wait for their order ack included."""
PAGE_ROWS_MAX: Final = 256
"""Rows that one step of a load reads."""
IDLE_QUEUE_S: Final = 1_800.0
"""An outgoing queue that had nothing to send for this long is removed."""
IDLE_PAGE_S: Final = 1.0
"""Between pages of one check of all of them."""
SENDERS_MAX: Final = 4_096
"""Outgoing queues in memory; beyond that, those with nothing to send are forgotten first."""
SENDERS_PER_LOOK_MAX: Final = 16
"""How many of those are checked for ones that can be forgotten when another comes."""
QUEUES_PER_PAGE_MAX: Final = 256
"""Outgoing queues that one step of the scan at the start of leadership reads."""

# Commands --------------------------------------------------------------------------------------

KEYS_PER_COMMAND_MAX: Final = SETTLED_PER_COMMAND_MAX
COMMANDS_PER_PROPOSAL_MAX: Final = 64
PROPOSE_RETRY_S: Final = 0.2
"""Between attempts while nothing can be committed."""

# Acknowledgements owed to peers ----------------------------------------------------------------

OUTBOX_PAGE_ROWS_MAX: Final = 512
OUTBOX_PEERS_MAX: Final = 4_096
"""Peers with something owed in memory; the others' rows wait for a later check."""
PEERS_PER_LOOK_MAX: Final = 16
"""Peers that are checked for one that can be forgotten: so a new peer costs no more with many
known peers than with few."""
PEERS_SWEEP_S: Final = 2.0
"""Between checks for peers that nothing is owed to any more."""
OUTBOX_ROWS_PER_PEER_MAX: Final = 1_024
"""Rows of one peer in memory; the rest is read when these are done."""
OUTBOX_IN_FLIGHT_MAX: Final = 64
"""Rows of one peer that are sent and not acknowledged."""
OUTBOX_RETRY_S: Final = 5.0
"""After a session failed to carry them, or there was no way to the peer."""
RESTORE_RETRY_S: Final = 5.0
"""After no other node could restore a body that is damaged here."""
OUTBOX_SWEEP_S: Final = 600.0
OUTBOX_AGE_MAX_MS: Final = 7 * 24 * 3600 * 1000
"""Age at which a row is given up: its sender's default TimeToReachQueue is over (QB 6.3.6)."""

ORDER_ACKS_PER_PEER_MAX: Final = 4_096
"""Order acks due to one peer; beyond that, its next messages ask for them again."""
ORDER_ACK_SESSIONS_MAX: Final = 8
"""Number of sessions with one peer over which an order ack is sent, the newest ones."""
SEQUENCES_SEEN_MAX: Final = 65_536
"""Incoming sequences whose sender's address is remembered; the longest silent are dropped first."""
SEQUENCE_ACTIVE_MS: Final = 600_000
"""At the start of leadership, sequences seen within this time get an order ack."""

assert READ_AHEAD_MAX <= TABLE_ENTRIES_MAX
assert TURN_MESSAGES_MAX <= READ_AHEAD_MAX
# A load adds a page to fewer than READ_AHEAD_MAX unnumbered positions; all are numbered at once.
assert READ_AHEAD_MAX + PAGE_ROWS_MAX <= KEYS_PER_COMMAND_MAX
