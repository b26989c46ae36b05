"""What committed entries did, exported as Parquet for audit and compaction (design.md)."""

import os
from typing import Final

ALLOCATOR_KEEPS_MS: Final = "10000"
"""Arrow's allocator gives memory back to the system 10 ms after it was freed, and each row group
would fault it in again: a third of the CPU of an export. It reads this when pyarrow is loaded."""
os.environ.setdefault("MIMALLOC_PURGE_DELAY", ALLOCATOR_KEEPS_MS)
