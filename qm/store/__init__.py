"""The model on disk: apply(batch) -> effects, RocksDB, bodies, snapshots, digests. May import
`qm.observe` and below, and `raft`.
"""
