"""Audit rules: each module checks one promise; each function returns findings. May import
`spark.archive` and `spark.findings`.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.archive.tables import Tables
from spark.rules import acks, chain, queues, replicas, stays, streams, transactions
from spark.rules.carry import Carried


@dataclass(frozen=True)
class Audit:
    """The findings of all rules, and what the next audit continues from."""

    findings: DataFrame
    carried: Carried
    stays: DataFrame
    """`stays.steps`, for the report."""


def all_findings(tables: Tables, carried: Carried, bases: DataFrame) -> Audit:
    """Apply every rule except the slow one about the replay (`digests.not_reproduced`).

    `bases`: (group, index, chain) of the bases in the archive.
    """
    steps = stays.steps(tables, carried.stays).cache()
    copies = replicas.effects_of_copies(tables).cache()
    acceptances = streams.acceptances(tables).cache()
    accepted = streams.accepted(acceptances, carried.streams).cache()
    found = [
        replicas.different_entries(tables),
        replicas.different_effects(copies),
        replicas.missing_effects(tables, copies),
        replicas.different_digests(tables),
        chain.edited_entries(tables),
        chain.broken_links(tables, carried.ends),
        chain.repeated_entries(tables),
        chain.broken_bases(tables, bases),
        stays.wrong_steps(tables, steps),
        streams.doubled_messages(acceptances),
        streams.disordered(accepted),
        transactions.half_transactions(steps),
        acks.early_acknowledgements(tables),
        acks.acknowledged_but_missing(tables),
        queues.wrong_contents(tables, steps),
        queues.over_quota(tables),
    ]
    end = F.max(F.struct("index", "chain")).alias("end")
    ends = tables.one_copy_of_entries.groupBy("group").agg(end).select("group", "end.*")
    return Audit(
        reduce(DataFrame.unionByName, found),
        Carried(
            stays.left_open(steps),
            streams.last_of_each(accepted),
            ends,
        ),
        steps,
    )
