"""Effects of entries, kept for the archive, and the hash chain over entries. May import the rows
and the codec of `qm.store`.
"""
