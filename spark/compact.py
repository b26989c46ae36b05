"""The compaction job: an old base and the log after it become a new base.

What was consumed or replaced is left out; every high-water mark, unexpired history and open
obligation is a row of the state, and so is kept. A new base is trusted when it was built twice,
from the old base and the log and from its own file; if nodes reported their digest at its index,
that is a third witness. Only then may anything old be dropped.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from qm.archive.checkpoints import CHECKPOINT_NAME, Checkpoint
from qm.archive.manifest import MANIFEST_NAME
from qm.archive.schema import Part
from qm.store.backup import (
    BACKUP_FORMAT,
    MANIFEST_FILE,
    STATE_FILE,
    Backup,
    BackupFile,
    BackupHead,
)
from qm.store.signing import Signer
from spark.archive.altered import altered_files
from spark.archive.base import BASE_NAME, BASE_SCHEMA, Base, base_folder, find_bases
from spark.archive.files import FileProblem, folder_of
from spark.archive.ranges import Ranges, find_ranges
from spark.archive.standing import last_audited
from spark.archive.store import ArchiveStore
from spark.engine import stage
from spark.replay.checkpoints import find_checkpoints, problem_of
from spark.replay.checkpoints import folder_of as folder_of_checkpoint
from spark.replay.ends import ends_of_files
from spark.replay.pieces import replay_in_pieces
from spark.replay.replay import Replayed, ReplayPlan, Start, run_replays

logger = logging.getLogger(__name__)

GROUP: Final = 1
"""The Raft group that is compacted: the queue manager's."""


@dataclass(frozen=True)
class CompactOptions:
    """What to compact."""

    cluster: str
    upto: int | None = None
    """Highest index; None = the last audit mark that most nodes exported, or else the last entry
    that they exported.
    """
    hashes_files: bool = True
    """Read every file again to compare its bytes with its manifest."""
    drops_old: bool = False
    """Remove older bases, and the ranges that the new base replaces, as far as they were audited.
    """
    signer: Signer | None = None
    """Signs the new base."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction."""

    cluster: str
    built_from: int
    """Index of the base, or first checkpoint, before it; 0: from the first entry on."""
    index: int
    """Index of the new base; `built_from` when there was nothing to compact."""
    entries: int = 0
    data_bytes: int = 0
    """Size of the replayed entries."""
    messages: int = 0
    """Messages in the new base."""
    replay_cpu_s: float = 0.0
    stream_bytes: int = 0
    digest: str = ""
    told_by: list[str] = []
    """Nodes that reported the same digest at this index."""
    folder: str = ""
    problems: list[str] = []
    """Why there is no new base, or which files could not be used."""
    dropped: list[str] = []
    """Folders that were removed."""

    @property
    def is_refused(self) -> bool:
        """Whether there was something to compact but it failed."""
        return bool(self.problems) and not self.folder


@dataclass(frozen=True)
class _End:
    """Where a new base will end."""

    index: int
    told: dict[str, str]
    """Node -> digest, hexadecimal, when it is at an audit mark."""


def run_compaction(spark: SparkSession, store: ArchiveStore, options: CompactOptions) -> Compacted:
    """Make a new base from what is new. Raises NoArchive.

    Repeating a killed run gives the same result: a folder without `base.json` is replaced.
    """
    _stage(spark, "find ranges")
    bases, base_problems = find_bases(store, options.cluster)
    old = bases[-1] if bases else None
    low = old.index if old is not None else 0
    ranges = find_ranges(store, options.cluster, low)
    checkpoints, bad = find_checkpoints(store, options.cluster, low)
    ranges.problems += bad
    found = _Found(options.cluster, old, ranges, checkpoints)
    done = _made_of_whole_files(spark, store, options, found)
    problems = [f"{problem.path} {problem.detail}" for problem in base_problems]
    problems += [f"{problem.path} {problem.detail}" for problem in ranges.problems]
    done = msgspec.structs.replace(done, problems=[*done.problems, *problems])
    if options.drops_old and not done.is_refused:
        done = msgspec.structs.replace(done, dropped=_drop_old(store, bases, done))
    return done


