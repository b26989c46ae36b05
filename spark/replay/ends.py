"""Where each file of entries ends: tasks read three narrow columns, without Spark SQL.

Planning, compiling and warming up a query costs more than these columns of a thousand files.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from qm.archive.manifest import Manifest
from qm.archive.schema import Part
from spark.archive.files import problem_of
from spark.archive.ranges import Ranges
from spark.archive.store import ArchiveStore

FILES_PER_TASK: Final = 64
TASKS_MAX: Final = 1_000
_COLUMNS: Final = ("index", "audit_mark", "digest")


class FileEnd(msgspec.Struct, frozen=True):
    """The end of a file, within the requested entries."""

    path: str
    last: int = 0
    """Index of its last entry; 0: it has none."""
    mark: int = 0
    """Index of the last audit mark at which its node reported the digest."""
    digest: str = ""
    """That digest, hexadecimal."""
    problem: str = ""
    """Why it cannot be read."""


def ends_of_files(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, after: int, upto: int
) -> list[tuple[Manifest, FileEnd]]:
    """Return the end of each file with entries of (after, upto].

    Files that cannot be read become problems of `ranges`.
    """
    manifests = {path: manifest for manifest, path in ranges.files[Part.ENTRIES]}
    if not manifests:
        return []
    slices = min(-(-len(manifests) // FILES_PER_TASK), TASKS_MAX)
    paths = spark.sparkContext.parallelize(list(manifests), slices)
    found = paths.mapPartitions(partial(_ends, store.url, after, upto)).collect()
    ends = [msgspec.json.decode(one, type=FileEnd) for one in found]
    ranges.leave_out(
        [problem_of(end.path, manifests[end.path], end.problem) for end in ends if end.problem]
    )
    return [(manifests[end.path], end) for end in ends if end.last]


def _ends(url: str, after: int, upto: int, paths: Iterable[str]) -> Iterator[bytes]:
    store = ArchiveStore(url)
    for path in paths:
        try:
            end = _end(store, after, upto, path)
        except (OSError, pa.ArrowInvalid) as error:
            end = FileEnd(path, problem=f"cannot be read: {error}")
        yield msgspec.json.encode(end)


def _end(store: ArchiveStore, after: int, upto: int, path: str) -> FileEnd:
    with pq.ParquetFile(store.open(path)) as file:
        rows = file.read(columns=list(_COLUMNS))
    index = rows["index"]
    rows = rows.filter(pc.and_(pc.greater(index, after), pc.less_equal(index, upto)))
    told = rows.filter(pc.and_(pc.is_valid(rows["audit_mark"]), pc.is_valid(rows["digest"])))
    last: int = pc.max(rows["index"]).as_py() or 0
    if not told.num_rows:
        return FileEnd(path, last)
    mark = told.sort_by("index").slice(told.num_rows - 1).to_pylist()[0]
    return FileEnd(path, last, mark["index"], mark["digest"].hex())
