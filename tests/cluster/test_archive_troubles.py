"""Nodes whose archive, or disk, is away for a while."""

import shutil
from itertools import combinations
from pathlib import Path

from qm.archive.schema import Part
from qm.model.values.commands import OpenClient
from tests.cluster.archives import all_exported, exported_upto, manifests, prompt, table
from tests.cluster.harness import HarnessNode, cluster, run, until, with_sections
from tests.cluster.test_membership import join


def metric(node: HarnessNode, name: str, **labels: str) -> float:
    assert node.node is not None
    return node.node.metrics.registry.get_sample_value(name, labels) or 0.0


async def propose(node: HarnessNode, client: str) -> None:
    (outcome,) = await node.cluster.propose(OpenClient(client, "somebody", 60_000))
    assert outcome.status == 0


def test_a_node_serves_while_its_archive_is_away_and_exports_all_afterwards(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"in the way")

    async def scenario() -> None:
        section = prompt(archive)
        async with cluster(1, change=with_sections(archive=section)) as nodes:
            leader = await nodes.leader()
            await propose(leader, "before")
            failures = "quorate_archive_failures_total"
            await until(
                lambda: metric(leader, failures, reason="destination"),
                lambda: metric(leader, "quorate_archive_lag_entries"),
            )
            await propose(leader, "meanwhile")
            archive.unlink()
            await all_exported(nodes, archive)
            await nodes.kill(leader.name)
            await nodes.restart(leader.name)
            leader = await nodes.leader()
            await propose(leader, "after")
            await all_exported(nodes, archive)

    run(scenario())
    indexes = table(archive, "n1.1", Part.ENTRIES)["index"].to_pylist()
    assert indexes == sorted(set(indexes))
    first, *others = manifests(archive)["n1.1"]
    assert (first[0].first, first[0].is_gap_before) == (1, False)
    assert others


def test_a_node_that_lost_its_disk_exports_under_its_next_incarnation(tmp_path: Path) -> None:
    archive, lost_name = tmp_path / "archive", list[str]()

    async def scenario() -> None:
        section = prompt(archive)
        async with cluster(3, change=with_sections(archive=section)) as nodes:
            (lost, _) = await nodes.followers()
            lost_name.append(lost.name)
            await all_exported(nodes, archive)
            await lost.kill()
            shutil.rmtree(lost.config.data)
            await lost.start()
            again = await join(lost)
            await propose(lost, "c")
            await all_exported(nodes, archive)
            assert again in exported_upto(archive)

    run(scenario())
    found = {
        node: {row["index"]: row["chain"] for row in table(archive, node, Part.ENTRIES).to_pylist()}
        for node in manifests(archive)
    }
    assert len(found) == 4
    for one, other in combinations(found.values(), 2):
        common = one.keys() & other.keys()
        assert {index: one[index] for index in common} == {index: other[index] for index in common}
    before, after = (node for node in found if node.startswith(f"{lost_name[0]}."))
    assert found[after].keys() > found[before].keys(), "the log was there from its first entry on"


def test_another_node_writes_data_when_the_one_whose_turn_it_is_has_gone(tmp_path: Path) -> None:
    archive, gone_name = tmp_path / "archive", list[str]()

    async def scenario() -> None:
        section = prompt(archive)
        async with cluster(3, change=with_sections(archive=section)) as nodes:
            first, _ = sorted(await nodes.followers(), key=lambda node: node.name)
            gone_name.append(first.name)
            await propose(await nodes.leader(), "before")
            await all_exported(nodes, archive)
            await nodes.kill(first.name)
            await propose(await nodes.leader(), "after")
            await all_exported(nodes, archive)

    run(scenario())
    with_data: dict[str, set[int]] = {}
    everything: set[int] = set()
    for node in manifests(archive):
        rows = table(archive, node, Part.ENTRIES).to_pylist()
        everything |= {row["index"] for row in rows}
        with_data[node] = {row["index"] for row in rows if row["data"] is not None}
    assert set.union(*with_data.values()) == everything
    of_gone = with_data[f"{gone_name[0]}.1"]
    assert of_gone
    assert max(of_gone) < max(everything)
