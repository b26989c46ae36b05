"""Renders the chart with the Helm engine itself, and finds objects in what comes out."""

import functools
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "quorate"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
TLS = {"tls": {"existingSecret": "node-tls"}}
"""The least that the defaults leave open."""

Object = dict[str, Any]


@functools.cache
def chart() -> Chart:
    return Chart.load(CHART)


def example(path: Path) -> Object:
    values: Object = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values


def everything() -> Object:
    """Values that switch every optional object on."""
    values = example(CHART / "examples" / "production.yaml")
    values["leaderService"] = {"enabled": True}
    values["rpc"] = {"enabled": True, "keytabSecret": "kerberos"}
    oidc = {"issuer": "https://id.example.com", "roles": {"staff": "client"}}
    values["console"] = {
        "reportsClaim": "reports",
        "oidc": {**oidc, "clientSecret": "oidc", "caSecret": "oidc-ca"},
    }
    values["toolbox"] = {"enabled": True}
    values["extraObjects"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
    ]
    return values


def render(
    values: Object, revision: int = 1, name: str | None = None, namespace: str | None = None
) -> list[Object]:
    """Return the objects, after checking the values against the schema as an installation does."""
    chart().validate_schema(values)
    texts = chart().render(values, revision=revision, name=name, namespace=namespace)
    return [
        found
        for name, text in sorted(texts.items())
        if not name.endswith("NOTES.txt")
        for found in yaml.safe_load_all(text)
        if found
    ]


def notes(values: Object) -> str:
    """Return what an installation with these values tells, its lines joined."""
    (text,) = (t for name, t in chart().render(values).items() if name.endswith("NOTES.txt"))
    return " ".join(text.split())


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def one(objects: list[Object], kind: str, suffix: str = "") -> Object:
    """Return the only object of a kind whose name ends so."""
    found = [o for o in of_kind(objects, kind) if o["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, [o["metadata"]["name"] for o in found]
    return found[0]


def pod_specs(objects: list[Object]) -> list[Object]:
    """Return the pod of every object that makes one."""
    specs = []
    for found in objects:
        spec = found.get("spec", {})
        if found["kind"] == "Pod":
            specs.append(spec)
        elif found["kind"] == "CronJob":
            specs.append(spec["jobTemplate"]["spec"]["template"]["spec"])
        elif "template" in spec:
            specs.append(spec["template"]["spec"])
    return specs
