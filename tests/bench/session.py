"""Speed and size of qm.session on one core: `python -m tests.bench.session`.

Prints JSON and writes it to build/bench-session.json. Every figure is the median of interleaved
repeats. `*_per_s` is by wall clock; `*_cpu_us` is this process's CPU time per packet, for a machine
that does other things too. The keys:

receive_packets_per_s   1 KiB messages in 64 KiB chunks, cut so that each chunk ends inside a
                        packet, through an accepting session: framed, handed out, committed once
                        per chunk, acknowledged
receive_aligned_*       the same, chunks that end where a packet ends
receive_small_*         messages of the smallest size
send_packets_per_s      1 KiB messages through a connecting session: offered, taken for writing,
                        released by the peer's acknowledgement, 64 at a time
send_table_*            the same with `OutgoingTable` in front
idle_session_bytes      memory of one open session that has carried messages and is idle
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from qm.session import (
    AcksReceived,
    OutgoingTable,
    PacketsArrived,
    Role,
    Session,
    SessionConfig,
)
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName

REPEATS = 15
CHUNK_BYTES = 64 * 1024
PACKET_BYTES = 1024
STREAM_PACKETS = 64 * 64
SEND_ROUNDS = 64
WINDOW = 64
IDLE_SESSIONS = 200
NOW = 1000.0
US, THEM = bytes(range(16)), bytes(range(16, 32))
CONFIG = SessionConfig(window_size=0x4000).check()
OUTPUT = Path("build") / "bench-session.json"

Work = Callable[[], int]
"""Does one repeat and returns how many packets it handled."""


def packet(size: int) -> bytes:
    """A recoverable message of exactly `size` bytes, or of the smallest that there is."""
    header = UserHeader(
        THEM,
        DirectQueueFormatName("OS:host\\queue"),
        sent_time=1,
        message_id=1,
        is_recoverable=True,
    )
    empty = write_packet(UserMessage(header, MessagePropertiesHeader(b"")))
    body = bytes(max(0, size - len(empty)))
    return write_packet(UserMessage(header, MessagePropertiesHeader(body)))


def opened(role: Role) -> Session:
    """A session in OPEN whose peer has the same window."""
    session = Session(CONFIG, role, US, NOW)
    guids = (THEM, US) if role is Role.ACCEPTOR else (US, THEM)
    parameters = ConnectionParameters(500, 20_000, CONFIG.window_size)
    session.receive(write_packet(EstablishConnection(*guids)) + write_packet(parameters), NOW)
    session.take_outgoing(NOW)
    while session.next_event() is not None:
        pass
    return session


def receiving(one: bytes, chunk_bytes: int) -> Work:
    """An edge: read a chunk, hand out, learn of the commit, write the acknowledgement."""
    stream = one * STREAM_PACKETS
    chunks = [stream[at : at + chunk_bytes] for at in range(0, len(stream), chunk_bytes)]

    def work() -> int:
        session = opened(Role.ACCEPTOR)
        position = 0
        for chunk in chunks:
            session.receive(chunk, NOW)
            while (event := session.next_event()) is not None:
                assert isinstance(event, PacketsArrived)
                position += len(event.kinds)
            session.commit(position)
            session.take_outgoing(NOW)
        assert position == STREAM_PACKETS
        return position

    return work


def sending(*, with_table: bool) -> Work:
    """A leader: fill the window, write it, hear the acknowledgement."""
    packets = [packet(PACKET_BYTES)] * WINDOW
    count = WINDOW * SEND_ROUNDS
    acks = [
        write_packet(SessionAck(SessionHeader(n, base, 0xFFFF_FFFF)))
        for n in range(WINDOW, count + 1, WINDOW)
        for base in (n - 63, n - 31)
    ]

    def work() -> int:
        session, table = opened(Role.INITIATOR), OutgoingTable()
        for token in range(count) if with_table else ():
            table.add(token)
        done = 0
        for turn in range(SEND_ROUNDS):
            first = turn * WINDOW
            tokens = table.dispatch(WINDOW) if with_table else range(first, first + WINDOW)
            session.offer(tokens, packets)
            while session.take_outgoing(NOW):
                pass
            session.receive(acks[2 * turn] + acks[2 * turn + 1], NOW)
            while (event := session.next_event()) is not None:
                assert isinstance(event, AcksReceived)
                done += len(event.released)
                if with_table:
                    table.session_acked(event.released, event.retained)
        assert done == count
        return count

    return work


def idle_session_bytes() -> int:
    """Memory that one more idle session costs."""
    chunk = packet(PACKET_BYTES) * 3
    keep: list[Session] = [opened(Role.ACCEPTOR)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(IDLE_SESSIONS):
        session = opened(Role.ACCEPTOR)
        session.receive(chunk + chunk[:100], NOW)
        session.next_event()
        session.commit(3)
        session.take_outgoing(NOW)
        keep.append(session)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) // IDLE_SESSIONS


def main() -> int:
    """Run everything, interleaved, and print the medians."""
    one, smallest = packet(PACKET_BYTES), packet(0)
    cases: dict[str, Work] = {
        "receive": receiving(one, CHUNK_BYTES - 100),
        "receive_aligned": receiving(one, CHUNK_BYTES),
        "receive_small": receiving(smallest, CHUNK_BYTES),
        "send": sending(with_table=False),
        "send_table": sending(with_table=True),
    }
    wall: dict[str, list[float]] = {name: [] for name in cases}
    cpu: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, work in cases.items():
            started, started_cpu = time.perf_counter(), time.process_time()
            count = work()
            wall[name].append(count / (time.perf_counter() - started))
            cpu[name].append((time.process_time() - started_cpu) / count * 1e6)
    result: dict[str, object] = {
        "python": platform.python_version(),
        "packet_bytes": PACKET_BYTES,
        "small_packet_bytes": len(smallest),
        "idle_session_bytes": idle_session_bytes(),
    }
    for name in cases:
        result[f"{name}_packets_per_s"] = round(statistics.median(wall[name]))
        result[f"{name}_cpu_us"] = round(statistics.median(cpu[name]), 3)
    text = json.dumps(result, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
