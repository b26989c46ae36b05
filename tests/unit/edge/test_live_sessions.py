"""Counters of live sessions, beside what a tap on the wire counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from qm.cluster.peer_sessions import PeerSession, SessionsWanted
from qm.edge import Edge
from qm.session import SessionConfig
from qm.wire.packets.packet import write_packet
from tests.unit.edge.outgoing import world as sending
from tests.unit.edge.world import ADDRESS, OTHER, PEER, packet, run, until, world
from tests.unit.model.world import NOW_MS
from tests.unit.session.builders import order_ack

ALL = SessionsWanted(1_000)
HANDSHAKE_BYTES = 572 + 32
HOST, BEHIND = "127.0.0.43", "127.0.0.44"


class Tap:
    """Passes one connection on, and counts its bytes each way."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self.forth = 0
        """From whoever connected."""
        self.back = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        further, back = await asyncio.open_connection(*self._to)
        self._tasks += [
            asyncio.create_task(self._carry(reader, back, is_forth=True)),
            asyncio.create_task(self._carry(further, writer, is_forth=False)),
        ]

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_forth: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if is_forth:
                    self.forth += len(data)
                else:
                    self.back += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def stop(self) -> None:
        await asyncio.wait_for(asyncio.gather(*self._tasks), 10)


@contextlib.asynccontextmanager
async def tap(host: str, port: int, to_host: str, to_port: int) -> AsyncIterator[Tap]:
    """Listen for one end at `host`, the other one listens at `to_host`."""
    made = Tap(to_host, to_port)
    server = await asyncio.start_server(made.pass_on, host, port)
    try:
        yield made
    finally:
        server.close()


def sessions(edge: Edge, wanted: SessionsWanted = ALL) -> list[PeerSession]:
    return list(edge.relay.sessions.found(wanted).sessions)


def only(edge: Edge) -> PeerSession:
    (one,) = sessions(edge)
    return one


def sized(number: int, size: int) -> bytes:
    return packet(number, body=b"x" * size)


def test_an_accepted_session_counts_what_its_wire_carries() -> None:
    async def scenario() -> None:
        port = sending.free_port(ADDRESS)
        async with world() as w, tap(ADDRESS, port, *w.edge.endpoints[0]) as wire:
            w.consensus.create("orders")
            peer = await w.peer(endpoint=(ADDRESS, port))
            opened = only(w.edge)
            assert (opened.is_incoming, opened.is_open) == (True, True)
            assert (opened.address, opened.queue_manager) == (ADDRESS, PEER)
            assert opened.since_ms == NOW_MS
            assert (opened.messages_in, opened.messages_out) == (0, 0)
            assert (opened.bytes_in, opened.bytes_out) == (HANDSHAKE_BYTES, HANDSHAKE_BYTES)

            packets = [sized(number, 1_000 * number) for number in range(1, 101)]
            peer.send(*packets)
            await peer.acknowledged(*range(1, 101))
            acks = [write_packet(order_ack(number, PEER)) for number in range(1, 4)]
            w.consensus.send_late([71, 72, 73], acks)
            await until(lambda: len(w.consensus.late) == 3, lambda: w.consensus.late)
            now = only(w.edge)
            assert (now.messages_in, now.messages_out) == (100, 3)
            assert now.bytes_in >= HANDSHAKE_BYTES + sum(map(len, packets))
            assert now.bytes_out >= HANDSHAKE_BYTES + sum(map(len, acks))
            await until(
                lambda: (only(w.edge).bytes_in, only(w.edge).bytes_out) == (wire.forth, wire.back),
                lambda: (only(w.edge), wire.forth, wire.back),
            )
            assert w.metric("quorate_bytes_arrived_total") == wire.forth
            assert only(w.edge).number == opened.number

            peer.transport.close()
            await until(lambda: not sessions(w.edge), lambda: sessions(w.edge))
            await wire.stop()

    run(scenario())


