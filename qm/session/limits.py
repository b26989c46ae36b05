"""Every bound that a peer can reach in a session, and the timers' defaults; the unit comes last.

Sections are those of MS-MQQB. Limits of single packets are in `qm.wire.limits`.
"""

from typing import Final

# Positions on the wire are u16 and compared as serial numbers, so fewer than half of them may be
# open at once, in either direction (QB-A7).
SERIAL_SPAN_COUNT: Final = 0x1_0000
OPEN_POSITIONS_MAX_COUNT: Final = 0x4000
# An initiator stops sending at this count, drains and reconnects, so that its peer never sees a
# wrap (QB-A7). The margin below 0xFFFF is the largest window.
RECYCLE_AFTER_COUNT: Final = 0xFFFF - OPEN_POSITIONS_MAX_COUNT

# Arrivals handed out and not yet committed. Above this the session asks its edge to stop reading
# (`Session.reading_paused`) until half of it is committed; the peer's TCP window then closes.
UNCOMMITTED_MAX_BYTES: Final = 0x0040_0000
UNCOMMITTED_MAX_COUNT: Final = 0x1000
# Soft bound of one `take_outgoing`; a single message may exceed it alone.
OUTGOING_CHUNK_MAX_BYTES: Final = 0x0004_0000

# Pings that wait for their answer at one time (QB-A44).
PINGS_OUTSTANDING_MAX_COUNT: Final = 0x1000
# Entries of OutgoingQueue.ConnectionHistory that a link keeps; the oldest are dropped first.
CONNECTION_HISTORY_MAX_COUNT: Final = 20
# Addresses that one resolution may yield; further ones are ignored.
NEXT_HOPS_MAX_COUNT: Final = 32

# 3.1.2.1, note <43>.
INITIALIZATION_TIMEOUT_MS: Final = 60_000
# 3.1.2.2, note <44>.
CLEANUP_TIMEOUT_MS: Final = 300_000
# 3.1.2.3, note <45>.
RETRY_CONNECT_TIMEOUT_MS: Final = 5_000
# 3.1.2.4 and 3.1.3.2, notes <46> and <51>.
ACK_WAIT_TIMEOUT_MS: Final = 20_000
# Under a steady load something is always in flight: this many durable messages then get an
# acknowledgement of their own, where half a window would be more (QB-A33).
ACKNOWLEDGED_AFTER_COUNT: Final = 8
ACK_WAIT_FACTOR: Final = 1
ACK_WAIT_FACTOR_DIRECT: Final = 2
# 3.1.3.2: RecoverableAckSendTimeout before the handshake has set it.
RECOVERABLE_ACK_SEND_TIMEOUT_UNSET_MS: Final = 0xFFFF_FFFF
# 3.1.3.2, note <52>.
ORDER_ACK_TIMEOUT_MS: Final = 500
ORDER_ACK_DELAY_MAX_MS: Final = 10_000
# DESIGN section 7: between the OrderAcks of a sequence that flows.
ORDER_ACK_INTERVAL_MS: Final = 20
# 3.1.2.9.
PING_RESPONSE_TIMEOUT_MS: Final = 1_000
# 3.1.1.3, notes <30> to <33>.
RESEND_TIMEOUT_SHORT_S: Final = 30
RESEND_TIMEOUT_MEDIUM_S: Final = 300
RESEND_TIMEOUT_LONG_S: Final = 1_800
RESEND_TIMEOUT_FINAL_S: Final = 21_600

assert UNCOMMITTED_MAX_COUNT <= OPEN_POSITIONS_MAX_COUNT < SERIAL_SPAN_COUNT // 2
assert RECYCLE_AFTER_COUNT + OPEN_POSITIONS_MAX_COUNT < SERIAL_SPAN_COUNT
