"""An entry that no build can read, in the log all the same, stops no node for good."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from qm.cli.main import main
from qm.model.values.commands import ClockTick
from qm.node.log_reading import NodeLog
from qm.node.replica.skipped_entries import entry_hash
from tests.cluster.harness import Harness, cluster, run, until

GARBAGE = b"\x00\xde\xad\xbe\xef"


def skip(folder: Path, index: int, sha256: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["log", "skip", str(folder), str(index), sha256])
    return result.exit_code, result.output


async def ended(nodes: Harness) -> list[str]:
    """Wait until nodes have ended their processes, a majority or all; return why."""
    await until(lambda: len(nodes.deaths) > len(nodes.nodes) // 2, lambda: nodes.deaths)
    said, nodes.deaths[:] = list(nodes.deaths), []
    return said


def test_all_nodes_go_on_without_the_entry() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            (outcome,) = await leader.cluster.propose(ClockTick(1))
            assert outcome.status == 0
            await nodes.agree()  # a node that has just connected may lack the last entries
            # Behind every check, as a faulty build would.
            index = leader.cluster.driver._replica.propose(GARBAGE)
            leader.cluster.driver._schedule_turn()
            for text in await ended(nodes):
                assert f"entry {index}" in text
                assert f"qm log skip DATA_FOLDER {index} {entry_hash(GARBAGE)}" in text
            for name, node in nodes.nodes.items():
                await node.cluster.driver.transport.close()  # as the end of its process would
                await nodes.kill(name)
            nodes.deaths.clear()  # the last one may have heard of it meanwhile
            for node in nodes.nodes.values():
                data = node.config.data
                if NodeLog(data).data(index) is not None:  # one that did not end may lack it
                    assert skip(data, index, "0" * 64)[0] == 1
                code, text = skip(data, index - 1, entry_hash(GARBAGE))
                assert code == 1, text
                code, text = await asyncio.to_thread(skip, data, index, entry_hash(GARBAGE))
                assert code == 0, text
            for name in nodes.nodes:
                await nodes.restart(name)
            leader = await nodes.leader()
            (outcome,) = await leader.cluster.propose(ClockTick(1))
            assert outcome.status == 0
            await nodes.agree()

    run(scenario())


def test_an_entry_that_can_be_read_is_not_left_out() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            node = await nodes.leader()
            await node.cluster.propose(ClockTick(1))
            index = node.cluster.driver.applied_index
            replica = node.cluster.driver._replica
            data = replica._core.entries(index, index + 1, 1 << 20)[0].data
            await nodes.kill(node.name)
            code, text = skip(node.config.data, index, entry_hash(data))
            assert code == 1
            assert "can be read" in text

    run(scenario())
