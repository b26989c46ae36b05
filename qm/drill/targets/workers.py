"""Which workers of a Kubernetes cluster a StatefulSet's pods may run on."""

from collections.abc import Mapping
from typing import Any, Final

_HOST: Final = "kubernetes.io/hostname"
_KEEP_AWAY: Final = ("NoSchedule", "NoExecute")


def needs_one_each(pod: Mapping[str, Any]) -> bool:
    """Whether each pod made from this template must have a worker of its own."""
    affinity = (pod.get("affinity") or {}).get("podAntiAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return any(term.get("topologyKey") == _HOST for term in terms)


def is_usable(worker: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a worker is ready and admits such a pod; what it has left is not looked at."""
    spec = worker.get("spec") or {}
    labels = worker["metadata"].get("labels") or {}
    conditions = (worker.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    is_chosen = (pod.get("nodeSelector") or {}).items() <= labels.items()
    tolerations = pod.get("tolerations") or ()
    is_open = all(
        taint["effect"] not in _KEEP_AWAY or any(_tolerates(one, taint) for one in tolerations)
        for taint in spec.get("taints") or ()
    )
    return is_ready and is_chosen and is_open and not spec.get("unschedulable", False)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    is_same_key = toleration.get("key") == taint["key"]
    return is_same_key and bool(toleration.get("value", "") == taint.get("value", ""))
