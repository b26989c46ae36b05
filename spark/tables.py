"""The archive as DataFrames: what every node exported, and one copy of it."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

COPY: Final = ["group", "index", "node", "range_first"]
"""Names one node's copy of an entry."""


@dataclass(frozen=True)
class Tables:
    """What nodes exported of the indexes under audit.

    All have `node` (name.incarnation) and `range_first`, and are otherwise as in
    qm/archive/design.md.
    """

    entries: DataFrame
    operations: DataFrame
    queues: DataFrame
    acks: DataFrame
    """Of all nodes."""
    one_copy_of_entries: DataFrame
    one_copy_of_operations: DataFrame
    """Each entry, and its operations, once (`spark.cover`)."""
    incomparable: frozenset[str]
    """Columns of operations that some nodes, of an older release, did not export."""
    base_index: int
    """What lies at or below it was audited before; the carried tables say what it left open."""
