"""The data plane: sessions, handles, waits, and one module per kind of call. May import `propose`,
`convert` and `gate`.
"""
