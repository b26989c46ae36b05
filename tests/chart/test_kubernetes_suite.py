"""The suite for a real control plane (tests/kubernetes): what it refers to, asks, and says."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest

from qm.node.leader.kubernetes import LABEL
from tests.chart.rendering import ROOT, Object, of_kind, one, render
from tests.kubernetes import freezing, release
from tests.kubernetes.objects import Pod, is_rolled_out, names, outcome_of, pods_of
from tests.kubernetes.prerequisites import Cluster, lacking, workers
from tests.kubernetes.programs import ProgramFailed, Programs, document, until
from tests.kubernetes.release import Release, image_values, merged, values

CLUSTER: Final = Cluster("registry.example:5000/quorate:0.1.0", "fast", workers=3)
NAMESPACE: Final = "quorate-test-0"
KUBERNETES: Final = "1.32"
START_S: Final = 20.0
PROGRAM: Final = """#!/bin/sh
printf '%s|' "$@" >> "$0.called"
echo >> "$0.called"
"""


def rendered(**changes: object) -> list[Object]:
    return render(merged(values(CLUSTER), changes), name=release.NAME, namespace=NAMESPACE)


def name_of(found: Object) -> str:
    return str(found["metadata"]["name"])


# What the suite refers to is what the chart makes


def test_the_suites_names_are_those_of_the_chart() -> None:
    objects = rendered()
    made = {f"{each['kind']}/{name_of(each)}" for each in objects}
    assert made >= {
        *(f"{kind}/{release.FULL_NAME}" for kind in ("StatefulSet", "PodDisruptionBudget")),
        f"Deployment/{release.TOOLBOX}",
        f"CronJob/{release.DRILL}",
        *(f"Secret/{release.FULL_NAME}-{secret}" for secret in ("sealing", "identity")),
    }
    kept = [each["metadata"]["annotations"] for each in of_kind(objects, "Secret")]
    assert kept == [{"helm.sh/resource-policy": "keep"}] * 2
    members = one(objects, "StatefulSet")["spec"]
    assert members["replicas"] == release.MEMBERS
    (claim,) = members["volumeClaimTemplates"]
    assert name_of(claim) == "data"
    assert claim["spec"]["storageClassName"] == "fast"


def test_the_suites_labels_are_those_of_the_chart() -> None:
    objects = rendered()
    members = one(objects, "StatefulSet")["spec"]["template"]
    toolbox = one(objects, "Deployment")["spec"]["template"]
    assert release.MEMBER_LABELS.items() <= members["metadata"]["labels"].items()
    assert release.TOOLBOX_LABELS.items() <= toolbox["metadata"]["labels"].items()
    assert not release.MEMBER_LABELS.items() <= toolbox["metadata"]["labels"].items()
    assert LABEL in one(objects, "Service", "-leader")["spec"]["selector"]
    (node,) = members["spec"]["containers"]
    # By these the freezer knows a pod's processes.
    assert {"POD_NAME", "POD_NAMESPACE"} <= {each["name"] for each in node["env"]}
    probe = node["livenessProbe"]
    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) > release.FREEZE_S


def test_the_suites_secrets_are_what_the_chart_takes(tmp_path: Path) -> None:
    made = release.certificates(tmp_path / "pki", NAMESPACE)
    mounted = str([each for each in rendered() if each["kind"] != "Secret"])
    assert all(f"'secretName': '{name}'" in mounted for name in made)
    by_others = {"certManager": {"enabled": True}, "existingSecret": "", "adminSecret": ""}
    asked = one(rendered(tls=by_others), "Certificate", release.FULL_NAME)["spec"]["dnsNames"]
    assert sorted(release.hosts(NAMESPACE)) == sorted(asked)


def test_every_change_of_the_suite_is_one_that_the_chart_knows() -> None:
    def template(**changes: object) -> object:
        return one(rendered(**changes), "StatefulSet")["spec"]["template"]

    more = release.definitions(release.KEPT_QUEUE, ".\\private$\\later")
    assert template() == template(definitions=more)
    assert template() != template(logLevel="warning")
    assert template() == template(keepScale=True)
    enough = values(Cluster("quorate", "", workers=5))
    assert enough["scheduling"] == {"antiAffinity": "required"}
    assert "storageClass" not in enough["storage"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("quorate", {"repository": "quorate", "tag": "latest"}),
        ("host:5000/a/quorate:1.2", {"repository": "host:5000/a/quorate", "tag": "1.2"}),
        ("host:5000/quorate", {"repository": "host:5000/quorate", "tag": "latest"}),
        (
            "a/quorate@sha256:" + "0" * 64,
            {"repository": "a/quorate", "digest": "sha256:" + "0" * 64},
        ),
    ],
)
def test_an_image_is_named_as_the_chart_wants_it(image: str, expected: Object) -> None:
    assert image_values(image) == expected
    cluster = Cluster(image, "", workers=3)
    (container,) = one(render(values(cluster)), "StatefulSet")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == (image if ":" in image.rpartition("/")[2] else f"{image}:latest")


# A pod that is cut off


def test_the_freezer_is_a_pod_on_the_same_worker() -> None:
    pod = Pod("orders-quorate-0", "u", {}, "worker-1", is_ready=True)
    made = release.freezer(CLUSTER.image, pod, NAMESPACE)
    kubernetes_validate.validate(made, KUBERNETES, strict=True)
    assert made["spec"]["nodeName"] == "worker-1"
    (container,) = made["spec"]["containers"]
    assert container["command"][3:] == ["orders-quorate-0", NAMESPACE, str(release.FREEZE_S)]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def is_in(state: str, pid: int) -> bool:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()[0] == state


@pytest.mark.parametrize(
    "seconds", [pytest.param(3600, id="when it ends"), pytest.param(2, id="by itself")]
)
def test_the_freezer_stops_a_pods_processes_and_lets_them_go_on(seconds: int) -> None:
    name = f"pod-{os.getpid()}"
    pod = Pod(name, "u", {}, "worker-1", is_ready=True)
    (container,) = release.freezer(CLUSTER.image, pod, NAMESPACE)["spec"]["containers"]
    _, *arguments, _ = container["command"]
    command = [sys.executable, *arguments, str(seconds)]
    environment = {"PATH": os.environ["PATH"], "POD_NAME": name, "POD_NAMESPACE": NAMESPACE}
    with (
        subprocess.Popen(["sleep", "3600"], env=environment) as other,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stopped\n"
            until(lambda: is_in("T", other.pid), START_S, "it is not stopped")
            if seconds > START_S:
                process.terminate()
            assert process.wait(START_S) == 0
            until(lambda: is_in("S", other.pid), START_S, "it does not go on")
        finally:
            process.kill()
            other.kill()


def test_a_freezer_that_finds_nobody_says_so() -> None:
    arguments = [
        "-c",
        Path(freezing.__file__).read_text(encoding="utf-8"),
        "nobody",
        NAMESPACE,
        "1",
    ]
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=START_S
    )
    assert (done.returncode, done.stderr) == (1, f"no process of {NAMESPACE}/nobody here\n")


# The programs


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Make a program of a name that records its arguments and then does what it is given."""

    def make(script: str) -> str:
        file = tmp_path / "program"
        file.write_text(PROGRAM + script)
        file.chmod(0o755)
        return str(file)

    return make


