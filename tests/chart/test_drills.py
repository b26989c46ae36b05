"""Drills through an API server that stands for Kubernetes; the chart's pods are processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from qm.cli.drills.drill import run
from qm.client.calls import Tls
from qm.drill.runner import Settings, run_round
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.kubernetes_target import KubernetesTarget, Release
from qm.drill.targets.reasons import KUBERNETES, refusals
from qm.drill.targets.target import DrillNode, TargetFailed
from qm.node.config.schema import KubernetesSection
from qm.node.leader.kubernetes import ApiServer, ServiceAccount
from tests.chart import pods
from tests.chart.controller import Controller
from tests.chart.rendering import TLS, Object, chart, one, render
from tests.chart.test_pods import VALUES
from tests.cluster.harness import free_network
from tests.cluster.test_kubernetes import APPS, CORE, TOKEN
from tests.cluster.test_kubernetes import ApiServer as FakeApiServer

RATE_PER_S = 50.0
PODS_MAX = 5
NAMES = ("kill-leader", "rolling-restart", "drain", "lost-disk", "grow-and-shrink")


VERBS = {"GET": "get", "DELETE": "delete", "PATCH": "patch"}


def job_objects(scenarios: list[str]) -> tuple[Object, Object]:
    """Return the Role and the CronJob of a release with drills."""
    values = {"drills": {"enabled": True, "scenarios": scenarios}}
    values["tls"] = {**TLS["tls"], "adminSecret": "admin-tls"}
    objects = render(values)
    return one(objects, "Role", "-drill"), one(objects, "CronJob", "-drill")


def is_allowed(rules: list[Object], method: str, path: str) -> bool:
    group = "apps" if path.startswith(APPS) else ""
    kind, name, *rest = path.removeprefix(APPS if group else CORE).strip("/").split("/")
    resource = "/".join([kind, *rest])
    return any(
        group in rule["apiGroups"]
        and resource in rule["resources"]
        and name in rule["resourceNames"]
        and VERBS[method] in rule["verbs"]
        for rule in rules
    )


@contextlib.asynccontextmanager
async def drilled(folder: Path) -> AsyncIterator[tuple[KubernetesTarget, Controller]]:
    release = pods.Release(VALUES, folder, free_network(), PODS_MAX, Controller)
    controller = cast(Controller, release.server)
    controller.release = release
    async with controller.serving():
        controller.start()
        controller.replicas = 3
        try:
            await asyncio.gather(*map(controller.run, range(3)))
            section = KubernetesSection(
                api_server=controller.url, service_account=controller.account
            )
            target = KubernetesTarget(
                ApiServer(ServiceAccount(section)),
                Release(
                    stateful_set=release.name, pod_host="{ip}", msmq_service=f"{release.name}-msmq"
                ),
                release.admin,
                folder / "drill",
            )
            await target.up()
            yield target, controller
        finally:
            await controller.end()


@pytest.mark.timeout(600)
def test_scenarios_act_through_the_api_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with drilled(tmp_path) as (target, controller):
            name = controller.release.name
            for drill in NAMES:
                settings = Settings(1, RATE_PER_S)
                done = await run_round(target, SCENARIOS[drill], settings, lambda _: None)
                assert done.holds, done
            await target.down()
            assert [node.name for node in target.nodes] == [f"{name}-{k}" for k in range(3)]
            asked = controller.asked
            kill = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            stop = {"apiVersion": "v1", "kind": "DeleteOptions"}
            assert asked[0][0] == "DELETE"
            assert asked[0][2] == kill
            # rolling-restart, in the order of the pods.
            assert asked[1:4] == [
                ("DELETE", f"{CORE}/pods/{name}-{ordinal}", stop) for ordinal in range(3)
            ]
            scaled = [body["spec"]["replicas"] for method, _, body in asked if method == "PATCH"]
            assert scaled == [4, 5, 4, 3]
            assert {path for method, path, _ in asked if method == "PATCH"} == {
                f"{APPS}/statefulsets/{name}/scale"
            }
            claims = [path for _, path, _ in asked if "persistentvolumeclaims" in path]
            assert claims[0].startswith(f"{CORE}/persistentvolumeclaims/data-{name}-")
            assert len(claims) == 3
            address = await target.front(Ability.VIRTUAL_ADDRESS)
            assert address == target.nodes[0].host
            rules = job_objects([*NAMES, "vip-move"])[0]["rules"]
            forbidden = [call for call in controller.called if not is_allowed(rules, *call)]
            assert not forbidden

    # As the command does: uvloop forks where gRPC's threads run.
    asyncio.run(scenario())


def test_a_release_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = FakeApiServer(tmp_path)
        async with server.serving():
            section = KubernetesSection(api_server=server.url, service_account=server.account)
            account = ApiServer(ServiceAccount(section))
            release = Release(stateful_set="absent", pod_host="{ip}")
            tls = Tls(tmp_path / "ca", tmp_path / "certificate", tmp_path / "key")
            with pytest.raises(Refused, match="absent"):
                await KubernetesTarget(account, release, tls, tmp_path).up()

    asyncio.run(scenario())


class Crowded(FakeApiServer):
    """Every worker has a member already."""

    def routes(self) -> list[web.RouteDef]:
        scale = f"{APPS}/statefulsets/{{name}}/scale"
        return [web.get(f"{CORE}/pods/{{pod}}", self._pod), web.patch(scale, self._set_scale)]

    async def _pod(self, _: web.Request) -> web.Response:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        }
        return web.json_response({"status": {"phase": "Pending", "conditions": [condition]}})

    async def _set_scale(self, request: web.Request) -> web.Response:
        self.replicas = (await request.json())["spec"]["replicas"]
        return web.json_response({})


def test_growth_without_a_worker_is_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Crowded(tmp_path)
        async with server.serving():
            (server.account / "token").write_text(TOKEN)
            section = KubernetesSection(api_server=server.url, service_account=server.account)
            account = ApiServer(ServiceAccount(section))
            release = Release(stateful_set="n", pod_host="{ip}")
            tls = Tls(tmp_path / "ca", tmp_path / "certificate", tmp_path / "key")
            target = KubernetesTarget(account, release, tls, tmp_path)
            target.nodes = tuple(DrillNode(f"n-{k}", "h", "h:1811", "http://h") for k in range(3))
            with pytest.raises(TargetFailed, match=r"no worker for n-3.*taken back.*0/3 nodes"):
                await target.grow()
            assert server.replicas == 3

    asyncio.run(scenario())


class Counted(FakeApiServer):
    """Pods made from a template, and workers, of which some take no pod."""

    def __init__(self, folder: Path, pod: Object, workers: list[Object] | None) -> None:
        """`workers` None: they may not be listed."""
        super().__init__(folder)
        self.pod = pod
        self.workers = workers

    def routes(self) -> list[web.RouteDef]:
        name = f"{APPS}/statefulsets/{{name}}"
        return [web.get("/api/v1/nodes", self._nodes), web.get(name, self._template)]

    async def _nodes(self, _: web.Request) -> web.Response:
        if self.workers is None:
            return web.json_response({"message": "forbidden"}, status=403)
        return web.json_response({"items": self.workers})

    async def _template(self, _: web.Request) -> web.Response:
        return web.json_response({"spec": {"template": {"spec": self.pod}}})


async def look_for_room(server: Counted, folder: Path) -> None:
    """Do what comes before growing by two from three."""
    async with server.serving():
        section = KubernetesSection(api_server=server.url, service_account=server.account)
        account = ApiServer(ServiceAccount(section))
        tls = Tls(folder / "ca", folder / "certificate", folder / "key")
        release = Release(stateful_set="n", pod_host="{ip}")
        target = KubernetesTarget(account, release, tls, folder)
        target.nodes = tuple(DrillNode(f"n-{k}", "h", "h:1811", "http://h") for k in range(3))
        prepare = SCENARIOS["grow-and-shrink"].prepare
        assert prepare is not None
        await prepare(target)


def apart() -> Object:
    """Return the affinity of pods of which each has a worker of its own."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAntiAffinity": {key: [{"topologyKey": "kubernetes.io/hostname"}]}}


