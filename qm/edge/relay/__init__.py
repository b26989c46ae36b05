"""From a session's arrivals to the leader and back: batches, pipeline, outcomes. May import the
values of `qm.edge`; knows no socket.
"""
