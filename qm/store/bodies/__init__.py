"""Bodies of messages: in the log while it has their entry, then in blob files. May import the
rows of `qm.store` and `raft`'s log.
"""
