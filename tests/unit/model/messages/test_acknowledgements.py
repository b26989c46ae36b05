"""Local sends are acknowledged when they reach their queue."""

from typing import Any

import pytest

from qm.wire.message_class import AcknowledgeFlags, MessageClass
from tests.unit.model.world import HOST, OWN, World, direct, packet

ASKING = int(AcknowledgeFlags.PA)
LOCAL = f"DIRECT=OS:{HOST}\\orders"


def asking(**fields: Any) -> bytes:
    """Return a packet that wants to hear that it reached its queue."""
    more: dict[str, Any] = {"admin_queue": direct("admin"), "source_queue_manager": OWN} | fields
    return packet(0, properties={"flags": ASKING}, **more)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def told(world: World, admin: int) -> list[int]:
    return [int(message.properties.message_class) for message in world.messages(admin)]


def test_a_local_send_is_told_that_it_reached_its_queue(world: World) -> None:
    admin, orders = world.create("admin"), world.create("orders")
    client = world.client()
    assert client.send(LOCAL, raw=asking()).status == 0
    assert client.send(LOCAL, raw=packet(0)).status == 0
    assert told(world, admin) == [MessageClass.ACK_REACH_QUEUE]
    ((_, first), _) = world.positions(orders).items()
    (said,) = world.messages(admin)
    assert said.properties.correlation_id[:16] == OWN
    assert int.from_bytes(said.properties.correlation_id[16:], "little") == first.message_ordinal


def test_a_transaction_is_told_when_it_commits(world: World) -> None:
    admin = world.create("admin")
    world.create("orders", transactional=True)
    client = world.client()
    for ends, wanted in ((client.abort, 0), (client.commit, 1)):
        transaction = client.begin(f"t{wanted}")
        raw = asking(sequence=(1, 1, 0))
        assert client.send(LOCAL, raw=raw, transaction=transaction).status == 0
        assert told(world, admin) == []
        assert ends(transaction) == 0
        assert told(world, admin) == [MessageClass.ACK_REACH_QUEUE] * wanted
