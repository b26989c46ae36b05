"""Creation and settings of the queue manager, queues, members and the directory; expiry, purge,
restore. May import `arrivals`, `messages`, `state` and `values`.
"""
