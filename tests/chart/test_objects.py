"""What the rendered objects promise."""

import base64
import copy
import functools
import json
import os
import re
import signal
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import click
import helm_python
import kubernetes_validate
import msgspec
import pytest

from qm.cli.main import main
from qm.node.config.loading import section
from qm.node.config.schema import ConsoleSection, NodeConfig, RpcSection
from qm.node.upkeep.rpc_endpoint import port_of
from qm.store.sealing import KEY_BYTES
from tests.chart.custom_kinds import CUSTOM_KINDS
from tests.chart.rendering import (
    CHART,
    EXAMPLES,
    TLS,
    Object,
    chart,
    everything,
    example,
    notes,
    of_kind,
    one,
    pod_specs,
    render,
)
from tests.unit.node.config.test_loading import SOUND

KUBERNETES = "1.32"
ALL_VALUES = [pytest.param(example(path), id=path.stem) for path in EXAMPLES] + [
    pytest.param(everything(), id="everything"),
    pytest.param(TLS, id="defaults"),
]


def secured(**more: Any) -> Object:
    return {"tls": {**TLS["tls"], "adminSecret": "a"}, **more}


def node_config(objects: list[Object]) -> Object:
    (text,) = [
        c["data"]["node.toml"]
        for c in of_kind(objects, "ConfigMap")
        if "node.toml" in c.get("data", {})
    ]
    return tomllib.loads(text)


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_object_is_what_kubernetes_knows(values: Object) -> None:
    for found in render(values):
        custom = CUSTOM_KINDS.get((found["apiVersion"], found["kind"]))
        if custom is not None:
            msgspec.convert(found, custom, strict=True)
        else:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)


def test_an_installation_needs_no_kinds_that_a_cluster_lacks() -> None:
    """Those of cert-manager and of Prometheus' operator are made where a value asks for them."""

    def custom(values: Object) -> set[tuple[str, str]]:
        made = {(found["apiVersion"], found["kind"]) for found in render(values)}
        return made & CUSTOM_KINDS.keys()

    assert not custom(TLS)
    assert custom(everything())
    assert not (CHART / "crds").exists()


