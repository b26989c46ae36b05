"""The cluster's face: proposals, reads and relay streams, whoever leads."""

from qm.model.commands import ClockTick
from tests.cluster.harness import cluster, run


def test_propose_anywhere() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            for node in nodes.up:
                (outcome,) = await node.cluster.propose(ClockTick(1))
                assert outcome.status == 0
                assert await node.cluster.read_barrier() > 0
            await nodes.agree()

    run(scenario())
