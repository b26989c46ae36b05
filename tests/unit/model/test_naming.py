"""What peers name as administration queues cannot take the destinations of applications."""

from array import array
from typing import Any

import pytest

from qm.model.state import naming as module
from qm.model.state.naming import is_named_by_peer
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.elements import QueueAccessType, QueueKind
from qm.model.values.limits import ALARM_NAMING_LIMIT, VERSION_OF_BINDINGS
from qm.model.values.records import Queue, decode
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.model.world import World, packet

ACCEPTED = TransferVerdict.ACCEPTED
OTHER = b"O" * 16


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "OUTGOING_QUEUES_PER_SOURCE_MAX", 2)
    monkeypatch.setattr(module, "OUTGOING_QUEUES_PER_ADDRESS_MAX", 3)
    monkeypatch.setattr(module, "OUTGOING_QUEUES_NAMED_MAX", 4)
    made = World(forgets=request.param)
    made.create("plain")
    return made


def name(world: World, number: int, source: bytes, address: str = "10.0.0.1") -> list[str]:
    """Let a message arrive that names administration queue `number`; return the alarms."""
    admin = DirectQueueFormatName(f"TCP:192.0.2.{number}\\admin")
    flags: dict[str, Any] = {"flags": AcknowledgeFlags.PA}
    message = packet(
        world.index, to="plain", source_queue_manager=source, admin_queue=admin, properties=flags
    )
    verdicts, applied = world.arrive_applied(message, facts=Facts(1, source, address, ()))
    assert verdicts == [ACCEPTED], "the message itself is taken"
    return applied.alarms


def named(world: World) -> dict[str, bool]:
    """Return the outgoing queues, and whether a peer named them."""
    found = [decode(Queue, row) for table, _, row in world.state.rows() if table == Table.QUEUE]
    return {
        queue.pathname.partition(":")[2].partition("\\")[0]: is_named_by_peer(
            world.state, queue.queue_id
        )
        for queue in found
        if queue.kind is QueueKind.OUTGOING
    }


def test_one_source_one_address_and_all_together_are_limited(world: World) -> None:
    assert [name(world, number, b"1" * 16) for number in (1, 2)] == [[], []]
    assert name(world, 1, b"1" * 16) == [], "a queue that exists takes more"
    assert name(world, 3, b"1" * 16) == [ALARM_NAMING_LIMIT]
    assert name(world, 3, b"2" * 16) == []
    assert name(world, 4, b"3" * 16) == [ALARM_NAMING_LIMIT], "three from this address"
    assert name(world, 4, b"4" * 16, "10.0.0.2") == []
    assert name(world, 5, b"5" * 16, "10.0.0.3") == [ALARM_NAMING_LIMIT], "four of all"
    assert named(world) == dict.fromkeys([f"192.0.2.{number}" for number in (1, 2, 3, 4)], True)


def test_what_an_application_uses_is_its_own(world: World) -> None:
    for number in (1, 2):
        name(world, number, OTHER)
    client = world.client()
    for number in (1, 9):
        client.open(f"DIRECT=TCP:192.0.2.{number}\\admin", QueueAccessType.SEND_ACCESS)
    assert named(world) == {"192.0.2.1": False, "192.0.2.2": True, "192.0.2.9": False}
    assert name(world, 3, OTHER) == [], "and no longer counts"


def test_a_queue_that_is_gone_makes_room_and_leaves_no_row(world: World) -> None:
    before = {row[:2] for row in world.state.rows() if row[0] == Table.OUTGOING}
    for number in (1, 2):
        name(world, number, OTHER)
    queues = [decode(Queue, row) for table, _, row in world.state.rows() if table == Table.QUEUE]
    for queue in queues:
        if queue.kind is QueueKind.OUTGOING:
            (key,) = world.positions(queue.queue_id)
            acked = commands.TransferAcked(queue.queue_id, array("Q", [key]))
            assert world.one(acked).status == 0
            assert world.one(commands.RemoveOutgoingQueue(queue.queue_id)).status == 0
    assert {row[:2] for row in world.state.rows() if row[0] == Table.OUTGOING} == before
    assert [name(world, number, OTHER) for number in (3, 4)] == [[], []]


def test_older_ones_are_not_counted(world: World) -> None:
    world.version = VERSION_OF_BINDINGS - 1
    for number in range(1, 6):
        assert name(world, number, OTHER) == []
    assert not any(named(world).values())
