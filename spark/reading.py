"""Turns the usable files of an archive into tables; nothing is read before a rule asks for it."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from qm.archive.manifest import Manifest
from qm.archive.schema import SCHEMAS, Part
from spark.archive.altered import altered_entries
from spark.archive.cover import Piece, cover
from spark.archive.ranges import Ranges
from spark.archive.store import ArchiveStore
from spark.archive.tables import Tables, with_origin
from spark.literals import literal_table
from spark.rules.chain import proven

_PLACES = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("node", T.StringType(), False),
        T.StructField("range_first", T.LongType(), False),
        T.StructField("low", T.LongType(), False),
        T.StructField("high", T.LongType(), False),
    ]
)


def read_tables(
    spark: SparkSession,
    store: ArchiveStore,
    ranges: Ranges,
    base_index: int,
    upto: int,
    begun_after: int = 0,
) -> Tables:
    """Return the rows of usable files with base_index < index <= upto.

    `begun_after`: see Tables.
    """

    def read(part: Part, files: Iterable[tuple[Manifest, str]]) -> DataFrame:
        frame = _read(spark, store, part, files)
        return frame.where(F.col("index").between(base_index + 1, upto))

    pieces = cover(ranges.whole_manifests(), base_index, upto)
    whole = [piece for piece in pieces if piece.is_whole(base_index, upto)]
    cut = [piece for piece in pieces if not piece.is_whole(base_index, upto)]
    operations = read(Part.OPERATIONS, _files_of(ranges, Part.OPERATIONS, whole)).drop("file")
    if cut:
        rest = with_origin(read(Part.OPERATIONS, _files_of(ranges, Part.OPERATIONS, cut)))
        operations = operations.unionByName(_within(spark, rest, cut))
    entries = proven(with_origin(read(Part.ENTRIES, ranges.files[Part.ENTRIES]))).cache()
    altered = altered_entries(spark, store, ranges)
    acks = with_origin(_read(spark, store, Part.ACKS, ranges.files[Part.ACKS]))
    return Tables(
        entries=entries,
        altered_entries=altered.where(F.col("index").between(base_index + 1, upto)),
        operations=read(Part.OPERATIONS, ranges.files[Part.OPERATIONS]),
        queues=with_origin(read(Part.QUEUES, ranges.files[Part.QUEUES])),
        acks=acks.where(_to_be_judged(base_index, upto)),
        one_copy_of_entries=_within(spark, entries, pieces),
        one_copy_of_operations=operations,
        incomparable=ranges.incomparable(Part.OPERATIONS),
        base_index=base_index,
        begun_after=begun_after,
    )


def _to_be_judged(base_index: int, upto: int) -> Column:
    """Return which ack marks belong to (base_index, upto].

    A mark that was exported late is in a range after its entry, and is judged where that range
    begins.
    """
    index, begins = F.col("depends_on_index"), F.col("range_first")
    is_late = (index <= base_index) & (begins > base_index)
    return ((index > base_index) & (index <= upto) | is_late) & (begins <= upto)


def _files_of(ranges: Ranges, part: Part, pieces: list[Piece]) -> list[tuple[Manifest, str]]:
    taken = {(piece.manifest.node, piece.manifest.first) for piece in pieces}
    return [(m, path) for m, path in ranges.files[part] if (m.node, m.first) in taken]


def _within(spark: SparkSession, frame: DataFrame, pieces: list[Piece]) -> DataFrame:
    """Return the rows that pieces take from their ranges."""
    rows = [(p.manifest.group, p.manifest.node, p.manifest.first, p.low, p.high) for p in pieces]
    places = F.broadcast(literal_table(spark, rows, _PLACES))
    joined = frame.join(places, ["group", "node", "range_first"])
    return joined.where("index between low and high").drop("low", "high", "node", "range_first")


def _read(
    spark: SparkSession, store: ArchiveStore, part: Part, files: Iterable[tuple[Manifest, str]]
) -> DataFrame:
    """Read a part's files, with the `file` that each row comes from.

    Columns that older files lack are null.
    """
    paths = [store.spark_path(path) for _, path in files]
    empty = spark.createDataFrame(SCHEMAS[part].empty_table())
    if not paths:
        return empty.withColumn("file", F.lit("///"))
    frame = spark.read.schema(empty.schema).parquet(*paths)
    return frame.withColumn("file", F.col("_metadata.file_path"))
