"""Between what callers see and what the state holds: names, attributes, packets, access lists. Pure
but for the caller's principal; may import `qm.api.gate` and the layers below `qm.api`.
"""