def called(program: str) -> list[list[str]]:
    lines = Path(f"{program}.called").read_text(encoding="utf-8").splitlines()
    return [line.split("|")[:-1] for line in lines]


def test_programs_are_asked_in_the_namespace(program: Callable[[str], str]) -> None:
    both = program("cat\n")
    programs = Programs("n", both, both)
    assert programs.kubectl("get", "pods", said="in") == "in"
    programs.helm("list")
    assert called(both) == [["--namespace", "n", "get", "pods"], ["--namespace", "n", "list"]]


def test_a_program_that_fails_says_what_it_was_and_why(program: Callable[[str], str]) -> None:
    failing = Programs("n", program("echo out; echo why >&2; exit 3\n"))
    with pytest.raises(
        ProgramFailed, match=r"program --namespace n get x` ended with 3: why\nout$"
    ):
        failing.kubectl("get", "x")
    slow = Programs("n", program("exec sleep 60\n"))
    with pytest.raises(ProgramFailed, match=r"get x` did not end within 0 s"):
        slow.kubectl("get", "x", seconds=0.2)
    with pytest.raises(ProgramFailed, match="did not start: No such file"):
        Programs("n", "/absent/kubectl").kubectl("get", "x")
    with pytest.raises(ProgramFailed, match="no JSON"):
        Programs("n", program("echo Forbidden\n")).get("pods")


