"""Alerts and dashboards speak of metrics that exist, and alerts fire when they should."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qm.observe.metrics import TABLE, MetricKind
from spark.archive.summary import Summary
from spark.report.metrics import metrics_text
from tests.chart.rendering import CHART, ROOT

ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
RULE_TESTS = Path(__file__).with_name("alerts_test.yaml")


KUBERNETES = {"kube_job_status_failed"}
"""Of kube-state-metrics."""
AUDITED = Summary(cluster="", first=1, last=1)
LABELLED = re.compile(r"\b(quorate_\w+)\{([^}]*)\}")


def exposed_names() -> set[str]:
    """Names of the nodes' metrics and of the file that an audit leaves."""
    names = {metric.name for metric in TABLE}
    names |= set(re.findall(r"^# TYPE (\S+)", metrics_text(AUDITED).decode(), re.MULTILINE))
    for metric in TABLE:
        if metric.kind is MetricKind.HISTOGRAM:
            names |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_alerts_use_metrics_that_exist() -> None:
    for rule in rules():
        used = set(re.findall(r"\b(?:quorate|kube)_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= exposed_names() | KUBERNETES, rule["alert"]


def test_alerts_ask_for_label_values_that_are_seen_before_they_count() -> None:
    values = {metric.name: metric.values for metric in TABLE if metric.values}
    seen = set()
    for rule in rules():
        for name, selectors in LABELLED.findall(rule["expr"]):
            for found in re.findall(r'(?:alarm|result)=~?"([^"]+)"', selectors):
                assert set(found.split("|")) <= set(values[name]), rule["alert"]
                seen.add(name)
    assert seen == {"quorate_alarms_total"}


def test_dashboards_use_metrics_that_exist() -> None:
    assert {path.stem for path in DASHBOARDS} == {"audit", "cluster", "queues", "sessions"}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                used = set(re.findall(r"\bquorate_\w+", target["expr"]))
                assert used, (path.name, panel["title"])
                assert used <= exposed_names(), (path.name, panel["title"])


def test_promtool_understands_what_dashboards_ask(tmp_path: Path) -> None:
    asked = {
        target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        for path in DASHBOARDS
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        for target in panel["targets"]
    }
    recorded = [{"record": f"asked:{number}", "expr": expr} for number, expr in enumerate(asked)]
    file = tmp_path / "asked.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": recorded}]}))
    checked = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_section_in_the_runbook(rule: dict[str, Any]) -> None:
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    fired = {
        check["alertname"]
        for case in cases
        for check in case["alert_rule_test"]
        if check.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in rules()}


def test_promtool_accepts_the_rules_and_their_cases() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = subprocess.run(
        ["promtool", "test", "rules", str(RULE_TESTS)], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_machines_of_their_own_get_the_labels_that_alerts_and_dashboards_ask_for() -> None:
    config = ROOT / "deploy" / "prometheus" / "prometheus.yml"
    checked = subprocess.run(
        ["promtool", "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    found = yaml.safe_load(config.read_text(encoding="utf-8"))
    assert [(config.parent / file).resolve() for file in found["rule_files"]] == [ALERTS]
    (job,) = found["scrape_configs"]
    (relabel,) = job["relabel_configs"]
    given = {relabel["target_label"]: relabel["regex"], **job["static_configs"][0]["labels"]}
    assert given.keys() == {"namespace", "pod"}
    named = re.fullmatch(given["pod"], job["static_configs"][0]["targets"][0])
    assert named is not None
    assert named[1] == "n1.example.com"
