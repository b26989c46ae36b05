"""PySpark jobs over the archived log: audit, compaction, restore (DESIGN section 5)."""
