"""The audit job: checks what the archive holds above the last audit and writes the result."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from qm.archive.schema import Part
from qm.store.signing import Signer
from spark.archive.altered import altered_files
from spark.archive.base import Base, find_bases, newest
from spark.archive.files import FileProblem
from spark.archive.ranges import Ranges, find_ranges, problem_rows
from spark.archive.standing import last_audited
from spark.archive.store import ArchiveStore
from spark.archive.summary import (
    AUDIT_FOLDER,
    AUDITED_NAME,
    METRICS_NAME,
    REPORT_NAME,
    SUMMARY_NAME,
    Audited,
    ReplaySaid,
    Summary,
    carried_files,
    hashes,
)
from spark.archive.tables import Tables
from spark.engine import size_queries, stage
from spark.findings import FINDINGS
from spark.literals import literal_table
from spark.reading import read_tables
from spark.replay.checkpoints import find_checkpoints
from spark.replay.ends import ends_of_files
from spark.replay.pieces import replay_in_pieces
from spark.replay.replay import Replayed, ReplayPlan, Start, marks_of
from spark.report import tallies
from spark.report.metrics import metrics_text
from spark.report.report import report_html
from spark.rules import Audit, all_findings
from spark.rules.carry import ENDS, STAYS, STREAMS, Carried, nothing_carried
from spark.rules.digests import REPLAYED, not_reproduced

logger = logging.getLogger(__name__)

_DIGITS: Final = 20
_CARRIED: Final = {"stays": STAYS, "streams": STREAMS, "ends": ENDS}


@dataclass(frozen=True)
class AuditOptions:
    """What to audit."""

    cluster: str
    upto: int | None = None
    """Highest index; None = as far as most nodes exported."""
    hashes_files: bool = True
    """Read every file again to compare its bytes with its manifest."""
    replays: bool = True
    """Replay the log from the newest base on, and compare the state with what nodes reported."""
    signer: Signer | None = None
    """Signs what the next audit goes on from."""


@dataclass(frozen=True)
class Unaudited:
    """What there is to audit."""

    before: Audited | None
    """The last audit."""
    bases: list[Base]
    all_ranges: Ranges
    """All that a replay may need."""
    ranges: Ranges
    """Those above the last audit."""
    upto: int

    @property
    def low(self) -> int:
        """Index of the last entry that was audited before."""
        return self.before.last if self.before is not None else 0

    @property
    def is_nothing(self) -> bool:
        """Whether all was audited before."""
        return self.upto <= self.low

    @property
    def rows(self) -> int:
        """Rows of one copy of the operations."""
        return self.ranges.rows_of_one_copy(Part.OPERATIONS)


def find_unaudited(store: ArchiveStore, options: AuditOptions) -> Unaudited:
    """Return what there is to audit, by the archive's small files alone: no Spark is needed.

    Raises NoArchive.
    """
    logger.info("audit: find ranges")
    before = last_audited(store, options.cluster)
    low = before.last if before is not None else 0
    bases, base_problems = find_bases(store, options.cluster)
    all_ranges = find_ranges(store, options.cluster, min(low, bases[-1].index if bases else 0))
    ranges = all_ranges.above(low)
    ranges.problems += [FileProblem(p.path, p.detail) for p in base_problems]
    upto = options.upto if options.upto is not None else ranges.majority_last()
    return Unaudited(before, bases, all_ranges, ranges, upto)


def nothing_new(options: AuditOptions, unaudited: Unaudited) -> Summary:
    """Return the summary of an audit that finds nothing new."""
    logger.info("nothing new above index %d", unaudited.low)
    return Summary.nothing(options.cluster, unaudited.low)


def run_audit(
    spark: SparkSession,
    store: ArchiveStore,
    options: AuditOptions,
    unaudited: Unaudited | None = None,
) -> Summary:
    """Audit what is new; return what was found. Raises NoArchive, AuditChanged.

    Repeating a killed run gives the same result: a folder without `audited.json` is replaced.
    `unaudited`: what `find_unaudited` returned, if it was called before.
    """
    unaudited = unaudited or find_unaudited(store, options)
    if unaudited.is_nothing:
        return nothing_new(options, unaudited)
    before, bases, ranges = unaudited.before, unaudited.bases, unaudited.ranges
    low, upto = unaudited.low, unaudited.upto
    if options.hashes_files:
        _stage(spark, "hash files")
        ranges.leave_out(altered_files(spark, store, ranges))
    size_queries(spark, unaudited.rows)
    begun_after = _begun_after(before, ranges)
    first = max(low, begun_after) + 1
    folder = f"{options.cluster}/{AUDIT_FOLDER}/{first:0{_DIGITS}}-{upto:0{_DIGITS}}"
    store.remove_folder(folder)
    tables = read_tables(spark, store, ranges, low, upto, begun_after)
    with _replaying(spark, store, options, unaudited) as replaying:
        audit = all_findings(tables, _carried(spark, store, before), _ends_of(spark, bases))
        told = _told(spark, store, folder, tables, audit, ranges)
        replays = replaying()
    _write_digests(spark, store, folder, tables, replays)
    _stage(spark, "summary")
    summary = Summary(
        cluster=options.cluster,
        first=first,
        last=upto,
        begun_after=begun_after,
        is_partial=begun_after > 0 and before is None,
        nodes=sorted({manifest.node for manifest in ranges.manifests}),
        ranges=len(ranges.manifests),
        replays=[_said(group, replayed) for group, replayed in replays.of_groups.items()],
        **told,
        **tallies.judged(
            spark.read.schema(FINDINGS).parquet(store.spark_path(f"{folder}/findings"))
        ),
    )
    store.write(f"{folder}/{SUMMARY_NAME}", msgspec.json.format(msgspec.json.encode(summary)))
    store.write(f"{folder}/{REPORT_NAME}", report_html(summary).encode())
    store.write(f"{folder}/{METRICS_NAME}", metrics_text(summary))
    read_again = [f"{folder}/{name}" for name in (SUMMARY_NAME, REPORT_NAME, METRICS_NAME)]
    read_again += store.parquet_files(f"{folder}/carry")
    done = Audited(
        options.cluster,
        first,
        upto,
        folder,
        summary.findings_total,
        begun_after,
        hashes(store, folder, read_again),
    )
    store.write_signed(f"{folder}/{AUDITED_NAME}", msgspec.json.encode(done), options.signer)
    return summary


def _begun_after(before: Audited | None, ranges: Ranges) -> int:
    """Return the index of the entry before the first one that audits see; of several groups, the
    highest.
    """
    if before is not None:
        return before.begun_after
    return max((ranges.begins_after(group) for group in ranges.groups()), default=0)


def _stage(spark: SparkSession, name: str) -> None:
    stage(spark, "audit", name)


@dataclass(frozen=True)
class _Replays:
    """The results of replays."""

    of_groups: dict[int, Replayed] = field(default_factory=dict)
    problems: list[FileProblem] = field(default_factory=list)
    """Problems of checkpoints within the entries that are audited now."""


@contextmanager
def _replaying(
    spark: SparkSession,
    store: ArchiveStore,
    options: AuditOptions,
    unaudited: Unaudited,
) -> Iterator[Callable[[], _Replays]]:
    """Replay while other jobs run; yield a function that waits for the end."""
    if not options.replays:
        yield _Replays
        return
    pool = ThreadPoolExecutor(1, "replay")
    try:
        yield pool.submit(_replays, spark, store, options.cluster, unaudited).result
    finally:
        pool.shutdown(wait=False)


def _replays(
    spark: SparkSession, store: ArchiveStore, cluster: str, unaudited: Unaudited
) -> _Replays:
    """Replay each group up to its last new mark; without marks it proves nothing."""
    _stage(spark, "replay")
    bases, ranges = unaudited.bases, unaudited.all_ranges
    low, upto = unaudited.low, unaudited.upto
    lasts: dict[int, int] = {}
    for manifest, end in ends_of_files(spark, store, ranges, low, upto):
        if end.mark:
            lasts[manifest.group] = max(end.mark, lasts.get(manifest.group, 0))
    slots = spark.sparkContext.defaultParallelism
    begin = min((base.index for base in bases), default=0)
    checkpoints, problems = find_checkpoints(store, cluster, begin)
    replays = _Replays()
    for group, last in sorted(lasts.items()):
        base = newest([base for base in bases if base.group == group], last)
        start = None if base is None else Start.of_base(base)
        plan = ReplayPlan(url=store.url, group=group, start=start, upto=last)
        pieces = replay_in_pieces(spark, plan, ranges, checkpoints, slots)
        replays.of_groups[group] = pieces.replayed
        problems += pieces.problems
        if pieces.replayed.problem:
            logger.warning("group %d: %s", group, pieces.replayed.problem)
    replays.problems.extend(p for p in problems if low < p.last <= upto)
    return replays


def _said(group: int, replayed: Replayed) -> ReplaySaid:
    return ReplaySaid(
        group,
        replayed.index,
        len(replayed.marks),
        replayed.digest,
        replayed.problem,
        replayed.is_damage,
    )


def _carried(spark: SparkSession, store: ArchiveStore, before: Audited | None) -> Carried:
    if before is None:
        return nothing_carried(spark)
    return Carried(
        **{
            name: spark.read.schema(schema).parquet(
                *map(store.spark_path, carried_files(store, before, name))
            )
            for name, schema in _CARRIED.items()
        }
    )


def _ends_of(spark: SparkSession, bases: list[Base]) -> DataFrame:
    """Return (group, index, chain) of each base."""
    rows = [(base.group, base.index, bytes.fromhex(base.chain)) for base in bases]
    return literal_table(spark, rows, ENDS)


def _told(
    spark: SparkSession,
    store: ArchiveStore,
    folder: str,
    tables: Tables,
    audit: Audit,
    ranges: Ranges,
) -> dict[str, Any]:
    """Write findings and carried tables, and return the summary's data about the tables.

    All run at the same time: while one is planned or ends, tasks of another run.
    """

    def findings() -> None:
        _stage(spark, "findings")
        found = audit.findings.unionByName(problem_rows(spark, ranges.problems))
        found.write.mode("overwrite").parquet(store.spark_path(f"{folder}/findings"))

    def carry(name: str) -> None:
        _stage(spark, f"carry {name}")
        part: DataFrame = getattr(audit.carried, name)
        part.write.mode("overwrite").parquet(store.spark_path(f"{folder}/carry/{name}"))

    def flows() -> dict[str, Any]:
        _stage(spark, "flows")
        return tallies.counted(tables) | tallies.flows(tables, audit.stays)

    with ThreadPoolExecutor(2 + len(_CARRIED), "audit") as pool:
        written = [pool.submit(findings), *(pool.submit(carry, name) for name in _CARRIED)]
        told = pool.submit(flows)
        for one in written:
            one.result()
        return told.result()


def _write_digests(
    spark: SparkSession,
    store: ArchiveStore,
    folder: str,
    tables: Tables,
    replays: _Replays,
) -> None:
    """Add the findings of the replays."""
    if replays.problems:
        found = problem_rows(spark, replays.problems)
        found.write.mode("append").parquet(store.spark_path(f"{folder}/findings"))
    of_groups = replays.of_groups.items()
    marks = [row for group, replayed in of_groups for row in marks_of(replayed, group)]
    if marks:
        _stage(spark, "digests")
        found = not_reproduced(tables, literal_table(spark, marks, REPLAYED))
        found.write.mode("append").parquet(store.spark_path(f"{folder}/findings"))
