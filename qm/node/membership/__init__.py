"""How nodes become a cluster, join one, leave it and begin again. May import `replica`, `relay` and
`config`.
"""
