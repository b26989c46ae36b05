"""The chart's members find each other, serve, and are restarted and added to under load."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from qm.client.calls import Calls
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.verdict import Verdict
from qm.load.workload import Target, Workload
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2
from tests.chart.pods import DOMAIN, Pod, Release
from tests.chart.rendering import CHART, ROOT, Object, example, of_kind
from tests.cluster.harness import free_network

VALUES = {
    "tls": {"certManager": {"enabled": True}},
    "drainSeconds": 30,
    "storage": {"reserveMiB": 64, "logRetainMiB": 128, "cacheMiB": 16},
    "queueManager": {"computerName": "ORDERS"},
}
RATE_PER_S = 100
SETTLE_S = 60.0


@contextlib.asynccontextmanager
async def installed(
    folder: Path, values: Object = VALUES
) -> AsyncIterator[tuple[Release, list[Pod]]]:
    """Install the release and wait for its members, all of which start at once."""
    release = Release(values, folder, free_network(), pods_max=4)
    async with release.server.serving():
        release.server.replicas = 3
        pods = [Pod(release, ordinal) for ordinal in range(3)]
        try:
            await asyncio.gather(*(pod.start() for pod in pods))
            await asyncio.gather(*(pod.ready() for pod in pods))
            yield release, pods
        finally:
            await asyncio.gather(*(pod.kill() for pod in pods))


async def plan(release: Release, pods: list[Pod], folder: Path) -> Plan:
    """Make the queues; return a load that goes through every member."""
    targets = (
        Target("DIRECT=OS:ORDERS\\private$\\plain"),
        Target("DIRECT=OS:ORDERS\\private$\\transactional", is_transactional=True),
    )
    wire = Calls([pod.api for pod in pods], release.admin)
    for target in targets:
        request = control_pb2.CreateQueueRequest(
            path_name=target.format_name.removeprefix("DIRECT=OS:"),
            attributes={"transactional": control_pb2.Value(flag=target.is_transactional)},
        )
        await wire.call(lambda stubs: stubs.queues.CreateQueue, request)
    await wire.close()
    addresses = [(pod.address, MSMQ_PORT) for pod in pods]
    return Plan(
        workload=Workload(targets=targets),
        rate_per_s=RATE_PER_S,
        senders=[addresses[k:] + addresses[:k] for k in range(len(addresses))],
        receivers=[
            Reading(targets[0].format_name, Mode.STREAM),
            Reading(targets[1].format_name, Mode.TRANSACTION),
        ],
        endpoints=[pod.api for pod in pods],
        tls=release.admin,
        reconnect_s=0.2,
        history=folder / "history.jsonl",
    )


async def voters(release: Release, pod: Pod) -> list[str]:
    wire = Calls([pod.api], release.admin)
    try:
        reply = await wire.call(
            lambda stubs: stubs.cluster.ListMembers, control_pb2.ListMembersRequest()
        )
    finally:
        await wire.close()
    return sorted(m.raft_id for m in reply.members if m.role == control_pb2.MemberRole.VOTER)


async def under_load(run: Run, change: asyncio.Task[None]) -> None:
    """Send until a change of the release is over, and a little longer."""
    while not change.done():
        await run.send(0.5)
    await change
    await run.send(1.0)


@pytest.mark.timeout(420)
def test_a_release_is_born_restarted_and_scaled_up_and_down_under_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with installed(tmp_path) as (release, pods):
            founders = [f"{pod.name}.1" for pod in pods]
            assert await voters(release, pods[2]) == founders

            async def roll() -> None:
                for pod in reversed(list(pods)):  # as a StatefulSet does
                    run.fault(f"restart of {pod.name}")
                    await pod.stop()
                    await pod.start()
                    await pod.ready()

            async def scale_up() -> None:
                release.server.replicas = 4
                pods.append(Pod(release, 3))
                await pods[3].start()
                await pods[3].ready()
                while await voters(release, pods[3]) != [*founders, f"{pods[3].name}.1"]:
                    await asyncio.sleep(0.1)

            async def scale_down() -> None:
                release.server.replicas = 3
                assert "no longer a member" in await pods[3].stop()

            async def scale_up_and_lose() -> None:
                await pods[3].lose_volume()
                release.server.replicas = 4
                await pods[3].start()
                await pods[3].ready()
                while await voters(release, pods[0]) != [*founders, f"{pods[3].name}.2"]:
                    await asyncio.sleep(0.1)
                release.server.replicas = 3
                await pods[3].kill()
                while await voters(release, pods[0]) != founders:
                    await asyncio.sleep(0.1)

            async with Run(await plan(release, pods, tmp_path)) as run:
                await run.send(1.0)
                await under_load(run, asyncio.create_task(roll()))
                await under_load(run, asyncio.create_task(scale_up()))
                assert await voters(release, pods[0]) == [*founders, f"{pods[3].name}.1"]
                await under_load(run, asyncio.create_task(scale_down()))
                await under_load(run, asyncio.create_task(scale_up_and_lose()))
                await run.settle(SETTLE_S)
                verdict = await run.verdict()
            assert verdict.holds, verdict
            assert verdict.acknowledged == verdict.sent == verdict.received > 0, verdict
            assert await voters(release, pods[0]) == founders
            report(verdict)

    uvloop.run(scenario())


def report(verdict: Verdict) -> None:
    """Write how long senders waited while pods were restarted one by one."""
    figures = {
        "rolling_restart_gaps_ms": [round(fault.gap_ms) for fault in verdict.faults],
        "sent": verdict.sent,
        "lost": verdict.lost.count,
        "duplicated": verdict.duplicated.count,
        "load_average": round(os.getloadavg()[0], 1),
    }
    text = json.dumps(figures, indent=2)
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    (build / "test-chart.json").write_text(f"{text}\n", encoding="utf-8")
    print(text)


@pytest.mark.timeout(420)
def test_a_lost_volume_comes_back_and_certificates_change_under_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with installed(tmp_path) as (release, pods):
            others = [f"{pod.name}.1" for pod in pods if pod is not pods[1]]

            async def lose() -> None:
                await pods[1].lose_volume()
                await pods[1].start()
                await pods[1].ready()
                while await voters(release, pods[0]) != sorted([*others, f"{pods[1].name}.2"]):
                    await asyncio.sleep(0.1)

            async def rotate() -> None:
                before, processes = pods[0].certificate(), [pod.pid for pod in pods]
                release.rotate()
                for pod in pods:
                    while (shown := await asyncio.to_thread(pod.certificate)) == before:
                        await asyncio.sleep(0.1)
                    assert shown
                assert [pod.pid for pod in pods] == processes

            async with Run(await plan(release, pods, tmp_path)) as run:
                await under_load(run, asyncio.create_task(lose()))
                await under_load(run, asyncio.create_task(rotate()))
                # What connects anew does so with the new certificates.
                await pods[2].stop()
                twin = pods[2].twin(release.addresses[f"{release.name}-3"])
                await pods[2].start()
                await pods[2].ready()
                await refused(twin, pods[2])
                await run.settle(SETTLE_S)
                verdict = await run.verdict()
            assert verdict.holds, verdict
            assert verdict.acknowledged == verdict.sent == verdict.received > 0, verdict

    uvloop.run(scenario())


async def refused(twin: Pod, first: Pod) -> None:
    """Start a release on a copy of another one's volume: it must see that, and end."""
    await twin.start()
    try:
        assert await twin.exit_status() == 78
    finally:
        await twin.kill()
    (line,) = twin.log.read_text().splitlines()
    assert f"runs at {first.name}.{first.name[:-2]}-nodes.default.{DOMAIN} already" in line


