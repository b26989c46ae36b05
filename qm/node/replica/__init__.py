"""The replicated store of this node: one Raft replica and the state that it drives. May import
`relay` and `config`.
"""
