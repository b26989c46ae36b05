"""The control and data planes over gRPC, on every node (DESIGN section 2). May import
`qm.cluster` and below.
"""
