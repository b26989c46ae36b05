"""`qm packet`: captures and single packets, decoded for reading. May import `qm.cli.lib` and
`qm.wire`.
"""
