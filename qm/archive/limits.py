"""Limits of the archiver, each with what it protects."""

from typing import Final

ROWS_PER_READ: Final = 32
"""Kept rows per read: the row of an entry with 4,096 effects has 200 KiB."""
ROW_GROUP_BYTES: Final = 8 << 20
"""Bytes of entries' data in memory before a row group is written."""
ROW_GROUP_ROWS: Final = 65_536
"""Entries or operations in memory before a row group is written; about 100 bytes each."""
ACK_MARKS_WAITING_MAX: Final = 65_536
"""Ack marks that wait for a range; the oldest are dropped first."""
LOG_PER_STATE: Final = 2
"""Bytes of log per byte of the last checkpoint before the next one is tried."""
LOG_PER_BUSY_STATE: Final = 2
"""Factor by which a busy node waits for more log before it writes one."""
LOG_PER_STATE_MIN: Final = 1
"""Bytes of log per byte of the new checkpoint, or it is not written: bounds the growth of the
archive by checkpoints."""
HELD_BEFORE_WAITING_ENDS: Final = 0.25
"""Share of the hold above which a node waits neither for quiet nor for another node."""
BUSY_SHARE: Final = 0.2
"""Share of a core that the loop's thread has or waits for, above which exporting waits."""
LOOK_EVERY_S: Final = 0.25
"""Interval between measurements of that share; shorter ones are meaningless."""
QUIET_S: Final = 2.0
"""How long the share must stay low before the node counts as quiet, so that no export starts in a
gap between two pieces of work and delays the second."""
OTHERS_ASKED_EVERY_S: Final = 1.0
"""How often other nodes are asked what they wrote, while a range waits for it."""
REPORT_WAIT_S: Final = 600.0
"""How long a range waits for this node's report at an audit mark; then it is exported without."""
STOP_WAIT_S: Final = 5.0
"""How long a stopping node waits for the current file; a hanging archive must not hold it up."""
STEP_EVERY_S: Final = 0.5
RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""Longest interval between two attempts while the archive cannot be written."""
