"""Two processes with one identity: the second one finds the first and refuses."""

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from qm.node.config.loading import load
from qm.node.config.schema import API_PORT, HTTP_PORT, MSMQ_PORT, RAFT_PORT, RELAY_PORT
from qm.node.dev.layout import Layout
from qm.node.membership.first_start import open_steps
from qm.node.membership.join import JoinRefused
from qm.node.process import EXIT_STATUS_CONFIG
from qm.node.replica.replicated_store import ReplicatedConfig, found
from raft.identity import IdentityRefused
from raft.types import Configuration
from tests.cluster.harness import Harness, HarnessNode, cluster, free_network, run, until
from tests.cluster.test_automatic import automatic, settle, waits
from tests.cluster.test_membership import members

FOUNDERS = ["n1.1", "n2.1", "n3.1"]


def test_what_must_be_corrected_is_said_before_any_port_opens(tmp_path: Path) -> None:
    """All ports are taken: a node that opened one first would end with 69."""

    async def scenario() -> None:
        layout = Layout(tmp_path)
        nodes = layout.make(2, free_network())
        first, second = nodes
        async with contextlib.AsyncExitStack() as taken:
            for port in (API_PORT, HTTP_PORT, MSMQ_PORT, RAFT_PORT, RELAY_PORT):
                server = await asyncio.start_server(lambda *_: None, first.host, port)
                await taken.enter_async_context(server)
            path = layout.config(first.name)
            sound = path.read_text()
            path.write_text(sound.replace("n1.pem", "lost.pem"))
            assert "lost.pem" in await refused(path)
            path.write_text("hots = 1\n" + sound)
            assert "unknown key 'hots'" in await refused(path)
            path.write_text(sound)
            identity = ReplicatedConfig(f"{second.name}.1", bytes(range(16)), load(path).data)
            found(identity, Configuration((identity.node,)))
            assert f"the data folder belongs to node {second.name}" in await refused(path)

    run(scenario())


async def refused(path: Path) -> str:
    """Run a node that ends with 78 and one line; return that."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qm", "node", "run", "--config", str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == EXIT_STATUS_CONFIG, said
    (line,) = said.decode().splitlines()
    return line


def elsewhere(nodes: Harness, name: str, *, deaths: list[str]) -> HarnessNode:
    """Return a node like one of the cluster's, with its own address and folder."""
    config = nodes[name].config
    return HarnessNode(
        msgspec.structs.replace(
            config,
            host=f"{config.host.rpartition('.')[0]}.99",
            data=config.data.with_name(f"{name}-elsewhere"),
        ),
        deaths,
        has_edge=True,
    )


async def announced(nodes: Harness, name: str) -> None:
    """Wait until the cluster has replicated where a node is."""

    def seen() -> list[object]:
        return [node.cluster.addresses.replicated(name) for node in nodes.up]

    await until(lambda: all(seen()), seen)


async def copied(nodes: Harness, name: str, copy: HarnessNode) -> None:
    """Give a copy the folder of a node, as of now."""
    await announced(nodes, name)
    await nodes.agree()
    await nodes.kill(name)
    shutil.copytree(nodes[name].config.data, copy.config.data)


def test_a_copied_folder_does_not_serve_beside_its_original() -> None:
    async def scenario() -> None:
        deaths: list[str] = []
        async with cluster(3) as nodes:
            copy = elsewhere(nodes, "n3", deaths=deaths)
            await copied(nodes, "n3", copy)
            await nodes.restart("n3")
            with pytest.raises(IdentityRefused, match=rf"n3\.1 .* runs at {nodes['n3'].host}"):
                await copy.start()
            assert sorted(await members(nodes)) == FOUNDERS
            assert deaths == []

    run(scenario())


def test_an_original_that_comes_back_to_a_copy_in_its_place_ends() -> None:
    async def scenario() -> None:
        deaths: list[str] = []
        async with cluster(3) as nodes:
            copy = elsewhere(nodes, "n3", deaths=deaths)
            await copied(nodes, "n3", copy)
            await copy.start()
            place = copy.host

            def seen() -> object:
                rows = [node.cluster.addresses.replicated("n3") for node in nodes.up]
                return {row.host for row in rows if row is not None}

            await until(lambda: seen() == {place}, seen)
            await nodes.restart("n3")  # whose state says that it is where it was
            await until(lambda: nodes.deaths, seen)
            (said,) = nodes.deaths
            nodes.deaths.clear()
            assert f"n3.1 of cluster {copy.cluster.config.cluster.hex()} runs at {place}" in said
            assert deaths == []
            await copy.kill()

    run(scenario())


def test_a_moved_node_serves_at_its_new_address() -> None:
    async def scenario() -> None:
        deaths: list[str] = []
        async with cluster(3) as nodes:
            moved = elsewhere(nodes, "n3", deaths=deaths)
            await copied(nodes, "n3", moved)
            await moved.start()
            nodes.nodes["n3"] = moved
            await nodes.agree()
            assert sorted(await members(nodes)) == FOUNDERS

    run(scenario())


def test_an_empty_machine_takes_no_living_nodes_place() -> None:
    async def scenario() -> None:
        deaths: list[str] = []
        async with cluster(3, is_founded=False, change=automatic) as nodes:
            await settle(nodes, ids=FOUNDERS)
            await announced(nodes, "n3")
            twin = elsewhere(nodes, "n3", deaths=deaths)
            await twin.start()
            await waits(twin, f"n3.1 runs at {nodes['n3'].host}")
            async with open_steps(twin.config, lambda _: None) as steps:
                with pytest.raises(JoinRefused, match="give that one a name of its own"):
                    await steps.join(b"")
            assert sorted(await members(nodes)) == FOUNDERS
            await nodes.kill("n3")
            nodes.nodes["n3"] = twin
            await settle(nodes, ids=["n1.1", "n2.1", "n3.2"])

    run(scenario())
