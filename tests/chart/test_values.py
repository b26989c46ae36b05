"""No value of the chart is dead: changing any of them changes what is rendered."""

import copy
import functools
from typing import Any

import pytest

from tests.chart.rendering import Object, chart, everything, render

CHANGED: Object = {
    "replicas": 3,
    "founders": 3,
    "fullnameOverride": "renamed",
    "definitions": {"version": 1, "queues": []},
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "image.pullSecrets": ["registry"],
    "queueManager.aliases": ["other.example.com"],
    "queueManager.peers": {"0f0e0d0c-0b0a-0908-0706-050403020100": "10.0.0.7"},
    "msmq.binding": "strict",
    "storage.encryptBodies": "all",
    "msmq.bindingShared": ["10.0.0.0/24"],
    "msmq.signatureHashes": ["sha512"],
    "msmq.encrypt.advanced": "aes128",
    "msmq.encrypt.enhanced": "rc2",
    "msmq.encrypt.base": "rc2",
    "msmq.service.type": "NodePort",
    "msmq.service.loadBalancerIP": "10.0.0.50",
    "msmq.service.loadBalancerSourceRanges": ["10.0.0.0/8"],
    "msmq.service.externalTrafficPolicy": "Cluster",
    "leaderService.type": "LoadBalancer",
    "rpc.level": "integrity",
    "rpc.names": ["queues.example.com"],
    "rpc.service.type": "ClusterIP",
    "rpc.service.loadBalancerIP": "10.0.0.51",
    "rpc.service.externalTrafficPolicy": "Local",
    "rpc.service.loadBalancerSourceRanges": ["10.0.0.0/8"],
    "networkPolicy.rpcFrom": [{"ipBlock": {"cidr": "172.17.0.0/16"}}],
    "api.service.type": "LoadBalancer",
    "tls.certManager.enabled": False,
    "networkPolicy.egress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
    "networkPolicy.msmqTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "tls.certManager.duration": "4000h",
    "tls.certManager.renewBefore": "100h",
    "tls.certManager.issuerRef": {"name": "i", "kind": "Issuer", "group": "cert-manager.io"},
    "scheduling.antiAffinity": "preferred",
    "scheduling.zoneSpread": "none",
    "scheduling.nodeSelector": {"disk": "fast"},
    "scheduling.tolerations": [{"key": "k", "operator": "Exists"}],
    "storage.size": "1Gi",
    "storage.whenDeleted": "Delete",
    "storage.whenScaled": "Delete",
    "logLevel": "debug",
    "networkPolicy.msmqFrom": [{"ipBlock": {"cidr": "172.16.0.0/12"}}],
    "networkPolicy.apiFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "networkPolicy.metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    "metrics.serviceMonitor.interval": "60s",
    "archive.bodies": "digest",
    "archive.bodyCopies": "all",
    "audit.image.digest": f"sha256:{'0' * 64}",
    "audit.packages": ["org.example:more:1.0"],
    "drills.scenarios": ["kill-leader"],
    "console.oidc.roles": {"others": "operator"},
    "console.oidc.url": "https://queues.example.com",
    "audit.schedule": "0 0 * * *",
    "audit.signers": ["00" * 32],
    "audit.signingKeySecret": "compaction",
    "audit.compactSchedule": "0 0 * * *",
    "drills.schedule": "0 0 * * *",
    "pod.env": [{"name": "A", "value": "b"}],
    "extraObjects": [],
}
"""Where adding one, turning round or appending would not be valid."""
_SECRETS: Object = {
    "tls": {
        "certManager": {"enabled": False},
        "existingSecret": "n",
        "adminSecret": "a",
        "peers": {"existingSecret": "p"},
    }
}
WITH: dict[str, Object] = {
    "image.tag": {"image": {"digest": ""}},
    "storage.storageClass": {},
    "tls.certManager.enabled": {
        "tls": {"existingSecret": "n", "adminSecret": "a", "peers": {"existingSecret": "p"}}
    },
    "tls.peers.existingSecret": _SECRETS,
    "networkPolicy.egress": {"networkPolicy": {"msmqTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
    "tls.existingSecret": _SECRETS,
    "tls.adminSecret": _SECRETS,
    "drills.countWorkers": {"drills": {"scenarios": ["grow-and-shrink"]}},
}
"""What else must be set so that a value has a meaning."""
OF_THE_CLUSTER = {"keepScale"}
"""Ask the API server, which the engine alone does not have."""


def leaves(values: Object, prefix: str = "") -> dict[str, Any]:
    """Return path -> default of every value; tables that are one value stay whole."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        is_one = path in CHANGED or path.endswith(("resources", "labels", "annotations"))
        if isinstance(value, dict) and value and not is_one:
            found |= leaves(value, f"{path}.")
        else:
            found[path] = value
    return found


def changed(path: str, default: object) -> object:
    if path in CHANGED:
        return CHANGED[path]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, str):
        return f"{default}x"
    if path.endswith("resources"):
        return {"limits": {"memory": "9Gi"}}
    if path.endswith(("labels", "annotations")):
        return {"some": "thing"}
    assert isinstance(default, list), path
    return [*default, "more"]


def merged(values: Object, more: Object) -> Object:
    found = copy.deepcopy(values)
    for key, value in more.items():
        is_table = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if is_table else value
    return found


def at(path: str, value: object) -> Object:
    *folders, name = path.split(".")
    found: Object = {name: value}
    for folder in reversed(folders):
        found = {folder: found}
    return found


def rendered(values: Object) -> list[Object]:
    """Return the objects without what is made anew each time; of Secrets, that they are there."""
    return [
        found if found["kind"] != "Secret" else {"secret": found["metadata"]["name"]}
        for found in render(values)
    ]


@functools.cache
def before(path: str) -> tuple[Object, list[Object]]:
    """Return the values on which a change is tried ("" for most), and what they render."""
    values = merged(everything(), WITH.get(path, {}))
    return values, rendered(values)


@pytest.mark.parametrize("path", sorted(leaves(chart().values).keys() - OF_THE_CLUSTER))
def test_a_value_does_something(path: str) -> None:
    base, objects = before(path if path in WITH else "")
    default = leaves(merged(chart().values, base)).get(path)
    other = changed(path, default)
    assert rendered(merged(base, at(path, other))) != objects, f"{path}: {default!r} -> {other!r}"
