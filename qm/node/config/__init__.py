"""The configuration of one node: its schema, its loading, addresses. The lowest part of
`qm.node`.
"""
