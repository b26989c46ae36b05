"""Every bound that peers can reach at an edge; the unit comes last.

Limits of one session are in `qm.session.limits`, those of one packet in `qm.wire.limits`, those of
a relay stream in `qm.cluster.relay`.
"""

from typing import Final

from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX

# Packets that were read and have no outcome yet, of all sessions together. Above it, nothing more
# is read from any peer until half of it is answered. Each session may exceed it by one read.
HELD_MAX_BYTES: Final = 64 << 20
# Incomplete packets of all sessions together. Above it, the session whose packet is the oldest of
# them is closed: waiting would not help, since no packet can be completed without reading more.
INCOMPLETE_MAX_BYTES: Final = 128 << 20

# A batch is closed when one of these is reached; the first run may exceed the bytes alone.
BATCH_SOFT_MAX_BYTES: Final = 1 << 20
BATCH_MAX_COUNT: Final = POSITIONS_PER_ENTRY_MAX
BATCH_FACTS_MAX_COUNT: Final = 256
# OrderAcks or FinalAcks of one command; apply settles as many positions with each.
ACK_ITEMS_MAX_COUNT: Final = POSITIONS_PER_ENTRY_MAX // 4
# Waiting items that are inspected for one batch.
CUT_MAX_COUNT: Final = 4_096

# Late packets of one session without an outcome, whatever its window is.
LATE_MAX_COUNT: Final = 1_024

# Bytes that a connection's transport may hold for a peer that does not read.
WRITE_BUFFER_MAX_BYTES: Final = 64 << 10
# How long that buffer may stay full, and how long the last bytes of a closed session may take.
WRITE_STALL_MAX_S: Final = 60.0
LINGER_MAX_S: Final = 5.0

# The last quarter of all connections is kept for addresses that have fewer than this: so no few
# addresses can take all of them.
FEW_SESSIONS_COUNT: Final = 16

LISTEN_BACKLOG_COUNT: Final = 1_024

# Without a leader for so long, sessions are closed (DESIGN section 7).
NO_LEADER_MAX_S: Final = 5.0
# Between attempts to open a relay stream while a leader is known.
RELAY_RETRY_S: Final = 0.1

# Pings answered per second: for one address, and in total. Addresses are counted per second.
PINGS_PER_ADDRESS_MAX_COUNT: Final = 16
PINGS_MAX_COUNT: Final = 4_096

# Ack marks that wait for the archive; the oldest are dropped first.
ACK_MARKS_MAX_COUNT: Final = 65_536

# Failed checks and fresh session keys of one address: each costs up to a millisecond that others
# wait for. Addresses are forgotten in the order in which they last spent.
FAILURES_PER_S: Final = 50.0
FAILURES_BURST_COUNT: Final = 200.0
FAILURE_ADDRESSES_MAX_COUNT: Final = 4_096
# A body above this is decrypted and hashed in another thread.
EXAMINED_HERE_MAX_BYTES: Final = 64 << 10
# How long the event loop examines one session's messages before others have their turn.
EXAMINATION_SLICE_S: Final = 0.005
# Threads for what takes long. More would only compete for the interpreter.
EXAMINATION_THREADS_COUNT: Final = 2
# Private keys of one provider that are tried on a message: the newest and those still accepted.
EXCHANGE_KEYS_MAX_COUNT: Final = 3
# Signing keys of one queue manager in the directory that are tried on a message.
SIGNING_KEYS_MAX_COUNT: Final = 3
# Facts of one run, so that a few runs fit into a batch.
RUN_FACTS_MAX_COUNT: Final = 64
# Sizes of the caches, [MS-MQQB] 3.1.3.1 UserCertCacheSize and ReceiveSymmetricKeyCacheSize, and
# their lifetimes.
USER_CERTIFICATES_MAX_COUNT: Final = 53
USER_CERTIFICATE_LIFETIME_S: Final = 1_200.0
SYMMETRIC_KEYS_MAX_COUNT: Final = 127
SYMMETRIC_KEY_LIFETIME_S: Final = 600.0

assert RUN_FACTS_MAX_COUNT < BATCH_FACTS_MAX_COUNT
assert BATCH_MAX_COUNT <= POSITIONS_PER_ENTRY_MAX
assert BATCH_FACTS_MAX_COUNT <= 1 << 8  # one byte per message is the index of its facts
assert BATCH_SOFT_MAX_BYTES < HELD_MAX_BYTES
