"""Which ranges an archive holds, which of their files can be used, and which cannot and why."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qm.archive.manifest import (
    MANIFEST_NAME,
    RANGES_FOLDER,
    Manifest,
    ManifestError,
    ManifestFile,
    decode_manifest,
)
from qm.archive.schema import SCHEMA_VERSION, SCHEMAS, Part
from spark.findings import FINDINGS
from spark.store import ArchiveStore
from spark.tables import Tables


class NoArchive(ValueError):
    """There is nothing to audit; the text says what is missing."""


@dataclass(frozen=True)
class FileProblem:
    """A file, or a whole range, that cannot be used."""

    path: str
    detail: str
    group: int = 0
    node: str = ""
    first: int = 0
    last: int = 0


@dataclass
class Ranges:
    """The usable files by part, each with its manifest, and the problems of the others."""

    manifests: list[Manifest] = field(default_factory=list)
    files: dict[Part, list[tuple[Manifest, str]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[FileProblem] = field(default_factory=list)

    def majority_last(self) -> int:
        """Return the index up to which most nodes exported: there replicas can be compared."""
        lasts: dict[str, int] = {}
        for manifest in self.manifests:
            lasts[manifest.node] = max(manifest.last, lasts.get(manifest.node, 0))
        if not lasts:
            return 0
        return sorted(lasts.values(), reverse=True)[len(lasts) // 2]


MANIFESTS_MAX: Final = 1_000_000
_PATH_PARTS: Final = 5
"""cluster, ranges, node, indexes, file."""


def find_ranges(store: ArchiveStore, cluster: str, above: int) -> Ranges:
    """Return the ranges of a cluster that reach above an index. Raises NoArchive."""
    found = Ranges()
    paths = store.names(f"{cluster}/{RANGES_FOLDER}", MANIFEST_NAME)
    if not paths:
        raise NoArchive(f"no ranges of cluster {cluster} below {store.url}")
    if len(paths) > MANIFESTS_MAX:
        raise NoArchive(f"more than {MANIFESTS_MAX} ranges: compact the archive first")
    for path in paths:
        try:
            manifest = decode_manifest(store.read(path))
        except (ManifestError, OSError) as error:
            found.problems.append(FileProblem(path, f"unreadable manifest: {error}"))
            continue
        problem = _range_problem(manifest, cluster)
        if problem:
            found.problems.append(_problem(path, manifest, problem))
        elif manifest.last > above:
            _take(store, found, path.rpartition("/")[0], manifest)
    return found


def clusters(store: ArchiveStore) -> list[str]:
    """Return the clusters that an archive holds, by the folders of their ranges."""
    paths = store.names("", MANIFEST_NAME)
    return sorted({path.partition("/")[0] for path in paths})


def _range_problem(manifest: Manifest, cluster: str) -> str:
    if manifest.cluster != cluster:
        return f"belongs to cluster {manifest.cluster}"
    if not 1 <= manifest.schema <= SCHEMA_VERSION:
        return f"has schema {manifest.schema}, this job knows up to {SCHEMA_VERSION}"
    return ""


def _problem(path: str, manifest: Manifest, detail: str) -> FileProblem:
    return FileProblem(path, detail, manifest.group, manifest.node, manifest.first, manifest.last)


def _take(store: ArchiveStore, found: Ranges, folder: str, manifest: Manifest) -> None:
    usable: list[tuple[Part, str]] = []
    for file in manifest.files:
        path = f"{folder}/{file.name}"
        problem = _file_problem(store, path, file)
        if problem:
            found.problems.append(_problem(path, manifest, problem))
        else:
            usable.append((Part(file.part), path))
    found.manifests.append(manifest)
    for part, path in usable:
        found.files[part].append((manifest, path))


def _file_problem(store: ArchiveStore, path: str, file: ManifestFile) -> str:
    """Say what is wrong with a file, as far as its length and footer show; "" for nothing."""
    size = store.size_bytes(path)
    if size is None:
        return "is missing"
    if size != file.size_bytes:
        return f"has {size} bytes, its manifest says {file.size_bytes}"
    try:
        part = Part(file.part)
    except ValueError:
        return f"is of a part {file.part!r} that this job does not know"
    try:
        schema = pq.read_schema(store.open(path))
    except (OSError, pa.ArrowInvalid) as error:
        return f"is no Parquet file: {error}"
    wanted = {field.name: field.type for field in SCHEMAS[part]}
    missing = sorted(wanted.keys() - set(schema.names))
    if missing:
        return f"lacks the columns {', '.join(missing)}"
    for name, kind in wanted.items():
        if not _same_kind(schema.field(name).type, kind):
            return f"has {schema.field(name).type} in {name}, not {kind}"
    return ""


def _same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(wanted):
        return bool(pa.types.is_binary(found) or found == wanted)
    return bool(found == wanted)


def altered_files(spark: SparkSession, store: ArchiveStore, ranges: Ranges) -> list[FileProblem]:
    """Find files whose bytes are not those that their manifests name; Spark reads and hashes."""
    expected: dict[str, tuple[str, str, Manifest]] = {}
    for part, files in ranges.files.items():
        for manifest, path in files:
            name = path.rpartition("/")[2]
            (file,) = (f for f in manifest.files if f.part == part.value and f.name == name)
            expected[path] = path, file.sha256, manifest
    if not expected:
        return []
    hashed = (
        spark.read.format("binaryFile")
        .load([store.spark_path(path) for path in expected])
        .select("path", F.sha2("content", 256).alias("sha256"))
    )
    problems = []
    for row in hashed.toLocalIterator():
        # Spark gives whole URLs; a range's folder and file are their end.
        path, sha256, manifest = expected["/".join(row["path"].split("/")[-_PATH_PARTS:])]
        if row["sha256"] != sha256:
            problems.append(_problem(path, manifest, "has other bytes than its manifest says"))
    return problems


def read_tables(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, base_index: int, upto: int
) -> Tables:
    """Return the rows of usable files with base_index < index <= upto."""
    parts = {part.value: _read(spark, store, part, ranges.files.get(part, [])) for part in Part}
    for name, frame in parts.items():
        column = "depends_on_index" if name == Part.ACKS.value else "index"
        parts[name] = frame.where((F.col(column) > base_index) & (F.col(column) <= upto))
    return Tables(base_index=base_index, **parts)


def _read(
    spark: SparkSession, store: ArchiveStore, part: Part, files: Iterable[tuple[Manifest, str]]
) -> DataFrame:
    """Read a part's files; where each row comes from follows from its file's folder."""
    paths = [store.spark_path(path) for _, path in files]
    names = [field.name for field in SCHEMAS[part]]
    if not paths:
        empty = SCHEMAS[part].empty_table()
        frame = spark.createDataFrame(empty)
        return frame.withColumn("node", F.lit("")).withColumn("range_first", F.lit(0).cast("long"))
    folder = F.split(F.input_file_name(), "/")
    return spark.read.parquet(*paths).select(
        *names,
        F.element_at(folder, -3).alias("node"),
        F.split(F.element_at(folder, -2), "-").getItem(0).cast("long").alias("range_first"),
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
