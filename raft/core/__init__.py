"""Consensus as a pure function of state and input: no I/O, no clock, no randomness. May import
`raft.types` and `raft.log_view`.
"""