@dataclass(frozen=True)
class _Found:
    """What the archive has."""

    cluster: str
    old: Base | None
    ranges: Ranges
    checkpoints: list[Checkpoint]

    @property
    def low(self) -> int:
        """Index that the new base is built from."""
        return self.old.index if self.old is not None else 0


def _stage(spark: SparkSession, name: str) -> None:
    stage(spark, "compaction", name)


def _made_of_whole_files(
    spark: SparkSession,
    store: ArchiveStore,
    options: CompactOptions,
    found: _Found,
) -> Compacted:
    """Make a base while files are hashed; repeat it if some differ from their manifests."""
    ranges, low = found.ranges, found.low
    end = _end(spark, store, ranges, low, options.upto)
    if end is None:
        if options.hashes_files:
            ranges.leave_out(_altered(spark, store, ranges))
        return Compacted(cluster=found.cluster, built_from=low, index=low)
    if not options.hashes_files:
        return _finished(store, end, _built(spark, store, found, end), options.signer)
    with ThreadPoolExecutor(1, "hashes") as pool:
        hashed = pool.submit(_altered, spark, store, ranges)
        built = _built(spark, store, found, end)
        altered = hashed.result()
    if not altered:
        return _finished(store, end, built, options.signer)
    ranges.leave_out(altered)
    store.remove_folder(built.folder)
    return _made_of_whole_files(spark, store, replace(options, hashes_files=False), found)


def _altered(spark: SparkSession, store: ArchiveStore, ranges: Ranges) -> list[FileProblem]:
    _stage(spark, "hash files")
    return altered_files(spark, store, ranges, {Part.ENTRIES})


def _end(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, low: int, upto: int | None
) -> _End | None:
    """Return where the new base will end; None when there is nothing to compact."""
    highest = ranges.majority_last() if upto is None else upto
    found = ends_of_files(spark, store, ranges, low, highest)
    ends = [(manifest, end) for manifest, end in found if manifest.group == GROUP]
    if not ends:
        return None
    last = max(end.last for _, end in ends)
    mark = max(end.mark for _, end in ends)
    index = last if upto is not None else mark or last
    return _End(index, {m.node: end.digest for m, end in ends if end.mark == index})


@dataclass(frozen=True)
class _Built:
    """A state that was built twice, or why that failed."""

    built_from: int
    folder: str
    replayed: Replayed
    base: Base
    problem: str = ""


def _built(spark: SparkSession, store: ArchiveStore, found: _Found, end: _End) -> _Built:
    """Write the state at the end, from the old base and the log, and rebuild it from that."""
    built, at = _built_once(spark, store, found, end, found.checkpoints)
    if built.problem and at:  # joints of pieces prove rows, but not bodies
        found.ranges.problems += [problem_of(one, f"was used: {built.problem}") for one in at]
        built, _ = _built_once(spark, store, found, end, ())
    return built


def _built_once(
    spark: SparkSession,
    store: ArchiveStore,
    found: _Found,
    end: _End,
    checkpoints: Sequence[Checkpoint],
) -> tuple[_Built, Sequence[Checkpoint]]:
    """Also return the checkpoints that were used."""
    folder = base_folder(found.cluster, end.index)
    store.remove_folder(folder)
    _stage(spark, "replay")
    start = None if found.old is None else Start.of_base(found.old)
    plan = ReplayPlan(url=store.url, group=GROUP, start=start, upto=end.index, output=folder)
    slots = spark.sparkContext.defaultParallelism
    pieces = replay_in_pieces(spark, plan, found.ranges, checkpoints, slots)
    replayed, known = pieces.replayed, found.ranges.problems
    known += [problem for problem in pieces.problems if problem not in known]
    built_from = pieces.begun_at or found.low
    base = _base_of(found.cluster, built_from, replayed)
    problem = _problem_of_built(replayed, end)
    if not problem:
        _stage(spark, "rebuild from the new base")
        plan = ReplayPlan(
            url=store.url,
            group=GROUP,
            start=Start.of_base(base),
            upto=base.index,
            is_verified=True,
        )
        (again,) = run_replays(spark, [plan])
        problem = _problem_of_again(replayed, again)
        base = msgspec.structs.replace(base, messages=again.messages)
    return _Built(built_from, folder, replayed, base, problem), pieces.at


