"""Before a node stops on purpose, and what probes and tests of an installation ask."""

import asyncio
from pathlib import Path

import pytest

from qm.cli.cluster.prestop import NotReady, make_ready
from qm.client.calls import Calls, Tls
from qm.node.config.schema import API_PORT
from qm.node.dev.layout import DevNode, Layout
from tests.cluster.harness import cluster, run
from tests.cluster.test_processes import START_S, dev_cluster, leader_of, qm


def http(node: DevNode) -> tuple[str, str]:
    return "--http", node.http.removeprefix("http://")


def admin(layout: Layout, node: DevNode) -> tuple[str, ...]:
    pki = layout.pki
    return (
        *("--endpoint", node.api),
        *("--tls-authority", str(pki / "authority.pem")),
        *("--tls-certificate", str(pki / "admin.pem")),
        *("--tls-key", str(pki / "admin.key")),
    )


@pytest.mark.timeout(300)
def test_a_leader_makes_ready_to_stop_and_the_others_serve(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dev_cluster(tmp_path) as (layout, nodes):
            leader = await leader_of(nodes)
            assert (await qm("check", "ready", *http(leader))) == (0, "ready\n")
            prestop = ("node", "prestop", "--config", str(layout.config(leader.name)))
            assert await qm(*prestop, "--drain-seconds", "60") == (0, "")
            fresh = await leader_of([node for node in nodes if node != leader])
            assert fresh != leader
            code, said = await qm("check", "ready", *http(leader))
            assert (code, "drains" in said) == (1, True), said
            for node, seconds, expected in ((fresh, 30, 0), (leader, 1, 1)):
                through = ("send-receive", "--msmq", node.host, "--seconds", str(seconds))
                code, said = await qm("check", *through, *admin(layout, fresh))
                assert code == expected, said
            code, said = await qm("queue", "list", "-o", "json", *admin(layout, fresh))
            assert (code, said.strip()) == (0, "[]"), "the check's queues are gone"

    run(scenario())


def test_a_node_that_the_others_need_is_drained_all_the_same_and_it_is_said() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            (node,) = nodes.up
            await nodes.leader()
            files = nodes.certificate("n1")  # a node's role is enough
            wire = Calls(
                [f"{node.host}:{API_PORT}"],
                Tls(files.authority, files.certificate, files.key, server_name="n1"),
            )
            try:
                with pytest.raises(NotReady, match="0 of 1 voters would be left"):
                    await make_ready(wire, "n1", 0)
            finally:
                await wire.close()
            assert "drains" in (node.service.not_ready_reason() or "")

    run(scenario())


def test_nobody_is_ready_where_nobody_answers() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(START_S):
            code, said = await qm("check", "ready", "--http", "127.0.0.1:1")
        assert (code, "does not answer" in said) == (1, True), said

    run(scenario())
