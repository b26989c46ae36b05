"""Which queues commands are about to bring messages to."""

from array import array

from qm.model.values.commands import Confirm, EdgeBatch, Request, Send
from qm.node.relay.announced import ANNOUNCED_MAX, queues_of
from qm.store.codec import encode_inspected
from tests.unit.model.world import HOST, World, packet


def found(world: World, command: EdgeBatch | Send | Confirm) -> list[int]:
    return list(queues_of(encode_inspected(command), world.machine.view))


def test_queues_of_this_cluster_are_announced() -> None:
    world = World()
    queue_id = world.create("orders")
    here, nowhere = packet(1), packet(2, to="none")
    assert found(world, world.edge_batch(here, nowhere, here)) == [queue_id, queue_id]
    assert found(world, world.edge_batch(*[here] * 20)) == [queue_id] * ANNOUNCED_MAX
    name = rf"DIRECT=OS:{HOST}\orders"
    send = Send.of(Request("c", 1, 0), [(name, here), ("nonsense", here)])
    assert found(world, send) == [queue_id]
    assert found(world, Confirm("c", 1)) == []


def test_what_is_no_packet_announces_nothing() -> None:
    world = World()
    cut = EdgeBatch(
        "n1", 1, memoryview(b"packet"), 0, array("I", [0, 6]), array("I", [0]), b"\0", (), 0, 0
    )
    assert found(world, cut) == []
