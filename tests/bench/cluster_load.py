"""The load processes of `tests.bench.cluster`: `python -m tests.bench.cluster_load SPEC`.

Each connects, writes a line, waits for a line, and works; what it saw is the JSON of its last line.
So what it takes to connect and to build packets is in no figure, and a generator's CPU is its own.
"""

import asyncio
import gc
import os
import resource
import socket
import sys
import time
from array import array
from collections.abc import Callable, Sequence

import msgspec
import uvloop

from qm.load.outgoing import PrebuiltStream, RecordedStream, Stream
from qm.load.packets import message_packet
from qm.load.sender import Link
from qm.load.workload import Delivery, Planned, Target, Workload, plan
from qm.node.config.schema import MSMQ_PORT
from qm.session import SessionConfig
from qm.session.outgoing import own_packet
from qm.wire.guid import Guid
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection
from qm.wire.packets.packet import write_packet
from qm.wire.structures.identifiers import TxSequenceId
from tests.bench.cluster_receive import Receiving, receiver

WINDOW = 64
"""Messages in flight on each session."""
TICK_S = 0.001
"""Of a paced load."""
CONNECT_WAIT_S = 30.0
HANDSHAKE_ANSWER_BYTES = 572 + 32
TRANSACTIONAL_SHARE = 10


