"""Every message is accepted once and ends once, queue by queue.

A stay is (queue, LookupIdentifier) from the operation that begins it to the one that ends it.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.findings import findings
from spark.tables import Tables

BEGINS: Final = ("arrived", "pending", "moved_in", "dead_lettered", "journaled")
ENDS: Final = (
    "received", "moved_out", "expired", "purged", "queue_deleted", "rejected", "delivered",
    "rolled_back", "failed",
)  # fmt: skip
_KEY: Final = ["group", "queue_id", "lookup_identifier"]
_ORDER: Final = ["index", "ordinal"]
STAY: Final = [*_KEY, "queue", *_ORDER, "operation", "size_bytes", "transaction", "time_ms"]
"""Columns of an open stay, as carried on."""


def steps(tables: Tables, open_stays: DataFrame) -> DataFrame:
    """Return the operations that begin or end stays, each with the one before it of its key.

    `open_stays`: (group, queue_id, queue, lookup_identifier, index, ordinal, operation,
    size_bytes, transaction, time_ms) that the last audit left open. `arrived` after `pending` is
    one beginning: the transaction committed. It has the transaction of what was pending.
    `begun_ms`: when the first of its key happened.
    """
    columns = [*STAY, "reason"]
    carried = open_stays.withColumn("reason", F.lit(0))
    kept = tables.one_copy_of_operations.where(F.col("operation").isin(*BEGINS, *ENDS))
    whole = kept.select(*columns).unionByName(carried.select(*columns))
    by_key = Window.partitionBy(*_KEY).orderBy(*_ORDER)
    return (
        whole.withColumn("before", F.lag("operation").over(by_key))
        .withColumn("after", F.lead("operation").over(by_key))
        .withColumn("begun_ms", F.first("time_ms").over(by_key))
        .withColumn("transaction", F.coalesce("transaction", F.lag("transaction").over(by_key)))
    )


def wrong_steps(tables: Tables, stays: DataFrame) -> DataFrame:
    """Find messages that begin twice, end twice, or end without having begun.

    What began below the indexes under audit, and no audit saw begin, may end.
    """
    begins = F.col("operation").isin(*BEGINS)
    commits = (F.col("operation") == "arrived") & (F.col("before") == "pending")
    begins_twice = begins & F.col("before").isin(*BEGINS) & ~commits
    ends_twice = ~begins & F.col("before").isin(*ENDS)
    ends_unbegun = ~begins & F.col("before").isNull() & F.lit(tables.base_index > 0)
    first = tables.entries.groupBy("group").agg(F.min("previous_index").alias("before_everything"))
    judged = stays.join(F.broadcast(first), ["group"]).where(
        begins_twice
        | ends_twice
        | ends_unbegun
        | (~begins & F.col("before").isNull() & (F.col("before_everything") == 0))
    )
    return findings(
        judged,
        "message_twice",
        "a message began or ended a second time in a queue, or ended without having begun",
        subject=F.col("queue"),
        evidence=["lookup_identifier", "before", "operation", "reason"],
    )


def left_open(stays: DataFrame) -> DataFrame:
    """Return the stays that are open at the end, to be carried on: what is still there."""
    still = stays.where(F.col("after").isNull() & F.col("operation").isin(*BEGINS))
    return still.withColumn("time_ms", F.col("begun_ms")).select(*STAY)