def worker(*, is_ready: bool = True, **spec: object) -> Object:
    status = {"conditions": [{"type": "Ready", "status": str(is_ready)}]}
    return {"metadata": {"name": "w", "labels": {"disk": "fast"}}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("more", "is_required", "selector", "reason"),
    [
        (1, True, {}, "5 workers are needed.* and 4 of 7"),
        (2, True, {}, None),
        (2, True, {"disk": "slow"}, "and 0 of 8"),
        (1, False, {}, None),
        (-1, True, {}, "and 2 of 5"),
    ],
)
def test_workers_are_counted_before_anything_grows(
    more: int, is_required: bool, selector: dict[str, str], reason: str | None, tmp_path: Path
) -> None:
    pod = {
        "affinity": apart() if is_required else None,
        "nodeSelector": selector,
        "tolerations": [{"key": "mine", "operator": "Exists"}],
    }
    taint = {"key": "theirs", "effect": "NoSchedule"}
    tolerated = {"key": "mine", "value": "x", "effect": "NoSchedule"}
    workers = [
        *(worker() for _ in range(2 + more)),
        worker(taints=[tolerated]),
        worker(taints=[taint]),
        worker(unschedulable=True),
        worker(is_ready=False),
    ]

    looking = look_for_room(Counted(tmp_path, pod, workers), tmp_path)
    if reason is None:
        asyncio.run(looking)
    else:
        with pytest.raises(TargetFailed, match=reason):
            asyncio.run(looking)


def test_a_job_that_may_not_count_workers_goes_on(tmp_path: Path) -> None:
    asyncio.run(look_for_room(Counted(tmp_path, {"affinity": apart()}, None), tmp_path))


def test_only_a_job_that_grows_may_list_workers() -> None:
    for scenarios, counts, expected in (
        (["grow-and-shrink"], True, True),
        (["grow-and-shrink"], False, False),
        (["leader-transfer"], True, False),
    ):
        drills = {"enabled": True, "scenarios": scenarios, "countWorkers": counts}
        objects = render({"drills": drills, "tls": {**TLS["tls"], "adminSecret": "admin-tls"}})
        roles = [found for found in objects if found["kind"] == "ClusterRole"]
        assert bool(roles) == expected
        if roles:
            rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
            assert roles[0]["rules"] == rules


def test_the_job_names_a_command_that_exists_and_no_more_rights_than_it_needs() -> None:
    role, job = job_objects(["leader-transfer"])
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is True
    assert spec["serviceAccountName"] == role["metadata"]["name"]
    (container,) = spec["containers"]
    group, verb, *rest = container["args"]
    assert (group, verb) == ("drill", "run")
    context = run.make_context("run", list(rest))
    assert context.params["names"] == ("leader-transfer",)
    assert context.params["target"] == "kubernetes"
    assert context.params["yes"] is True
    verbs = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("persistentvolumeclaims", "delete") not in verbs
    assert ("statefulsets/scale", "patch") not in verbs


def test_scenarios_are_those_that_kubernetes_can_run() -> None:
    schema = chart().schema
    assert schema is not None
    known = schema["properties"]["drills"]["properties"]["scenarios"]["items"]["enum"]
    able = {name for name, one in SCENARIOS.items() if not refusals(KUBERNETES, one.needs)}
    assert set(known) == able
