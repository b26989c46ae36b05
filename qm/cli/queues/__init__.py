"""The queue manager's nouns: queues, messages, copies, outgoing queues, transactions, clients. May
import `qm.cli.lib`.
"""
