"""Commands of calls on their way to the leader, repeated until their outcome is known. May import
`qm.api.gate`.
"""
