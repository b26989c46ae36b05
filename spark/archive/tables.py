"""The archive as DataFrames: what every node exported, and one copy of it."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COPY: Final = ["group", "index", "node", "range_first"]
"""Names one node's copy of an entry."""


@dataclass(frozen=True)
class Tables:
    """What nodes exported of the indexes under audit, as in qm/archive/design.md.

    What each row adds to that says where it comes from (`with_origin`).
    """

    entries: DataFrame
    """Of all nodes, with `node`, `range_first` and what `rules.chain.proven` adds."""
    altered_entries: DataFrame
    """spark.archive.altered.ALTERED, of all nodes."""
    operations: DataFrame
    """Of all nodes, with `file`."""
    queues: DataFrame
    acks: DataFrame
    """Of all nodes, with `node` and `range_first`."""
    one_copy_of_entries: DataFrame
    one_copy_of_operations: DataFrame
    """Each entry, and its operations, once (`spark.archive.cover`)."""
    incomparable: frozenset[str]
    """Columns of operations that some nodes, of an older release, did not export."""
    base_index: int
    """What lies at or below it was audited before; the carried tables say what it left open."""


def with_origin(frame: DataFrame) -> DataFrame:
    """Replace `file`, a path, by what its folders say: `node` (name.incarnation) and `range_first`.

    Taking a path apart costs more than reading a row: where rows are many, group them before.
    """
    folders = F.split("file", "/")
    first = F.split(F.element_at(folders, -2), "-").getItem(0).cast("long")
    named = frame.withColumn("node", F.element_at(folders, -3)).withColumn("range_first", first)
    return named.drop("file")
