"""The replicated log on disk: segments, records, recovery, one fdatasync per batch. May import
`raft.types` and `raft.log_view`.
"""
