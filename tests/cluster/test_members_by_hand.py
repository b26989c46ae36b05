"""Members, leadership and draining from the command line, against three nodes."""

from pathlib import Path

from tests.cluster.harness import Harness, cluster, run, until
from tests.cluster.test_refounding import join, lose, qm
from tests.unit.api.world import eventually


async def leader_of(nodes: Harness) -> str:
    found: str = (await qm(nodes, "cluster", "status"))["leader"]
    return found


async def members(nodes: Harness) -> dict[str, str]:
    """Return name -> role."""
    return {row["name"]: row["role"] for row in await qm(nodes, "cluster", "members")}


def test_leadership_moves_and_a_drained_node_serves_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(3, folder=tmp_path) as nodes:
            await nodes.leader()
            follower = (await nodes.followers())[0].name
            moved = await qm(nodes, "cluster", "transfer", "--to", follower)
            assert moved["leader"] == follower
            await eventually(lambda: leader_of(nodes), lambda seen: seen == follower)
            await qm(nodes, "cluster", "transfer", "--to", "n9", exit_code=2)
            drained = await qm(nodes, "cluster", "drain", follower, "--yes")
            assert drained["leader"] is False
            await eventually(lambda: leader_of(nodes), lambda seen: seen not in ("", follower))
            checked = await qm(nodes, "check", "cluster", exit_code=1)
            assert {row["node"]: row["problems"] for row in checked}[follower] == ["draining"]
            await qm(nodes, "cluster", "undrain", follower)
            assert (await qm(nodes, "check", "cluster"))[0]["problems"] == []

    run(scenario())


def test_members_come_go_and_come_back_without_their_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(3, folder=tmp_path) as nodes:
            await nodes.leader()
            await qm(nodes, "cluster", "add", "n4", "--host", "127.255.255.254")
            assert await members(nodes) == dict.fromkeys(("n1", "n2", "n3"), "voter") | {
                "n4": "learner"
            }
            await qm(nodes, "cluster", "remove", "n4", "--yes")
            assert "n4" not in await members(nodes)
            lost = (await nodes.followers())[0]
            await lose(nodes, lost.name)
            host = lost.config.host
            await qm(nodes, "cluster", "replace", lost.name, "--host", host, "--yes")
            assert (await members(nodes))[lost.name] == "learner"
            await lost.start()
            # It cannot be known that the second incarnation never ran.
            assert await join(lost) == f"{lost.name}.3"
            await qm(nodes, "cluster", "promote", lost.name)
            await until(lambda: nodes.serving() is not None, nodes.serving)
            assert (await members(nodes))[lost.name] == "voter"

    run(scenario())
