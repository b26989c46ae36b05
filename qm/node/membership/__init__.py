"""How nodes found a cluster, join and leave it, and begin a new one from old data. May import
`replica`, `relay` and `config`.
"""
