"""How replicas reach each other: the face, its implementations, frames, TLS. May import
`raft.types` and `raft.machine`.
"""