def test_waiting_ends_with_what_was_seen_last() -> None:
    def fail() -> bool:
        raise ProgramFailed("`kubectl` ended with 1")

    with pytest.raises(AssertionError, match="not ready within 0 s: `kubectl` ended with 1"):
        until(fail, 0.0, "not ready")
    with pytest.raises(AssertionError, match="not ready within 0 s: 0"):
        until(lambda: 0, 0.0, "not ready")
    assert until(lambda: 5, 0.0, "not ready") == 5


def test_helm_is_given_the_values_of_all_changes(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    helm = program("")
    made = Release(Programs("n", "kubectl", helm), CLUSTER, tmp_path)
    made.install()
    made.upgrade(logLevel="warning")
    made.upgrade(keepScale=True)
    made.test()
    made.uninstall()
    file = tmp_path / "values.json"
    waits = ["--wait", "--wait-for-jobs", "--timeout", "600s"]
    what = [release.NAME, str(release.CHART), "--values", str(file), *waits]
    assert [arguments[2:] for arguments in called(helm)] == [
        ["install", *what],
        ["upgrade", *what],
        ["upgrade", *what],
        ["test", release.NAME, "--timeout", "300s"],
        ["uninstall", release.NAME, "--wait", "--timeout", "600s"],
    ]
    changed = {"logLevel": "warning", "keepScale": True}
    assert document(file.read_text(encoding="utf-8")) == values(CLUSTER) | changed


# What the API server says


def pod_document(**status: object) -> Object:
    meta = {"name": "orders-quorate-0", "uid": "u", "labels": {LABEL: "leader"}}
    return {"metadata": meta, "spec": {"nodeName": "w"}, "status": status}


def test_a_pod_is_ready_that_says_so_and_does_not_end() -> None:
    ready = pod_document(conditions=[{"type": "Ready", "status": "True"}])
    pending = pod_document(phase="Pending")
    ending = pod_document(**ready["status"])
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = list(pods_of({"items": [ready, pending, ending]}))
    assert [pod.is_ready for pod in found] == [True, False, False]
    assert {(pod.name, pod.uid, pod.role, pod.worker) for pod in found} == {
        ("orders-quorate-0", "u", "leader", "w")
    }


def test_a_rollout_is_over_when_every_pod_is_of_the_new_revision() -> None:
    status = {"observedGeneration": 2, "replicas": 3, "readyReplicas": 3}
    revisions = {"currentRevision": "b", "updateRevision": "b"}
    found = {"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status | revisions}
    assert is_rolled_out(found, 3)
    assert not is_rolled_out(found, 4)
    for change in ({"currentRevision": "a"}, {"observedGeneration": 1}, {"readyReplicas": 2}):
        assert not is_rolled_out(found | {"status": status | revisions | change}, 3)
    assert not is_rolled_out(found | {"status": {"replicas": 0}}, 3)


def test_a_job_has_ended_when_a_condition_says_how() -> None:
    assert outcome_of({"status": {}}) == ""
    assert outcome_of({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}) == ""
    for how in ("Complete", "Failed"):
        assert outcome_of({"status": {"conditions": [{"type": how, "status": "True"}]}}) == how


def test_names_are_read_without_their_groups() -> None:
    assert names("pod/a\nstatefulset.apps/b\n") == {"pod/a", "statefulset/b"}
    assert names("") == set()


# What is missing


def node(*taints: str, ready: str = "True", **spec: object) -> Object:
    found = [{"key": "k", "effect": effect} for effect in taints]
    conditions = [{"type": "Ready", "status": ready}]
    return {"spec": {"taints": found, **spec}, "status": {"conditions": conditions}}


def test_workers_are_nodes_that_take_pods() -> None:
    others = [node("NoSchedule"), node(ready="Unknown"), node(unschedulable=True)]
    assert workers({"items": [node(), node("PreferNoSchedule"), *others]}) == 2
    three = {"items": [node(), node(), node()]}
    plain = {"metadata": {"name": "slow"}}
    default = {"metadata": {"name": "std", "annotations": {release_default(): "true"}}}
    classes = {"items": [plain, default]}
    assert lacking(three, classes, "") == lacking(three, classes, "slow") == []
    assert lacking({"items": []}, {"items": [plain]}, "") == [
        "3 workers that take pods: there are 0",
        "QUORATE_STORAGE_CLASS, of ['slow']: none of them is the default",
    ]
    assert lacking(three, classes, "x") == ["the storage class x: there are ['slow', 'std']"]


def release_default() -> str:
    return "storageclass.kubernetes.io/is-default-class"


CLUSTER_OF_THREE: Final = """#!/bin/sh
echo "$*" >> "$0.called"
case "$*" in
*'get nodes'*) echo '{"items": [NODE, NODE, NODE]}' ;;
*'get storageclasses'*) echo '{"items": [{"metadata": {"name": "fast"}}]}' ;;
*'get events'*) echo 'an event of the namespace' ;;
*'get pods --output name'*) echo 'pod/orders-quorate-0' ;;
*logs*--previous*) echo 'previous terminated container "quorate" not found' >&2; exit 1 ;;
*logs*) echo 'a line of its log' ;;
esac
""".replace("NODE", '{"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}')


def suite_says(**environment: str) -> tuple[int, list[str]]:
    """Run the suite; return its exit status, and what it says is missing."""
    status, said = run_suite(**environment)
    return status, [line for line in said.splitlines() if "missing: " in line]


def run_suite(**environment: str) -> tuple[int, str]:
    ours = {"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kubernetes"],
        cwd=ROOT,
        env=ours | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_one_line_says_everything_that_is_missing() -> None:
    status, (line,) = suite_says()
    assert status == pytest.ExitCode.USAGE_ERROR
    for needed in ("KUBECONFIG: ", "kubectl on the PATH", "helm on the PATH", "QUORATE_IMAGE: "):
        assert needed in line


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    for name in ("kubectl", "helm"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'connection refused' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    config = tmp_path / "config"
    config.touch()
    found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "QUORATE_IMAGE": "quorate:1"}
    status, (line,) = suite_says(KUBECONFIG=str(config), **found)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "a cluster that answers: " in line
    assert "connection refused" in line


def test_an_installation_that_fails_shows_its_namespace_and_removes_it(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(CLUSTER_OF_THREE)
    (tmp_path / "helm").write_text("#!/bin/sh\necho 'timed out' >&2; exit 1\n")
    for name in ("kubectl", "helm"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "config").touch()
    status, said = run_suite(
        KUBECONFIG=str(tmp_path / "config"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        QUORATE_IMAGE="quorate:1",
        QUORATE_STORAGE_CLASS="fast",
    )
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "ended with 1: timed out" in said
    assert "an event of the namespace" in said
    assert "log of pod/orders-quorate-0\na line of its log" in said
    assert "before its restart" not in said
    calls = (tmp_path / "kubectl.called").read_text(encoding="utf-8").splitlines()
    namespace = calls[0].split()[1]
    made = f"--namespace {namespace} create namespace {namespace}"
    removed = f"--namespace {namespace} delete namespace {namespace} --timeout=300s"
    assert calls.index(made) < calls.index(removed)
    secrets = [line for line in calls if "create secret generic" in line]
    assert [line.split()[5] for line in secrets] == [release.NODE_SECRET, release.ADMIN_SECRET]
