"""Connections to peers and who sends over them: resolving, timers, turns. May import the limits and
values of `qm.edge.outgoing`.
"""
