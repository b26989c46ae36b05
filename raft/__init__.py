"""Consensus: replicates opaque byte entries of a group and applies them through a callback."""
