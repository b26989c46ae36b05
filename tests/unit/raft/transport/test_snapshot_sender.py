"""Streams of a snapshot may break so often in a row, and anew after each progress."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raft.machine import SnapshotSource
from raft.pb.peer_pb2 import SnapshotPart, SnapshotProgress
from raft.transport import snapshot_stream
from raft.transport.metrics import PeerMetrics
from raft.transport.snapshot_stream import (
    SNAPSHOT_ATTEMPTS_MAX,
    SNAPSHOT_CHUNK_BYTES,
    SnapshotCall,
    SnapshotSender,
)
from raft.types import Configuration, SnapshotMeta

SIZE_BYTES = 3 * SNAPSHOT_CHUNK_BYTES


class Zeros(SnapshotSource):
    """As many as the snapshot has."""

    def size_bytes(self) -> int:
        return SIZE_BYTES

    def identity(self) -> bytes:
        return b"zeros"

    def read(self, offset: int, length: int) -> bytes:
        return bytes(min(length, SIZE_BYTES - offset))

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("progressing", [0, 1, 2])
def test_so_many_streams_may_break_in_a_row(
    monkeypatch: pytest.MonkeyPatch, progressing: int
) -> None:
    monkeypatch.setattr(snapshot_stream, "SNAPSHOT_RETRY_MS", 0)
    dials = 0

    @asynccontextmanager
    async def dial() -> AsyncIterator[SnapshotCall]:
        nonlocal dials
        dials += 1
        begin = min(dials - 1, progressing) * SNAPSHOT_CHUNK_BYTES
        wanted = [begin, begin + SNAPSHOT_CHUNK_BYTES] if dials <= progressing else [begin]

        async def read() -> SnapshotProgress | None:
            if not wanted:
                raise ConnectionError("broken")
            return SnapshotProgress(wanted_offset=wanted.pop(0))

        async def write(part: SnapshotPart) -> None:
            del part

        yield SnapshotCall(read, write)

    meta = SnapshotMeta(9, 1, Configuration(("a.1",)), SIZE_BYTES)
    sender = SnapshotSender(1, meta, Zeros(), dial, PeerMetrics())
    assert not asyncio.run(sender.run())
    assert dials == progressing + SNAPSHOT_ATTEMPTS_MAX
