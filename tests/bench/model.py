"""What apply costs through the real store: `python -m tests.bench.model` (`make bench-model`).

Entries are encoded before the clock starts and then applied as consensus would: decoded, applied,
committed to RocksDB, with the log's segments retired once. The state is not empty: a quarter of the
messages is queued before. Rates are per second of this process's CPU on one core; wall
time is reported beside them, since RocksDB compacts in threads of its own.
"""

import argparse
import gc
import json
import resource
import shutil
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from qm.model import commands
from qm.model.attributes import encode_attribute
from qm.model.commands import Command, EdgeBatch, Facts, Request, Stamp
from qm.model.results import RequestResult
from qm.store.bodies import BodyPlace
from qm.store.codec import encode_command, encode_stamp
from qm.store.digest import row_hash
from qm.store.store import Store
from qm.wire.message_properties import MessagePropertiesHeader
from qm.wire.queue_name import DirectQueueFormatName
from qm.wire.user_header import UserHeader
from qm.wire.user_message import UserMessage, write_user_message
from raft.batch import BatchBuilder
from raft.disk import DiskDirectory
from raft.log import Log, LogConfig
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta

PEER, OWN, HOST = b"PEER" * 4, bytes(range(16)), "vhost"
NOW_MS = 1_700_000_000_000
FACTS = (Facts(1, PEER, "127.0.0.99", ()),)
APPLY_BYTES = 4 << 20
QUEUE_ID_FIRST = 6
"""Provision makes five system queues."""


