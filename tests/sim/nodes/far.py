"""Another queue manager, to which clients send through the cluster: the outgoing half of nodes.

It forgets nothing and takes everything at once, by the acceptance rules in their plainest form, but
may be away for a while. What a client was told is sent must arrive there, transactional messages
once and, those of one queue, in their order.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from qm.client.client import Client
from qm.client.errors import ClientError
from qm.client.message import Message
from qm.model.queries import list_outgoing_queues
from qm.node.config.schema import API_PORT, MSMQ_PORT
from tests.sim.nodes.loop import SimLoop
from tests.sim.nodes.machines import FAR_HOST, HOSTS
from tests.unit.edge.outgoing.world import Peer

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster

QUEUE: Final = rf"DIRECT=TCP:{FAR_HOST}\private$\q"
QUEUE_OF_ONE_SEND: Final = rf"DIRECT=TCP:{FAR_HOST}\private$\once-%d"
AWAY: Final = "far_away"
"""The fault that takes it away."""
SHARE_OF_ONE_SEND: Final = 0.4
"""Of the sends under that fault: into a queue that nothing wakes again but its own link."""
GUID: Final = b"FAR-" * 4
PAUSE_S: Final = (0.05, 0.5)
"""Between two sends."""
MESSAGES_PER_SEND: Final = (1, 1, 4)
SHARE_TRANSACTIONAL: Final = 0.6
ARRIVE_S: Final = 60.0
"""Without faults everything has arrived by then: links wait before they are tried again."""
EXAMPLES: Final = 5


class Far:
    """The queue manager, and the client that sends to it."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._loop = SimLoop(cluster.world, cluster.network, "far", FAR_HOST, "admin")
        self._peer = Peer(FAR_HOST, MSMQ_PORT, GUID)
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._number = 0
        self._exact: set[int] = set()
        """Numbers that were sent in transactions."""
        self._alone: dict[int, int] = {}
        """Number -> the first of its send, where that went into a queue of its own."""
        self._told: set[int] = set()
        """Numbers of which the client was told that they are sent."""

    @property
    def arrived(self) -> int:
        """Messages that an application there would have received."""
        return len(self._peer.taken)

    def begin(self) -> None:
        """Listen, and send until `settle`; called by the client's process."""
        self._loop.call_soon(lambda: self._loop.create_task(self._peer.open()))
        self._task = asyncio.create_task(self._send())

    def leave(self) -> None:
        """Refuse connections and reset those that there are, until `come_back`."""
        self._loop.call_soon(lambda: self._loop.create_task(self._peer.shut()))
        self._is_away = True

    def come_back(self) -> None:
        """Listen again, if it does not."""
        if self._is_away:
            self._loop.call_soon(lambda: self._loop.create_task(self._peer.open()))
            self._is_away = False

    async def settle(self) -> None:
        """Send no more; without faults everything arrives, or that is a finding."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        cluster = self._cluster
        with suppress(TimeoutError):
            await cluster.until(lambda: not self._missing(), "their arrival", ARRIVE_S)
        missing = sorted(self._missing())
        if missing:
            cluster.find(f"far lost: {len(missing)}: {missing[:EXAMPLES]} of {len(self._told)}")
        elif await self._keeps():
            cluster.find(f"far kept: {self._kept()} messages that have arrived")
        exact = [number for number in self._peer.bodies if number in self._exact]
        doubled = sorted({number for number in exact if exact.count(number) > 1})
        if doubled:
            cluster.find(f"far doubled: {len(doubled)}: {doubled[:EXAMPLES]}")
        for queue in sorted({self._alone.get(number, -1) for number in exact}):
            own = [number for number in exact if self._alone.get(number, -1) == queue]
            if not doubled and own != sorted(own):
                cluster.find(f"far out of order: {own[:40]}")

    async def _keeps(self) -> bool:
        """Return whether messages stay in outgoing queues that nothing is to be sent from."""
        try:
            await self._cluster.until(lambda: self._kept() == 0, "their end", ARRIVE_S)
        except TimeoutError:
            return True
        return False

    def _kept(self) -> int:
        leader = self._cluster.leader()
        replicated = None if leader is None or leader.node is None else leader.node.replicated
        if replicated is None:
            return -1
        queues = list_outgoing_queues(replicated.machine.store.view).items
        return sum(queue.message_count for queue in queues)

    def _missing(self) -> set[int]:
        return self._told.difference(self._peer.bodies)

    async def _send(self) -> None:
        chance = self._cluster.world.chance("far")
        client = Client([f"{host}:{API_PORT}" for host in HOSTS.values()], client_id="far sender")
        await client.open()
        try:
            while True:
                await asyncio.sleep(chance.uniform(*PAUSE_S))
                count = chance.choice(MESSAGES_PER_SEND)
                numbers = range(self._number, self._number + count)
                self._number += count
                messages = [Message(body=b"%d" % number) for number in numbers]
                queue = self._queue(numbers)
                with suppress(ClientError):
                    if chance.random() < SHARE_TRANSACTIONAL:
                        self._exact.update(numbers)
                        async with client.transaction() as transaction:
                            await transaction.send(queue, *messages)
                    else:
                        await client.send(queue, *messages)
                    self._told.update(numbers)
        finally:
            await client.close(confirm=False)

    def _queue(self, numbers: range) -> str:
        """Return where a send goes; the dice are drawn where it may be away, and not elsewhere."""
        world, knobs = self._cluster.world, self._cluster.knobs
        if AWAY not in knobs.faults or world.chance("far queues").random() >= SHARE_OF_ONE_SEND:
            return QUEUE
        self._alone.update(dict.fromkeys(numbers, numbers.start))
        return QUEUE_OF_ONE_SEND % numbers.start
