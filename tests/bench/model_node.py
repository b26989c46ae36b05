"""A node without consensus, and messages in and out of it, for `tests.bench.model`."""

import time
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, EdgeBatch, Facts, Request, Stamp
from qm.model.values.limits import APPLY_VERSION
from qm.store.codec import encode_command, encode_stamp
from qm.store.effects.chain import hashed
from qm.store.store import Store
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.user_message import UserMessage, write_user_message
from qm.wire.structures.queue_name import DirectQueueFormatName
from raft.batch import BatchBuilder
from raft.log.disk import DiskDirectory
from raft.log.log import Log, LogConfig
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta

PEER, OWN, HOST = b"PEER" * 4, bytes(range(16)), "vhost"
NOW_MS = 1_700_000_000_000
FACTS = (Facts(1, PEER, "127.0.0.99", ()),)
APPLY_BYTES = 4 << 20
ENTRIES_PER_APPLY = 32
HEADERS_BYTES = 180
"""About what a packet has besides its body."""
QUEUE_ID_FIRST = 6
"""Provision makes five system queues; each of ours is followed by its journal."""
CONTROL = Request("", 0, 0)


class Node:
    """A log and a store in one folder; `apply` and `compact` are on the clock."""

    def __init__(self, path: Path, *, keeps_effects: bool = False) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.keeps_effects = keeps_effects
        self.log = Log.open(DiskDirectory(path).subdirectory("log"), LogConfig(1, 7))
        self.store = Store(path / "store", self.log, keeps_effects=keeps_effects)
        self.index = self.log.last_index()
        self.entry_bytes = 0
        """Of all entries that were appended."""
        self.cpu_s = self.wall_s = 0.0

    def append(self, *batches: list[Command]) -> list[Entry]:
        """Write entries to the log."""
        entries = []
        for batch in batches:
            self.index += 1
            builder = BatchBuilder()
            for command in batch:
                builder.add(encode_command(command))
            stamp = Stamp(NOW_MS + self.index, "n1.1", APPLY_VERSION)
            is_hashed = self.store.is_chained
            encoded = hashed(stamp, builder.payloads) if is_hashed else encode_stamp(stamp)
            data = builder.build(encoded)
            entries.append(Entry(self.index, 1, EntryKind.DATA, data))
            self.entry_bytes += len(entries[-1].data)
        self.log.append(None, entries)
        return entries

    def sync(self) -> None:
        sync = self.log.begin_sync()
        sync.run()
        self.log.end_sync(sync)

    def apply(self, entries: list[Entry]) -> list[Any]:
        """Apply entries in runs as the replica would."""
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
        self.store.settle()
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall
        return results

    def compact(self, upto: int) -> None:
        """Retire the whole segments of entries up to an index."""
        cpu, wall = time.process_time(), time.perf_counter()
        self.store.flush()
        index = min(upto, self.store.durable_index())
        meta = SnapshotMeta(index, self.log.term(index), Configuration(("n1.1",)), 0)
        self.log.compact(meta)
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall

    def settle(self) -> None:
        """Leave everything on disk, also what would go with the next entry."""
        self.store.state.commit(self.index, self.log.term(self.index))
        self.store.flush()
        self.sync()

    def moved_bytes(self) -> int:
        """Size of the blob files, in bytes."""
        return sum(file.stat().st_size for file in self.path.glob("store/*/blobs/blob-*"))

    def reset_clock(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def close(self) -> None:
        self.store.close()
        self.log.close()


def provision(node: Node, queues: int, **attributes: Any) -> None:
    """Make the queue manager, a client `c` and open queues q0, q1, ... for it."""
    unlimited = {"queue_manager_quota": encode_attribute(0xFFFF_FFFF)}
    batch: list[Command] = [
        commands.LeaderActivated(1, "n1", node.keeps_effects),
        commands.Provision(OWN, HOST, "", (), bytes(16), 1, b"", b""),
        commands.SetQueueManager(CONTROL, unlimited, ()),
        commands.OpenClient("c", "p", 24 * 3600 * 1000),
    ]
    encoded = {name: encode_attribute(value) for name, value in attributes.items()}
    for k in range(queues):
        identifier = k.to_bytes(8, "big") + b"queue!!!"
        batch.append(
            commands.CreateQueue(
                CONTROL, identifier, identifier[::-1], f".\\q{k}", encoded, b"", ()
            )
        )
    for k in range(queues):
        name = f"DIRECT=OS:{HOST}\\q{k}"
        batch.append(commands.OpenQueue(Request("c", k + 1, 0), name, 0, 0, ()))
    node.apply(node.append(batch))


def queue_id(queue: int) -> int:
    return QUEUE_ID_FIRST + 2 * queue


def packet(ordinal: int, size: int, queue: int, priority: int, **header: Any) -> bytes:
    """Return a packet of about `size` bytes in all."""
    flags = header.pop("acknowledgements", 0)
    return write_user_message(
        UserMessage(
            UserHeader(
                PEER,
                DirectQueueFormatName(f"OS:{HOST}\\q{queue}"),
                sent_time=(NOW_MS // 1000) + ordinal // 40_000,
                message_id=ordinal,
                is_recoverable=True,
                **header,
            ),
            MessagePropertiesHeader(
                bytes(max(size - HEADERS_BYTES, 1)), label="bench", flags=flags
            ),
            priority=priority,
        )
    )


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
    """Messages in and out of one node, `batch` per entry, over all queues and priorities."""

    def __init__(
        self, node: Node, queues: int, priorities: int, batch: int, sizes: Callable[[int], int]
    ) -> None:
        """`sizes`: bytes of the packet with that ordinal."""
        self.node = node
        self.queues = queues
        self.priorities = priorities
        self.batch = batch
        self.sizes = sizes
        self.ordinal = 0
        self.request = queues
        self.held: list[int] = [0] * queues

    def enqueue(self, count: int) -> None:
        """Let messages arrive."""
        last = self.ordinal + count
        while self.ordinal < last:
            entries: list[Entry] = []
            while self.ordinal < last and len(entries) < ENTRIES_PER_APPLY:
                raw = [self._next() for _ in range(min(self.batch, last - self.ordinal))]
                entries += self.node.append([edge_batch(raw)])
            self.node.apply(entries)

    def _next(self) -> bytes:
        self.ordinal += 1
        n = self.ordinal
        queue = n * 7 % self.queues
        self.held[queue] += 1
        return packet(n, self.sizes(n), queue, n % self.priorities)

    def dequeue(self, count: int) -> int:
        """Receive and confirm over all queues in turn; return how many came."""
        done = 0
        while done < count:
            entries = []
            taken = 0
            for queue in self._turns():
                number = min(self.batch, self.held[queue], count - done - taken)
                if number > 0:
                    taken += number
                    entries += self.node.append([self.receive(queue, number)])
                if len(entries) == ENTRIES_PER_APPLY:
                    break
            for applied in self.node.apply(entries):
                done += len(applied.outcomes[0].value)
            if not taken:
                break
        return done

    def receive(self, queue: int, count: int) -> commands.ReceiveRun:
        """Return the command that receives from a queue and confirms all that came before."""
        self.held[queue] -= count
        first, self.request = self.request + 1, self.request + count
        return commands.ReceiveRun("c", queue + 1, queue_id(queue), first, count, first - 1)

    def _turns(self) -> Iterator[int]:
        start = self.request % self.queues
        for k in range(self.queues):
            yield (start + k) % self.queues