class Sending(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Equal messages to one queue, from packets that are ready before the clock starts."""

    host: str
    target: str
    sessions: int
    messages: int
    body_bytes: int
    rate_per_s: float = 0.0
    """Of all sessions together; 0: as fast as the windows allow."""


class Mixing(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Many queues, priorities and sizes; a tenth is transactional."""

    host: str
    targets: tuple[str, ...]
    transactional: tuple[str, ...]
    """One for each session."""
    messages: int
    body_bytes: tuple[int, int]


class Idling(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Sessions past their handshake that say nothing."""

    host: str
    sessions: int


Work = Sending | Mixing | Idling | Receiving


class Seen(msgspec.Struct, kw_only=True):
    """What a load process reports."""

    messages: int = 0
    seconds: float = 0.0
    ended_at_s: float = 0.0
    """Monotonic, which all processes share."""
    cpu_s: float = 0.0
    """Of the load process."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    """From the sending, or from when it was due if the load is paced, to the acknowledgement."""


class TimedStream(PrebuiltStream):
    """Counts from `begin` on, and knows how long each message's acknowledgement took."""

    def __init__(self, packets: Sequence[bytes], rate_per_s: float) -> None:
        super().__init__(packets)
        self._count = len(packets)
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._began: float | None = None
        self._sent_at = array("d")
        self.waits_s = array("d")

    def begin(self, now: float) -> None:
        self._began = now

    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        if self._began is None:
            return (), ()
        sent = len(self._sent_at)
        if self._interval_s:
            limit = min(limit, int((now - self._began) / self._interval_s) - sent)
        if limit <= 0:
            return (), ()
        tokens, packets = super().dispatch(limit, now)
        first = self._began + sent * self._interval_s
        self._sent_at.extend(
            [first + k * self._interval_s for k in range(len(tokens))]
            if self._interval_s
            else [now] * len(tokens)
        )
        return tokens, packets

    def session_acked(self, released: list[int], retained: list[int]) -> None:
        before = self.acknowledged
        super().session_acked(released, retained)
        now = asyncio.get_running_loop().time()
        self.waits_s.extend([now - at for at in self._sent_at[before : self.acknowledged]])


class GatedStream(RecordedStream):
    """Keeps its messages to itself until `begin`."""

    has_begun = False

    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        return super().dispatch(limit, now) if self.has_begun else ((), ())


def percentile_ms(values_s: Sequence[float], share: float) -> float:
    """Return a percentile in milliseconds of seconds in ascending order."""
    return values_s[min(len(values_s) - 1, int(share * len(values_s)))] * 1e3 if values_s else 0.0


async def send(work: Sending) -> Seen:
    share = work.messages // work.sessions
    streams = []
    links = []
    done = _Countdown(work.sessions * share)
    for _ in range(work.sessions):
        guid = os.urandom(16)
        planned = Planned("bench", 0, Delivery.RECOVERABLE, 3, 1, os.urandom(work.body_bytes))
        packet = message_packet(guid, Target(work.target), planned)
        now_s = int(time.time())
        packets = [own_packet(packet, k + 1, now_s) for k in range(share)]
        stream = TimedStream(packets, work.rate_per_s / work.sessions)
        streams.append(stream)
        links.append(_link(guid, work.host, stream, lambda _: done.look(streams)))
    await opened(links)
    seen = Seen(messages=work.sessions * share)
    await begun()
    with Clock(seen):
        for stream, link in zip(streams, links, strict=True):
            stream.begin(asyncio.get_running_loop().time())
            link.pump()
        while work.rate_per_s and not done.is_over:
            await asyncio.sleep(TICK_S)
            for link in links:
                link.pump()
        await done.wait()
    waits_s = sorted(wait for stream in streams for wait in stream.waits_s)
    seen.p50_ms, seen.p99_ms = percentile_ms(waits_s, 0.5), percentile_ms(waits_s, 0.99)
    await _close(links)
    return seen


async def mix(work: Mixing) -> Seen:
    links, streams = [], []
    sessions = len(work.transactional)
    share = work.messages // sessions
    acknowledged = 0
    done = asyncio.Event()

    def count(entries: Sequence[object]) -> None:
        nonlocal acknowledged
        acknowledged += len(entries)
        if acknowledged == share * sessions:
            done.set()

    for session, transactional in enumerate(work.transactional):
        guid = os.urandom(16)
        loop = asyncio.get_running_loop()
        sequence = TxSequenceId(time_stamp=int(time.time()), ordinal=1)
        stream = GatedStream(sequence, lambda _: None, count, now=loop.time())
        targets = (*map(Target, work.targets), Target(transactional, is_transactional=True))
        workload = Workload(
            targets=targets,
            seed=session,
            express_share=0,
            transactional_share=TRANSACTIONAL_SHARE,
            body_bytes=work.body_bytes,
            priorities=tuple(range(8)),
            transaction_messages=(1, 1),
        )
        for k, planned in zip(range(share), plan(workload, f"s{session}"), strict=False):
            packet = message_packet(guid, targets[planned.target], planned)
            stream.add(k, planned, packet, k + 1)
        streams.append(stream)
        links.append(_link(guid, work.host, stream, lambda _: None))
    await opened(links)
    seen = Seen(messages=share * sessions)
    await begun()
    with Clock(seen):
        for stream, link in zip(streams, links, strict=True):
            stream.has_begun = True
            link.pump()
        await done.wait()
    await _close(links)
    return seen


async def idle(work: Idling) -> Seen:
    connected = [_connected(work.host, os.urandom(16)) for _ in range(work.sessions)]
    await begun()
    for peer in connected:
        peer.close()
    return Seen()


async def take(work: Receiving) -> Seen:
    seen = Seen(messages=work.messages)
    async with receiver(work) as drain:
        await begun()
        with Clock(seen):
            await drain()
    return seen


class _Countdown:
    """Set when streams have everything acknowledged."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._done = asyncio.Event()

    def look(self, streams: Sequence[PrebuiltStream]) -> None:
        if sum(stream.acknowledged for stream in streams) == self._messages:
            self._done.set()

    @property
    def is_over(self) -> bool:
        return self._done.is_set()

    async def wait(self) -> None:
        await self._done.wait()


class Clock:
    """Puts duration and own CPU of a block into a report."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def __enter__(self) -> None:
        gc.freeze()
        gc.disable()
        self._began, self._cpu_s = time.monotonic(), _own_cpu_s()

    def __exit__(self, *_: object) -> None:
        self._seen.ended_at_s = time.monotonic()
        self._seen.seconds = self._seen.ended_at_s - self._began
        self._seen.cpu_s = _own_cpu_s() - self._cpu_s


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _link(guid: Guid, host: str, stream: Stream, on_advance: Callable[[int], None]) -> Link:
    config = SessionConfig(window_size=WINDOW)
    return Link(guid, [(host, MSMQ_PORT)], [stream], config=config, on_advance=on_advance)


async def opened(links: Sequence[Link]) -> None:
    for link in links:
        link.start()
    async with asyncio.timeout(CONNECT_WAIT_S):
        while not all(link.is_open for link in links):
            await asyncio.sleep(TICK_S)


async def _close(links: Sequence[Link]) -> None:
    """A session that was lost on the way makes figures that mean nothing."""
    assert [link.sessions for link in links] == [1] * len(links)
    for link in links:
        await link.stop()


async def begun() -> None:
    """Say that everything is ready, and wait for the word."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def _connected(host: str, guid: Guid) -> socket.socket:
    """Connect and shake hands."""
    peer = socket.create_connection((host, MSMQ_PORT), CONNECT_WAIT_S)
    hello = EstablishConnection(guid, bytes(16))
    peer.sendall(write_packet(hello) + write_packet(ConnectionParameters(500, 20_000, WINDOW)))
    left = HANDSHAKE_ANSWER_BYTES
    while left:
        answer = peer.recv(left)
        assert answer, "the node closes the session"
        left -= len(answer)
    return peer


async def main(work: Work) -> Seen:
    match work:
        case Sending():
            return await send(work)
        case Mixing():
            return await mix(work)
        case Idling():
            return await idle(work)
        case Receiving():
            return await take(work)


if __name__ == "__main__":
    specified = msgspec.json.decode(sys.argv[1], type=Work)
    sys.stdout.write(msgspec.json.encode(uvloop.run(main(specified))).decode() + "\n")
