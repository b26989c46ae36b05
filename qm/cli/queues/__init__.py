"""Nouns of the queue manager: queues, messages, copies, outgoing queues, transactions, clients. May
import `qm.cli.lib`.
"""
