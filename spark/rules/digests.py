"""The log gives the state: a replay has the digests that nodes reported at audit marks."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark.archive.tables import Tables
from spark.findings import findings

REPLAYED: Final = T.StructType(
    [
        T.StructField("group", T.IntegerType(), False),
        T.StructField("index", T.LongType(), False),
        T.StructField("audit_mark", T.LongType(), False),
        T.StructField("replayed", T.BinaryType(), False),
    ]
)
"""Marks that a replay passed, each with the digest of its state."""


def not_reproduced(tables: Tables, replayed: DataFrame) -> DataFrame:
    """Find nodes that reported another digest at a mark than a replay of the log gives.

    `replayed`: REPLAYED. Marks that no replay passed give no finding.
    """
    told = tables.entries.where("digest is not null").join(
        F.broadcast(replayed), ["group", "index", "audit_mark"]
    )
    return findings(
        told.where("digest != replayed"),
        "state_not_reproduced",
        "this node's state at the mark is not what a replay of the log gives",
        subject=F.concat(F.lit("mark "), F.col("audit_mark")),
        evidence=["digest", "replayed"],
        node="node",
    )