class Node:
    """A log and a store in one folder, without consensus."""

    def __init__(self, path: Path) -> None:
        self.directory = DiskDirectory(path)
        self.log = Log.open(self.directory.subdirectory("log"), LogConfig(1, 7))
        self.store = Store(path / "store", self.log)
        self.index = self.log.last_index()
        self.cpu_s = self.wall_s = 0.0
        self.retired_to = 0

    def append(self, *batches: list[Command]) -> list[Entry]:
        """Write entries to the log."""
        entries = []
        for batch in batches:
            self.index += 1
            builder = BatchBuilder()
            builder.add(encode_stamp(Stamp(NOW_MS + self.index, "n1.1")))
            for command in batch:
                builder.add(encode_command(command))
            entries.append(Entry(self.index, 1, EntryKind.DATA, builder.build()))
        self.log.append(None, entries)
        return entries

    def sync(self) -> None:
        sync = self.log.begin_sync()
        sync.run()
        self.log.end_sync(sync)

    def apply(self, entries: list[Entry]) -> list[Any]:
        """Apply entries in runs as the replica would, on the clock."""
        results: list[Any] = []
        run: list[Entry] = []
        size = 0
        cpu, wall = time.process_time(), time.perf_counter()
        for entry in entries:
            run.append(entry)
            size += len(entry.data)
            if size >= APPLY_BYTES:
                results += self.store.apply(run)
                run, size = [], 0
        results += self.store.apply(run)
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall
        return results

    def compact(self) -> None:
        """Retire every whole segment, on the clock."""
        cpu, wall = time.process_time(), time.perf_counter()
        self.store.flush()
        index = self.store.durable_index()
        meta = SnapshotMeta(index, self.log.term(index), Configuration(("n1.1",)), 0)
        self.log.compact(meta)
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall

    def reset_clock(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def close(self) -> None:
        self.store.close()
        self.log.close()


def provision(node: Node, queues: int) -> None:
    unlimited = {"queue_manager_quota": encode_attribute(0xFFFF_FFFF)}
    control = Request("", 0, 0)
    batch: list[Command] = [
        commands.Provision(OWN, HOST, "", (), bytes(16), 1, b"", b""),
        commands.SetQueueManager(control, unlimited, ()),
        commands.OpenClient("c", "p", 24 * 3600 * 1000),
    ]
    for k in range(queues):
        identifier = k.to_bytes(8, "big") + b"queue!!!"
        batch.append(
            commands.CreateQueue(control, identifier, identifier[::-1], f".\\q{k}", {}, b"", ())
        )
    for k in range(queues):
        name = f"DIRECT=OS:{HOST}\\q{k}"
        batch.append(commands.OpenQueue(Request("c", k + 1, 0), name, 0, 0, ()))
    node.apply(node.append(batch))


def packets(first: int, count: int, size: int, queues: int, priorities: int) -> list[bytes]:
    """Return packets of about `size` bytes in all, spread over queues and priorities."""
    return [
        write_user_message(
            UserMessage(
                UserHeader(
                    PEER,
                    DirectQueueFormatName(f"OS:{HOST}\\q{n * 7 % queues}"),
                    sent_time=(NOW_MS // 1000) + n // 40_000,
                    message_id=n,
                    is_recoverable=True,
                ),
                MessagePropertiesHeader(bytes(max(size - 180, 1)), label="bench"),
                priority=n % priorities,
            )
        )
        for n in range(first, first + count)
    ]


def edge_batch(raw: list[bytes]) -> EdgeBatch:
    offsets = [0]
    for one in raw:
        offsets.append(offsets[-1] + len(one))
    return EdgeBatch(
        "n1",
        1,
        memoryview(b"".join(raw)),
        0,
        array("I", offsets),
        array("I", map(zlib.crc32, raw)),
        bytes(len(raw)),
        FACTS,
        0,
        0,
    )


class Load:
    """Messages in and out of one node."""

    def __init__(self, node: Node, queues: int, priorities: int, batch: int) -> None:
        self.node = node
        self.queues = queues
        self.priorities = priorities
        self.batch = batch
        self.ordinal = 0
        self.request = queues
        self.held: list[int] = [0] * queues

    def enqueue(self, count: int, sizes: Callable[[int], int]) -> None:
        """Let messages arrive, `batch` per entry."""
        done = 0
        while done < count:
            entries = []
            for _ in range(min(32, -(-(count - done) // self.batch))):
                raw = packets(
                    self.ordinal + 1,
                    self.batch,
                    sizes(self.ordinal),
                    self.queues,
                    self.priorities,
                )
                entries += self.node.append([edge_batch(raw)])
                self.ordinal += self.batch
                done += self.batch
            self.node.apply(entries)
        for n in range(self.ordinal - done + 1, self.ordinal + 1):
            self.held[n * 7 % self.queues] += 1

    def dequeue(self, count: int) -> int:
        """Receive and confirm, `batch` per command, over all queues in turn."""
        done = 0
        while done < count:
            entries = []
            taken = 0
            for queue in self.turns():
                number = min(self.batch, self.held[queue], count - done - taken)
                if number <= 0:
                    continue
                self.held[queue] -= number
                taken += number
                run = commands.ReceiveRun(
                    "c",
                    queue + 1,
                    QUEUE_ID_FIRST + 2 * queue,
                    self.request + 1,
                    number,
                    self.request,
                )
                self.request += number
                entries += self.node.append([run])
                if len(entries) == 32:
                    break
            for applied in self.node.apply(entries):
                done += len(applied.outcomes[0].value)
            if not taken:
                break
        return done

    def turns(self) -> Iterator[int]:
        start = self.request % self.queues
        for k in range(self.queues):
            yield (start + k) % self.queues


def rates(
    path: Path, messages: int, queues: int, priorities: int, batch: int, mixed: bool
) -> dict[str, float]:
    """Return enqueue and dequeue rates per CPU second, with half of the bytes moved once."""
    path.mkdir()
    node = Node(path)
    provision(node, queues)
    load = Load(node, queues, priorities, batch)
    spread = (100, 512, 1024, 4096, 16384, 65536)

    def size(n: int) -> int:
        return spread[n // batch % len(spread)] if mixed else 1024

    load.enqueue(messages // 4, size)  # the state is not empty
    node.sync()
    gc.collect()
    gc.freeze()
    node.reset_clock()
    load.enqueue(messages, size)
    node.sync()
    node.compact()
    enqueue_cpu, enqueue_wall = node.cpu_s, node.wall_s
    node.reset_clock()
    received = load.dequeue(messages)
    dequeue_cpu = node.cpu_s
    node.sync()
    digest_s = _digest_share(node, messages)
    node.close()
    shutil.rmtree(path)
    return {
        "enqueue_msgs_per_s": messages / enqueue_cpu,
        "enqueue_wall_msgs_per_s": messages / enqueue_wall,
        "enqueue_cpu_us_per_msg": enqueue_cpu / messages * 1e6,
        "dequeue_msgs_per_s": received / dequeue_cpu,
        "dequeue_cpu_us_per_msg": dequeue_cpu / max(received, 1) * 1e6,
        "digest_share": digest_s / enqueue_cpu,
    }


def _digest_share(node: Node, messages: int) -> float:
    """Return the CPU seconds that the digest of that many position rows costs."""
    key, value = b"\x05" + bytes(12), bytes(66)
    begin = time.process_time()
    for _ in range(messages):
        row_hash(key, value)
    return time.process_time() - begin


def deep(path: Path, messages: int) -> dict[str, float]:
    """Return memory, opening time and rates with that many 1 KiB messages queued."""
    path.mkdir()
    node = Node(path)
    provision(node, 10)
    load = Load(node, 10, 8, 512)
    load.enqueue(20_000, lambda _: 1024)
    node.reset_clock()
    load.enqueue(50_000, lambda _: 1024)
    load.dequeue(50_000)
    empty = 100_000 / node.cpu_s
    rss_before = _rss_bytes()
    step = 200_000
    while load.ordinal < messages:
        load.enqueue(step, lambda _: 1024)
        node.sync()
        node.compact()
        print(f"  {load.ordinal:,} queued, {_rss_bytes() >> 20} MiB", file=sys.stderr)
    rss_after = _rss_bytes()
    node.reset_clock()
    load.enqueue(50_000, lambda _: 1024)
    load.dequeue(50_000)
    full = 100_000 / node.cpu_s
    checked = _read_bodies(node, load)
    node.close()
    gc.collect()
    begin = time.perf_counter()
    log = Log.open(DiskDirectory(path / "log"), LogConfig(1, 7))
    opening = time.perf_counter()
    store = Store(path / "store", log)
    opened_s = time.perf_counter() - opening
    store.close()
    log.close()
    shutil.rmtree(path)
    return {
        "resident_bytes_per_message": max(rss_after - rss_before, 0) / load.ordinal,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "open_10m_messages_s": opened_s,
        "open_log_s": opening - begin,
        "ratio_full_vs_empty": full / empty,
        "messages": load.ordinal,
        "bodies_read_back": checked,
    }


def _read_bodies(node: Node, load: Load, count: int = 1_000) -> int:
    """Read bodies from all over the queues and count those that are whole."""
    whole = 0
    per_queue = count // load.queues
    for queue in range(load.queues):
        run = commands.ReceiveRun(
            "c",
            queue + 1,
            QUEUE_ID_FIRST + 2 * queue,
            load.request + 1,
            per_queue,
            load.request,
        )
        load.request += per_queue
        (applied,) = node.apply(node.append([run]))
        for result in applied.outcomes[0].value.unpack():
            whole += len(_body(node, result)) == result.body_length
    return whole


def _body(node: Node, result: RequestResult) -> bytes:
    return node.store.bodies.read(
        BodyPlace(
            result.body_index,
            result.body_offset,
            result.body_length,
            result.body_ordinal,
            result.body_crc32,
        )
    )


def _rss_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measure, print JSON, write build/bench-model.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="per rate")
    parser.add_argument("--deep", type=int, default=10_000_000, help="queued messages; 0 = skip")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-model-", dir=_scratch()) as folder:
        base = Path(folder)
        plans = {
            "": (1, 1, 256, False),
            "spread_": (100, 8, 256, False),
            "mixed_": (100, 8, 64, True),
        }
        for name, (queues, priorities, batch, mixed) in plans.items():
            messages = arguments.messages // (20 if mixed else 1)
            found = rates(base / f"r{name}", messages, queues, priorities, batch, mixed)
            figures |= {name + key: round(value, 3) for key, value in found.items()}
        if arguments.deep:
            found = deep(base / "deep", arguments.deep)
            figures |= {key: round(value, 3) for key, value in found.items()}
    text = json.dumps(figures, indent=2)
    print(text)
    build = Path("build")
    build.mkdir(exist_ok=True)
    (build / "bench-model.json").write_text(text + "\n", encoding="utf-8")


def _scratch() -> str:
    build = Path("build")
    build.mkdir(exist_ok=True)
    return str(build)


if __name__ == "__main__":
    main()
