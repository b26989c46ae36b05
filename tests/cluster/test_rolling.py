"""Every node is stopped and started in turn, under load: nothing is lost, nothing comes twice."""

import asyncio

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.queries import queue_statistics
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue

MESSAGES_PER_BATCH = 5


class Sender:
    """Lets messages arrive through whichever node is up, and repeats what has no answer."""

    def __init__(self, nodes: Harness) -> None:
        self._nodes = nodes
        self.sent = 0
        self.repeated = 0

    async def run(self, until_done: asyncio.Event) -> None:
        while not until_done.is_set():
            first = 1 + self.sent
            while not await self._arrives(first):
                self.repeated += 1
                await asyncio.sleep(0.01)
            self.sent += MESSAGES_PER_BATCH

    async def _arrives(self, first: int) -> bool:
        """Propose one batch; the sender's own numbers tell its messages from others."""
        node = self._nodes.up[self.sent % len(self._nodes.up)]
        numbers = range(first, first + MESSAGES_PER_BATCH)
        try:
            (outcome,) = await node.cluster.propose(batch("orders", numbers))
        except (Unavailable, OutcomeUnknown):
            return False
        assert outcome.status == 0
        return True


def count(node: HarnessNode, queue_id: int) -> int:
    statistics = queue_statistics(node.cluster.view, queue_id)
    assert statistics is not None
    return statistics.message_count


def test_a_rolling_restart_loses_nothing_and_doubles_nothing() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            queue = await create_queue(await nodes.leader(), "orders")
            sender, done = Sender(nodes), asyncio.Event()
            sending = asyncio.create_task(sender.run(done))
            for name in nodes.nodes:
                before = sender.sent
                await nodes[name].stop()
                await nodes.leader()
                await until(lambda before=before: sender.sent > before + 50, lambda: sender.sent)  # type: ignore[misc]
                await nodes.restart(name)
                await nodes.followers()
            done.set()
            await sending
            await nodes.agree()
            for node in nodes.up:
                assert count(node, queue) == sender.sent, (node.name, sender.repeated)

    run(scenario())
