"""The log is intact: no entry edited, missing, or exported twice by one node."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.findings import findings


def _u64(column: str) -> Column:
    """Return the 8 big-endian bytes of a 64-bit column."""
    return F.unhex(F.lpad(F.hex(F.col(column)), 16, "0"))


def proven(entries: DataFrame) -> DataFrame:
    """Return entries without their data, with what the rest of the row proves.

    `data_hash`: BLAKE3, or SHA-256 for entries of older releases; `recomputed`: the chain value
    that it gives.
    """
    hashed = entries.withColumn("data_hash", F.coalesce("data_blake3", "data_sha256"))
    chain = F.sha2(F.concat("chain_before", _u64("index"), _u64("term"), F.col("data_hash")), 256)
    return hashed.withColumn("recomputed", F.unhex(chain)).drop(
        "data", "data_blake3", "data_sha256"
    )


def edited_entries(tables: Tables) -> DataFrame:
    """Find entries whose chain value does not follow from their rows, or whose data differ from
    their rows.
    """
    edited = findings(
        tables.entries.where("not (recomputed <=> chain)"),
        "entry_edited",
        "the entry is not what its chain value says",
        subject=F.lit("entry"),
        evidence=["term", "data_hash", "chain_before", "chain", "recomputed"],
        node="node",
    )
    altered = findings(
        tables.altered_entries,
        "entry_edited",
        "the entry's data do not match the hash beside them",
        subject=F.lit("entry"),
        evidence=["term", "data_hash", "hash_found"],
        node="node",
    )
    return edited.unionByName(altered)


def broken_links(tables: Tables, ends: DataFrame) -> DataFrame:
    """Find entries whose predecessor is missing, or ended with another chain value.

    `ends`: (group, index, chain) at which the last audit ended. A predecessor below the indexes
    under audit that no audit saw cannot be judged and gives no finding.
    """
    entries = tables.one_copy_of_entries
    before = (
        entries.select("group", "index", "chain")
        .unionByName(ends.select("group", "index", "chain"))
        .select(
            "group",
            F.col("index").alias("previous_index"),
            F.col("chain").alias("chain_of_previous"),
        )
    )
    joined = entries.join(before, ["group", "previous_index"], "left")
    first = entries.groupBy("group").agg(F.min("index").alias("first_index"))
    known = joined.join(F.broadcast(first), ["group"])
    is_missing = F.col("chain_of_previous").isNull() & (F.col("index") > F.col("first_index"))
    is_after_audit = (
        F.col("chain_of_previous").isNull()
        & (F.col("index") == F.col("first_index"))
        & F.lit(tables.base_index > 0)
    )
    is_broken = F.col("chain_of_previous") != F.col("chain_before")
    return findings(
        known.where(is_missing | is_after_audit | is_broken),
        "chain_broken",
        "the entry before this one is missing from every node, or is not the one it names",
        subject=F.lit("entry"),
        evidence=["previous_index", "chain_before", "chain_of_previous"],
    )


def broken_bases(tables: Tables, bases: DataFrame) -> DataFrame:
    """Find bases that the log does not continue: the next entry names another chain value.

    `bases`: (group, index, chain), whose `index` is of a DATA entry.
    """
    ends = F.broadcast(
        bases.select("group", F.col("index").alias("base"), F.col("chain").alias("chain_of_base"))
    )
    behind = tables.entries.withColumn("base", F.col("previous_index")).join(
        ends, ["group", "base"]
    )
    return findings(
        behind.where("chain_before != chain_of_base"),
        "base_broken",
        "the entry after the base does not continue its chain",
        subject=F.concat(F.lit("base "), F.col("base")),
        evidence=["base", "chain_of_base", "chain_before"],
        node="node",
    )


def repeated_entries(tables: Tables) -> DataFrame:
    """Find entries that one node exported in more than one range."""
    counted = tables.entries.groupBy("group", "index", "node").agg(
        F.count("*").alias("copies"),
        F.min("range_first").alias("first_range"),
        F.max("range_first").alias("last_range"),
    )
    return findings(
        counted.where("copies > 1"),
        "ranges_overlap",
        "one node exported this entry more than once",
        subject=F.lit("entry"),
        evidence=["copies", "first_range", "last_range"],
        node="node",
    )
