"""Whether the addresses of a dev cluster can be listened on."""

import socket
from collections.abc import Iterable
from typing import Final

from qm.node.config.schema import (
    API_PORT,
    HTTP_PORT,
    MSMQ_PORT,
    PING_PORT,
    RAFT_PORT,
    RELAY_PORT,
)

_LISTENERS: Final = (
    *((socket.SOCK_STREAM, port) for port in (MSMQ_PORT, API_PORT, RAFT_PORT, RELAY_PORT)),
    (socket.SOCK_STREAM, HTTP_PORT),
    (socket.SOCK_DGRAM, PING_PORT),
)


def conflict(hosts: Iterable[str]) -> str:
    """Return what is wrong with the first address that a node could not listen on, or "".

    Nodes would try again without end, as they must where an address is about to come.
    """
    for host in hosts:
        for kind, port in _LISTENERS:
            with socket.socket(socket.AF_INET, kind) as probe:
                if kind is socket.SOCK_STREAM:  # as listeners do: past connections do not count
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    return f"cannot listen on {host}, port {port}: {error.strerror}"
    return ""
