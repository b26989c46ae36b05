"""Why a connection was not made, by the error of the operating system."""

from __future__ import annotations

import errno

import pytest

from qm.edge.outgoing.link.connections import Connections
from qm.session import ConnectionStatus
from tests.unit.edge.outgoing.test_trouble import HOST, last_status
from tests.unit.edge.outgoing.world import SendingCluster, free_port, run, until


@pytest.mark.spec("DM-3.1.1.3-07")
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.EMFILE, ConnectionStatus.SOCKET_CREATE_FAILURE),
        (errno.ENFILE, ConnectionStatus.SOCKET_CREATE_FAILURE),
        (errno.EADDRNOTAVAIL, ConnectionStatus.SOCKET_BIND_FAILURE),
        (errno.EADDRINUSE, ConnectionStatus.SOCKET_BIND_FAILURE),
        (errno.ENOBUFS, ConnectionStatus.LOW_RESOURCE),
        (errno.ENOMEM, ConnectionStatus.LOW_RESOURCE),
        (errno.EHOSTUNREACH, ConnectionStatus.SOCKET_CONNECT_FAILURE),
    ],
)
def test_each_error_has_its_status(
    monkeypatch: pytest.MonkeyPatch, number: int, status: ConnectionStatus
) -> None:
    def refuse(_connections: Connections, _address: str) -> None:
        raise OSError(number, "as if the system had said so")

    monkeypatch.setattr(Connections, "_local", refuse)

    async def scenario() -> None:
        async with SendingCluster(free_port(HOST)) as cluster:
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 1)
            await until(lambda: last_status(cluster, queue) is not None)
            assert last_status(cluster, queue) is status

    run(scenario())
