"""Conversion between what callers see and what the state holds: names, attributes, packets, access
lists. Pure except for the caller's principal; may import `qm.api.gate` and layers below `qm.api`.
"""
