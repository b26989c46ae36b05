"""Replay of the log in one task: the only place where the code that applied entries runs again.

Everything else in the jobs works on effects. The task reads the entries itself, file by file, so
that bodies never go through a shuffle or the JVM; its memory does not grow with the archive.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from pyspark.sql import SparkSession

from qm.model.queries import View
from qm.store.backup import STATE_FILE
from qm.store.bodies.body_places import BodyDamaged
from qm.store.codec import UnknownCommand
from qm.store.digest import digest_bytes
from qm.store.effects.chain import CHAIN_START, EntryChain, chained, hash_of
from qm.store.replay import Replay, ReplayedMark
from qm.store.snapshot import SnapshotDamaged
from qm.store.store import Diverged
from spark.archive.base import Base, base_folder
from spark.archive.store import ArchiveStore
from spark.engine import POOL_PROPERTY

APPLIED_BYTES: Final = 4 << 20
"""Bytes of entries after which they are applied in one call."""
APPLIED_ENTRIES: Final = 64
_ROWS_READ: Final = 64
_COPIED_BYTES: Final = 4 << 20
_COLUMNS: Final = (
    "index", "previous_index", "term", "data", "chain_before", "chain", "data_blake3",
)  # fmt: skip


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A whole state from which a replay begins."""

    path: str
    """Path of its stream within the archive."""
    index: int
    """Index of the last entry that it contains."""
    term: int
    digest: str
    """Hexadecimal, as are the hashes of the stream."""
    stream_sha256: str = ""
    """Of a base, or a checkpoint of an older release."""
    stream_blake3: str = ""
    """Of any other checkpoint."""
    chain: str = ""
    """Hexadecimal; "": accept the state's own."""

    @classmethod
    def of_base(cls, base: Base) -> "Start":
        """Return the start of a replay from a base."""
        return cls(
            path=f"{base_folder(base.cluster, base.index)}/{STATE_FILE}",
            index=base.index,
            term=base.term,
            digest=base.digest,
            stream_sha256=base.stream_sha256,
            chain=base.chain,
        )


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay."""

    url: str
    """URL of the archive."""
    group: int
    start: Start | None
    """None: start from an empty state."""
    files: list[str] = []
    """Files of entries, in the order of their indexes; several may hold the same ones."""
    upto: int = 0
    output: str = ""
    """Folder for the stream of the final state; "": it is not written."""
    is_verified: bool = False
    """Whether to read and count the bodies of all messages."""


class Replayed(msgspec.Struct, kw_only=True):
    """The result of a replay."""

    index: int = 0
    """Index of the last applied entry."""
    term: int = 0
    chain: str = ""
    digest: str = ""
    entries: int = 0
    data_bytes: int = 0
    marks: list[ReplayedMark] = []
    problem: str = ""
    """Why it ended early, with file and entry; "" when it was completed."""
    is_damage: bool = False
    """Whether the problem is damage to the archive, not something that it never contained."""
    is_of_start: bool = False
    """Whether the problem is in the state that the replay began with."""
    state_version: int = 0
    time_ms: int = 0
    """Cluster time of the state, UTC."""
    messages: int = 0
    """Messages in queues, if they were read."""
    cpu_s: float = 0.0
    """CPU time of this process, all threads: the cost of reading, applying and writing."""
    stream_bytes: int = 0
    stream_sha256: str = ""


def run_replays(spark: SparkSession, plans: Sequence[ReplayPlan]) -> list[Replayed]:
    """Replay each plan in one task of Spark, on any executor, as soon as a slot is free: they are
    slow.
    """
    context = spark.sparkContext
    asked = context.parallelize([msgspec.json.encode(plan) for plan in plans], len(plans))
    context.setLocalProperty(POOL_PROPERTY, "replay")
    try:
        answers = asked.map(_replay_encoded).collect()
    finally:
        context.setLocalProperty(POOL_PROPERTY, "default")
    return [msgspec.json.decode(answer, type=Replayed) for answer in answers]


def _replay_encoded(plan: bytes) -> bytes:
    return msgspec.json.encode(replay(msgspec.json.decode(plan, type=ReplayPlan)))


def replay(plan: ReplayPlan) -> Replayed:
    """Replay in this process."""
    folder = Path(tempfile.mkdtemp(prefix="quorate-replay-"))
    began = time.process_time()
    try:
        replayed = _Run(plan, folder).done()
        replayed.cpu_s = time.process_time() - began
        return replayed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Stopped(Exception):
    """The replay cannot continue."""

    def __init__(self, text: str, *, is_damage: bool = True) -> None:
        super().__init__(text)
        self.is_damage = is_damage


class _Run:
    """One replay."""

    def __init__(self, plan: ReplayPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._store = ArchiveStore(plan.url)
        self._result = Replayed(marks=[])
        self._chain = CHAIN_START
        self._waiting: list[tuple[int, int, bytes]] = []
        self._waiting_bytes = 0
        self._last = 0
        """Index of the last entry read."""

    def done(self) -> Replayed:
        """Replay as far as possible; return how far, and why no further."""
        replayed = Replay(self._folder / "store")
        try:
            self._go(replayed)
        except (SnapshotDamaged, BodyDamaged) as error:
            self._stopped(str(error), is_damage=True)
            self._result.is_of_start = self._plan.start is not None
        except Diverged as error:
            self._stopped(str(error), is_damage=True)
        except UnknownCommand as error:
            self._stopped(str(error), is_damage=False)
        except Exception as error:
            if self._plan.start is None:
                raise
            # Entries may be applied to a state that is not theirs: any error that causes is
            # reported.
            self._stopped(f"{self._plan.start.path}: {error!r}", is_damage=True)
            self._result.is_of_start = True
        finally:
            replayed.close()
        return self._result

    def _go(self, replayed: Replay) -> None:
        try:
            self._begin(replayed)
            for path in self._plan.files:
                self._read(replayed, path)
        except _Stopped as error:
            self._stopped(str(error), is_damage=error.is_damage)
        self._apply(replayed)
        self._end(replayed)

    def _stopped(self, problem: str, *, is_damage: bool) -> None:
        self._result.problem, self._result.is_damage = problem, is_damage

    def _begin(self, replayed: Replay) -> None:
        start = self._plan.start
        if start is None:
            return
        self._result.is_of_start = True
        stream = self._folder / STATE_FILE
        if self._fetched(start, stream) != (start.stream_blake3 or start.stream_sha256):
            raise _Stopped(f"{start.path} has other bytes than what is beside it says")
        replayed.install(stream, start.index, start.term)
        stream.unlink()
        self._last, self._chain = EntryChain(replayed.state).end
        chain = self._chain.hex()
        held = (digest_bytes(replayed.applied.digest).hex(), self._last, chain)
        if held != (start.digest, start.index, start.chain or chain):
            raise _Stopped(f"{start.path} holds another state than what is beside it says")
        self._result.is_of_start = False

    def _fetched(self, start: Start, to: Path) -> str:
        """Copy a state from the archive; return its hash, hexadecimal."""
        digest = blake3() if start.stream_blake3 else sha256()
        try:
            with self._store.open_input(start.path) as source, to.open("wb") as target:
                while chunk := source.read(_COPIED_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
        except OSError as error:
            raise _Stopped(f"{start.path} cannot be read: {error}") from error
        return digest.hexdigest()

    def _read(self, replayed: Replay, path: str) -> None:
        try:
            self._read_file(replayed, path)
        except (OSError, pa.ArrowInvalid) as error:
            raise _Stopped(f"{path} cannot be read: {error}") from error

    def _read_file(self, replayed: Replay, path: str) -> None:
        with pq.ParquetFile(self._store.open(path)) as file:
            for batch in file.iter_batches(batch_size=_ROWS_READ, columns=list(_COLUMNS)):
                columns = [_values(batch, name) for name in _COLUMNS]
                for row in zip(*columns, strict=True):
                    self._take(path, *row)
                    if (
                        self._waiting_bytes >= APPLIED_BYTES
                        or len(self._waiting) >= APPLIED_ENTRIES
                    ):
                        self._apply(replayed)

    def _take(
        self,
        path: str,
        index: int,
        previous: int,
        term: int,
        data: bytes | None,
        chain_before: bytes,
        chain: bytes,
        data_blake3: bytes | None,
    ) -> None:
        """Take the next entry if it is wanted and follows the ones read before."""
        if index <= self._last or index > self._plan.upto:
            return
        if previous != self._last or chain_before != self._chain:
            raise _Stopped(
                f"{path}: entry {index} does not go on from entry {self._last}, the last one before"
                f" it: it names entry {previous} and"
                f" {'the same' if chain_before == self._chain else 'another'} chain value"
            )
        if data is None:
            raise _Stopped(
                f"{path}: entry {index} has no data, and no usable range of another node has them:"
                " nodes export with another policy than full, or the file that had them is gone",
                is_damage=False,
            )
        hash_of_data = hash_of(data, is_blake3=data_blake3 is not None)
        if chained(chain_before, index, term, hash_of_data) != chain:
            raise _Stopped(f"{path}: entry {index} does not give its chain value")
        self._last, self._chain = index, chain
        self._waiting.append((index, term, data))
        self._waiting_bytes += len(data)

    def _apply(self, replayed: Replay) -> None:
        result = self._result
        if self._waiting:
            result.entries += len(self._waiting)
            result.data_bytes += self._waiting_bytes
            result.marks += replayed.apply(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

    def _end(self, replayed: Replay) -> None:
        result, applied = self._result, replayed.applied
        if not applied.index:
            return
        result.index, result.term = applied.index, applied.term
        counters = View.of(replayed.state).counters()
        result.state_version, result.time_ms = counters.apply_version, counters.clock_ms
        result.chain, result.digest = self._chain.hex(), digest_bytes(applied.digest).hex()
        if result.problem:
            return
        if self._plan.output:
            replayed.compact()
            self._write(replayed)
        if self._plan.is_verified:
            result.messages = replayed.verify_bodies()

    def _write(self, replayed: Replay) -> None:
        source = replayed.snapshot()
        digest, at = sha256(), 0
        try:
            with self._store.open_output(f"{self._plan.output}/{STATE_FILE}") as target:
                while chunk := source.read(at, _COPIED_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
                    at += len(chunk)
        finally:
            source.close()
        self._result.stream_bytes, self._result.stream_sha256 = at, digest.hexdigest()


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return a column's values; None in files of older releases, which lack it."""
    if name in batch.schema.names:
        values: list[Any] = batch[name].to_pylist()
        return values
    return [None] * len(batch)


def marks_of(replayed: Replayed, group: int) -> list[tuple[int, int, int, bytes]]:
    """Return rows (group, index, audit_mark, replayed): the digests expected at the marks."""
    return [(group, mark.index, mark.number, mark.digest) for mark in replayed.marks]
