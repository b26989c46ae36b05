"""Every bound of the sending side; the unit comes last.

A peer that never answers, a backlog of millions and ten thousand destinations each cost no more
than what stands here.
"""

from typing import Final

from qm.model.values.limits import SETTLED_PER_COMMAND_MAX

# Connections -----------------------------------------------------------------------------------

CONNECTIONS_MAX: Final = 512
"""Connections to peers, open or opening; an idle one makes room for a new one."""
TENURE_S: Final = 10.0
"""After that a busy one makes room too, so that all destinations have their turn."""
CONNECTING_MAX: Final = 64
"""Connection attempts of outgoing queues under way at a time."""
CONNECTING_ACKS_MAX: Final = 32
"""Of acknowledgements that peers are owed: their destinations are what peers say."""
HANDSHAKE_PATIENCE_S: Final = 1.0
"""For a peer that was reached to open its session, while others need the connection."""
BACKOFF_AFTER_COUNT: Final = 3
"""From so many failures in a row on an address is tried less often than its users ask,"""
BACKOFF_FIRST_S: Final = 5.0
"""by this at first,"""
BACKOFF_MAX_S: Final = 300.0
"""and this at most; a half to all of it, by chance, so that not all come at once."""
ADDRESSES_KEPT_MAX: Final = 16_384
"""Of which it is known whether they were reached; the oldest go first."""
RESOLVING_MAX: Final = 4
"""Host names looked up at a time."""
RESOLVE_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 20.0
WRITE_HIGH_WATER_BYTES: Final = 0x0010_0000
"""What a transport holds before a connection takes no further packet out of storage."""

# Outgoing queues -------------------------------------------------------------------------------

TURN_MESSAGES_MAX: Final = 32
TURN_MAX_BYTES: Final = 0x0004_0000
"""One queue's turn on a shared connection; a single message may exceed it alone."""
READ_AHEAD_MAX: Final = 256
"""Entries of a queue that are loaded and have not left."""
TABLE_ENTRIES_MAX: Final = 2_048
"""Entries of a queue that are loaded, sent ones that wait for their order ack included."""
PAGE_ROWS_MAX: Final = 256
"""Rows that one step of a load looks at."""
IDLE_QUEUE_S: Final = 1_800.0
"""An outgoing queue that had nothing to send for this long is removed."""
IDLE_PAGE_S: Final = 1.0
"""Between pages of one look at all of them."""
SENDERS_MAX: Final = 4_096
"""Outgoing queues kept in mind; beyond, those that have nothing to send are forgotten first."""
SENDERS_PER_LOOK_MAX: Final = 16
"""Of those, looked at for ones that can be forgotten when another comes."""
QUEUES_PER_PAGE_MAX: Final = 256
"""Outgoing queues that one step of the scan at the begin of leadership looks at."""

# Commands --------------------------------------------------------------------------------------

KEYS_PER_COMMAND_MAX: Final = SETTLED_PER_COMMAND_MAX
COMMANDS_PER_PROPOSAL_MAX: Final = 64
PROPOSE_RETRY_S: Final = 0.2
"""Between attempts while nothing can be committed."""

# Acknowledgements owed to peers ----------------------------------------------------------------

OUTBOX_PAGE_ROWS_MAX: Final = 512
OUTBOX_PEERS_MAX: Final = 4_096
"""Peers with something owed that are kept in mind; the others' rows wait for a later look."""
PEERS_PER_LOOK_MAX: Final = 16
"""Peers that are looked at for one that can be forgotten: a new peer costs no more with many known
than with few."""
PEERS_SWEEP_S: Final = 2.0
"""Between looks for peers that nothing is owed to any more."""
OUTBOX_ROWS_PER_PEER_MAX: Final = 1_024
"""Rows of one peer kept in mind; the rest is read when these are done."""
OUTBOX_IN_FLIGHT_MAX: Final = 64
"""Rows of one peer that are sent and not acknowledged."""
OUTBOX_RETRY_S: Final = 5.0
"""After a session that was to carry them did not, or there was no way to the peer."""
OUTBOX_SWEEP_S: Final = 600.0
OUTBOX_AGE_MAX_MS: Final = 7 * 24 * 3600 * 1000
"""Then a row is given up: its sender's TimeToReachQueue is over by default (QB 6.3.6)."""

ORDER_ACKS_PER_PEER_MAX: Final = 4_096
"""Order acks that are due to one peer; beyond, its next messages ask for them again."""
ORDER_ACK_SESSIONS_MAX: Final = 8
"""Sessions of one peer over which an order ack leaves, the newest ones."""
SEQUENCES_SEEN_MAX: Final = 65_536
"""Incoming sequences whose sender's whereabouts are kept in mind; the longest silent go first."""
ORDER_ACK_EVERY_COUNT: Final = 256
"""Numbers after which an order ack leaves without waiting for its timer (DESIGN section 7)."""
SEQUENCE_ACTIVE_MS: Final = 600_000
"""At the begin of leadership, sequences heard of in this time get an order ack."""

assert READ_AHEAD_MAX <= TABLE_ENTRIES_MAX
assert TURN_MESSAGES_MAX <= READ_AHEAD_MAX
# A load adds a page to fewer than READ_AHEAD_MAX unnumbered positions; all are numbered at once.
assert READ_AHEAD_MAX + PAGE_ROWS_MAX <= KEYS_PER_COMMAND_MAX
