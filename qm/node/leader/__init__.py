"""What a node does only while it leads: cluster time, audit marks, upgrades, yielding. May import
`replica`, `membership` and `config`.
"""
