"""Queue arithmetic: what the operations leave in each queue is what nodes report at audit marks,
and no queue holds more than its quota.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.findings import findings
from spark.tables import Tables

BYTES_PER_KB: Final = 1024
_QUEUE: Final = ["group", "queue_id"]


def contents(stays: DataFrame, marks: DataFrame) -> DataFrame:
    """Return (group, audit_mark, queue_id, found_messages, found_bytes) as operations give it.

    `marks`: (group, audit_mark, mark_index). A stay counts at a mark that lies within it.
    """
    # `arrived` behind `pending` is the same message: it counts once.
    begins = stays.where(
        F.col("operation").isin("arrived", "pending", "moved_in", "dead_lettered", "journaled")
        & ~(
            (F.col("operation") == "arrived")
            & F.coalesce(F.col("before") == "pending", F.lit(False))
        )
    ).select(*_QUEUE, "index", F.lit(1).alias("sign"), "size_bytes")
    ends = stays.where(
        ~F.col("operation").isin("arrived", "pending", "moved_in", "dead_lettered", "journaled")
    ).select(*_QUEUE, "index", F.lit(-1).alias("sign"), "size_bytes")
    changes = begins.unionByName(ends)
    return (
        changes.join(F.broadcast(marks), ["group"])
        .where("index <= mark_index")
        .groupBy(*_QUEUE, "audit_mark")
        .agg(
            F.sum("sign").alias("found_messages"),
            F.sum(F.col("sign") * F.col("size_bytes")).alias("found_bytes"),
        )
    )


def wrong_contents(tables: Tables, stays: DataFrame) -> DataFrame:
    """Find queues that hold something else at a mark than their operations left in them."""
    reported = tables.queues.groupBy(*_QUEUE, "index", "audit_mark").agg(
        F.max("queue").alias("queue"),
        F.max("messages").alias("messages"),
        F.max("bytes").alias("bytes"),
    )
    marks = reported.select("group", "audit_mark", F.col("index").alias("mark_index")).distinct()
    found = contents(stays, marks)
    joined = reported.join(found, [*_QUEUE, "audit_mark"], "left").fillna(
        0, ["found_messages", "found_bytes"]
    )
    return findings(
        joined.where("messages != found_messages or bytes != found_bytes"),
        "contents_differ",
        "a queue holds something else than its operations left in it",
        subject=F.col("queue"),
        evidence=["audit_mark", "messages", "found_messages", "bytes", "found_bytes"],
    )


def over_quota(tables: Tables) -> DataFrame:
    """Find queues that hold more than their quota at a mark; 0xFFFFFFFF is no quota."""
    over = tables.queues.where(
        (F.col("quota_kb") != 0xFFFFFFFF) & (F.col("bytes") > F.col("quota_kb") * BYTES_PER_KB)
    )
    return findings(
        over,
        "quota_exceeded",
        "a queue holds more than its quota",
        subject=F.col("queue"),
        evidence=["bytes", "quota_kb"],
        node="node",
    )
