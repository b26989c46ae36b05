"""One backup at a time, and none that pins a node's disk because it is not read."""

import pytest

from qm.api.gate.operations import NotOffered
from qm.node.replica.replicated_store import STORE_FOLDER
from qm.node.upkeep.backup import Backups
from tests.cluster.harness import cluster, run, until


def test_a_backup_that_nobody_reads_is_let_go() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            assert node.node is not None
            pinned = node.config.data / STORE_FOLDER / "pinned"
            backups = Backups(node.cluster, node.node.metrics, stall_max_s=0.0)
            parts = backups.parts()
            first = await anext(parts)
            assert first.head.index == node.cluster.machine.applied_index()
            with pytest.raises(NotOffered, match="already"):
                await anext(backups.parts())
            await until(lambda: not list(pinned.iterdir()), lambda: list(pinned.iterdir()))
            with pytest.raises(NotOffered, match="was not read"):
                await anext(parts)
            again = backups.parts()
            assert (await anext(again)).data
            await again.aclose()
            assert not list(pinned.iterdir())

    run(scenario())
