"""Replicas agree: the same entry, the same effects and the same digest at the same index."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.archive.tables import COPY, Tables, with_origin
from spark.findings import findings

_ENTRY = ["group", "index"]
_NOT_EFFECTS = frozenset({"file", "body_sha256", "is_authenticated", "was_encrypted"})
"""Not compared: effects that a node had not exported when it was upgraded say nothing about
signatures and encryption. States have both, so digests compare them.
"""


def different_entries(tables: Tables) -> DataFrame:
    """Find indexes at which nodes exported different entries."""
    told = F.struct("node", "term", F.hex("data_hash").alias("data"))
    return findings(
        _differing(tables.entries, F.xxhash64("term", "data_hash", "chain"), told),
        "replicas_differ",
        "nodes exported different entries at this index",
        subject=F.lit("entry"),
        evidence=["nodes"],
    )


def effects_of_copies(tables: Tables) -> DataFrame:
    """Return (*COPY, rows, effects): for each node's copy of an entry, its number of operations
    and a hash over them.
    """
    left_out = _NOT_EFFECTS | tables.incomparable
    columns = [name for name in tables.operations.columns if name not in left_out]
    return with_origin(
        tables.operations.groupBy(*_ENTRY, "file").agg(
            F.count("*").alias("rows"), F.bit_xor(F.xxhash64(*columns)).alias("effects")
        )
    )


def different_effects(copies: DataFrame) -> DataFrame:
    """Find entries whose effects differ between nodes. `copies`: effects_of_copies."""
    told = F.struct("node", "rows", "effects")
    return findings(
        _differing(copies, F.xxhash64("rows", "effects"), told),
        "effects_differ",
        "nodes report different effects of this entry",
        subject=F.lit("entry"),
        evidence=["nodes"],
    )


def _differing(copies: DataFrame, content: Column, told: Column) -> DataFrame:
    """Return (group, index, nodes) where copies differ, with what each node `told`.

    Differences are found by hashes before anything is collected; nearly always there are none.
    """
    by_entry = copies.withColumn("content", content).groupBy(*_ENTRY)
    bounds = by_entry.agg(F.min("content").alias("low"), F.max("content").alias("high"))
    which = bounds.where("low != high").select(*_ENTRY)
    named = copies.withColumn("told", told).join(which, _ENTRY, "left_semi")
    return named.groupBy(*_ENTRY).agg(F.collect_set("told").alias("nodes"))


def missing_effects(tables: Tables, copies: DataFrame) -> DataFrame:
    """Find entries whose number of rows differs from the number of operations that they state.

    `copies`: effects_of_copies.
    """
    joined = tables.entries.join(copies, COPY, "left").fillna(0, ["rows"])
    return findings(
        joined.where("operations != rows"),
        "operations_missing",
        "an entry has a different number of operations than it states",
        subject=F.lit("entry"),
        evidence=["operations", "rows"],
        node="node",
    )


def different_digests(tables: Tables) -> DataFrame:
    """Find audit marks at which nodes reported different digests of their state."""
    marks = tables.entries.where("audit_mark is not null and digest is not null")
    versions = marks.groupBy("group", "index", "audit_mark").agg(
        F.countDistinct("digest").alias("versions"),
        F.collect_set(F.struct("node", F.hex("digest").alias("digest"))).alias("nodes"),
    )
    return findings(
        versions.where("versions > 1"),
        "digests_differ",
        "nodes had different states at this audit mark",
        subject=F.concat(F.lit("mark "), F.col("audit_mark")),
        evidence=["nodes"],
    )
