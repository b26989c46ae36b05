"""UserMessages from the network: duplicates, incoming streams, the fast lane. May import
`messages`, `state` and `values`.
"""
