"""What committed entries did, exported as Parquet for audit and compaction (design.md)."""
