"""The objects' queue manager over the client: what [MC-MQAC] asks of it, as calls of the cluster.

May import the rest of `qm.client`. The objects know `qm.client.mqac.manager` alone.
"""
