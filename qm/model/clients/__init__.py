"""What clients ask for: sessions, opens, reads, sends, transactions. May import every other part of
`qm.model` but `queries`.
"""
