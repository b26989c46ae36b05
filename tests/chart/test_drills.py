"""Drills through an API server that stands for Kubernetes; the chart's pods are processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from qm.client.wire import Tls
from qm.drill.kubernetes_target import KubernetesTarget, Release
from qm.drill.runner import Settings, run_round
from qm.drill.scenarios import SCENARIOS
from qm.drill.target import Ability, Refused
from qm.node.config import KubernetesSection
from qm.node.kubernetes import ApiServer, ServiceAccount
from tests.chart import pods
from tests.chart.controller import Controller
from tests.chart.test_pods import VALUES
from tests.cluster.harness import free_network
from tests.cluster.test_kubernetes import APPS, CORE
from tests.cluster.test_kubernetes import ApiServer as FakeApiServer

RATE_PER_S = 50.0
PODS_MAX = 5
NAMES = ("kill-leader", "rolling-restart", "drain", "lost-disk", "grow-and-shrink")


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
