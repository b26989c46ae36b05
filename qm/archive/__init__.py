"""Export of what committed entries did as Parquet, for audit and compaction (design.md). May import
`qm.store` and below.
"""

import os
from typing import Final

ALLOCATOR_KEEPS_MS: Final = "60000"
"""Arrow's allocator returns freed memory to the system soon, and ranges would fault it in again: up
to a third of the CPU of an export. Arrow reads this setting when pyarrow is loaded."""
os.environ.setdefault("MIMALLOC_PURGE_DELAY", ALLOCATOR_KEEPS_MS)
