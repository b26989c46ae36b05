"""The metric table is well-formed and every row of it can be exposed."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from qm.observe.metrics import TABLE, MetricKind, Metrics


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({metric.name for metric in TABLE}) == len(TABLE)
    for metric in TABLE:
        assert metric.name.startswith(("quorate_", "windows_msmq_"))
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
        assert bool(metric.buckets) is (metric.kind is MetricKind.HISTOGRAM)


def test_every_row_is_exposed() -> None:
    exposed = generate_latest(Metrics(CollectorRegistry()).registry).decode()
    for metric in TABLE:
        assert f"# HELP {metric.name} {metric.text}" in exposed