def _finished(store: ArchiveStore, end: _End, built: _Built, signer: Signer | None) -> Compacted:
    """Publish the base if it can be trusted."""
    base, replayed, folder = built.base, built.replayed, built.folder
    if built.problem:
        store.remove_folder(folder)
        return Compacted(
            cluster=base.cluster,
            built_from=built.built_from,
            index=built.built_from,
            problems=[built.problem],
        )
    backup = _encoded(_backup_of(base, replayed))
    store.write_signed(f"{folder}/{MANIFEST_FILE}", backup, signer)
    store.write_signed(f"{folder}/{BASE_NAME}", _encoded(base), signer)
    return Compacted(
        cluster=base.cluster,
        built_from=built.built_from,
        index=base.index,
        entries=replayed.entries,
        data_bytes=replayed.data_bytes,
        messages=base.messages,
        replay_cpu_s=round(replayed.cpu_s, 3),
        stream_bytes=base.stream_bytes,
        digest=base.digest,
        told_by=sorted(end.told),
        folder=folder,
    )


def _problem_of_built(built: Replayed, end: _End) -> str:
    if built.problem:
        return built.problem
    if built.index != end.index:
        return f"the archive's entries end at {built.index}, not at {end.index}"
    others = sorted(node for node, digest in end.told.items() if digest != built.digest)
    if others:
        return (
            f"at entry {end.index} the log gives a state that {', '.join(others)} did not have:"
            " see the findings of `qm audit run`"
        )
    return ""


def _problem_of_again(built: Replayed, again: Replayed) -> str:
    if again.problem:
        return f"the new base cannot be read back: {again.problem}"
    if (again.index, again.digest) != (built.index, built.digest):
        return f"the new base gives the state {again.digest}, the log {built.digest}"
    return ""


def _base_of(cluster: str, low: int, built: Replayed) -> Base:
    return Base(
        schema=BASE_SCHEMA,
        cluster=cluster,
        group=GROUP,
        index=built.index,
        term=built.term,
        chain=built.chain,
        digest=built.digest,
        built_from=low,
        messages=built.messages,
        stream_bytes=built.stream_bytes,
        stream_sha256=built.stream_sha256,
    )


def _backup_of(base: Base, built: Replayed) -> Backup:
    """Return the description that makes the base a backup, from which a cluster can be restored."""
    head = BackupHead(
        cluster=base.cluster,
        index=base.index,
        term=base.term,
        digest=base.digest,
        state_version=built.state_version,
        created_ms=built.time_ms,
        source="compaction",
        build=metadata.version("quorate"),
    )
    state = BackupFile(STATE_FILE, base.stream_bytes, base.stream_sha256)
    return Backup(BACKUP_FORMAT, head, (state,))


def _encoded(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _drop_old(store: ArchiveStore, bases: list[Base], done: Compacted) -> list[str]:
    """Remove what the new base replaces; return the folders.

    The file that marks a folder as complete is removed first, so that none is ever left half there.
    """
    dropped = []
    for base in bases:
        if base.index < done.index:
            folder = base_folder(base.cluster, base.index)
            store.remove(f"{folder}/{BASE_NAME}")
            store.remove(f"{folder}/{MANIFEST_FILE}")
            store.remove_folder(folder)
            dropped.append(folder)
    audited = last_audited(store, done.cluster)
    upto = min(done.index, audited.last if audited is not None else 0)
    for checkpoint in find_checkpoints(store, done.cluster, 0)[0]:
        if checkpoint.index <= done.index and checkpoint.group == GROUP:
            folder = folder_of_checkpoint(checkpoint)
            store.remove(f"{folder}/{CHECKPOINT_NAME}")
            store.remove_folder(folder)
            dropped.append(folder)
    for manifest in find_ranges(store, done.cluster, 0).manifests:
        if manifest.last <= upto and manifest.group == GROUP:
            folder = folder_of(manifest)
            store.remove(f"{folder}/{MANIFEST_NAME}")
            store.remove_folder(folder)
            dropped.append(folder)
    logger.info("dropped %d folders", len(dropped))
    return dropped
