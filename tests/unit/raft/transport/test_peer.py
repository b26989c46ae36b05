"""When frames leave: what a transport does at once, what waits, what an error costs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raft.transport.peer import Stream
from raft.transport.snapshot_stream import SnapshotCall
from raft.transport.stream_transport import StreamTransport
from raft.types import Append, Entry, EntryKind, Envelope, NodeId, PeerState
from tests.unit.raft.transport.worlds import CLUSTER, GrpcWorld, Recorder, are_connected, run, until

A, B, C = "a.1", "b.1", "c.1"


class Wires(StreamTransport):
    """Streams to any dialed peer. Each write is recorded and lasts until it is released."""

    def __init__(self, events: Recorder) -> None:
        super().__init__(CLUSTER, A, events, lambda n: 0)
        self.writes: list[tuple[NodeId, bytes]] = []
        self.ends: list[asyncio.Future[None]] = []
        self.streams: list[Stream] = []
        self.is_dialed_in_vain = False
        self.probed: list[str] = []
        self.probes_last = False
        """Whether a probe has no answer."""

    async def _listen(self) -> None:
        pass

    async def _stop_listening(self) -> None:
        pass

    @asynccontextmanager
    async def open_stream(self, peer: NodeId, address: str) -> AsyncIterator[Stream]:
        ended: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        async def read() -> bytes | None:
            return await ended

        async def write(frame: bytes) -> None:
            self.writes.append((peer, frame))
            self.ends.append(asyncio.get_running_loop().create_future())
            await self.ends[-1]

        def cancel() -> None:
            if not ended.done():
                ended.set_result(None)

        if self.is_dialed_in_vain:
            raise ConnectionRefusedError("nobody is there")
        self.streams.append(Stream(read, write, cancel, is_dialed=True))
        yield self.streams[-1]

    def open_snapshot(self, peer: NodeId, address: str) -> SnapshotCall:  # type: ignore[override]
        raise AssertionError("no snapshot is sent here")

    async def resolve(self, address: str) -> object:
        return address

    async def is_refused(self, place: object) -> bool:
        self.probed.append(str(place))
        if self.probes_last:
            await asyncio.get_running_loop().create_future()
        return False

    def written_to(self) -> list[NodeId]:
        return [peer for peer, _ in self.writes]


def append(to: NodeId, index: int, data: bytes = b"data", sender: NodeId = A) -> Envelope:
    entry = Entry(index, 7, EntryKind.DATA, data)
    return Envelope(1, sender, to, 7, Append(index - 1, 7, 0, (entry,)))


def between_wires(body: Callable[[Wires, Recorder], Awaitable[None]]) -> None:
    """Run a scenario with streams to B and C."""

    async def scenario() -> None:
        events = Recorder()
        wires = Wires(events)
        await wires.start()
        wires.set_peers({B: "b", C: "c"})
        connected = [(B, PeerState.CONNECTED), (C, PeerState.CONNECTED)]
        await until(lambda: sorted(events.states) == connected, lambda: events.states)
        try:
            await body(wires, events)
        finally:
            await wires.close()

    run(scenario())


def test_who_is_named_first_gets_its_frame_before_send_returns() -> None:
    """The caller has more to do, a log to write above all; the others can wait for it."""

    async def body(wires: Wires, events: Recorder) -> None:
        wires.send((append(C, 5), append(B, 5)))
        assert wires.written_to() == [C]
        await until(lambda: len(wires.writes) == 2, wires.written_to)
        assert wires.written_to() == [C, B]

    between_wires(body)


def test_what_comes_while_a_frame_is_written_shares_the_next() -> None:
    async def body(wires: Wires, events: Recorder) -> None:
        for index in (5, 6, 7):
            wires.send((append(B, index),))
        assert wires.written_to() == [B]
        wires.ends[0].set_result(None)
        await until(lambda: len(wires.writes) == 2, wires.written_to)
        wires.ends[1].set_result(None)
        metrics = wires.metrics.peer(B)
        await until(lambda: metrics.frames_sent_total == 2, lambda: metrics.frames_sent_total)
        assert metrics.envelopes_sent_total == 3

    between_wires(body)


def test_one_probe_at_a_time_looks_whether_a_lost_peer_refuses() -> None:
    async def body(wires: Wires, events: Recorder) -> None:
        wires.probes_last = True
        wires.is_dialed_in_vain = True
        for stream in wires.streams:
            stream.cancel()
        metrics = wires.metrics.peer(B)
        await until(lambda: wires.probed, lambda: events.states)
        before = metrics.dials_failed_total
        await until(
            lambda: metrics.dials_failed_total >= before + 2, lambda: metrics.dials_failed_total
        )
        assert sorted(wires.probed) == ["b", "c"]

    between_wires(body)


def test_a_write_that_fails_ends_the_stream_and_counts_what_was_lost() -> None:
    async def body(wires: Wires, events: Recorder) -> None:
        wires.send((append(B, 5),))
        wires.send((append(B, 6),))
        wires.ends[0].set_exception(ConnectionResetError("made"))
        metrics = wires.metrics.peer(B)
        await until(lambda: (B, PeerState.LOST) in events.states, lambda: events.states)
        assert metrics.envelopes_dropped_total == 2
        assert metrics.frames_sent_total == 0
        await until(lambda: events.has_seen((B, PeerState.CONNECTED), 2), lambda: events.states)
        wires.send((append(B, 7),))
        assert wires.written_to() == [B, B]

    between_wires(body)


@pytest.mark.parametrize("redials", [25])
def test_streams_that_end_under_traffic_end_without_an_error_in_grpc(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, redials: int
) -> None:
    """One reader and one writer per call, and one end of it: gRPC has nothing to complain about."""
    caplog.set_level(logging.WARNING, "grpc")
    body = bytes(1 << 20)

    async def scenario() -> None:
        world = GrpcWorld(tmp_path)
        try:
            await world.add(A, knows=[B])
            await world.add(B, knows=[A])
            for number in range(redials):
                await until(lambda: are_connected(world, A, B))
                for index in range(1, 9):
                    world.nodes[A].send((append(B, index, body, sender=A),))
                    world.nodes[B].send((append(A, index, body, sender=B),))
                await asyncio.sleep(0)
                redialer, other = (A, B) if number % 2 else (B, A)
                world.nodes[redialer].set_peers({})
                world.nodes[redialer].set_peers({other: world.address(other)})
        finally:
            await world.close()

    run(scenario())
    complaints = [one.getMessage() for one in caplog.records if one.name.startswith("grpc")]
    assert complaints == []
