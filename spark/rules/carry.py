"""What an audit must remember of the past, so that the next one continues from there."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from spark.literals import literal_table

_PLACE = [
    T.StructField("index", T.LongType(), False),
    T.StructField("ordinal", T.IntegerType(), False),
]
STAYS = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("queue_id", T.LongType(), False),
        T.StructField("lookup_identifier", T.LongType(), False),
        T.StructField("queue", T.StringType(), False),
        *_PLACE,
        T.StructField("operation", T.StringType(), False),
        T.StructField("size_bytes", T.LongType(), False),
        T.StructField("transaction", T.BinaryType(), True),
        T.StructField("time_ms", T.LongType(), False),
    ]
)
STREAMS = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("source_queue_manager", T.BinaryType(), False),
        T.StructField("destination", T.StringType(), True),
        *_PLACE,
        T.StructField("sender_sequence_id", T.LongType(), True),
        T.StructField("sender_sequence", T.LongType(), True),
        T.StructField("sender_previous", T.LongType(), True),
    ]
)
ENDS = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("index", T.LongType(), False),
        T.StructField("chain", T.BinaryType(), False),
    ]
)


@dataclass(frozen=True)
class Carried:
    """Tables that one audit passes to the next."""

    stays: DataFrame
    """Open stays: the messages still in a queue."""
    streams: DataFrame
    """The last acceptance of each stream."""
    ends: DataFrame
    """Index and chain value at which the audit ended."""


def nothing_carried(spark: SparkSession) -> Carried:
    """Return what the first audit starts with."""
    return Carried(*(literal_table(spark, [], schema) for schema in (STAYS, STREAMS, ENDS)))
