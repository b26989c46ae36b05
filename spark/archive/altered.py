"""Files and entries' data whose bytes differ from the hashes recorded beside them.

Spark has no BLAKE3, and bodies should not enter the JVM: Python tasks read the files themselves and
return only what they found.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from qm.archive.manifest import Manifest, ManifestFile
from qm.archive.schema import Part
from qm.store.effects.chain import hash_of
from spark.archive.files import FileProblem, problem_of
from spark.archive.ranges import Ranges
from spark.archive.store import ArchiveStore

TASKS_MAX: Final = 1_000
TASK_BYTES: Final = 64 << 20
"""Size of the files that one task reads and hashes: most files are small."""
_READ_BYTES: Final = 4 << 20
_READ_ROWS: Final = 64
_COLUMNS: Final = ("group", "index", "term", "data", "data_sha256", "data_blake3")
ALTERED: Final = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("index", T.LongType(), False),
        T.StructField("term", T.LongType(), False),
        T.StructField("node", T.StringType(), False),
        T.StructField("data_hash", T.BinaryType(), True),
        T.StructField("hash_found", T.BinaryType(), False),
    ]
)
"""Entries whose data do not match the hash beside them."""


class _File(NamedTuple):
    path: str
    node: str
    blake3: str
    """Hexadecimal, of the whole file; "" in the ranges of older releases,"""
    sha256: str
    """which record this one."""


def altered_files(
    spark: SparkSession, store: ArchiveStore, ranges: Ranges, parts: Collection[Part] = tuple(Part)
) -> list[FileProblem]:
    """Find files whose bytes do not match their manifests."""
    manifests = {path: manifest for part in parts for manifest, path in ranges.files[part]}
    altered = _files(spark, ranges, parts).filter(partial(_is_altered, store.url))
    return [
        problem_of(path, manifests[path], "has other bytes than its manifest says")
        for path in altered.map(_path_of).collect()
    ]


def altered_entries(spark: SparkSession, store: ArchiveStore, ranges: Ranges) -> DataFrame:
    """Return ALTERED for all usable files."""
    files = _files(spark, ranges, [Part.ENTRIES])
    return spark.createDataFrame(files.flatMap(partial(_altered_in, store.url)), ALTERED)


def _files(spark: SparkSession, ranges: Ranges, parts: Collection[Part]) -> "RDD[_File]":
    """Return the usable files of these parts, grouped so that each task is worth its overhead."""
    files, size_bytes = [], 0
    for part in parts:
        for manifest, path in ranges.files[part]:
            said = _said_of(manifest, path)
            files.append(_File(path, manifest.node, said.blake3, said.sha256))
            size_bytes += said.size_bytes
    wanted = max(-(-size_bytes // TASK_BYTES), spark.sparkContext.defaultParallelism)
    slices = max(min(wanted, len(files), TASKS_MAX), 1)
    return spark.sparkContext.parallelize(files, slices)


def _said_of(manifest: Manifest, path: str) -> ManifestFile:
    name = path.rpartition("/")[2]
    (file,) = (file for file in manifest.files if file.name == name)
    return file


def _path_of(file: _File) -> str:
    return file.path


def _is_altered(url: str, file: _File) -> bool:
    """Return whether a file has other bytes, or cannot be read."""
    digest = blake3() if file.blake3 else sha256()
    try:
        with ArchiveStore(url).open_input(file.path) as stream:
            while chunk := stream.read(_READ_BYTES):
                digest.update(chunk)
    except OSError:
        return True
    return digest.hexdigest() != (file.blake3 or file.sha256)


def _altered_in(url: str, file: _File) -> Iterator[tuple[Any, ...]]:
    with pq.ParquetFile(ArchiveStore(url).open(file.path)) as entries:
        batches = entries.iter_batches(batch_size=_READ_ROWS, columns=list(_COLUMNS))
        for batch in batches:
            yield from altered_rows(file.node, batch)


def altered_rows(node: str, entries: pa.RecordBatch | pa.Table) -> Iterable[tuple[Any, ...]]:
    """Return rows of ALTERED. Entries without data, from another policy, cannot be judged."""
    names = entries.schema.names
    none = pa.nulls(len(entries))
    columns = [entries[name] if name in names else none for name in _COLUMNS]
    for row in zip(*columns, strict=True):
        *place, data, of_sha256, of_blake3 = row
        if not data.is_valid:
            continue
        wanted = (of_blake3 if of_blake3.is_valid else of_sha256).as_py()
        found = hash_of(data.as_buffer(), is_blake3=of_blake3.is_valid)
        if found != wanted:
            group, index, term = (value.as_py() for value in place)
            yield group, index, term, node, wanted, found
