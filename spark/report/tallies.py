"""Collects the summary from the tables of an audit; everything collected here is bounded."""

from collections import Counter
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qm.archive.reasons import reason_name
from spark.archive.tables import Tables
from spark.report.flow import (
    ages_by_queue,
    flow_by_minute,
    flow_by_queue,
    protection_by_queue,
    rate_by_minute,
)

EVIDENCE_ROWS_MAX: Final = 200
"""Findings in the report; all of them are in findings/."""
QUEUES_MAX: Final = 1000
"""Queues in the report, busiest first."""
FLOW_ROWS_MAX: Final = 20 * QUEUES_MAX
"""Rows of (queue, operation, reason) in the report, busiest first."""
MINUTES_MAX: Final = 10_080
"""Minutes in the time line: a week."""


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a small frame."""
    return [row.asDict() for row in frame.collect()]


def counted(tables: Tables) -> dict[str, Any]:
    """Return `entries` and `operations`, each counted once however many nodes exported it."""
    (row,) = tables.one_copy_of_entries.agg(
        F.count("*").alias("entries"),
        F.coalesce(F.sum("operations"), F.lit(0)).alias("operations"),
    ).collect()
    return {"entries": row["entries"], "operations": row["operations"]}


def judged(findings: DataFrame) -> dict[str, Any]:
    """Return `findings_by_rule` and `examples`."""
    return {
        "findings_by_rule": {
            row["rule"]: row["count"] for row in rows_of(findings.groupBy("rule").count())
        },
        "examples": rows_of(findings.orderBy("rule", "index").limit(EVIDENCE_ROWS_MAX)),
    }


def flows(tables: Tables, stays: DataFrame) -> dict[str, Any]:
    """Return `flow`, `ages`, `dead_letters`, `refusals`, `protection` and `time_line`."""
    by_minute = flow_by_minute(tables).cache()
    busiest = rows_of(flow_by_queue(by_minute).orderBy(F.desc("messages")).limit(FLOW_ROWS_MAX))
    by_queue: dict[str, dict[str, Any]] = {}
    for row in busiest:
        flow = by_queue.setdefault(row["queue"], {"queue": row["queue"]})
        flow[row["operation"]] = flow.get(row["operation"], 0) + row["messages"]
    dead = [row for row in busiest if row["operation"] == "dead_lettered"]
    refused = Counter[int]()
    for row in busiest:
        if row["operation"] == "refused":
            refused[row["reason"]] += row["messages"]
    return {
        "flow": list(by_queue.values())[:QUEUES_MAX],
        "ages": rows_of(ages_by_queue(stays).limit(QUEUES_MAX)),
        "dead_letters": [
            {name: row[name] for name in ("queue", "reason", "messages")}
            for row in dead[:QUEUES_MAX]
        ],
        "refusals": [
            {"reason": reason, "class": reason_name(reason), "messages": messages}
            for reason, messages in refused.most_common()
        ],
        "protection": rows_of(
            protection_by_queue(by_minute).orderBy(F.desc("messages")).limit(QUEUES_MAX)
        ),
        "time_line": rows_of(
            rate_by_minute(by_minute).orderBy(F.desc("minute_ms")).limit(4 * MINUTES_MAX)
        ),
    }
