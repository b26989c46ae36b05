"""Acknowledgements that this queue manager owes to peers: the outbox, order and final acks. May
import `link` and the value modules of `qm.edge.outgoing`.
"""
