"""Structures of [MS-MQMQ] that are used over RPC and not TCP 1801: properties, QUEUE_FORMAT,
PROPVARIANT, addresses. May import `structures`.
"""
