"""Tables of a few rows that the driver knows.

They are part of the plan: Spark knows their size, reads them without a task, and leaves out of the
plan what is joined with one that has no rows.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema


def literal_table(
    spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: T.StructType
) -> DataFrame:
    """Return a table of these rows."""
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(
        pa.Table.from_pylist(named, schema=to_arrow_schema(schema)), schema
    )
