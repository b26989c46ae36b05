"""Sockets of MSMQ peers: accepted connections, their admission and deadlines, pings over UDP. May
import `qm.edge.relay`.
"""
