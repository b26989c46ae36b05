"""A program that is no node and calls one over a direct stream."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from raft.transport.direct import Hello
from raft.transport.tls import ALPN


class Caller:
    """Past its TLS handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.write = writer.write

    async def say(self, frame: bytes) -> None:
        self.write(len(frame).to_bytes(4, "little") + frame)
        await self._writer.drain()

    async def hear(self) -> bytes | None:
        """Return a frame, None at the end."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "little")
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def hello(self, sender: str, to: str, cluster: bytes) -> bytes | None:
        """Introduce itself; return the answer, None if there is none."""
        await self.say(Hello(cluster, sender, to).pack())
        return await self.hear()


@asynccontextmanager
async def calling_at(
    address: str, name: str, authority: Path, files: tuple[Path, Path] | None
) -> AsyncIterator[Caller]:
    """Connect to the node `name` at `host:port`; `files`: certificate and key. Raises OSError."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols([ALPN])
    if files is not None:
        context.load_cert_chain(*files)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname=name
    )
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()
