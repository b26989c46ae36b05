"""Transactional streams are in order: per source and destination, prev <= last accepted < number.

Numbers may have gaps: a message that expired at the sender leaves one, and `prev` bridges it.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.findings import findings
from spark.rules.stays import STAY_KEY

STREAM: Final = ["group", "source_queue_manager", "destination"]
_ORDER: Final = ["index", "ordinal"]
_TAKEN: Final = ("arrived", "pending", "refused")
"""A permanently refused message is part of its sequence: it is not sent again."""
_NUMBERS: Final = ["sender_sequence_id", "sender_sequence", "sender_previous"]


def acceptances(tables: Tables) -> DataFrame:
    """Return the operations by which transactional messages of senders were accepted."""
    begun = tables.one_copy_of_operations.where(
        F.col("sender_sequence").isNotNull() & F.col("operation").isin(*_TAKEN)
    )
    # A commit turns `pending` into `arrived`: the first of the two is the acceptance.
    # Refused operations are never the same message twice: they have no place in a queue.
    own = F.when(F.col("operation") == "refused", F.struct(*_ORDER))
    by_message = Window.partitionBy(*STAY_KEY, own).orderBy(*_ORDER)
    return begun.withColumn("n", F.row_number().over(by_message)).where("n = 1")


def accepted(first: DataFrame, lasts: DataFrame) -> DataFrame:
    """Return what each stream accepted, in order, after what earlier audits saw last.

    `first`: acceptances; `lasts`: the rows that `last_of_each` returned then.
    """
    columns = [*STREAM, *_ORDER, *_NUMBERS]
    whole = first.select(*columns).unionByName(lasts.select(*columns))
    by_stream = Window.partitionBy(*STREAM).orderBy(*_ORDER)
    for name in ("sender_sequence_id", "sender_sequence"):
        whole = whole.withColumn(f"last_{name}", F.lag(name).over(by_stream))
    return whole


def disordered(streams: DataFrame) -> DataFrame:
    """Find messages that were accepted out of their stream's order."""
    same = F.col("sender_sequence_id") == F.col("last_sender_sequence_id")
    in_order = (F.col("sender_previous") <= F.col("last_sender_sequence")) & (
        F.col("last_sender_sequence") < F.col("sender_sequence")
    )
    is_later = F.col("sender_sequence_id") > F.col("last_sender_sequence_id")
    starts = is_later & (F.col("sender_previous") == 0)
    wrong = streams.where(F.col("last_sender_sequence").isNotNull()).where(
        ~F.when(same, in_order).otherwise(starts)
    )
    return findings(
        wrong,
        "stream_disordered",
        "a message was accepted out of the order of its sender",
        subject=F.col("destination"),
        evidence=[
            "source_queue_manager", *_NUMBERS, "last_sender_sequence_id", "last_sender_sequence",
        ],
    )  # fmt: skip


def last_of_each(streams: DataFrame) -> DataFrame:
    """Return each stream's last acceptance, to be carried over."""
    by_stream = Window.partitionBy(*STREAM).orderBy(F.desc("index"), F.desc("ordinal"))
    ranked = streams.withColumn("n", F.row_number().over(by_stream))
    return ranked.where("n = 1").select(*STREAM, *_ORDER, *_NUMBERS)


def doubled_messages(first: DataFrame) -> DataFrame:
    """Find transactional messages that a queue accepted from their sender twice.

    The same MessageID, destination and sequence number is one message, however often it is sent.
    """
    key = ["group", "source_queue_manager", "destination", "sender_sequence_id", "sender_sequence"]
    counted = first.groupBy(*key).agg(
        F.count("*").alias("times"),
        F.min("index").alias("first_index"),
        F.max("index").alias("index"),
    )
    return findings(
        counted.where("times > 1"),
        "accepted_twice",
        "one transactional message of a sender was accepted more than once",
        subject=F.col("destination"),
        evidence=[
            "source_queue_manager",
            "sender_sequence_id",
            "sender_sequence",
            "times",
            "first_index",
        ],
    )
