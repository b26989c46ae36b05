"""Speed and size of qm.edge on one core: `python -m tests.bench.edge`.

Prints JSON and writes it to build/bench-edge.json. Real sockets on loopback; the peers are prebuilt
bytes written by a process of their own, so that `*_cpu_us` is the edge's process alone. Behind the
edge is no consensus: each batch is answered in the next loop round as accepted, nothing is applied.

messages_per_s          1 KiB recoverable messages on 8 sessions, window 64 at the peers
cpu_us_per_message      CPU of the edge's process per message
messages_per_batch      how many travelled together
idle_session_bytes      resident memory of one idle session past its handshake
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import multiprocessing.synchronize
import platform
import resource
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import cast

import uvloop
from prometheus_client import CollectorRegistry

from qm.cluster.cluster import ClusterListener, Leadership
from qm.cluster.relay import RelayEvents, RelayHub, SessionFacts
from qm.cluster.sealing import NO_SEALING, Sealing
from qm.edge import Edge, EdgeSettings
from qm.model.queries import View
from qm.model.state.ledger import META_QUEUE_MANAGER
from qm.model.state.tables import MemoryState, Table
from qm.model.values.commands import Command
from qm.model.values.effects import Outcome
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.records import Counters, QueueManager, encode
from qm.observe.metrics import Metrics
from qm.pb import command_pb2
from qm.security.directory import EMPTY_DIRECTORY, Directory
from qm.security.own_keys import NO_KEYS, OwnKeys
from qm.session import SessionConfig
from qm.store.bodies.body_places import BodyPlace, BodyPlaces, Packets
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection
from qm.wire.packets.packet import write_packet
from tests.bench.session import packet

SESSIONS = 8
WINDOW = 64
MESSAGES_PER_SESSION = 25_000
IDLE_SESSIONS = 2_000
PACKET_BYTES = 1024
OWN = bytes(range(16))
OUTPUT = Path("build") / "bench-edge.json"
PORT = 18_010
"""On an address of its own."""
ADDRESS = "127.0.7.1"
HANDSHAKE_ANSWER_BYTES = 572 + 32
ACK_BYTES = 36


class Stream:
    """Answers each batch in the next loop round."""

    def __init__(self, events: RelayEvents) -> None:
        self._events = events
        self._sent: deque[int] = deque()
        self._loop = asyncio.get_running_loop()
        self.batches = 0
        self.messages = 0

    @property
    def room(self) -> int:
        return 64 - len(self._sent)

    @property
    def least_bytes(self) -> int:
        return 0

    def send(self, number: int, payload: bytes) -> None:
        self._sent.append(number)
        self.batches += 1
        self._loop.call_soon(self._answer, payload)

    def _answer(self, payload: bytes) -> None:
        number = self._sent.popleft()
        count = verdicts_of(payload)
        self.messages += count
        self._events.on_outcome(number, number, Outcome(0, array("H", bytes(2 * count))))

    def session_opened(self, session: SessionFacts) -> None: ...

    def session_closed(self, number: int) -> None: ...

    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None: ...

    def close(self) -> None: ...


def verdicts_of(payload: bytes) -> int:
    """Return how many packets a batch carries."""
    command = command_pb2.Command.FromString(payload[4 : 4 + int.from_bytes(payload[:4], "little")])
    return len(command.edge_batch.facts_of)


class Instant:
    """A `Cluster` that has always committed already."""

    node = "n1"
    leadership = Leadership("n1", 1, True)

    def __init__(self, apply_version: int = APPLY_VERSION) -> None:
        self._counters = Counters(apply_version=apply_version)
        self.state = MemoryState()
        manager = QueueManager(OWN, "bench", "bench.example")
        self.state.put(Table.META, META_QUEUE_MANAGER, encode(manager))
        self.streams: list[Stream] = []

    @property
    def view(self) -> View:
        return cast("View", self)

    def counters(self) -> Counters:
        return self._counters

    @property
    def relay_hub(self) -> RelayHub:
        raise NotImplementedError

    def now_ms(self) -> int:
        return 0

    def read_body(self, place: BodyPlace) -> bytes:
        raise NotImplementedError

    def read_bodies(self, places: BodyPlaces) -> Packets:
        raise NotImplementedError

    async def restore_body(self, place: BodyPlace) -> bool:
        return False

    def listen(self, listener: ClusterListener) -> Callable[[], None]:
        return lambda: None

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        raise NotImplementedError

    async def read_barrier(self) -> int:
        return 0

    def open_relay(self, events: RelayEvents) -> Stream:
        self.streams.append(Stream(events))
        return self.streams[-1]


def handshake(number: int) -> bytes:
    guid = number.to_bytes(16, "big")
    return write_packet(EstablishConnection(guid, OWN)) + write_packet(
        ConnectionParameters(500, 20_000, WINDOW)
    )


def connected(number: int) -> socket.socket:
    """Connect and shake hands."""
    peer = socket.create_connection((ADDRESS, PORT))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(handshake(number))
    left = HANDSHAKE_ANSWER_BYTES
    while left:
        left -= len(peer.recv(left))
    return peer


def peers_main(
    start: multiprocessing.synchronize.Event, packets: Sequence[bytes], count: int
) -> None:
    """Send what the windows allow, on all sessions, `count` messages on each."""
    uvloop.run(_peers(start, packets, count))


class Sender(asyncio.Protocol):
    """Prebuilt packets, at most WINDOW unacknowledged."""

    def __init__(
        self, number: int, packets: Sequence[bytes], count: int, done: asyncio.Semaphore
    ) -> None:
        self._hello = handshake(number)
        self._block = memoryview(b"".join(packets))
        self._ends = [*accumulate(map(len, packets), initial=0)]
        self._count = self._left = count
        self._acked = self._sent = 0
        self._skip = HANDSHAKE_ANSWER_BYTES
        self._buffer = b""
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._skip:
            if len(self._buffer) < self._skip:
                return
            self._buffer = self._buffer[self._skip :]
            self._skip = 0
        whole = len(self._buffer) // ACK_BYTES * ACK_BYTES
        for at in range(0, whole, ACK_BYTES):
            acked = int.from_bytes(self._buffer[at + 20 : at + 22], "little")
            self._acked += (acked - self._acked) & 0xFFFF
        self._buffer = self._buffer[whole:]
        count = min(WINDOW - (self._sent - self._acked), self._left)
        if count:
            self._left -= count
            self._sent += count
            self.transport.write(self._block[: self._ends[count]])
        if self._acked == self._count:
            self._done.release()


async def _peers(
    start: multiprocessing.synchronize.Event, packets: Sequence[bytes], count: int
) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, start.wait)
    done = asyncio.Semaphore(0)
    for number in range(SESSIONS):
        sender = partial(Sender, number + 1, packets, count, done)
        await loop.create_connection(sender, ADDRESS, PORT)
    for _ in range(SESSIONS):
        await done.acquire()


async def throughput(
    packets: Sequence[bytes],
    count: int = MESSAGES_PER_SESSION,
    directory: Directory = EMPTY_DIRECTORY,
    keys: OwnKeys = NO_KEYS,
    sealing: Sealing = NO_SEALING,
) -> dict[str, float]:
    """Measure until the peers have sent everything; `packets`: those of one window."""
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    peers = context.Process(target=peers_main, args=(start, packets, count))
    peers.start()
    cluster = Instant()
    edge = await started(cluster, directory, keys, sealing)
    loop = asyncio.get_running_loop()
    start.set()
    total = SESSIONS * count
    while not cluster.streams[0].messages:
        await asyncio.sleep(0.001)
    began, cpu = time.perf_counter(), time.process_time()
    first = cluster.streams[0].messages
    await loop.run_in_executor(None, peers.join)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    stream = cluster.streams[0]
    assert stream.messages == total
    await edge.stop()
    return {
        "messages_per_s": round((total - first) / seconds),
        "cpu_us_per_message": round(cpu_seconds / (total - first) * 1e6, 2),
        "messages_per_batch": round(stream.messages / stream.batches, 1),
    }


async def started(
    cluster: Instant,
    directory: Directory = EMPTY_DIRECTORY,
    keys: OwnKeys = NO_KEYS,
    sealing: Sealing = NO_SEALING,
) -> Edge:
    session = SessionConfig(window_size=WINDOW)
    settings = EdgeSettings(addresses=(ADDRESS,), port=PORT, answer_pings=False, session=session)
    metrics = Metrics(CollectorRegistry())
    edge = Edge(cluster, settings, metrics, directory=directory, keys=keys, sealing=sealing)
    await edge.start()
    while not edge.is_ready:
        await asyncio.sleep(0.001)
    return edge


def idle_main(
    start: multiprocessing.synchronize.Event, end: multiprocessing.synchronize.Event
) -> None:
    start.wait()
    peers = [connected(number + 1) for number in range(IDLE_SESSIONS)]
    end.wait()
    for peer in peers:
        peer.close()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


async def idle() -> dict[str, float]:
    """Measure what idle sessions cost."""
    context = multiprocessing.get_context("spawn")
    start, end = context.Event(), context.Event()
    peers = context.Process(target=idle_main, args=(start, end))
    peers.start()
    edge = await started(Instant())
    before = resident_bytes()
    start.set()
    while edge.connection_count < IDLE_SESSIONS:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    after = resident_bytes()
    end.set()
    await edge.stop()
    peers.join()
    return {"idle_session_bytes": round((after - before) / IDLE_SESSIONS)}


def main() -> int:
    """Measure, print, write."""
    figures: dict[str, object] = {"python": platform.python_version()}
    figures |= uvloop.run(throughput([packet(PACKET_BYTES)] * WINDOW))
    figures |= uvloop.run(idle())
    text = json.dumps(figures, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
