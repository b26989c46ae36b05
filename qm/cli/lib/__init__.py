"""Shared by all nouns: the connection to a cluster, output as table, JSON or YAML, message bodies.
The lowest layer of `qm.cli`.
"""
