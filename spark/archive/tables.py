"""The archive as DataFrames: every node's exports, and one copy of them."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COPY: Final = ["group", "index", "node", "range_first"]
"""Identifies one node's copy of an entry."""


@dataclass(frozen=True)
class Tables:
    """What nodes exported of the indexes under audit, as in qm/archive/design.md.

    Each row has additional columns that tell where it comes from (`with_origin`).
    """

    entries: DataFrame
    """Entries of all nodes, with `node`, `range_first` and the columns of `rules.chain.proven`."""
    altered_entries: DataFrame
    """Rows of spark.archive.altered.ALTERED, of all nodes."""
    operations: DataFrame
    """Operations of all nodes, with `file`."""
    queues: DataFrame
    acks: DataFrame
    """Ack marks of all nodes, with `node` and `range_first`."""
    one_copy_of_entries: DataFrame
    one_copy_of_operations: DataFrame
    """The operations of each entry once (`spark.archive.cover`)."""
    incomparable: frozenset[str]
    """Columns of operations that some nodes, of an older release, did not export."""
    base_index: int
    """Last index audited before; the carried tables hold what was open there."""
    begun_after: int = 0
    """Index of the entry before the first one that any audit saw, 0 for the cluster's first entry:
    what was there already is in no table."""


def with_origin(frame: DataFrame) -> DataFrame:
    """Replace `file`, a path, by `node` (name.incarnation) and `range_first` from its folders.

    Parsing a path costs more than reading a row: group first where there are many rows.
    """
    folders = F.split("file", "/")
    first = F.split(F.element_at(folders, -2), "-").getItem(0).cast("long")
    named = frame.withColumn("node", F.element_at(folders, -3)).withColumn("range_first", first)
    return named.drop("file")
