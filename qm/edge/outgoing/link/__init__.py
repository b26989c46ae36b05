"""Connections to peers and their users: resolving, timers, turns. May import the limits and values
of `qm.edge.outgoing`.
"""
