"""The way from a session's arrivals to the leader and back: batches, pipeline, outcomes. May import
the value modules of `qm.edge`; uses no socket.
"""
