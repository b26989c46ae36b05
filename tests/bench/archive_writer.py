"""Write a large archive as real nodes would, for `make bench-spark`.

    python -m tests.bench.archive_writer FOLDER --operations 1000000

Entries are applied by the real store, and exported by the real archiver's code under the names of
three nodes; there is no network and no consensus. One message in five belongs to a transactional
stream. Ranges are as long as those of busy nodes, or, with `--ranges`, as many as quiet nodes make
of so many operations. Prints JSON; the same operations, seed and pieces give the same archive.

With `--piece-s` it stops after about that many seconds, with status 75, and continues from there
when it is called again: FOLDER.writing holds the node and how far it came.
"""

import argparse
import json
import math
import random
import shutil
import sys
import time
from collections import deque
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from qm.archive.checkpoints import CheckpointExport, CheckpointTurns
from qm.archive.columns import MarkReport
from qm.archive.destination import FolderDestination
from qm.archive.manifest import Manifest
from qm.archive.ranges import Identity, Policy, RangeExport, RangePlan
from qm.archive.source import LogHold
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, EdgeBatch, ReceiveRun, Request
from qm.model.values.effects import Applied
from qm.store.audit import prove
from qm.store.effects.effects_log import EffectsLog, Exported
from qm.store.snapshot import Pinned
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.transaction_header import SEQUENCE, SEQUENCE_OFFSET, TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.peek import peek_head, transaction_header_offset
from qm.wire.packets.user_message import UserMessage, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.bench.model_node import (
    CONTROL,
    HOST,
    NOW_MS,
    PEER,
    Node,
    edge_batch,
    provision,
    queue_id,
)

CLUSTER: Final = "ab" * 16
NODES: Final = ("n1.1", "n2.1", "n3.1")
QUEUES: Final = 16
TRANSACTIONAL_QUEUES: Final = 3
"""The last ones, of all; a fifth of the messages."""
BATCH: Final = 256
"""Messages per entry."""
ENTRIES_PER_RUN: Final = 16
RANGE_BYTES: Final = 128 << 20
RANGE_ENTRIES: Final = 65_536
CHECKPOINT_BYTES: Final = 256 << 20
MARKS: Final = 4
"""Audit marks, spread over the archive."""
LOG_RETAIN_BYTES: Final = 1 << 30
"""As nodes do."""
LEFT_SHARE: Final = 0.02
"""Of the messages, still in their queues at the end."""
SEQUENCE_ID: Final = 1 << 32
TO_BE_CONTINUED: Final = 75
"""Exit status of a piece that is not the last one."""
_STRIDE: Final = 7919
"""Prime: bodies of neighbours differ."""
_SENT_AND_ID: Final = Struct("<II")
_SENT_AT: Final = 52
"""Of SentTime in a packet; MessageID follows."""


class Progress(msgspec.Struct):
    """Between two pieces: what the node's own files do not say."""

    sent: int = 0
    received: int = 0
    requests: int = QUEUES
    held: list[tuple[int, int]] = []
    numbers: list[int] = msgspec.field(default_factory=lambda: [0] * QUEUES)
    """The last sequence number of each queue's packets."""
    marks: int = 0
    ranges: int = 0
    checkpoints: int = 0
    written_bytes: int = 0
    entry_bytes: int = 0
    elapsed_s: float = 0.0


