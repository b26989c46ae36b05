"""The summary as a file for Prometheus's textfile collector."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from spark.archive.summary import Summary


def metrics_text(summary: Summary) -> bytes:
    """Return the exposition format."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(name, text, registry=registry).set(value)

    gauge("quorate_audit_last_index", "Highest audited index", summary.last)
    gauge("quorate_audit_first_index", "Lowest index of the last audit", summary.first)
    gauge("quorate_audit_is_partial", "Whether entries are not archived", summary.is_partial)
    gauge("quorate_audit_entries", "Entries of the last audit", summary.entries)
    gauge("quorate_audit_operations", "Operations of the last audit", summary.operations)
    found = Gauge("quorate_audit_findings", "Findings by rule", ["rule"], registry=registry)
    for rule, count in summary.findings_by_rule.items():
        found.labels(rule).set(count)
    gauge("quorate_audit_is_damaged", "Whether files could not be used", summary.is_damaged)
    replayed = max((said.index for said in summary.replays), default=0)
    gauge("quorate_audit_replayed_index", "Last replayed entry", replayed)
    gauge("quorate_audit_findings_all", "Findings of all rules", summary.findings_total)
    return generate_latest(registry)
