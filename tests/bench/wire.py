"""Speed of qm.wire on one core: `python -m tests.bench.wire`.

Prints JSON and writes it to build/bench-wire.json. Every figure is the median of interleaved,
short repeats. `*_per_s` is by wall clock; `*_per_cpu_s` is the same work by this process's CPU
time, for a machine that does other things too. The keys:

frame_peek_packets_per_s    `Framer.feed` of 64 KiB chunks, cut so that each chunk ends inside a
                            1 KiB packet; every packet comes out with its span and fixed fields
ratio_struct_baseline       that, against a bare `Struct.unpack_from` loop over the same fields
                            of the same bytes in the same run
parse_packets_per_s         `parse_packet` of 1 KiB messages to values, everything checked
write_packets_per_s         `write_packet` of those values
*_aligned_*                 chunks that end where a packet ends
*_full_*                    messages that carry every optional header but SOAP
size_cost_in_copies_*       time to parse and write one packet of 1 or 4 MiB, in units of copying
                            its bytes twice: linear work stays near 1, and so does memory
trickle_cost_growth         time per byte of a packet fed byte by byte, 1 MiB over 64 KiB
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SENDER_ID_SID, SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.framer import Framer
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.peek import HEAD, HeadFields
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, PublicQueueFormatName

# Many short repeats: on a busy machine most of them end before the scheduler takes the core away,
# so that the median is what the core can do.
REPEATS = 201
GROWTH_REPEATS = 7
CHUNK_BYTES = 64 * 1024
PACKET_BYTES = 1024
STREAM_PACKETS = 16 * 64
VALUE_PACKETS = 100
OUTPUT = Path("build") / "bench-wire.json"

Work = Callable[[], int]
"""Does one repeat and returns how many packets (or bytes) it handled."""


def message(message_id: int, size: int) -> UserMessage:
    """A plain message whose packet has exactly `size` bytes."""
    header = UserHeader(
        bytes(range(16)),
        DirectQueueFormatName("OS:srv1.corp.example\\private$\\orders"),
        sent_time=1_700_000_000 + message_id,
        message_id=message_id,
        is_recoverable=True,
    )
    label = f"order {message_id:08}"
    empty = UserMessage(header, MessagePropertiesHeader(b"", label), time_to_reach_queue=345_600)
    body = bytes(size - len(write_packet(empty)))
    properties = MessagePropertiesHeader(body, label, body_type=0x1011)
    return UserMessage(header, properties, time_to_reach_queue=345_600)


def full_message(message_id: int) -> UserMessage:
    """A transactional, signed, traced message to three queues, with a SessionHeader."""
    plain = message(message_id, PACKET_BYTES)
    queues = tuple(PublicQueueFormatName(bytes([number]) * 16) for number in range(3))
    return UserMessage(
        plain.user_header,
        plain.properties,
        TransactionHeader(TxSequenceId(time_stamp=1, ordinal=2), message_id + 1, message_id),
        SecurityHeader(SENDER_ID_SID, security_id=bytes(28), signature=bytes(128)),
        DebugHeader(bytes(16)),
        multi_queue_format=MultiQueueFormatHeader(queues),
        session=SessionHeader(message_id),
        priority=0,
        is_traced=True,
    )


def chunks_of(stream: bytes, first: int) -> list[bytes]:
    """Cut a stream: `first` bytes, then chunks of 64 KiB."""
    starts = [0, *range(first, len(stream), CHUNK_BYTES)]
    return [stream[a:b] for a, b in zip(starts, [*starts[1:], len(stream)], strict=True)]


def framing(chunks: list[bytes]) -> Work:
    def work() -> int:
        framer = Framer()
        return sum(len(frames.heads) for chunk in chunks for frames in framer.feed(chunk))

    return work


def bare_unpacking(chunks: list[bytes]) -> Work:
    """The baseline: the same fields of as many packets per chunk, nothing checked or framed."""

    def work() -> int:
        count = 0
        unpack_from = HEAD.unpack_from
        for chunk in chunks:
            heads: list[HeadFields] = []
            add_head = heads.append
            for offset in range(0, len(chunk), PACKET_BYTES):
                add_head(unpack_from(chunk, offset))
            count += len(heads)
        return count

    return work


def parsing(packets: list[bytes]) -> Work:
    def work() -> int:
        for raw in packets:
            parse_packet(raw, 0, len(raw))
        return len(packets)

    return work


def writing(values: list[Packet]) -> Work:
    def work() -> int:
        for value in values:
            write_packet(value)
        return len(values)

    return work


def sized(size: int, repeats: int) -> Work:
    """Parse and write one packet of `size` bytes; counts bytes."""
    raw = write_packet(message(1, size))

    def work() -> int:
        for _ in range(repeats):
            write_packet(parse_packet(raw, 0, size)[0])
        return size * repeats

    return work


def copying(size: int, repeats: int) -> Work:
    """What `sized` cannot avoid: its two copies. Counts bytes."""
    view = memoryview(bytes(size))

    def work() -> int:
        for _ in range(repeats):
            _kept, _written = bytes(view), bytes(view)
        return size * repeats

    return work


def trickling(size: int) -> Work:
    """Feed one packet byte by byte; counts bytes."""
    raw = write_packet(message(1, size))
    pieces = [raw[at : at + 1] for at in range(size)]

    def work() -> int:
        framer = Framer()
        done = sum(len(framer.feed(piece)) for piece in pieces)
        assert done == 1
        return size

    return work


class Rates:
    """Units per second of each work, by wall clock and by CPU time."""

    def __init__(self, works: dict[str, Work], repeats: int) -> None:
        wall: dict[str, list[float]] = {name: [] for name in works}
        cpu: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(repeats):
            for name, work in works.items():
                # Once unmeasured: in a node, too, a chunk was just written by the kernel and the
                # code has just run.
                work()
                wall_start, cpu_start = time.perf_counter(), time.process_time()
                count = work()
                cpu[name].append(count / (time.process_time() - cpu_start))
                wall[name].append(count / (time.perf_counter() - wall_start))
        self.wall = {name: statistics.median(rates) for name, rates in wall.items()}
        self.cpu = {name: statistics.median(rates) for name, rates in cpu.items()}


def run() -> dict[str, object]:
    """Measure, and return what the module's docstring lists."""
    values: list[Packet] = [message(number, PACKET_BYTES) for number in range(VALUE_PACKETS)]
    raw = [write_packet(value) for value in values]
    full: list[Packet] = [full_message(number) for number in range(VALUE_PACKETS)]
    full_raw = [write_packet(value) for value in full]
    stream = b"".join(raw[number % VALUE_PACKETS] for number in range(STREAM_PACKETS))
    chunks = chunks_of(stream, CHUNK_BYTES // 2 + PACKET_BYTES // 2)
    aligned_chunks = chunks_of(stream, CHUNK_BYTES)
    rates = Rates(
        {
            "frame_peek": framing(chunks),
            "frame_peek_aligned": framing(aligned_chunks),
            "struct_baseline": bare_unpacking(aligned_chunks),
            "parse": parsing(raw),
            "write": writing(values),
            "parse_full": parsing(full_raw),
            "write_full": writing(full),
        },
        REPEATS,
    )
    growth = Rates(
        {
            "size_1m": sized(1024 * 1024, 8),
            "copy_1m": copying(1024 * 1024, 8),
            "size_4m": sized(4 * 1024 * 1024, 2),
            "copy_4m": copying(4 * 1024 * 1024, 2),
            "trickle_64k": trickling(64 * 1024),
            "trickle_1m": trickling(1024 * 1024),
        },
        GROWTH_REPEATS,
    )
    result: dict[str, object] = {}
    for name in rates.wall:
        result[f"{name}_packets_per_s"] = round(rates.wall[name])
        result[f"{name}_packets_per_cpu_s"] = round(rates.cpu[name])
    result["ratio_struct_baseline"] = round(
        rates.wall["frame_peek"] / rates.wall["struct_baseline"], 3
    )
    result["ratio_struct_baseline_cpu"] = round(
        rates.cpu["frame_peek"] / rates.cpu["struct_baseline"], 3
    )
    for size in ("1m", "4m"):
        copies = growth.cpu[f"copy_{size}"] / growth.cpu[f"size_{size}"]
        result[f"size_cost_in_copies_{size}"] = round(copies, 2)
    result["trickle_cost_growth"] = round(growth.cpu["trickle_64k"] / growth.cpu["trickle_1m"], 2)
    result["repeats"] = REPEATS
    result["packet_bytes"] = PACKET_BYTES
    result["full_packet_bytes"] = len(full_raw[0])
    result["chunk_bytes"] = CHUNK_BYTES
    result["python"] = platform.python_version()
    result["machine"] = platform.machine()
    return result


def main() -> int:
    """Print the figures and keep them."""
    text = json.dumps(run(), indent=2)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
