"""Between nodes, beside consensus: relay streams, forwarded commands, their outcomes. May import
`qm.cluster` and `raft`.
"""
