"""The configuration of one node: its schema, how it is loaded, addresses. The lowest part of
`qm.node`.
"""