class Template:
    """Packets to one queue, which differ in SentTime, MessageID, sequence number and body."""

    def __init__(self, queue: int, body_bytes: int, *, is_transactional: bool) -> None:
        transaction = None
        if is_transactional:
            transaction = TransactionHeader(
                TxSequenceId(time_stamp=SEQUENCE_ID >> 32, ordinal=0), 1, 0
            )
        raw = write_user_message(
            UserMessage(
                UserHeader(
                    PEER,
                    DirectQueueFormatName(f"OS:{HOST}\\q{queue}"),
                    sent_time=0,
                    message_id=0,
                    is_recoverable=True,
                ),
                MessagePropertiesHeader(b"\xfe" * body_bytes, label="bench"),
                transaction,
                priority=0 if is_transactional else queue % 8,
            )
        )
        self._raw = bytearray(raw)
        self._body_at = raw.index(b"\xfe" * body_bytes)
        self._body_bytes = body_bytes
        self._sequence_at = 0
        if is_transactional:
            header = transaction_header_offset(raw, 0, peek_head(raw, 0))
            self._sequence_at = header + SEQUENCE_OFFSET
        self.number = 0

    def packet(self, ordinal: int, body: bytes) -> bytes:
        """Return the next packet."""
        raw = self._raw
        _SENT_AND_ID.pack_into(raw, _SENT_AT, NOW_MS // 1000 + ordinal // 40_000, ordinal)
        raw[self._body_at : self._body_at + self._body_bytes] = body
        if self._sequence_at:
            self.number += 1
            SEQUENCE.pack_into(raw, self._sequence_at, SEQUENCE_ID, self.number, self.number - 1)
        return bytes(raw)


class Traffic:
    """What goes in and out, as commands."""

    def __init__(self, seed: int, body_bytes: int) -> None:
        chance = random.Random(seed)
        self._bodies = chance.randbytes(16 << 20)
        self._body_bytes = body_bytes
        first = QUEUES - TRANSACTIONAL_QUEUES
        self._templates = [
            Template(queue, body_bytes, is_transactional=queue >= first) for queue in range(QUEUES)
        ]
        self._held: deque[tuple[int, int]] = deque()
        """(queue, messages) of batches not received yet, oldest first."""
        self.sent = self.received = 0
        self._requests = QUEUES

    def resume(self, progress: Progress) -> None:
        """Go on where a piece ended."""
        self.sent, self.received = progress.sent, progress.received
        self._requests, self._held = progress.requests, deque(progress.held)
        for template, number in zip(self._templates, progress.numbers, strict=True):
            template.number = number

    def note(self, progress: Progress) -> None:
        """Say how far it came."""
        progress.sent, progress.received = self.sent, self.received
        progress.requests, progress.held = self._requests, list(self._held)
        progress.numbers = [template.number for template in self._templates]

    def arrivals(self) -> EdgeBatch:
        """Return a batch for the next queue."""
        queue = self.sent // BATCH % QUEUES
        template, size = self._templates[queue], self._body_bytes
        bodies, room = self._bodies, len(self._bodies) - size
        first = self.sent + 1
        raw = []
        for n in range(first, first + BATCH):
            at = n * _STRIDE % room
            raw.append(template.packet(n, bodies[at : at + size]))
        self.sent += BATCH
        self._held.append((queue, BATCH))
        return edge_batch(raw)

    def receives(self) -> ReceiveRun:
        """Return what takes the oldest batch out of its queue."""
        queue, count = self._held.popleft()
        first, self._requests = self._requests + 1, self._requests + count
        self.received += count
        return ReceiveRun("c", queue + 1, queue_id(queue), first, count, first - 1)

    @property
    def operations(self) -> int:
        """How many effects there were."""
        return self.sent + self.received


class Source:
    """Implements `qm.archive.source.ArchiveSource` over a node without consensus."""

    def __init__(self, node: Node) -> None:
        self._store = node.store

    def keeper(self) -> EffectsLog:
        assert self._store.kept is not None
        return self._store.kept

    def hold(self, index: int) -> LogHold:
        return self._store.hold_log(index)

    def next_row(self, above: int) -> tuple[int, bytes] | None:
        rows = self.rows(above, 1)
        return rows[0] if rows else None

    def rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        return self._store.kept_rows(above, limit)

    def flush(self) -> None:
        self._store.flush()

    def pin(self) -> Pinned:
        return self._store.pin()

    def entry(self, index: int) -> bytes | memoryview:
        return self._store.read_entry(index)


class Writer:
    """Exports what a node applied, under the name of each of the nodes."""

    def __init__(self, node: Node, root: Path, nodes: int, policy: Policy) -> None:
        self._node = node
        self._source = Source(node)
        self._policy = policy
        self._destination = FolderDestination(root)
        self._names = NODES[:nodes]
        self._hold = self._source.hold(self.exported_upto + 1)
        self._total = self._source.keeper().total_bytes
        self.reports: dict[int, MarkReport] = {}
        self.acks: list[tuple[str, int, int, int, int]] = []
        self._turns = CheckpointTurns(CHECKPOINT_BYTES if policy is Policy.FULL else 0, lambda: 0)
        self._turns.begin(self._total)
        self.ranges = self.written_bytes = self.checkpoints = 0
        self.exported: deque[tuple[int, int]] = deque()
        """(index, bytes of all entries up to it) of what is exported and still in the log."""

    @property
    def is_due(self) -> bool:
        """Whether a range has its bytes."""
        return self._source.keeper().total_bytes - self._total >= RANGE_BYTES

    @property
    def exported_upto(self) -> int:
        """The last entry that is in the archive."""
        return self._source.keeper().exported.upto

    def export(self) -> None:
        """Write one range per node, the first one's with data; let its rows and its log go."""
        keeper = self._source.keeper()
        manifest: Manifest | None = None
        for k, name in enumerate(self._names):
            policy = Policy.NONE if k and self._policy is Policy.FULL else self._policy
            acks = [ack for ack in self.acks if ack[0] == name.partition(".")[0]]
            plan = RangePlan(
                keeper.exported, keeper.newest_index, RANGE_ENTRIES, RANGE_BYTES, policy,
                self.reports, acks,
            )  # fmt: skip
            identity = Identity(CLUSTER, name, 1)
            export = RangeExport(plan, identity, self._source, self._destination, lambda: False)
            done = export.run()
            assert done is not None, "nothing to export"
            assert manifest is None or done.manifest.last == manifest.last
            manifest = done.manifest
            self.written_bytes += done.written_bytes
        assert done is not None
        last = done.manifest.last
        self._finish(keeper, done.exported, done.indexes)
        self._total = done.total_bytes
        self.acks = [ack for ack in self.acks if ack[3] > last]
        self.ranges += 1

    def checkpoint_if_due(self) -> None:
        """Write the state under the name of one node, as that one whose turn it is does."""
        total_bytes = self._source.keeper().total_bytes
        if not self._turns.is_due(total_bytes):
            return
        name = self._names[self.checkpoints % len(self._names)]
        self._source.flush()
        export = CheckpointExport(
            self._source.pin(),
            Identity(CLUSTER, name, 1),
            self._destination,
            self._turns.log_bytes(total_bytes),
            lambda: False,
        )
        checkpoint = export.run()
        if checkpoint is None:
            self._turns.refused(export.stream_bytes)
        else:
            self._turns.wrote(checkpoint, total_bytes)
            self.checkpoints += 1
            self.written_bytes += checkpoint.stream_bytes

    def _finish(self, keeper: EffectsLog, exported: Exported, indexes: list[int]) -> None:
        keeper.move(exported, indexes)
        hold, self._hold = self._hold, self._source.hold(exported.upto + 1)
        hold.release()


def write_archive(
    root: Path,
    operations: int,
    *,
    nodes: int = len(NODES),
    body_bytes: int = 100,
    policy: Policy = Policy.FULL,
    seed: int = 1,
    ranges: int = 0,
    piece_s: float = math.inf,
) -> dict[str, float | int | str] | None:
    """Write an archive of about this many operations per node below `root`; return figures, or None
    when the piece is over before that.

    `ranges`: how many of each node, 0: as many as their bytes give.
    """
    began = time.perf_counter()
    place = root.with_name(f"{root.name}.writing")
    saved = place / "progress.json"
    traffic = Traffic(seed, body_bytes)
    is_new = not saved.exists()
    if is_new:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)
        place.mkdir(parents=True)
    progress = Progress() if is_new else msgspec.json.decode(saved.read_bytes(), type=Progress)
    saved.unlink(missing_ok=True)
    traffic.resume(progress)
    node = Node(place / "node", keeps_effects=True)
    node.entry_bytes = progress.entry_bytes
    writer = Writer(node, root, nodes, policy)
    writer.ranges, writer.written_bytes = progress.ranges, progress.written_bytes
    writer.checkpoints = progress.checkpoints
    if is_new:
        _provision(node)
    is_done = _drive(node, writer, traffic, operations, ranges, progress, began + piece_s)
    node.settle()
    node.close()
    progress.elapsed_s += time.perf_counter() - began
    if not is_done:
        traffic.note(progress)
        progress.ranges, progress.written_bytes = writer.ranges, writer.written_bytes
        progress.checkpoints = writer.checkpoints
        progress.entry_bytes = node.entry_bytes
        saved.write_bytes(msgspec.json.encode(progress))
        return None
    shutil.rmtree(place)
    elapsed = progress.elapsed_s
    return {
        "archive_cluster": CLUSTER,
        "archive_nodes": nodes,
        "archive_entries": node.index,
        "archive_operations": traffic.operations,
        "archive_messages": traffic.sent,
        "archive_ranges": writer.ranges * nodes,
        "archive_checkpoints": writer.checkpoints,
        "archive_bytes": writer.written_bytes,
        "archive_log_bytes": node.entry_bytes,
        "archive_write_s": round(elapsed, 1),
        "archive_write_ops_per_s": round(traffic.operations / elapsed),
    }


