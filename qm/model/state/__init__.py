"""The replicated state in hand during apply: tables, rows decoded once, names of queues. May import
`values`.
"""
