"""The release under test: its values, its Secrets, and what people do with it."""

import contextlib
import inspect
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec

from qm.api.gate.identity import Role
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, create_authority, issue
from tests.kubernetes import freezing
from tests.kubernetes.objects import (
    Member,
    Message,
    Pod,
    is_rolled_out,
    members_of,
    names,
    outcome_of,
    pods_of,
)
from tests.kubernetes.prerequisites import Cluster
from tests.kubernetes.programs import Object, ProgramFailed, Programs, document, until

CHART: Final = Path(__file__).resolve().parents[2] / "helm" / "quorate"
NAME: Final = "orders"
FULL_NAME: Final = f"{NAME}-quorate"
DOMAIN: Final = "svc.cluster.local"
MEMBERS: Final = 3
CERTIFIED: Final = 7
NODE_SECRET: Final = "node-tls"
ADMIN_SECRET: Final = "admin-tls"
COMPONENT: Final = "app.kubernetes.io/component"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
MEMBER_LABELS: Final = {"app.kubernetes.io/instance": NAME, COMPONENT: "node"}
TOOLBOX: Final = f"{FULL_NAME}-toolbox"
TOOLBOX_LABELS: Final = {"app.kubernetes.io/instance": NAME, "quorate.io/tool": "toolbox"}
DRILL: Final = f"{FULL_NAME}-drill"
FREEZER: Final = "freezer"
KEPT_QUEUE: Final = ".\\private$\\kept"
WORKERS_FOR_FIVE: Final = 5

INSTALL_S: Final = 600.0
CHANGE_S: Final = 600.0
DRILL_S: Final = 1200.0
DRAIN_S: Final = 240.0
BENCH_S: Final = 20
BENCH_RATE: Final = 100
BENCH_END_S: Final = BENCH_S + 120.0
FREEZE_S: Final = 45
"""Shorter than the liveness probe's patience, after which the kubelet would end the container."""


def definitions(*paths: str) -> Object:
    return {"version": 1, "queues": [{"path_name": path} for path in paths]}


def values(cluster: Cluster) -> Object:
    """Return the values of the release: the defaults, in small, with what is to be tested on."""
    storage = {"size": "1Gi", "reserveMiB": 64, "logRetainMiB": 128, "cacheMiB": 32}
    if cluster.storage_class:
        storage["storageClass"] = cluster.storage_class
    small = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    return {
        "image": image_values(cluster.image),
        "queueManager": {"computerName": "ORDERS"},
        "definitions": definitions(KEPT_QUEUE),
        "msmq": {"service": {"type": "ClusterIP"}},
        "leaderService": {"enabled": True},
        "tls": {"existingSecret": NODE_SECRET, "adminSecret": ADMIN_SECRET},
        "storage": storage,
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "drainSeconds": 20,
        "scheduling": {
            "antiAffinity": "required" if cluster.workers >= WORKERS_FOR_FIVE else "preferred"
        },
        "drills": {
            "enabled": True,
            "schedule": "0 0 1 1 *",
            "scenarios": ["leader-transfer", "kill-leader"],
            "resources": small,
        },
        "toolbox": {"enabled": True, "resources": small},
    }


def image_values(image: str) -> Object:
    """Take an image's name apart: a tag stands behind the last folder, a digest behind @."""
    repository, has_digest, digest = image.partition("@")
    if has_digest:
        return {"repository": repository, "digest": digest}
    folder, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return {"repository": f"{folder}{slash}{name}", "tag": tag or "latest"}


def hosts(namespace: str) -> list[str]:
    """Return the names in the nodes' certificate: those that cert-manager would be asked for."""
    members = [f"{FULL_NAME}-{ordinal}" for ordinal in range(CERTIFIED)]
    full = [f"{member}.{FULL_NAME}-nodes.{namespace}.{DOMAIN}" for member in members]
    return [*members, *full, f"{FULL_NAME}-api.{namespace}.{DOMAIN}"]


def certificates(folder: Path, namespace: str) -> dict[str, list[Path]]:
    """Make Secret -> its ca.crt, tls.crt and tls.key."""
    authority = create_authority(folder, "tests")
    assert authority.name == AUTHORITY_CERTIFICATE
    return {
        NODE_SECRET: [authority, *issue(folder, FULL_NAME, Role.NODE, hosts(namespace))],
        ADMIN_SECRET: [authority, *issue(folder, f"{FULL_NAME}-admin", Role.ADMIN)],
    }


def selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def merged(values: Object, changes: Object) -> Object:
    """Return values with changes; tables are merged, as Helm does."""
    found = dict(values)
    for key, change in changes.items():
        is_table = isinstance(change, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], change) if is_table else change
    return found


class Release:
    """A release in a namespace of its own, which is made by the caller."""

    def __init__(self, programs: Programs, cluster: Cluster, folder: Path) -> None:
        self.programs = programs
        self._folder = folder
        self._image = cluster.image
        self._values = values(cluster)

    # Life

    def prepare(self) -> None:
        """Make the Secrets that the release takes."""
        made = certificates(self._folder / "pki", self.programs.namespace)
        for name, paths in made.items():
            keys = zip(("ca.crt", "tls.crt", "tls.key"), paths, strict=True)
            files = [f"--from-file={key}={path}" for key, path in keys]
            self.programs.kubectl("create", "secret", "generic", name, *files)

    def install(self) -> None:
        self._helm("install")

    def upgrade(self, **changes: Any) -> None:
        """Change values; later upgrades keep them."""
        self._values = merged(self._values, changes)
        self._helm("upgrade")

    def _helm(self, verb: str) -> None:
        file = self._folder / "values.json"
        file.write_text(json.dumps(self._values), encoding="utf-8")
        limit = ["--wait", "--wait-for-jobs", "--timeout", f"{INSTALL_S:.0f}s"]
        self.programs.helm(
            verb, NAME, str(CHART), "--values", str(file), *limit, seconds=INSTALL_S + 60
        )

    def test(self) -> None:
        """Do what `helm test` does."""
        self.programs.helm("test", NAME, "--timeout", "300s", seconds=360)

    def uninstall(self) -> None:
        self.programs.helm(
            "uninstall", NAME, "--wait", "--timeout", f"{INSTALL_S:.0f}s", seconds=INSTALL_S + 60
        )

    def scale(self, count: int) -> None:
        """Do as an administrator or an autoscaler does, without Helm."""
        self.programs.kubectl("scale", f"statefulset/{FULL_NAME}", f"--replicas={count}")

    # State

    def stateful_set(self) -> Object:
        return self.programs.get("statefulset", FULL_NAME)

    def pods(self, labels: dict[str, str] = MEMBER_LABELS) -> dict[str, Pod]:
        """Return name -> pod."""
        found = self.programs.get("pods", "--selector", selector(labels))
        return {pod.name: pod for pod in pods_of(found)}

    def existing(self, *kinds: str) -> set[str]:
        """Return kind/name of everything of these kinds in the namespace."""
        return names(self.programs.kubectl("get", ",".join(kinds), "--output", "name"))

    def members(self) -> dict[str, Member]:
        found = members_of(document(self.qm("cluster", "members", "--output", "json")))
        return {member.name: member for member in found}

    def leader(self) -> str:
        (leader,) = (member.name for member in self.members().values() if member.leader)
        return leader

    def settled(self, count: int = MEMBERS) -> dict[str, Pod]:
        """Wait until so many pods run as the set says now, all of them ready and voting."""
        until(lambda: self._is_settled(count), CHANGE_S, f"{count} members are not ready")
        return self.pods()

    def _is_settled(self, count: int) -> bool:
        pods = self.pods()
        if len(pods) != count or not all(pod.is_ready for pod in pods.values()):
            return False
        members = self.members()
        are_voters = all(m.role == "voter" and m.reachable for m in members.values())
        has_leader = sum(member.leader for member in members.values()) == 1
        is_same = members.keys() == pods.keys()
        return is_same and are_voters and has_leader and is_rolled_out(self.stateful_set(), count)

    def until_evictable(self) -> None:
        """Wait until the budget lets a member go."""
        until(
            lambda: self.programs.get("poddisruptionbudget", FULL_NAME)["status"].get(
                "disruptionsAllowed"
            ),
            CHANGE_S,
            "no member may go",
        )

    # Messages

    def qm(self, *arguments: str, seconds: float = 60.0) -> str:
        """Run `qm` in the toolbox; return what it prints. Raises ProgramFailed."""
        command = ("exec", f"deployment/{TOOLBOX}", "--", "qm", *arguments)
        return self.programs.kubectl(*command, seconds=seconds)

    def queues(self) -> set[str]:
        found = document(self.qm("queue", "list", "--output", "json"))
        return {each["path_name"].rpartition("\\")[2] for each in found}

    def send(self, bodies: list[str]) -> None:
        for body in bodies:
            self.qm("message", "send", KEPT_QUEUE, "--body", body)

    def receive(self, count: int) -> list[str]:
        """Return the bodies of at most so many messages, in their order."""
        limits = ("--count", str(count), "--timeout", "10")
        found = self.qm("message", "receive", KEPT_QUEUE, *limits, "--output", "json")
        return [message.body for message in msgspec.convert(document(found), list[Message])]

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Send and receive beside what the caller does; nothing may be lost or doubled.

        One `qm bench` follows the other, as long as the caller takes.
        """
        is_over = Event()
        with ThreadPoolExecutor(1) as beside:
            work = beside.submit(self._bench_until, is_over)
            until(lambda: work.done() or self._is_loaded(), BENCH_END_S, "no load begins")
            try:
                yield
            finally:
                is_over.set()
            assert work.result() > 0

    def _is_loaded(self) -> bool:
        return any(name.startswith("bench-") for name in self.queues())

    def _bench_until(self, is_over: Event) -> int:
        """Return how many messages were received. Raises ProgramFailed: one was lost or doubled."""
        received = 0
        while not is_over.is_set():
            how = ("--seconds", str(BENCH_S), "--rate", str(BENCH_RATE), "--output", "json")
            received += document(self.qm("bench", *how, seconds=BENCH_END_S))["received"]
        return received

    # Faults

    def evict(self, pod: str) -> None:
        """Do what a drain does with a pod. Raises ProgramFailed: the budget does not allow it."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.programs.namespace},
        }
        path = f"/api/v1/namespaces/{self.programs.namespace}/pods/{pod}/eviction"
        self.programs.kubectl("create", "--raw", path, "-f", "-", said=json.dumps(eviction))

    @contextlib.contextmanager
    def drained(self, pod: Pod) -> Iterator[None]:
        """Drain a pod's worker of that pod alone; afterwards the worker takes pods again."""
        how = (
            *("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_S:.0f}s"),
            f"--pod-selector={POD_NAME}={pod.name}",
        )
        try:
            self.programs.kubectl("drain", pod.worker, *how, seconds=DRAIN_S + 30)
            yield
        finally:
            self.programs.kubectl("uncordon", pod.worker)

    def drill(self) -> str:
        """Run the scheduled drill now; return how its Job ended."""
        job = f"drill-{uuid.uuid4().hex[:6]}"
        self.programs.kubectl("create", "job", job, f"--from=cronjob/{DRILL}")
        return until(
            lambda: outcome_of(self.programs.get("job", job)), DRILL_S, f"{job} does not end"
        )

    @contextlib.contextmanager
    def frozen(self, pod: Pod) -> Iterator[None]:
        """Stop a pod's processes; they go on afterwards, and after FREEZE_S in any case."""
        self.programs.create(freezer(self._image, pod, self.programs.namespace))
        try:
            until(self._has_frozen, CHANGE_S, f"{pod.name} does not stop")
            yield
        finally:
            # Its process lets the others go on when it is told to end.
            self.programs.kubectl("delete", "pod", FREEZER, "--grace-period=10", "--wait=true")

    def _has_frozen(self) -> bool:
        said = self.programs.kubectl("logs", FREEZER)
        with contextlib.suppress(ProgramFailed):
            phase = self.programs.get("pod", FREEZER)["status"]["phase"]
            assert phase != "Failed", said
        return "stopped" in said


def freezer(image: str, pod: Pod, namespace: str) -> Object:
    """Return a pod on a pod's worker that runs `tests/kubernetes/freezing.py` on it."""
    source = inspect.getsource(freezing)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": FREEZER},
        "spec": {
            "nodeName": pod.worker,
            "hostPID": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": FREEZER,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", source, pod.name, namespace, str(FREEZE_S)],
                    "securityContext": {"privileged": True, "runAsUser": 0},
                }
            ],
        },
    }
