"""Nodes that find their cluster by themselves, and what they must not take for a birth."""

import shutil

import msgspec
import pytest

from qm.cluster.membership import Change, ChangeKind
from qm.model.values.commands import OpenClient
from qm.node.config.schema import BirthSection, KubernetesSection, NodeConfig
from qm.node.membership.first_start import open_steps
from qm.node.membership.former_member import FORMER_FOLDER
from qm.pb import relay_pb2
from tests.cluster.harness import Harness, HarnessNode, change_members, cluster, run, until
from tests.cluster.test_membership import members

FOUNDERS = ["n1.1", "n2.1", "n3.1"]


def automatic(config: NodeConfig, cluster_text: str = "") -> NodeConfig:
    birth = BirthSection(automatic=True, cluster=cluster_text, computer_name="orders")
    return msgspec.structs.replace(config, birth=birth)


async def settle(nodes: Harness, *, ids: list[str]) -> None:
    """Wait until these ids, and no others, are the voters, as all nodes that are up see it."""

    def seen() -> dict[str, object]:
        return {
            node.name: None
            if node.node is None or node.node.service is None
            else (sorted(node.cluster.configuration.voters), node.service.not_ready_reason())
            for node in nodes.up
        }

    await until(lambda: all(s == (ids, None) for s in seen().values()), seen)


async def waits(node: HarnessNode, for_what: str) -> None:
    """Wait until an empty node says why it belongs to no cluster."""
    assert node.node is not None
    process = node.node
    await until(lambda: for_what in (process.not_ready_reason() or ""), process.not_ready_reason)


async def start_automatic(node: HarnessNode) -> None:
    if node.is_up:
        await node.kill()
    node.config = automatic(node.config)
    await node.start()


async def lose_disk(node: HarnessNode) -> None:
    if node.is_up:
        await node.kill()
    shutil.rmtree(node.config.data)


def test_empty_founders_make_one_cluster_and_keep_it_over_restarts() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False, change=automatic) as nodes:
            await settle(nodes, ids=FOUNDERS)
            (before,) = {node.cluster.config.cluster for node in nodes.up}
            manager = nodes["n2"].cluster.view.ledger.manager
            assert manager is not None
            assert manager.computer_name == "ORDERS"
            for node in nodes.up:
                await node.kill()
            for node in nodes.nodes.values():
                await node.start()
            await settle(nodes, ids=FOUNDERS)
            assert {node.cluster.config.cluster for node in nodes.up} == {before}

    run(scenario())


def test_nobody_founds_while_a_founder_does_not_say_that_it_is_empty() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False) as nodes:
            await nodes.kill("n3")
            for name in ("n1", "n2"):
                await start_automatic(nodes[name])
            for name in ("n1", "n2"):
                await waits(nodes[name], "n3 does not answer")
            await start_automatic(nodes["n3"])
            await settle(nodes, ids=FOUNDERS)

    run(scenario())


def test_the_first_founder_without_its_disk_never_founds_again() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False, change=automatic) as nodes:
            await settle(nodes, ids=FOUNDERS)
            born = nodes["n2"].cluster.config.cluster
            leader = await nodes.leader()
            (outcome,) = await leader.cluster.propose(OpenClient("c", "somebody", 60_000))
            assert outcome.status == 0
            for name in ("n2", "n3"):
                await nodes.kill(name)
            await lose_disk(nodes["n1"])
            await nodes["n1"].start()
            await waits(nodes["n1"], "n2, n3 does not answer")
            for name in ("n2", "n3"):
                await nodes.restart(name)
            await settle(nodes, ids=["n1.2", "n2.1", "n3.1"])
            await nodes.agree()
            assert nodes["n1"].cluster.config.cluster == born
            assert nodes["n1"].cluster.view.counters().client_count == 1

    run(scenario())


def test_a_birth_that_was_broken_off_goes_on() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False) as nodes:
            half = bytes(range(16))
            request = relay_pb2.AdoptRequest(cluster=half, raft_id="n1.1", founders=FOUNDERS)
            async with open_steps(nodes["n1"].config, lambda _: None) as steps:
                await steps.adopt("n1", request)
            for node in nodes.nodes.values():
                await start_automatic(node)
            await settle(nodes, ids=FOUNDERS)
            assert {node.cluster.config.cluster for node in nodes.up} == {half}

    run(scenario())


def test_a_founder_that_may_have_voted_is_not_founded_again() -> None:
    async def scenario() -> None:
        async with cluster(3, is_provisioned=False) as nodes:
            await nodes.leader()  # so there were votes, and the queue manager is not born yet
            await lose_disk(nodes["n3"])
            for node in nodes.nodes.values():
                await start_automatic(node)
            await settle(nodes, ids=["n1.1", "n2.1", "n3.2"])

    run(scenario())


def test_an_empty_node_refuses_seeds_of_another_cluster() -> None:
    async def scenario() -> None:
        async with cluster(
            3, is_founded=False, change=lambda config: automatic(config, "orders-1")
        ) as nodes:
            await settle(nodes, ids=FOUNDERS)
            stranger = nodes["n3"]
            await lose_disk(stranger)
            sound = stranger.config
            stranger.config = automatic(sound, "orders-2")
            await stranger.start()
            await waits(stranger, "another `birth.cluster`")
            await stranger.kill()
            stranger.config = sound
            await stranger.start()
            await settle(nodes, ids=["n1.1", "n2.1", "n3.2"])

    run(scenario())


def test_a_fourth_node_joins_and_a_removed_one_stays_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with cluster(3, is_founded=False, change=automatic) as nodes:
            await settle(nodes, ids=FOUNDERS)
            fourth = await nodes.add("n4")
            await settle(nodes, ids=[*FOUNDERS, "n4.1"])
            await change_members(nodes["n1"], Change(ChangeKind.REMOVE, "n4"))
            await fourth.kill()
            await fourth.start()
            await until(lambda: "n4.1 was removed" in caplog.text, lambda: caplog.text)
            assert sorted(await members(nodes)) == FOUNDERS
            await lose_disk(fourth)
            await fourth.start()
            await settle(nodes, ids=[*FOUNDERS, "n4.2"])

    run(scenario())


def test_a_pod_that_is_wanted_again_returns_as_a_new_member() -> None:
    def pod(config: NodeConfig) -> NodeConfig:
        kubernetes = KubernetesSection(stateful_set="orders")
        return msgspec.structs.replace(automatic(config), kubernetes=kubernetes)

    async def scenario() -> None:
        async with cluster(3, is_founded=False, change=pod) as nodes:
            await settle(nodes, ids=FOUNDERS)
            fourth = await nodes.add("n4")
            await settle(nodes, ids=[*FOUNDERS, "n4.1"])
            await change_members(nodes["n1"], Change(ChangeKind.REMOVE, "n4"))
            await fourth.kill()
            await fourth.start()
            await until(lambda: any("n4.1 was removed" in text for text in nodes.deaths))
            nodes.deaths.clear()
            await fourth.kill()
            await fourth.start()
            await settle(nodes, ids=[*FOUNDERS, "n4.2"])
            former = fourth.config.data / FORMER_FOLDER
            await until(lambda: not former.exists())

    run(scenario())
