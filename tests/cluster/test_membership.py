"""Births, joins, lost disks and changes of members, as operators cause them."""

import shutil

import pytest

from qm.cluster.cluster import Unavailable
from qm.cluster.membership import Change, ChangeKind, ChangeRefused
from qm.model.values.commands import ClockTick, OpenClient
from qm.node.membership import join as joining
from qm.node.membership.birth import create_sealing_key, provision
from qm.node.membership.first_start import open_steps
from qm.node.membership.join import JoinRefused
from qm.pb import relay_pb2
from tests.cluster.harness import Harness, HarnessNode, change_members, cluster, run, until


async def init(node: HarnessNode) -> list[str]:
    """Do what `qm cluster init` does with a node's configuration; return what it says."""
    said: list[str] = []
    key = create_sealing_key(node.config.storage, node.config.data)
    async with open_steps(node.config, said.append) as steps:
        await steps.init(provision("QUORATE", "quorate.example", (), key), key)
    return said


async def join(node: HarnessNode) -> str:
    """Do what `qm node join` does; return the node's id."""
    async with open_steps(node.config, lambda _: None) as steps:
        return await steps.join(b"")


async def propose(node: HarnessNode) -> None:
    (outcome,) = await node.cluster.propose(ClockTick(1))
    assert outcome.status == 0


async def members(nodes: Harness) -> dict[str, bool]:
    """Return the members' ids, and whether each votes, as the leader knows them."""
    leader = await nodes.leader()
    found = leader.service.members.members
    return {f"{member.name}.{member.incarnation}": member.is_voter for member in found}


def test_nodes_without_identity_serve_nobody_until_their_birth() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False) as nodes:
            for node in nodes.up:
                assert node.node is not None
                assert "qm cluster init" in (node.node.not_ready_reason() or "")
            assert "n3 is a founder" in await init(nodes["n1"])
            for node in await nodes.followers():
                await propose(node)
            await until(
                lambda: not any(node.service.not_ready_reason() for node in nodes.up if node.is_up),
                lambda: [node.service.not_ready_reason() for node in nodes.up],
            )
            with pytest.raises(JoinRefused, match="born already"):
                await init(nodes["n2"])
            await nodes.agree()

    run(scenario())


def test_a_birth_that_was_broken_off_is_continued() -> None:
    async def scenario() -> None:
        async with cluster(3, is_founded=False) as nodes:
            half = bytes(range(16))
            request = relay_pb2.AdoptRequest(
                cluster=half, raft_id="n2.1", founders=["n1.1", "n2.1", "n3.1"]
            )
            async with open_steps(nodes["n1"].config, lambda _: None) as steps:
                await steps.adopt("n2", request)
            await init(nodes["n1"])
            assert {node.cluster.config.cluster for node in nodes.up} == {half}
            await propose(nodes["n3"])

    run(scenario())


def test_a_node_joins_and_votes_and_another_leaves() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            await propose(nodes["n1"])
            fourth = await nodes.add("n4")
            assert await join(fourth) == "n4.1"
            assert await join(fourth) == "n4.1", "it may be repeated"
            await propose(fourth)
            assert (await members(nodes))["n4.1"]
            leader = await nodes.leader()
            leaving = next(node for node in nodes.up if node not in (leader, fourth))
            asked = next(node for node in nodes.up if node not in (leader, leaving))
            await change_members(asked, Change(ChangeKind.REMOVE, leaving.name))
            assert f"{leaving.name}.1" not in await members(nodes)
            await leaving.kill()
            await propose(fourth)

    run(scenario())


def test_a_join_asks_again_where_a_busy_machine_answers_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "CALL_TIMEOUT_S", 0.05)

    async def scenario() -> None:
        async with cluster(3) as nodes:
            fourth = await nodes.add("n4")
            assert await join(fourth) == "n4.1"
            assert (await members(nodes))["n4.1"]
            await propose(fourth)

    run(scenario())


def test_a_node_that_lost_its_disk_returns_under_its_next_incarnation() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            (lost, _) = await nodes.followers()
            await lost.kill()
            leader = await nodes.leader()
            (outcome,) = await leader.cluster.propose(OpenClient("c", "somebody", 60_000))
            assert outcome.status == 0
            shutil.rmtree(lost.config.data)
            await lost.start()
            assert await join(lost) == f"{lost.name}.2"
            assert (await members(nodes))[f"{lost.name}.2"]
            await propose(lost)
            await nodes.agree()
            assert lost.cluster.view.counters().client_count == 1

    run(scenario())


def test_leadership_is_transferred_and_changes_are_refused_with_reasons() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            heir, _ = await nodes.followers()
            await heir.service.members.transfer(heir.name)
            await until(lambda: nodes.serving() is heir, nodes.serving)
            asked = heir.service.members
            with pytest.raises(ChangeRefused, match="not a member"):
                await asked.transfer("n9")
            with pytest.raises(ChangeRefused, match="Give its host"):
                await asked.change_members(Change(ChangeKind.ADD, "n9", 1))
            with pytest.raises(KeyError):
                await asked.inspect("n9")
            statuses = {node: await asked.inspect(node) for node in nodes.nodes}
            assert {status.leader for status in statuses.values()} == {heir.name}
            (other, _) = await nodes.followers()
            await other.kill()
            with pytest.raises(Unavailable):
                await asked.inspect(other.name)

    run(scenario())


def test_members_learn_each_others_api_addresses() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            for node in nodes.up:
                await until(
                    lambda node=node: (
                        {m.api_port for m in node.service.members.members}  # type: ignore[misc]
                        == {node.config.api.port}
                    ),
                    lambda node=node: node.service.members.members,  # type: ignore[misc]
                )

    run(scenario())