def test_a_session_of_ours_counts_what_its_wire_carries() -> None:
    async def scenario() -> None:
        port = sending.free_port(HOST, BEHIND)
        async with (
            sending.Peer(BEHIND, port) as peer,
            tap(HOST, port, BEHIND, port) as wire,
            sending.SendingCluster(port) as cluster,
        ):
            edge = cluster.edges["n1"]
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 40, is_recoverable=True)
            queue = cluster.send(f"DIRECT=TCP:{HOST}\\q", 20, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            now = only(edge)
            assert (now.is_incoming, now.is_open, now.address) == (False, True, HOST)
            assert now.queue_manager == sending.PEER_GUID
            assert now.messages_out == len(peer.raw) == 60
            assert now.bytes_out >= HANDSHAKE_BYTES + sum(map(len, peer.raw))
            assert 1 <= now.messages_in <= 20, "order acknowledgements"
            assert now.bytes_in > HANDSHAKE_BYTES
            await until(
                lambda: (only(edge).bytes_out, only(edge).bytes_in) == (wire.forth, wire.back),
                lambda: (only(edge), wire.forth, wire.back),
            )
            assert sessions(cluster.edges["n2"]) == []
            cluster.lead("n2")
            assert sessions(edge) == []
            peer.cut()
            await wire.stop()

    sending.run(scenario())


def test_a_connection_that_says_nothing_is_listed_without_a_guid() -> None:
    async def scenario() -> None:
        async with world() as w:
            raw = await w.raw()
            await until(lambda: sessions(w.edge))
            one = only(w.edge)
            assert (one.is_open, one.queue_manager) == (False, b"")
            assert (one.bytes_in, one.bytes_out, one.messages_in) == (0, 0, 0)
            raw.write(b"\0" * 7)
            await until(lambda: only(w.edge).bytes_in == 7, lambda: only(w.edge))
            raw.write(b"\xff" * 64)
            await raw.read_to_end()
            assert sessions(w.edge) == []

    run(scenario())


@pytest.mark.spec("QB-3.1.4.1-01")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_session_stays_when_it_ended(is_stopped: bool) -> None:
    async def scenario() -> None:
        async with world(sessions_max=4) as w:
            peers = [await w.peer() for _ in range(4)]
            assert len(sessions(w.edge)) == 4
            refused = await w.raw()
            assert await refused.read_to_end() == b""
            assert len(sessions(w.edge)) == 4, "a refused connection is no session"
            if is_stopped:
                await w.edge.stop()
            else:
                for peer in peers:
                    peer.transport.abort()
            await until(lambda: not len(w.edge.relay.sessions), lambda: sessions(w.edge))
            ended = w.metric("quorate_sessions_closed_total", reason="stopped")
            assert ended == (4 if is_stopped else 0)
            await until(lambda: all(peer.is_gone for peer in peers))

    run(scenario())


def test_the_busiest_are_listed_first_and_the_others_counted() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            config = SessionConfig(window_size=1_024)
            guids = [bytes([number]) * 16 for number in (1, 2, 3)]
            made = [await w.peer(guid, config) for guid in (*guids, OTHER)]
            for number, peer in zip((2, 9, 5), made, strict=False):
                to_send = [packet(k, source_queue_manager=b"SRC%d" % number * 4) for k in (1, 2)]
                peer.send(*to_send * number, first_token=1)
                await peer.acknowledged(*range(1, 2 * number + 1))
            found = w.edge.relay.sessions.found(SessionsWanted(2))
            assert [one.queue_manager for one in found.sessions] == [guids[1], guids[2]]
            assert [one.messages_in for one in found.sessions] == [18, 10]
            assert found.left_out == 2
            of_one = w.edge.relay.sessions.found(SessionsWanted(9, queue_manager=OTHER))
            assert [one.messages_in for one in of_one.sessions] == [0]
            assert of_one.left_out == 0
            here = w.edge.relay.sessions.found(SessionsWanted(0, ADDRESS))
            assert (list(here.sessions), here.left_out) == ([], 4)
            assert sessions(w.edge, SessionsWanted(9, "127.0.0.2")) == []

    run(scenario())
