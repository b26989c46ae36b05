"""Consensus as a pure function of state and input: no I/O, no clock, no random. May import
`raft.types` and `raft.log_view`.
"""
