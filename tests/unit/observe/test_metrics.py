"""The metric table is well-formed and every row of it can be exposed."""

import re

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


def test_nothing_is_exposed_that_has_no_row() -> None:
    metrics = Metrics(CollectorRegistry())
    for metric in TABLE:
        labels = ["x"] * len(metric.labels)
        if metric.kind is MetricKind.COUNTER:
            counter = metrics.counter(metric.name)
            (counter.labels(*labels) if labels else counter).inc()
        if metric.kind is MetricKind.HISTOGRAM:
            histogram = metrics.histogram(metric.name)
            (histogram.labels(*labels) if labels else histogram).observe(1)
    parts = ("", "_bucket", "_sum", "_count")
    known = {f"{metric.name}{part}" for metric in TABLE for part in parts}
    exposed = generate_latest(metrics.registry).decode().splitlines()
    names = {re.split(r"[ {]", line)[0] for line in exposed if not line.startswith("#")}
    assert names <= known
