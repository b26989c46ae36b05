"""Every message is accepted once and ends once, queue by queue.

A stay is (queue, LookupIdentifier) from the operation that begins it to the one that ends it.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.findings import findings

BEGINS: Final = ("arrived", "pending", "moved_in", "dead_lettered", "journaled")
ENDS: Final = (
    "received", "moved_out", "expired", "purged", "queue_deleted", "rejected", "delivered",
    "rolled_back", "failed",
)  # fmt: skip
STAY_KEY: Final = ["lookup_identifier", "queue_id", "group"]
"""Sort order of the rows: the most selective column comes first."""
_ORDER: Final = ["index", "ordinal"]
STAY: Final = [*STAY_KEY, "queue", *_ORDER, "operation", "size_bytes", "transaction", "time_ms"]
"""Columns of an open stay, as carried over."""


def steps(tables: Tables, open_stays: DataFrame) -> DataFrame:
    """Return the operations that begin or end stays, each with the operation before it.

    `open_stays`: (*STAY) left open by the last audit. `arrived` after `pending` is one beginning:
    the transaction committed. It has the transaction of the pending operation. Added columns:
    `before`: the operation before it with its key; `begun_ms`: when the first with its key
    happened; `sign`: the change in the number of messages in the queue; and flags for the rules
    below, so that they skip all other rows unread: `is_suspect`, `is_outcome`, `is_last_begin`.
    """
    columns = [*STAY, "reason"]
    carried = open_stays.withColumn("reason", F.lit(0))
    kept = tables.one_copy_of_operations.where(F.col("operation").isin(*BEGINS, *ENDS))
    whole = kept.select(*columns).unionByName(carried.select(*columns))
    by_key = Window.partitionBy(*STAY_KEY).orderBy(*_ORDER)
    begins, before = F.col("operation").isin(*BEGINS), F.col("before")
    was_pending = F.coalesce(before == "pending", F.lit(False))
    commits = (F.col("operation") == "arrived") & was_pending
    twice = F.when(begins, before.isin(*BEGINS) & ~commits).otherwise(
        F.coalesce(before.isin(*ENDS), F.lit(True))
    )
    return (
        whole.withColumn("before", F.lag("operation").over(by_key))
        .withColumn("after", F.lead("index").over(by_key))
        .withColumn("begun_ms", F.first("time_ms").over(by_key))
        .withColumn("transaction", F.coalesce("transaction", F.lag("transaction").over(by_key)))
        .withColumn("sign", F.when(begins, F.when(commits, 0).otherwise(1)).otherwise(-1))
        .withColumn("is_suspect", F.coalesce(twice, F.lit(False)))
        .withColumn("is_outcome", was_pending & F.col("operation").isin("arrived", "rolled_back"))
        .withColumn("is_last_begin", begins & F.col("after").isNull())
        .drop("after")
    )


def wrong_steps(tables: Tables, stays: DataFrame) -> DataFrame:
    """Find messages that begin twice, end twice, or end without having begun.

    A stay may end that began below the indexes that audits saw.
    """
    first = tables.entries.groupBy("group").agg(F.min("previous_index").alias("before_everything"))
    saw_all = F.lit(tables.begun_after == 0) & (
        F.lit(tables.base_index > 0) | (F.col("before_everything") == 0)
    )
    judged = stays.where("is_suspect").join(F.broadcast(first), ["group"])
    return findings(
        judged.where(F.col("before").isNotNull() | saw_all),
        "message_twice",
        "a message began or ended a second time in a queue, or ended without having begun",
        subject=F.col("queue"),
        evidence=["lookup_identifier", "before", "operation", "reason"],
    )


def left_open(stays: DataFrame) -> DataFrame:
    """Return the stays that are open at the end, to be carried over: messages still there."""
    still = stays.where("is_last_begin")
    return still.withColumn("time_ms", F.col("begun_ms")).select(*STAY)
