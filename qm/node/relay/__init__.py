"""Requests between nodes, apart from Raft: relay streams, forwarded commands, their outcomes. May
import `qm.cluster` and `raft`.
"""