def _provision(node: Node) -> None:
    """Make the queue manager, a client `c` and open queues for it, the last ones transactional."""
    provision(node, QUEUES - TRANSACTIONAL_QUEUES)
    transactional = {"transactional": encode_attribute(True)}
    batch: list[Command] = []
    for queue in range(QUEUES - TRANSACTIONAL_QUEUES, QUEUES):
        identifier = queue.to_bytes(8, "big") + b"queue!!!"
        batch.append(
            commands.CreateQueue(
                CONTROL, identifier, identifier[::-1], f".\\q{queue}", transactional, b"", ()
            )
        )
    for queue in range(QUEUES - TRANSACTIONAL_QUEUES, QUEUES):
        name = f"DIRECT=OS:{HOST}\\q{queue}"
        batch.append(commands.OpenQueue(Request("c", queue + 1, 0), name, 0, 0, ()))
    _check(node.apply(node.append(batch)))


def _drive(
    node: Node,
    writer: Writer,
    traffic: Traffic,
    operations: int,
    ranges: int,
    progress: Progress,
    until: float,
) -> bool:
    """Go on until there are as many operations, or as long; then all that there is is exported.
    Return whether it is all.
    """
    left = int(operations * LEFT_SHARE)
    entries = min(ENTRIES_PER_RUN, operations // (ranges * BATCH)) if ranges else ENTRIES_PER_RUN
    while traffic.operations < operations and time.perf_counter() < until:
        batches: list[list[Command]] = []
        for _ in range(max(entries // 2, 1)):
            batches.append([traffic.arrivals()])
            if traffic.sent - traffic.received > left:
                batches.append([traffic.receives()])
        _check(node.apply(node.append(*batches)))
        index = node.index
        writer.acks += [(f"n{1 + index % 3}", 1, traffic.sent, index, index)]
        if traffic.operations >= (progress.marks + 1) * (operations // MARKS):
            progress.marks += 1
            _mark(node, writer, progress.marks)
        writer.checkpoint_if_due()
        is_next = ranges and traffic.operations >= (writer.ranges + 1) * (operations / ranges)
        if writer.is_due or is_next:
            _export(node, writer)
    is_all = traffic.operations >= operations
    if is_all and progress.marks < MARKS:
        progress.marks += 1
        _mark(node, writer, progress.marks)
    while writer.exported_upto < node.index:
        _export(node, writer)
    return is_all


def _check(applied: list[Applied]) -> None:
    """Every message is accepted."""
    for one in applied:
        for outcome in one.outcomes:
            assert outcome.status == 0, hex(outcome.status)
            assert outcome.verdicts is None or not any(outcome.verdicts)


def _mark(node: Node, writer: Writer, number: int) -> None:
    """Have the state proved at a mark, as each node does."""
    node.apply(node.append([commands.AuditMark(number)]))
    mark = node.store.marks.pop()
    proof = prove(node.store.copy_at(mark))
    assert proof.is_sound
    writer.reports[mark.index] = MarkReport(number, proof.digest, proof.queues)


def _export(node: Node, writer: Writer) -> None:
    node.sync()
    writer.export()
    exported = writer.exported
    exported.append((node.index, node.entry_bytes))
    while node.entry_bytes - exported[0][1] > LOG_RETAIN_BYTES:
        node.compact(exported.popleft()[0])
        node.store.bodies.begin_removal().run()


def main() -> None:
    """Write an archive; print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=len(NODES), choices=(1, 2, 3))
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--policy", type=Policy, default=Policy.FULL)
    parser.add_argument("--ranges", type=int, default=0, help="of each node")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--piece-s", type=float, default=math.inf)
    given = parser.parse_args()
    figures = write_archive(
        given.folder,
        given.operations,
        nodes=given.nodes,
        body_bytes=given.body_bytes,
        policy=given.policy,
        seed=given.seed,
        ranges=given.ranges,
        piece_s=given.piece_s,
    )
    if figures is None:
        sys.exit(TO_BE_CONTINUED)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
