"""The LocalQueueManager that all protocols of all nodes speak for [MS-MQDMPR 3.1.1]."""

from __future__ import annotations

import pytest

from qm.pb import control_pb2
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import run
from tests.cluster.test_edge import connect
from tests.unit.api.test_data import create
from tests.unit.api.world import bodies
from tests.unit.model.world import packet
from tests.unit.rpc.reading import ORDERS, rpc_world


def arriving(number: int) -> bytes:
    to = DirectQueueFormatName(ORDERS.removeprefix("DIRECT="))
    return packet(number, to=to, body=b"%d" % number)


@pytest.mark.spec("DM-3.1.1-06")
def test_every_protocol_at_every_node_reaches_the_same_queue_manager() -> None:
    async def scenario() -> None:
        async with rpc_world(2) as made:
            leader = await made.leader()
            (follower,) = await made.followers()
            seen = set()
            for number, node in enumerate((leader, follower), start=1):
                async with made.client(node, f"client {number}") as client:
                    told = await client.queues.GetQueueManager(control_pb2.GetQueueManagerRequest())
                    if node is leader:
                        await create(client, r".\private$\orders")
                    # By the binary protocol in, by remote read and by the data plane out.
                    peer = await connect(node.node)
                    numbers = [2 * number, 2 * number + 1]
                    peer.offer(numbers, [arriving(one) for one in numbers])
                    await peer.has(2)
                    seen |= {peer.remote_guid, told.identifier}
                    peer.transport.abort()
                    reader = await made.reader(node.node)
                    taken = [await reader.receive(await reader.open())]
                    taken += bodies(await client.receive(await client.open(ORDERS)))
                    assert taken == [b"%d" % one for one in numbers]
            assert len(seen) == 1, seen

    run(scenario())
