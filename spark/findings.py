"""Findings of an audit: rows with evidence, in one shape for all rules."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

FINDINGS: Final = T.StructType(
    [
        T.StructField("rule", T.StringType(), False),
        T.StructField("group", T.IntegerType(), False),
        T.StructField("index", T.LongType(), True),
        T.StructField("node", T.StringType(), True),
        T.StructField("subject", T.StringType(), False),
        T.StructField("detail", T.StringType(), False),
        T.StructField("evidence", T.StringType(), False),
    ]
)
"""Columns of a finding; `evidence` is JSON."""


def findings(
    rows: DataFrame,
    rule: str,
    detail: str,
    *,
    subject: Column,
    evidence: list[str],
    index: str | None = "index",
    node: str | None = None,
) -> DataFrame:
    """Return one finding for each row; `evidence` names the columns that prove it."""
    kinds = dict(rows.dtypes)
    proof = [
        F.hex(name).alias(name) if kinds[name] == "binary" else F.col(name) for name in evidence
    ]
    return rows.select(
        F.lit(rule).alias("rule"),
        F.col("group"),
        (F.col(index) if index else F.lit(None).cast("long")).alias("index"),
        (F.col(node) if node else F.lit(None).cast("string")).alias("node"),
        subject.cast("string").alias("subject"),
        F.lit(detail).alias("detail"),
        F.to_json(F.struct(*proof)).alias("evidence"),
    )
