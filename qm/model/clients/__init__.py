"""What clients request: sessions, opens, reads, sends, transactions. May import every other part of
`qm.model` except `queries`.
"""
