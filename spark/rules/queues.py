"""Queue arithmetic: what the operations leave in each queue is what nodes report at audit marks,
and no queue holds more than its quota.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.findings import findings

BYTES_PER_KB: Final = 1024
_QUEUE: Final = ["group", "queue_id"]


def contents(stays: DataFrame, marks: DataFrame) -> DataFrame:
    """Return (group, queue_id, mark_index, found_messages, found_bytes) according to operations.

    `marks`: (group, mark_index). There is a row for each mark and each queue that was ever used.
    """
    changes = stays.where("sign != 0").select(*_QUEUE, "index", "sign", "size_bytes")
    by_mark = Window.partitionBy("group").orderBy("mark_index")
    spans = marks.withColumn("mark_before", F.coalesce(F.lag("mark_index").over(by_mark), F.lit(0)))
    between = (
        changes.join(F.broadcast(spans), ["group"])
        .where("index > mark_before and index <= mark_index")
        .groupBy(*_QUEUE, "mark_index")
        .agg(
            F.sum("sign").alias("found_messages"),
            F.sum(F.col("sign") * F.col("size_bytes")).alias("found_bytes"),
        )
    )
    everywhere = between.select(*_QUEUE).distinct().join(F.broadcast(marks), ["group"])
    so_far = Window.partitionBy(*_QUEUE).orderBy("mark_index")
    return everywhere.join(between, [*_QUEUE, "mark_index"], "left").select(
        *_QUEUE,
        "mark_index",
        *(
            F.sum(F.coalesce(name, F.lit(0))).over(so_far).alias(name)
            for name in ("found_messages", "found_bytes")
        ),
    )


def wrong_contents(tables: Tables, stays: DataFrame) -> DataFrame:
    """Find queues whose contents at a mark differ from what their operations left in them.

    Where audits did not see the beginning, what was there at the first mark counts as given.
    """
    told = ["messages", "bytes"]
    reported = (
        tables.queues.withColumnRenamed("index", "mark_index")
        .groupBy(*_QUEUE, "mark_index", "audit_mark", *told)
        .agg(F.max("queue").alias("queue"), F.collect_set("node").alias("nodes"))
    )
    marks = tables.queues.select("group", F.col("index").alias("mark_index")).distinct()
    found = contents(stays, marks)
    joined = reported.join(found, [*_QUEUE, "mark_index"], "left").fillna(
        0, ["found_messages", "found_bytes"]
    )
    if tables.begun_after:
        by_queue = Window.partitionBy(*_QUEUE).orderBy("mark_index")
        for name in told:
            given = F.first(F.col(name) - F.col(f"found_{name}")).over(by_queue)
            joined = joined.withColumn(f"given_{name}", given)
        for name in told:
            whole = F.col(f"found_{name}") + F.col(f"given_{name}")
            joined = joined.withColumn(f"found_{name}", whole)
    return findings(
        joined.where("messages != found_messages or bytes != found_bytes"),
        "contents_differ",
        "a queue's contents differ from what its operations left in it",
        subject=F.col("queue"),
        evidence=["audit_mark", "messages", "found_messages", "bytes", "found_bytes", "nodes"],
        index="mark_index",
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
