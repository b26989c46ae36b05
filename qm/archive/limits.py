"""Limits of the archiver, each with what it protects."""

from typing import Final

ROWS_PER_READ: Final = 32
"""Kept rows read at once: a row of an entry with 4,096 effects has 200 KiB."""
ROW_GROUP_BYTES: Final = 8 << 20
"""Of entries' data in memory before a row group is written."""
ROW_GROUP_ROWS: Final = 65_536
"""Of entries or operations, likewise; about 100 bytes each."""
ACK_MARKS_WAITING_MAX: Final = 65_536
"""Ack marks that wait for a range; the oldest go first."""
LOG_PER_STATE: Final = 2
"""Bytes of log for each byte of the last checkpoint, before another one is tried;"""
LOG_PER_BUSY_STATE: Final = 2
"""Times as much, before a busy node writes one;"""
LOG_PER_STATE_MIN: Final = 1
"""and for each byte of this one, or it is not written: what they add to the archive is bounded."""
HELD_BEFORE_WAITING_ENDS: Final = 0.25
"""Of what may be held: a node with more waits neither for quiet nor for another node."""
BUSY_SHARE: Final = 0.2
"""Of a core, which the loop's thread has or waits for: with more a node has better things to do
than to export."""
LOOK_EVERY_S: Final = 0.25
"""At that share; in less time it says nothing."""
QUIET_S: Final = 2.0
"""Below its share so long, it is busy no more: in a gap between two pieces of work nothing begins
that the second one would have to wait for."""
OTHERS_ASKED_EVERY_S: Final = 1.0
"""What they wrote, while a range waits for it."""
REPORT_WAIT_S: Final = 600.0
"""How long a range waits for what this node reports at an audit mark; then it goes without."""
STOP_WAIT_S: Final = 5.0
"""How long a stopping node waits for a file at hand; what does not answer must not hold it."""
STEP_EVERY_S: Final = 0.5
RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
"""Between two tries when the archive cannot be written."""