@pytest.mark.parametrize("values", ALL_VALUES)
def test_no_container_runs_as_root_or_writes_its_root(values: Object) -> None:
    specs = pod_specs(render(values))
    assert specs
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_port_of_a_service_exists_in_the_pod(values: Object) -> None:
    objects = render(values)
    container = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for service in of_kind(objects, "Service"):
        for port in service["spec"]["ports"]:
            if not port["name"].startswith("rpc"):  # they have a test of their own
                assert ports[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_volume_and_claim_that_is_mounted_exists(values: Object) -> None:
    objects = render(values)
    claims = {
        claim["metadata"]["name"]
        for claim in one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    }
    for spec in pod_specs(objects):
        volumes = {volume["name"] for volume in spec["volumes"]} | claims
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_configmap_that_is_mounted_is_rendered(values: Object) -> None:
    objects = render(values)
    made = {found["metadata"]["name"] for found in of_kind(objects, "ConfigMap")}
    for spec in pod_specs(objects):
        used = {v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v}
        assert used <= made


def test_one_member_at_a_time_may_be_away() -> None:
    assert one(render(TLS), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_members_never_share_a_worker_node_by_default() -> None:
    spec = one(render(TLS), "StatefulSet")["spec"]["template"]["spec"]
    (rule,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    labels = one(render(TLS), "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()


def test_members_spread_over_zones() -> None:
    def constraints(how: str) -> Any:
        objects = render({**TLS, "scheduling": {"zoneSpread": how}})
        return one(objects, "StatefulSet")["spec"]["template"]["spec"].get(
            "topologySpreadConstraints"
        )

    (rule,) = constraints("DoNotSchedule")
    assert rule["topologyKey"] == "topology.kubernetes.io/zone"
    assert (rule["maxSkew"], rule["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    labels = one(render(TLS), "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()
    assert constraints("none") is None
    default = one(render(TLS), "StatefulSet")["spec"]["template"]["spec"]
    (soft,) = default["topologySpreadConstraints"]
    assert soft["whenUnsatisfiable"] == "ScheduleAnyway"


def made_labels(objects: list[Object]) -> list[Object]:
    """Return the labels of every pod that the objects make.

    A leader has one more; so has each member, which Kubernetes itself gives its name.
    """
    templates = [found["spec"]["template"] for found in objects if "template" in found["spec"]]
    jobs = of_kind(objects, "CronJob")
    templates += [found["spec"]["jobTemplate"]["spec"]["template"] for found in jobs]
    labels: list[Object] = [made["metadata"]["labels"] for made in templates]
    labels += [found["metadata"]["labels"] for found in of_kind(objects, "Pod")]
    members = one(objects, "StatefulSet")
    own = members["spec"]["template"]["metadata"]["labels"]
    labels += [
        {**own, "statefulset.kubernetes.io/pod-name": f"{members['metadata']['name']}-{ordinal}"}
        for ordinal in range(chart().values["certifiedMembers"])
    ]
    return [*labels, {**own, "quorate.io/role": "leader"}]


@pytest.mark.parametrize("values", ALL_VALUES)
def test_every_selector_finds_something(values: Object) -> None:
    objects = [found for found in render(values) if "spec" in found]
    pods = made_labels(objects)
    wanted = [found["spec"]["selector"] for found in of_kind(objects, "Service")]
    for kind in ("PodDisruptionBudget", "StatefulSet", "Deployment"):
        wanted += [o["spec"]["selector"]["matchLabels"] for o in of_kind(objects, kind)]
    for selector in wanted:
        assert any(selector.items() <= labels.items() for labels in pods), selector
    for monitor in of_kind(objects, "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [
            found
            for found in of_kind(objects, "Service")
            if selector.items() <= found["metadata"]["labels"].items()
        ]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


def test_every_network_policy_is_of_pods_that_are_made() -> None:
    objects = [found for found in render(everything()) if "spec" in found]
    for policy in of_kind(objects, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert any(selector.items() <= labels.items() for labels in made_labels(objects))


@pytest.mark.parametrize("drain_s", [0, 60, 600])
def test_the_grace_period_exceeds_the_drain(drain_s: int) -> None:
    spec = one(render({**TLS, "drainSeconds": drain_s}), "StatefulSet")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= drain_s + 45
    command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    config = "/etc/quorate/config/node.toml"
    assert command == ["qm", "node", "prestop", "--config", config, "--drain-seconds", str(drain_s)]


def test_a_changed_configuration_rolls_the_pods() -> None:
    def checksum(values: Object) -> Any:
        template = one(render(values), "StatefulSet")["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/config"]

    assert checksum(TLS) == checksum(copy.deepcopy(TLS))
    assert checksum(TLS) != checksum({**TLS, "logLevel": "debug"})


def test_other_definitions_leave_the_pods_alone() -> None:
    def template(**definitions: Any) -> Any:
        return one(render(secured(definitions=definitions)), "StatefulSet")["spec"]["template"]

    queue = {"path_name": ".\\private$\\orders"}
    assert template(version=1) == template(version=1, queues=[queue])


def test_definitions_are_imported_by_a_job_of_the_release() -> None:
    """A hook would stay when the release is uninstalled; a Job's template never changes."""

    def job(revision: int, **definitions: Any) -> Object:
        values = secured(definitions={"version": 1, **definitions})
        (found,) = of_kind(render(values, revision=revision), "Job")
        return found

    assert "annotations" not in job(1)["metadata"]
    names = [job(1), job(2), job(1, queues=[{"path_name": ".\\private$\\orders"}])]
    assert len({found["metadata"]["name"] for found in names}) == 3


def test_another_secret_of_the_nodes_rolls_the_pods() -> None:
    """Their contents count too, but the engine alone has no API server to ask."""

    def annotations(**more: Any) -> Any:
        template = one(render({**TLS, **more}), "StatefulSet")["spec"]["template"]
        return template["metadata"]["annotations"]

    archive = {"url": "s3://b", "credentialsSecret": "keys"}
    assert annotations()["checksum/secrets"] == annotations()["checksum/secrets"]
    assert annotations()["checksum/secrets"] != annotations(archive=archive)["checksum/secrets"]


def test_nodes_have_an_authority_of_their_own() -> None:
    """From cert-manager or from a Secret; a list of revoked certificates beside it."""
    objects = render(everything())
    issuer = one(objects, "Certificate", "-peers")["spec"]["issuerRef"]["name"]
    assert one(objects, "Issuer", issuer)["spec"] == {"ca": {"secretName": issuer}}
    assert one(objects, "Certificate", issuer)["spec"]["isCA"]
    peers = {"peers": {"enabled": True, "existingSecret": "p"}, "revokedSecret": "r"}
    objects = render({"tls": {"existingSecret": "node-tls", **peers}})
    spec = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert (secrets["tls"], secrets["peers"], secrets["revoked"]) == ("node-tls", "p", "r")
    text = one(objects, "ConfigMap")["data"]["node.toml"]
    tls = tomllib.loads(text)["tls"]
    mounts = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert {str(Path(path).parent) for path in tls.values()} <= mounts
    assert set(tls) == {
        *("authority", "certificate", "key", "revoked"),
        *("peer_authority", "peer_certificate", "peer_key", "peer_revoked"),
    }
    text = one(render(TLS), "ConfigMap")["data"]["node.toml"]
    assert set(tomllib.loads(text)["tls"]) == {"authority", "certificate", "key"}


def test_secrets_that_are_given_are_not_made() -> None:
    given = {"sealing": {"existingSecret": "s"}, "identity": {"existingSecret": "i"}}
    objects = render({**TLS, **given})
    assert not of_kind(objects, "Secret")
    spec = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    sources = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert sources["QM_CLUSTER"] == {"secretKeyRef": {"name": "i", "key": "cluster"}}
    assert {"secretName": "s", "defaultMode": 0o440} in [v.get("secret") for v in spec["volumes"]]


def test_helm_finds_nothing_to_complain_of() -> None:
    said = helm_python.lint(CHART, TLS)
    assert not said["errors"]
    assert {message["error"] for message in said["messages"]} == {"icon is recommended"}


def status_after_sigterm(command: list[str]) -> int:
    """Return the exit status; -15 would be the default action, which a first process lacks."""
    with subprocess.Popen(command) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + 10
        while not children.read_text():
            assert time.monotonic() < end
        sleep = int(children.read_text())
        process.terminate()
        try:
            return process.wait(timeout=10)
        finally:
            os.kill(sleep, signal.SIGKILL)


def test_the_toolbox_is_an_admin_whom_nobody_calls() -> None:
    objects = render(everything())
    template = one(objects, "Deployment", "-toolbox")["spec"]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "tool"
    (container,) = template["spec"]["containers"]
    assert status_after_sigterm(container["command"]) == 0
    secrets = [volume.get("secret", {}).get("secretName") for volume in template["spec"]["volumes"]]
    assert one(objects, "Certificate", "-admin")["spec"]["secretName"] in secrets
    assert not of_kind(render(TLS), "Deployment")


def test_the_probes_mean_different_things() -> None:
    container = one(render(TLS), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 1800


def test_peers_find_each_other_before_they_are_ready() -> None:
    objects = render(TLS)
    headless = one(objects, "Service", "-nodes")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert one(objects, "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"


def test_msmq_keeps_the_address_of_its_peers() -> None:
    service = one(render(TLS), "Service", "-msmq")["spec"]
    assert service["type"] == "LoadBalancer"
    assert service["externalTrafficPolicy"] == "Local"
    assert {(p["port"], p["protocol"]) for p in service["ports"]} == {(1801, "TCP"), (3527, "UDP")}


def test_consensus_is_closed_to_everything_but_members() -> None:
    rules = one(render(TLS), "NetworkPolicy", "-quorate")["spec"]["ingress"]
    (rule,) = [rule for rule in rules if {"port": 1812, "protocol": "TCP"} in rule["ports"]]
    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "node"


def test_metrics_are_open_to_the_namespaces_that_are_named() -> None:
    def sources(values: Object) -> list[Object]:
        rules = one(render(values), "NetworkPolicy", "-quorate")["spec"]["ingress"]
        ports = {"port": 1814, "protocol": "TCP"}
        return [source for rule in rules if ports in rule["ports"] for source in rule["from"]]

    assert sources(TLS) == [{"podSelector": {}}], "the release's namespace"
    named = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert sources({**TLS, "networkPolicy": {"metricsFrom": named}}) == named


RANGES: Object = {"msmq": {"service": {"loadBalancerSourceRanges": ["10.1.0.0/16"]}}}
SENDERS: Object = {"msmqFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}
OPEN_MSMQ, OPEN_PODS = "everybody who reaches the cluster may send", "every pod of the cluster"


@pytest.mark.parametrize(
    ("values", "warnings"),
    [
        ({}, {OPEN_MSMQ}),
        (RANGES, set()),
        ({"networkPolicy": SENDERS}, set()),
        ({"networkPolicy": {**SENDERS, "enabled": False}}, {OPEN_MSMQ, OPEN_PODS}),
        ({**RANGES, "networkPolicy": {"enabled": False}}, {OPEN_PODS}),
        ({"msmq": {"service": {**RANGES["msmq"]["service"], "type": "NodePort"}}}, {OPEN_MSMQ}),
    ],
)
def test_an_installation_warns_of_what_it_leaves_open(values: Object, warnings: set[str]) -> None:
    told = notes({**TLS, **values})
    assert {text for text in (OPEN_MSMQ, OPEN_PODS) if text in told} == warnings
    if OPEN_MSMQ in warnings:
        assert "networkPolicy.msmqFrom" in told


def test_the_releases_own_tools_reach_it_whoever_else_is_let_in() -> None:
    elsewhere = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    values = {
        **everything(),
        "networkPolicy": {"msmqFrom": elsewhere, "apiFrom": elsewhere, "rpcFrom": elsewhere},
    }
    objects = render(values)
    labels = {
        **of_kind(objects, "Job")[0]["spec"]["template"]["metadata"]["labels"],
        "app.kubernetes.io/component": "tool",
    }
    assert of_kind(objects, "Job")[0]["spec"]["template"]["metadata"]["labels"] == labels
    open_ports = {
        port["port"]
        for rule in one(objects, "NetworkPolicy", "-quorate")["spec"]["ingress"]
        for peer in rule["from"]
        if peer.get("podSelector", {}).get("matchLabels", {"": ""}).items() <= labels.items()
        for port in rule["ports"]
    }
    assert open_ports == {1801, 1811}
    assert "ingress" not in one(objects, "NetworkPolicy", "-tools")["spec"]


def test_the_leader_service_selects_by_label_and_may_only_patch_members() -> None:
    objects = render(everything())
    assert one(objects, "Service", "-leader")["spec"]["selector"]["quorate.io/role"] == "leader"
    asking, telling, rule = one(objects, "Role", "-node")["rules"]
    assert (asking["resources"], asking["verbs"]) == (["statefulsets"], ["get"])
    assert (telling["resources"], telling["verbs"]) == (["events"], ["create"])
    assert rule["verbs"] == ["patch"]
    assert all(name.rpartition("-")[2].isdecimal() for name in rule["resourceNames"])
    assert one(render(TLS), "Role")["rules"] == [asking, telling]
    assert node_config(objects)["kubernetes"]["label_leader"] is True
    assert node_config(render(TLS))["kubernetes"]["label_leader"] is False


def test_the_certificate_names_every_member_with_its_role() -> None:
    objects = render(example(EXAMPLES[0]))
    names = one(objects, "StatefulSet")["metadata"]["name"]
    certificates = {
        found["metadata"]["name"]: found["spec"] for found in of_kind(objects, "Certificate")
    }
    certificate = certificates[names]
    assert {f"{names}-{ordinal}" for ordinal in range(7)} <= set(certificate["dnsNames"])
    assert certificate["uris"] == ["quorate:role/node"], "the API refuses certificates of two roles"
    assert certificates[f"{names}-admin"]["uris"] == ["quorate:role/admin"]


def test_tools_use_an_admins_certificate() -> None:
    (pod,) = of_kind(render({"tls": {**TLS["tls"], "adminSecret": "a"}}), "Pod")
    assert {"secretName": "a", "defaultMode": 0o440} in [
        volume.get("secret") for volume in pod["spec"]["volumes"]
    ]
    assert not of_kind(render(TLS), "Pod")
    with pytest.raises(Exception, match=r"tls\.adminSecret"):
        render({**TLS, "definitions": {"version": 1}})


def test_the_sealing_key_has_the_bytes_that_the_node_reads() -> None:
    secret = one(render(TLS), "Secret", "-sealing")
    assert len(base64.b64decode(secret["data"]["sealing.key"])) == KEY_BYTES


def test_the_node_configuration_is_toml_with_all_founders() -> None:
    objects = render(example(Path(EXAMPLES[0]).with_name("production.yaml")))
    config = node_config(objects)
    assert [member["name"].rpartition("-")[2] for member in config["members"]] == list("01234")
    assert config["msmq"]["aliases"] == ["orders.example.com"]
    assert config["birth"]["computer_name"] == "ORDERS"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": "three"}, "replicas"),
        ({"storage": {"sice": "1Gi"}}, "sice"),
        ({"queueManager": {"computerName": "A-NAME-OF-MORE-THAN-15"}}, "computerName"),
        ({"msmq": {"service": {"externalTrafficPolicy": "local"}}}, "externalTrafficPolicy"),
        ({"audit": {"schedule": "hourly"}}, "schedule"),
        ({"definitions": {"queues": []}}, "version"),
        ({"definitions": {"version": 1, "queues": [{"pathname": "orders"}]}}, "pathname"),
    ],
)
def test_a_wrong_value_fails_by_schema_and_is_named(values: Object, where: str) -> None:
    with pytest.raises(Exception, match=where):
        render({**TLS, **values})


def test_certificates_must_come_from_somewhere() -> None:
    with pytest.raises(Exception, match=r"tls\.existingSecret"):
        render({})


def test_an_audit_needs_an_archive() -> None:
    with pytest.raises(Exception, match=r"audit\.archive"):
        render({**TLS, "audit": {"enabled": True}})


def test_nodes_export_where_audits_read() -> None:
    archive = {"url": "s3://bucket/path", "credentialsSecret": "keys", "bodies": "digest"}
    tls = {"tls": {"certManager": {"enabled": True}}}
    objects = render({**tls, "archive": archive, "audit": {"enabled": True}})
    assert node_config(objects)["archive"] == {
        "url": "s3://bucket/path", "bodies": "digest", "body_copies": "one", "hold_mb": 4096,
        "checkpoint_mb": 256,
    }  # fmt: skip
    (container,) = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    for job in of_kind(objects, "CronJob"):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert container["args"][-2:] == ["--archive", "s3://bucket/path"]
        assert {"secretRef": {"name": "keys"}} in container["envFrom"]


def assert_understood(arguments: list[str]) -> None:
    """Assert that the command line has this command, and that it has these options."""
    command: click.Command = main
    while isinstance(command, click.Group):
        noun, *arguments = arguments
        found = command.get_command(click.Context(command), noun)
        assert found is not None, noun
        command = found
    command.make_context(command.name, arguments)


def test_audit_jobs_run_spark_with_what_they_are_given_and_are_not_repeated() -> None:
    audit = {
        "enabled": True, "cores": 3, "memoryMiB": 4096, "dropOld": True, "scratchSize": "80Gi",
        "packages": ["org.apache.hadoop:hadoop-aws:3.5.0"], "image": {"tag": "7"},
    }  # fmt: skip
    values = {"tls": {"certManager": {"enabled": True}}, "archive": {"url": "s3://b"}}
    objects = render({**values, "audit": audit})
    found = {}
    for job in of_kind(objects, "CronJob"):
        spec = job["spec"]["jobTemplate"]["spec"]
        assert spec["backoffLimit"] == 0
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert (container["image"], container["command"]) == ("quorate-spark:7", ["qm"])
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert "--packages org.apache.hadoop:hadoop-aws:3.5.0" in environment["PYSPARK_SUBMIT_ARGS"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "80Gi"}
        found[container["args"][0]] = container["args"]
        assert_understood(container["args"])
    shared = ["run", "--cores", "3", "--memory-mib", "4096"]
    assert found == {
        "audit": ["audit", *shared, "--archive", "s3://b"],
        "compact": ["compact", *shared, "--drop-old", "--yes", "--archive", "s3://b"],
    }


def at(values: Object, path: str) -> Any:
    """Return the value at a path. Raises KeyError."""
    return functools.reduce(lambda table, key: table[key], path.split("."), values)


def test_every_value_of_the_readme_is_there_with_its_default() -> None:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-zA-Z.]+)` \| `(.*?)` \|", readme.partition("## Values")[2], re.M)
    assert len(rows) > 80
    for path, default in rows:
        assert at(chart().values, path) == json.loads(default), path


def test_every_table_of_values_refuses_unknown_keys() -> None:
    def walk(schema: Object, path: str) -> None:
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
        for key, inner in schema.get("properties", {}).items():
            walk(inner, f"{path}.{key}")
        if "items" in schema:
            walk(schema["items"], f"{path}[]")

    schema = chart().schema
    assert schema is not None
    walk(schema, "")


def test_an_unknown_kind_is_no_kind() -> None:
    stranger = {"apiVersion": "example.org/v1", "kind": "Queue", "metadata": {"name": "q"}}
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        kubernetes_validate.validate(stranger, KUBERNETES, strict=True)


def test_production_exports_what_it_audits_and_can_read_it() -> None:
    values = example(CHART / "examples" / "production.yaml")
    assert node_config(render(values))["archive"]["url"] == values["archive"]["url"]
    assert values["audit"]["packages"], "Spark has no file system for s3 of its own"


def test_every_value_is_in_the_readme_and_in_the_schema() -> None:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    schema = chart().schema
    assert schema is not None

    def walk(values: Object, properties: Object, prefix: str) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}"
            assert key in properties, f"{name} is not in the schema"
            inner = properties[key].get("properties")
            if isinstance(value, dict) and value and inner and f"`{name}`" not in readme:
                walk(value, inner, f"{name}.")
            else:
                assert f"`{name}`" in readme, f"{name} is not in the README"

    walk(chart().values, schema["properties"], "")


def test_what_windows_programs_get_is_a_value() -> None:
    given = {
        "enabled": True,
        "level": "integrity",
        "anonymousReceive": True,
        "objects": True,
        "names": ["queues.example.com", "queues"],
        "returnAfterMinutes": 9,
        "keytabSecret": "kerberos",
    }
    objects = render(secured(rpc=given))
    raw = node_config(objects)["rpc"]
    keytab = Path(raw.pop("keytab"))
    rpc = msgspec.convert(raw, RpcSection)
    assert (rpc.level, rpc.anonymous_receive, rpc.objects) == ("integrity", True, True)
    assert (rpc.names, rpc.return_after_minutes) == (("queues.example.com", "queues"), 9)
    (stateful_set,) = of_kind(objects, "StatefulSet")
    pod = stateful_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert str(keytab.parent) == mounts["kerberos"]
    (secret,) = (each["secret"] for each in pod["volumes"] if each["name"] == "kerberos")
    assert secret == {"secretName": "kerberos", "defaultMode": 0o440}
    for off in ({"enabled": True}, {"enabled": False, "keytabSecret": "kerberos"}):
        assert "kerberos" not in str(render(secured(rpc=off)))


def test_who_signs_in_to_the_console_is_a_value() -> None:
    oidc = {
        "issuer": "https://id.example.com/realms/x",
        "clientId": "queues",
        "clientSecret": "oidc",
        "caSecret": "oidc-ca",
        "scopes": ["profile", "groups"],
        "nameClaim": "email",
        "roleClaim": "realm_access.roles",
        "roles": {"Queue Admins": "admin"},
        "url": "https://${POD_NAME}.example.com",
    }
    console = {"passwords": False, "reportsClaim": "reports", "oidc": oidc}
    objects = render(secured(console=console))
    raw = node_config(objects)["console"]
    folder = raw.pop("reports")
    files = {key: Path(raw["oidc"].pop(key)) for key in ("client_secret_file", "ca_file")}
    read = msgspec.convert(raw, ConsoleSection)
    assert (read.passwords, read.oidc is not None) == (False, True)
    assert read.oidc is not None
    assert (read.oidc.issuer, read.oidc.client_id) == (oidc["issuer"], "queues")
    assert (read.oidc.name_claim, read.oidc.role_claim) == ("email", "realm_access.roles")
    assert (read.oidc.scopes, read.oidc.roles) == (("profile", "groups"), oidc["roles"])
    (stateful_set,) = of_kind(objects, "StatefulSet")
    pod = stateful_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["reports"] == folder
    assert mounts["oidc"] == str(files["client_secret_file"].parent)
    assert mounts["oidc-ca"] == str(files["ca_file"].parent)
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["oidc"]["secret"] == {"secretName": "oidc", "defaultMode": 0o440}
    off = render(secured(console={"oidc": {"clientSecret": "oidc"}}))
    assert "oidc" not in node_config(off)["console"]
    assert "/etc/quorate/oidc" not in str(off)


def test_each_member_has_the_port_that_its_mapper_tells() -> None:
    objects = render(secured(rpc={"enabled": True}, replicas=5, founders=3))
    rpc = msgspec.convert(node_config(objects)["rpc"], RpcSection)
    (stateful_set,) = of_kind(objects, "StatefulSet")
    name = stateful_set["metadata"]["name"]
    services = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Service")}
    mapper = services[f"{name}-rpc"]
    assert [(each["port"], each["targetPort"]) for each in mapper["ports"]] == [(135, "rpc-mapper")]
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    named = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert named["rpc-mapper"] == rpc.mapper_port
    for ordinal in range(5):
        node = msgspec.structs.replace(section(SOUND, NodeConfig, {}), name=f"{name}-{ordinal}")
        port = port_of(msgspec.structs.replace(node, rpc=rpc))
        found = services[f"{name}-rpc-{ordinal}"]
        assert found["selector"]["statefulset.kubernetes.io/pod-name"] == f"{name}-{ordinal}"
        assert [(each["port"], each["targetPort"]) for each in found["ports"]] == [(port, port)]
    assert not [
        each for each in of_kind(render(secured()), "Service") if "rpc" in each["metadata"]["name"]
    ]
