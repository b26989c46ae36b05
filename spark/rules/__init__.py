"""Audit rules: each module is about one promise; each function returns findings."""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.rules import acks, chain, queues, replicas, stays, streams, transactions
from spark.rules.carry import Carried
from spark.tables import Tables


@dataclass(frozen=True)
class Audit:
    """What all rules found, and what the next audit goes on from."""

    findings: DataFrame
    carried: Carried
    stays: DataFrame
    """`stays.steps`, for the report."""


def all_findings(tables: Tables, carried: Carried) -> Audit:
    """Apply every rule."""
    steps = stays.steps(tables, carried.stays).cache()
    accepted = streams.accepted(tables, carried.streams).cache()
    found = [
        replicas.different_entries(tables),
        replicas.different_effects(tables),
        replicas.missing_effects(tables),
        replicas.different_digests(tables),
        chain.edited_entries(tables),
        chain.broken_links(tables, carried.ends),
        chain.repeated_entries(tables),
        stays.wrong_steps(tables, steps),
        stays.doubled_messages(tables),
        streams.disordered(accepted),
        transactions.half_transactions(steps),
        acks.early_acknowledgements(tables),
        acks.acknowledged_but_missing(tables),
        queues.wrong_contents(tables, steps),
        queues.over_quota(tables),
    ]
    last = Window.partitionBy("group").orderBy(F.desc("index"))
    ends = tables.one_copy_of_entries().withColumn("n", F.row_number().over(last)).where("n = 1")
    return Audit(
        reduce(DataFrame.unionByName, found),
        Carried(
            stays.left_open(steps),
            streams.last_of_each(accepted),
            ends.select("group", "index", "chain"),
        ),
        steps,
    )
