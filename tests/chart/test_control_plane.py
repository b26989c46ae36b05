"""Parts of the suite for a real control plane, with the real kubectl; pods are processes.

What needs Helm, a kubelet or a scheduler is left to the real one: installing and upgrading, the
toolbox's end, jobs, and what a namespace holds after an uninstallation.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import kubernetes_validate
import pytest

from qm.node.leader.pod_events import REMOVED
from tests.chart import pods
from tests.chart.control_plane import ControlPlane
from tests.chart.rendering import of_kind
from tests.cluster.harness import free_network
from tests.kubernetes import test_release as suite
from tests.kubernetes.prerequisites import Cluster
from tests.kubernetes.programs import Programs
from tests.kubernetes.release import FULL_NAME, MEMBERS, NAME, Release, merged, values

PODS_MAX = 5
CHANGE_S = 120.0
KUBERNETES = "1.32"
PARTS = (
    suite.test_a_second_member_may_not_be_evicted_meanwhile,
    suite.test_the_leaders_worker_can_be_drained,
    suite.test_a_leader_that_is_cut_off_loses_its_role,
    suite.test_members_that_come_back_vote,
)


@contextlib.asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[ControlPlane]:
    cluster = Cluster("quorate", "", workers=3)
    signed_here = {"certManager": {"enabled": True}, "existingSecret": "", "adminSecret": ""}
    found = merged(values(cluster), {"tls": signed_here})
    release = pods.Release(found, folder, free_network(), PODS_MAX, ControlPlane, NAME)
    assert release.name == FULL_NAME
    server = cast(ControlPlane, release.server)
    server.release = release
    async with server.serving():
        server.start()
        server.replicas = MEMBERS
        try:
            await asyncio.gather(*map(server.run, range(MEMBERS)))
            yield server
        finally:
            await server.end()


def messages_come_back(release: Release) -> None:
    assert release.queues() == {"kept"}
    sent = ["first", "second"]
    release.send(sent)
    assert release.receive(len(sent)) == sent


@pytest.mark.timeout(900)
def test_the_suite_passes_where_pods_are_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("kubectl"), "install kubectl: `make deps-system` says how"

    async def scenario() -> None:
        async with installed(tmp_path / "release") as server:
            monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
            monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
            cluster = Cluster("quorate", "", workers=MEMBERS)
            release = Release(Programs(pods.NAMESPACE), cluster, tmp_path)
            monkeypatch.setattr("tests.kubernetes.release.CHANGE_S", CHANGE_S)
            (job,) = of_kind(server.release.objects, "Job")
            assert (await server.release.tool(job["spec"]["template"]["spec"]))[0] == 0
            for part in (messages_come_back, *PARTS):
                print("PART", part.__name__, flush=True)
                await asyncio.to_thread(part, release)
            (event,) = [each for each in server.events if each["reason"] == REMOVED]
            kubernetes_validate.validate(event, KUBERNETES, strict=True)
            assert event["involvedObject"]["name"] == f"{FULL_NAME}-{MEMBERS}"

    asyncio.run(scenario())
