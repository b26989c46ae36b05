"""Transactions are all or nothing: what they enqueued becomes visible, or vanishes, together."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.findings import findings


def half_transactions(stays: DataFrame) -> DataFrame:
    """Find transactions that were partly committed and partly rolled back, or that ended in more
    than one entry.
    """
    counted = (
        stays.where("is_outcome")
        .where(F.col("transaction").isNotNull())
        .groupBy("group", "transaction")
        .agg(
            F.countDistinct("operation").alias("outcomes"),
            F.countDistinct("index").alias("entries"),
            F.max("index").alias("index"),
            F.collect_list(F.struct("queue", "lookup_identifier", "operation", "index")).alias(
                "messages"
            ),
        )
    )
    return findings(
        counted.where("outcomes > 1 or entries > 1"),
        "transaction_half",
        "a transaction did not end atomically",
        subject=F.hex("transaction"),
        evidence=["outcomes", "entries", "messages"],
    )
