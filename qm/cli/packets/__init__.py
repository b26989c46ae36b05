"""`qm packet`: captures and single packets, decoded for people. May import `qm.cli.lib` and
`qm.wire`.
"""
