"""The archive as DataFrames, and one copy of each entry out of the replicas' overlapping ones."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COPY: Final = ["group", "index", "node", "range_first"]
"""Names one node's copy of an entry."""


@dataclass(frozen=True)
class Tables:
    """What nodes exported of the indexes under audit.

    All have `node` (name.incarnation) and `range_first`; `entries`, `operations`, `queues` and
    `acks` are otherwise as in qm/archive/design.md. `base_index`: what lies at or below it was
    audited before; the carried tables say what it left open.
    """

    entries: DataFrame
    operations: DataFrame
    queues: DataFrame
    acks: DataFrame
    base_index: int

    def chosen(self) -> DataFrame:
        """Return (group, index, node, range_first): from which range each entry is taken."""
        first = F.min(F.struct("node", "range_first")).alias("place")
        return self.entries.groupBy("group", "index").agg(first).select("group", "index", "place.*")

    def one_copy_of_entries(self) -> DataFrame:
        """Return each entry once."""
        return self.entries.join(self.chosen(), COPY)

    def one_copy_of_operations(self) -> DataFrame:
        """Return the operations of each entry once."""
        return self.operations.join(self.chosen(), COPY)
