"""What all nouns share: the connection to a cluster, output as table, JSON or YAML, message bodies.
The lowest part of `qm.cli`.
"""
