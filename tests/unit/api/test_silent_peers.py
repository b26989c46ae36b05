"""Connections whose other end is gone without a word: a machine that lost its power, a firewall
that forgot them.
"""

from __future__ import annotations

import asyncio

from qm.api.server import KEEPALIVE_MS
from qm.node.config.schema import API_PORT, RAFT_PORT, RELAY_PORT
from tests.unit.client.world import Clients, scenario

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, ACK = 4, 1
SOON_S = 3 * KEEPALIVE_MS / 1000


def frame(kind: int, flags: int = 0) -> bytes:
    """An empty frame of the connection (RFC 9113, 4.1)."""
    return bytes((0, 0, 0, kind, flags, 0, 0, 0, 0))


async def is_ended(made: Clients, port: int) -> None:
    """Wait until a node ends a connection without calls that is silent."""
    (node,) = made.harness.up
    reader, writer = await asyncio.open_connection(
        node.host, port, ssl=made.tls.context(), server_hostname=node.host
    )
    writer.write(PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK))
    # From here on it hears everything and says nothing, as far as the node can tell.
    async with asyncio.timeout(SOON_S):
        while await reader.read(4096):
            pass
    writer.close()


@scenario()
async def test_a_connection_without_calls_ends_when_nobody_is_there(made: Clients) -> None:
    await asyncio.gather(*(is_ended(made, port) for port in (API_PORT, RAFT_PORT, RELAY_PORT)))
