"""The traffic of each queue: arrivals, receives, ages, dead letters by reason."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.archive.tables import Tables

AGE_ACCURACY: Final = 1_000
"""Accuracy of percentiles: a thousandth of the messages. Merging finer ones took a separate task
12 s at ten million operations."""


def flow_by_minute(tables: Tables) -> DataFrame:
    """Return (queue, operation, reason, minute_ms, messages, bytes, authenticated, encrypted);
    minutes of cluster time.

    The other tables are made from it, so that operations are read once.
    """
    minute = (F.floor(F.col("time_ms") / 60_000) * 60_000).alias("minute_ms")
    return tables.one_copy_of_operations.groupBy("queue", "operation", "reason", minute).agg(
        F.count("*").alias("messages"),
        F.sum("size_bytes").alias("bytes"),
        F.count_if("is_authenticated").alias("authenticated"),
        F.count_if("was_encrypted").alias("encrypted"),
    )


def protection_by_queue(by_minute: DataFrame) -> DataFrame:
    """Return (queue, messages, authenticated, encrypted) of what arrived, for queues where anything
    was signed or encrypted.
    """
    arrived = by_minute.where(F.col("operation").isin("arrived", "pending")).groupBy("queue")
    counts = [F.sum(name).alias(name) for name in ("messages", "authenticated", "encrypted")]
    return arrived.agg(*counts).where("authenticated + encrypted > 0")


def flow_by_queue(by_minute: DataFrame) -> DataFrame:
    """Return (queue, operation, reason, messages, bytes)."""
    return by_minute.groupBy("queue", "operation", "reason").agg(
        F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    )


def rate_by_minute(by_minute: DataFrame) -> DataFrame:
    """Return (minute_ms, operation, messages) for the time line."""
    kept = by_minute.where(
        F.col("operation").isin("arrived", "received", "dead_lettered", "expired")
    )
    return kept.groupBy("minute_ms", "operation").agg(F.sum("messages").alias("messages"))


def ages_by_queue(stays: DataFrame) -> DataFrame:
    """Return (queue, p50_s, p99_s, max_s): how long messages stayed before they were received."""
    age = (F.col("time_ms") - F.col("begun_ms")) / 1000
    shares = F.percentile_approx(age, [0.5, 0.99], AGE_ACCURACY)
    received = stays.where("operation = 'received'").groupBy("queue")
    return received.agg(shares.alias("shares"), F.max(age).alias("max_s")).select(
        "queue",
        F.col("shares")[0].alias("p50_s"),
        F.col("shares")[1].alias("p99_s"),
        "max_s",
    )
