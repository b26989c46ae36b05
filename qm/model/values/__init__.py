"""Values of the data model: commands, effects, records, rows, limits. The lowest part of
`qm.model`; may import `qm.wire`, `qm.names` and `qm.security`.
"""
