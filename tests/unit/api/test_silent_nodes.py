"""A node that vanished without a word while a long call waits for it."""

from __future__ import annotations

import asyncio
import time

import pytest
from grpc import aio

from qm.client.calls import Calls
from qm.pb import control_pb2

SPOKE_S = 25.0
"""It answers pings for so long: more than two of them."""
SOON_S = 20.0
PREFACE_BYTES, HEAD_BYTES = 24, 9
SETTINGS, PING, ACK = 4, 6, 1


def frame(kind: int, flags: int = 0, payload: bytes = b"") -> bytes:
    """A frame of the connection (RFC 9113, 4.1)."""
    return bytes((0, 0, len(payload), kind, flags, 0, 0, 0, 0)) + payload


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    began = time.monotonic()
    writer.write(frame(SETTINGS) + frame(SETTINGS, ACK))
    try:
        await reader.readexactly(PREFACE_BYTES)
        while True:
            head = await reader.readexactly(HEAD_BYTES)
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            is_asked = head[3] == PING and not head[4] & ACK
            if is_asked and time.monotonic() - began < SPOKE_S:
                writer.write(frame(PING, ACK, payload))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def test_a_long_call_notices_it() -> None:
    async def scenario() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            wire = Calls([f"127.0.0.1:{port}"])
            began = time.monotonic()
            backup = wire.stubs().nodes.CreateBackup(
                control_pb2.CreateBackupRequest(), timeout=SPOKE_S + SOON_S
            )
            with pytest.raises(aio.AioRpcError, match="ping timeout"):
                await backup.read()
            assert SPOKE_S - 10 < time.monotonic() - began < SPOKE_S + SOON_S
            await wire.close()

    asyncio.run(scenario())
