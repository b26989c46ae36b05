"""Nothing was acknowledged before it was committed: by index, never by clock."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.findings import findings


def early_acknowledgements(tables: Tables) -> DataFrame:
    """Find acknowledgements that depend on an entry beyond what their edge knew was committed."""
    early = tables.acks.where("depends_on_index > commit_index_known")
    return findings(
        early,
        "acknowledged_early",
        "an edge acknowledged a message whose entry it did not know to be committed",
        subject=F.concat_ws(" session ", "edge", "session"),
        evidence=["position", "depends_on_index", "commit_index_known"],
        index="depends_on_index",
        node="node",
    )


def acknowledged_but_missing(tables: Tables) -> DataFrame:
    """Find acknowledgements that depend on an entry which no node exported."""
    entries = tables.one_copy_of_entries.select("group", "index")
    span = entries.groupBy("group").agg(F.min("index").alias("low"), F.max("index").alias("high"))
    within = tables.acks.join(F.broadcast(span), ["group"]).where(
        "depends_on_index between low and high"
    )
    lost = within.join(
        entries.withColumnRenamed("index", "depends_on_index"),
        ["group", "depends_on_index"],
        "left_anti",
    )
    return findings(
        lost,
        "acknowledged_but_missing",
        "an acknowledgement depends on an entry that is in no archive",
        subject=F.concat_ws(" session ", "edge", "session"),
        evidence=["position", "depends_on_index", "commit_index_known"],
        index="depends_on_index",
        node="node",
    )
