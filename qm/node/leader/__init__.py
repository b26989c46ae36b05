"""What a node does only while it leads: cluster time, audit marks, upgrades, failover for a full
disk. May import `replica`, `membership` and `config`.
"""
