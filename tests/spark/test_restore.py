"""A cluster that is gone begins again from the base that compaction made of its archive."""

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

from qm.node.membership.refounding import own_signer
from qm.store.signing import Signer
from spark.archive.store import ArchiveStore
from spark.compact import CompactOptions, run_compaction
from tests.cluster.archives import all_exported, mark, prompt
from tests.cluster.harness import cluster, run, with_sections
from tests.cluster.test_refounding import SENT, TAKEN, fill, join, lose, qm, received, written

COMPACTION = Signer(bytes(32))


def test_a_compacted_base_is_a_cluster_of_three_nodes_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    async def scenario() -> None:
        archive = tmp_path / "archive"
        section = prompt(archive, range_entries=100)
        prepared = with_sections(archive=section)
        async with cluster(3, folder=tmp_path / "nodes", change=prepared) as nodes:
            left = await fill(nodes)
            await mark(nodes, 1)
            await all_exported(nodes, archive)
            identity = (await nodes.leader()).cluster.config.cluster.hex()
            # Nodes sign with the key of their cluster, a compaction with its own.
            store = ArchiveStore(str(archive), own_signer(nodes["n1"].config))
            options = CompactOptions(identity, signer=COMPACTION)
            base = await asyncio.to_thread(run_compaction, spark, store, options)
            assert base.problems == []
            assert base.told_by == ["n1.1", "n2.1", "n3.1"], "all had this digest at the mark"
            assert len(left) == SENT - TAKEN
            assert base.messages == len(left) + 1, "and one for another queue manager"
            folder = str(archive / base.folder)
            found = await qm(nodes, "backup", "verify", folder)
            assert (found["digest"], found["messages"]) == (base.digest, base.messages)

            await lose(nodes, "n1", "n2", "n3")
            first = written(nodes["n1"].config, tmp_path)
            restoring = ("backup", "restore", folder, "--config", first, "--yes")
            await qm(nodes, *restoring, exit_code=1)
            done = await qm(nodes, *restoring, "--signer", COMPACTION.public)
            assert done["index"] == base.index
            for node in nodes.nodes.values():
                await node.start()
            assert [await join(nodes[name]) for name in ("n2", "n3")] == ["n2.1", "n3.1"]
            assert await received(nodes) == left
            await nodes.agree()

    (tmp_path / "nodes").mkdir()
    run(scenario())