def test_the_releases_jobs_define_its_queues_and_send_through_its_service(tmp_path: Path) -> None:
    definitions = example(CHART / "examples" / "production.yaml")["definitions"]

    async def scenario() -> None:
        async with installed(tmp_path, {**VALUES, "definitions": definitions}) as (release, _):
            (found,) = of_kind(release.objects, "Job")
            job = found["spec"]["template"]["spec"]
            status, said = await release.tool(job)
            assert status == 0, said
            assert "orders" in said
            status, again = await release.tool(job)
            assert status == 0, again
            assert "orders" not in again, "nothing differs any more"
            (test,) = of_kind(release.objects, "Pod")  # of `helm test`
            status, said = await release.tool(test["spec"])
            assert status == 0, said
            assert "received by the API after" in said

    uvloop.run(scenario())


def test_a_pod_without_its_variables_says_which(tmp_path: Path) -> None:
    async def scenario() -> None:
        release = Release(VALUES, tmp_path, free_network(), pods_max=3)
        pod = Pod(release, 0)
        endpoint, _, port = pod.environment()["QM_ENDPOINT"].partition(":")
        assert (release.names[endpoint], port) == (pod.address, "1811")
        release.container["env"] = [
            variable for variable in release.container["env"] if variable["name"] != "QM_CLUSTER"
        ]
        await pod.start()
        try:
            assert await pod.exit_status() == 78
        finally:
            await pod.kill()
        (line,) = pod.log.read_text().splitlines()
        assert "`birth.cluster`: the environment variable QM_CLUSTER is not set" in line

    uvloop.run(scenario())
