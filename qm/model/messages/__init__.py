"""What happens to one message: it enters a queue, moves, ends, and is reported. May import `state`
and `values`.
"""
