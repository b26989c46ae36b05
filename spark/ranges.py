"""Which ranges an archive holds, which of their files can be used, and which cannot and why."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qm.archive.manifest import MANIFEST_NAME, RANGES_FOLDER, Manifest
from qm.archive.schema import ADDED, SCHEMA_VERSION, SCHEMAS, Part
from spark.cover import cover
from spark.files import FileProblem, JudgedRange, folder_of, judge_range, problem_of, reaches_above
from spark.findings import FINDINGS
from spark.standing import NoArchive
from spark.store import ArchiveStore
from spark.tables import Tables


@dataclass
class Ranges:
    """The usable files by part, each with its manifest, and the problems of the others."""

    manifests: list[Manifest] = field(default_factory=list)
    files: dict[Part, list[tuple[Manifest, str]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[FileProblem] = field(default_factory=list)

    def take(self, judged: JudgedRange) -> None:
        """Add a range, as far as it can be used."""
        self.problems += judged.problems
        if judged.manifest is None:
            return
        self.manifests.append(judged.manifest)
        for part, path in judged.files:
            self.files[part].append((judged.manifest, path))

    def above(self, index: int) -> "Ranges":
        """Return what reaches above an index."""
        higher = Ranges()
        higher.manifests = [manifest for manifest in self.manifests if manifest.last > index]
        for part, files in self.files.items():
            higher.files[part] = [(m, path) for m, path in files if m.last > index]
        higher.problems = [p for p in self.problems if p.last > index or not p.last]
        return higher

    def incomparable(self, part: Part) -> frozenset[str]:
        """Return the columns that some of these ranges are too old to have."""
        oldest = min((manifest.schema for manifest in self.manifests), default=SCHEMA_VERSION)
        return frozenset(name for name, since in ADDED.get(part, {}).items() if since > oldest)

    def rows(self, part: Part) -> int:
        """Return how many rows manifests say that a part's files have."""
        return sum(
            file.rows
            for manifest in self.manifests
            for file in manifest.files
            if file.part == part.value
        )

    def whole_manifests(self) -> list[Manifest]:
        """Return the manifests of ranges of whose entries and operations no file is missing."""
        usable = {path for files in self.files.values() for _, path in files}
        return [
            manifest
            for manifest in self.manifests
            if all(
                f"{folder_of(manifest)}/{file.name}" in usable
                for file in manifest.files
                if file.part in _JUDGED_PARTS
            )
        ]

    def entry_files(self, group: int, after: int, upto: int) -> list[str]:
        """Return files that hold the entries of (after, upto], in their order."""
        paths: dict[tuple[str, int], list[str]] = {}
        for manifest, path in self.files[Part.ENTRIES]:
            if manifest.group == group:
                paths.setdefault((manifest.node, manifest.first), []).append(path)
        own = [m for m in self.manifests if (m.node, m.first) in paths and m.group == group]
        return [
            path
            for piece in cover(own, after, upto)
            for path in sorted(paths[piece.manifest.node, piece.manifest.first])
        ]

    def leave_out(self, problems: list[FileProblem]) -> None:
        """Use these files no more."""
        self.problems += problems
        bad = {problem.path for problem in problems}
        for part, files in self.files.items():
            self.files[part] = [(manifest, path) for manifest, path in files if path not in bad]

    def majority_last(self) -> int:
        """Return the index up to which most nodes exported: there replicas can be compared."""
        lasts: dict[str, int] = {}
        for manifest in self.manifests:
            lasts[manifest.node] = max(manifest.last, lasts.get(manifest.node, 0))
        if not lasts:
            return 0
        return sorted(lasts.values(), reverse=True)[len(lasts) // 2]


_JUDGED_PARTS: Final = frozenset({Part.ENTRIES.value, Part.OPERATIONS.value})
MANIFESTS_MAX: Final = 4_000_000
HASH_TASKS_MAX: Final = 1_000
_HASHED_BYTES: Final = 4 << 20
READERS: Final = 32
"""Manifests and footers that are read at one time: an object store answers slowly."""


def find_ranges(store: ArchiveStore, cluster: str, above: int) -> Ranges:
    """Return the ranges of a cluster that reach above an index. Raises NoArchive."""
    found = Ranges()
    everything = store.names(f"{cluster}/{RANGES_FOLDER}", MANIFEST_NAME)
    if not everything:
        raise NoArchive(f"no ranges of cluster {cluster} below {store.url}")
    paths = [path for path in everything if reaches_above(path, above)]
    if len(paths) > MANIFESTS_MAX:
        raise NoArchive(f"more than {MANIFESTS_MAX} ranges: compact the archive first")
    with ThreadPoolExecutor(READERS) as pool:
        judged = pool.map(partial(judge_range, store, cluster, above), paths)
        for range_ in judged:
            found.take(range_)
    return found


def altered_files(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, parts: Collection[Part] = tuple(Part)
) -> list[FileProblem]:
    """Find files whose bytes are not those that their manifests name; tasks read and hash."""
    expected: dict[str, tuple[str, Manifest]] = {}
    for part in parts:
        for manifest, path in ranges.files[part]:
            name = path.rpartition("/")[2]
            (file,) = (f for f in manifest.files if f.part == part.value and f.name == name)
            expected[path] = file.sha256, manifest
    if not expected:
        return []
    slices = min(len(expected), HASH_TASKS_MAX)
    paths = spark.sparkContext.parallelize(list(expected), slices)
    return [
        problem_of(path, expected[path][1], "has other bytes than its manifest says")
        for path, found in paths.map(partial(_hashed, store.url)).collect()
        if found != expected[path][0]
    ]


def _hashed(url: str, path: str) -> tuple[str, str]:
    """Return a file's path and the SHA-256 of its bytes, "" when it cannot be read."""
    try:
        with ArchiveStore(url).open_input(path) as stream:
            digest = sha256()
            while chunk := stream.read(_HASHED_BYTES):
                digest.update(chunk)
            return path, digest.hexdigest()
    except OSError:
        return path, ""


def read_part(spark: SparkSession, store: ArchiveStore, ranges: Ranges, part: Part) -> DataFrame:
    """Return the rows of a part's usable files, of every node."""
    return _read(spark, store, part, ranges.files[part])


def read_tables(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, base_index: int, upto: int
) -> Tables:
    """Return the rows of usable files with base_index < index <= upto."""

    def read(part: Part, files: Iterable[tuple[Manifest, str]]) -> DataFrame:
        frame = _read(spark, store, part, files)
        column = F.col("depends_on_index" if part is Part.ACKS else "index")
        wanted = (column > base_index) & (column <= upto)
        if part is Part.ACKS:
            # One that left late is in a range behind its entry, and judged where that range begins.
            begins = F.col("range_first")
            is_late = (column <= base_index) & (begins > base_index)
            wanted = (wanted | is_late) & (begins <= upto)
        return frame.where(wanted)

    pieces = cover(ranges.whole_manifests(), base_index, upto)
    taken = {(piece.manifest.node, piece.manifest.first) for piece in pieces}
    places = spark.createDataFrame(
        [(p.manifest.group, p.manifest.node, p.manifest.first, p.low, p.high) for p in pieces],
        "`group` int, node string, range_first long, low long, high long",
    )

    def one_copy(part: Part) -> DataFrame:
        files = [(m, path) for m, path in ranges.files[part] if (m.node, m.first) in taken]
        joined = read(part, files).join(F.broadcast(places), ["group", "node", "range_first"])
        return joined.where("index between low and high").drop("low", "high")

    return Tables(
        **{part.value: read(part, ranges.files[part]) for part in Part},
        one_copy_of_entries=one_copy(Part.ENTRIES),
        one_copy_of_operations=one_copy(Part.OPERATIONS),
        incomparable=ranges.incomparable(Part.OPERATIONS),
        base_index=base_index,
    )


def _read(
    spark: SparkSession, store: ArchiveStore, part: Part, files: Iterable[tuple[Manifest, str]]
) -> DataFrame:
    """Read a part's files; where each row comes from follows from its file's folder.

    Columns that older files lack are null there.
    """
    paths = [store.spark_path(path) for _, path in files]
    empty = spark.createDataFrame(SCHEMAS[part].empty_table())
    if not paths:
        return empty.withColumn("node", F.lit("")).withColumn("range_first", F.lit(0).cast("long"))
    folder = F.split(F.input_file_name(), "/")
    return (
        spark.read.schema(empty.schema)
        .parquet(*paths)
        .withColumn("node", F.element_at(folder, -3))
        .withColumn("range_first", F.split(F.element_at(folder, -2), "-").getItem(0).cast("long"))
    )


def problem_rows(spark: SparkSession, problems: list[FileProblem]) -> DataFrame:
    """Return problems as findings; there are at most as many as files."""
    rows = [
        (
            "file_unusable", p.group, p.first, p.node or None, p.path, f"the file {p.detail}",
            f'{{"first": {p.first}, "last": {p.last}}}',
        )
        for p in problems
    ]  # fmt: skip
    return spark.createDataFrame(rows, FINDINGS)
