"""The model on disk: apply(batch) -> effects, RocksDB, bodies, snapshots, digests."""
