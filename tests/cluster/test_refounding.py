"""A cluster that was lost begins again: from a backup, or from the one node that is left."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qm.api.gate.identity import Role
from qm.cli.main import main
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.node.config.schema import API_PORT, NodeConfig
from qm.node.membership import refounding
from qm.node.membership.first_start import open_steps
from qm.node.membership.refounding import RefoundingRefused, survey
from qm.store.backup import SIGNATURE_FILE
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.cluster.messages import create_queue
from tests.cluster.test_automatic import automatic, settle

ORDERS = ".\\private$\\orders"
FAR = "DIRECT=TCP:127.255.255.1\\private$\\far"
"""An address that no node has."""
SENT, TAKEN = 200, 30


async def qm(nodes: Harness, *arguments: str, exit_code: int = 0) -> Any:
    """Run `qm` as an admin while the nodes run; return its JSON output."""
    files = nodes.certificate("admin")
    environment = {
        "QM_ENDPOINT": ",".join(f"{node.host}:{API_PORT}" for node in nodes.nodes.values()),
        "QM_TLS_AUTHORITY": str(files.authority),
        "QM_TLS_CERTIFICATE": str(files.certificate),
        "QM_TLS_KEY": str(files.key),
    }
    result = await asyncio.to_thread(
        CliRunner().invoke, main, [*arguments, "-o", "json"], env=environment
    )
    assert result.exit_code == exit_code, (arguments, result.output, result.exception)
    return json.loads(result.stdout) if result.stdout else None


def written(config: NodeConfig, folder: Path) -> str:
    """Write a configuration as its file; return the path."""
    path = folder / f"{config.name}.toml"
    members = "".join(
        f'[[members]]\nname = "{member.name}"\nhost = "{member.host}"\n'
        for member in config.members
    )
    path.write_text(
        f'name = "{config.name}"\nhost = "{config.host}"\ndata = "{config.data}"\n'
        f'[tls]\nauthority = "{config.tls.authority}"\n'
        f'certificate = "{config.tls.certificate}"\nkey = "{config.tls.key}"\n'
        f'[storage]\nsealing_key_file = "{config.storage.sealing_key_file}"\n' + members
    )
    return str(path)


def client(nodes: Harness, name: str) -> Client:
    files = nodes.certificate(name, Role.ADMIN)
    endpoints = [f"{node.host}:{API_PORT}" for node in nodes.nodes.values()]
    return Client(endpoints, tls=Tls(files.authority, files.certificate, files.key))


async def fill(nodes: Harness) -> list[bytes]:
    """Send messages and take some; return what is left, in order."""
    bodies = [b"message %d" % number for number in range(SENT)]
    await qm(nodes, "queue", "create", ORDERS)
    async with client(nodes, "sender") as sender:
        await sender.send(ORDERS, *(Message(body=body) for body in bodies))
        orders = await sender.open_queue(ORDERS)
        taken = await orders.receive_many(TAKEN)
        assert [message.body for message in taken] == bodies[:TAKEN]
        orders.confirm()
        await sender.send(FAR, Message(body=b"for another queue manager"))
    return bodies[TAKEN:]


async def outgoing(nodes: Harness) -> list[tuple[bool, int]]:
    """Return of each outgoing queue whether it is held, and how many wait."""
    rows = await qm(nodes, "outgoing", "list")
    return [(row["state"] == "on_hold", row["waiting"]) for row in rows]


async def received(nodes: Harness) -> list[bytes]:
    """Take everything from the queue; return the bodies."""
    bodies: list[bytes] = []
    async with client(nodes, "receiver") as receiver:
        orders = await receiver.open_queue(ORDERS)
        while message := await orders.receive(timeout_s=0):
            bodies.append(message.body)
            orders.confirm()
    return bodies


async def lose(nodes: Harness, *names: str) -> None:
    """Kill nodes and their disks."""
    for name in names:
        await nodes.kill(name)
        shutil.rmtree(nodes[name].config.data)


async def join(node: HarnessNode) -> str:
    async with open_steps(node.config, lambda _: None) as steps:
        return await steps.join(b"")


def test_a_backup_is_a_cluster_of_three_nodes_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = tmp_path / "backup"
        async with cluster(3, folder=tmp_path / "nodes") as nodes:
            left = await fill(nodes)
            await nodes.agree()
            follower = (await nodes.followers())[0]
            made = await qm(nodes, "backup", "create", str(folder))
            assert made["cluster"] == follower.cluster.config.cluster.hex()
            assert made["source"] != (await nodes.leader()).name
            found = await qm(nodes, "backup", "verify", str(folder))
            assert (found["sound"], found["messages"]) == (True, len(left) + 1)
            assert found["digest"] == made["digest"]
            await lose(nodes, "n1", "n2", "n3")

            first = written(nodes["n1"].config, tmp_path)
            restoring = ["backup", "restore", str(folder), "--config", first]
            planned = await qm(nodes, *restoring, "--dry-run")
            assert (planned["digest"], planned["signer"]) == (made["digest"], made["signer"])
            await qm(nodes, *restoring, "--dry-run", "--signer", "00" * 32, exit_code=1)
            (folder / SIGNATURE_FILE).rename(tmp_path / "signature")
            await qm(nodes, *restoring, "--yes", exit_code=1)
            assert (await qm(nodes, *restoring, "--dry-run", "--unsigned"))["signer"] == ""
            (tmp_path / "signature").rename(folder / SIGNATURE_FILE)
            done = await qm(nodes, *restoring, "--yes")
            assert done["index"] == made["index"]
            assert done["cluster"] != made["cluster"]
            await qm(nodes, *restoring, "--yes", exit_code=1)
            for node in nodes.nodes.values():
                await node.start()
            assert [await join(nodes[name]) for name in ("n2", "n3")] == ["n2.1", "n3.1"]
            assert await outgoing(nodes) == [(True, 1)]
            await nodes.kill("n1")
            assert await received(nodes) == left
            await nodes.restart("n1")
            await nodes.agree()

    (tmp_path / "nodes").mkdir()
    run(scenario())


def test_nodes_that_find_their_cluster_by_themselves_find_a_restored_one(tmp_path: Path) -> None:
    """`birth.cluster` tells a restored cluster from others, as it does one that was born."""

    async def scenario() -> None:
        folder = tmp_path / "backup"
        async with cluster(
            3,
            folder=tmp_path / "nodes",
            is_founded=False,
            change=lambda config: automatic(config, "blue"),
        ) as nodes:
            await settle(nodes, ids=["n1.1", "n2.1", "n3.1"])
            left = await fill(nodes)
            await qm(nodes, "backup", "create", str(folder))
            await lose(nodes, "n1", "n2", "n3")
            config = nodes["n1"].config
            signers = refounding.own_signer(config)
            refounding.restore(config, folder, holds_outgoing=True, signers=signers)
            for node in nodes.nodes.values():
                await node.start()
            await settle(nodes, ids=["n1.1", "n2.1", "n3.1"])
            assert await received(nodes) == left

    (tmp_path / "nodes").mkdir()
    run(scenario())


def test_a_backup_goes_on_while_messages_come_and_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            await create_queue(await nodes.leader(), "orders")
            stop = asyncio.Event()

            async def traffic() -> None:
                async with client(nodes, "sender") as sender:
                    orders = await sender.open_queue(ORDERS)
                    while not stop.is_set():
                        await sender.send(ORDERS, *(Message(body=bytes(5_000)) for _ in range(20)))
                        await orders.receive_many(15)
                        orders.confirm()

            load = asyncio.create_task(traffic())
            for number in range(3):
                folder = tmp_path / f"{number}"
                await qm(nodes, "backup", "create", str(folder))
                assert (await qm(nodes, "backup", "verify", str(folder)))["sound"]
            stop.set()
            await load

    run(scenario())


def test_one_node_goes_on_after_the_others_are_lost_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(3, folder=tmp_path / "nodes") as nodes:
            left = await fill(nodes)
            index = await nodes.agree()
            survivor = (await nodes.followers())[0]
            old = survivor.cluster.config.cluster
            with pytest.raises(RefoundingRefused, match="stop the node"):
                survey(survivor.config)
            lost = [name for name in nodes.nodes if name != survivor.name]
            await lose(nodes, *lost)
            await survivor.kill()

            config = written(survivor.config, tmp_path)
            recovering = ["cluster", "recover", "--config", config]
            for flags in ([], ["--yes"], ["--unsafe-lose-acknowledged"]):
                shown = await qm(nodes, *recovering, *flags, exit_code=1)
                assert shown["cluster"] == old.hex()
                assert shown["last_index"] >= index
                assert shown["voters"] == ["n1.1", "n2.1", "n3.1"]
            done = await qm(nodes, *recovering, "--unsafe-lose-acknowledged", "--yes")
            assert done["new_cluster"] != old.hex()
            await survivor.start()
            await until(lambda: nodes.serving() is survivor, nodes.serving)
            for name in lost:
                await nodes[name].start()
                assert await join(nodes[name]) == f"{name}.2"
            assert await outgoing(nodes) == [(False, 1)]
            await survivor.kill()
            assert await received(nodes) == left
            await survivor.start()
            await nodes.agree()

    (tmp_path / "nodes").mkdir()
    run(scenario())
