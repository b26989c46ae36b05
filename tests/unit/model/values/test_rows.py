"""What rows keep of a message besides its packet: when it arrived, and why it is a dead letter."""

import pytest

from qm.model import queries
from qm.model.values import commands
from qm.model.values.elements import QueueAccessType
from qm.model.values.rows import class_code, class_of
from qm.wire.message_class import MessageClass
from tests.unit.model.world import NOW_S, World, packet, request

RECEIVE, MOVE = QueueAccessType.RECEIVE_ACCESS, QueueAccessType.MOVE_ACCESS


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


@pytest.mark.spec("DM-3.1.1.12-05")
def test_arrival_time_is_when_a_message_entered_its_queue(world: World) -> None:
    orders = world.create("orders")
    world.now_ms += 5_000
    world.arrive(packet(1), packet(2, properties={"label": "with flags"}, time_to_be_received=60))
    assert [one.arrival_time for one in world.positions(orders).values()] == [NOW_S + 5] * 2
    # So it is with many that are alike, wherever one stands among them.
    many = world.create("many")
    world.arrive(*(packet(number, to="many", sent_time=NOW_S - 3) for number in range(1, 9)))
    assert [one.arrival_time for one in world.positions(many).values()] == [NOW_S + 5] * 8
    client = world.client()
    handle = client.open("DIRECT=OS:vhost\\orders", RECEIVE)
    _, subqueue = client.open("DIRECT=OS:vhost\\orders;later", MOVE)
    world.now_ms += 5_000
    key = next(iter(world.positions(orders)))
    world.one(commands.Move(client.request(), orders, key, subqueue, ()))
    assert world.positions(subqueue)[key].arrival_time == NOW_S + 5
    (result,) = client.receive(handle)
    assert result.arrival_time == NOW_S + 5
    journal = world.manager_queue("system_journal_queue")
    world.one(commands.Move(request(), subqueue, key, journal, ()))
    (kept,) = world.positions(journal).values()
    assert kept.arrival_time == NOW_S + 10


def test_a_dead_letter_says_why_it_is_one(world: World) -> None:
    orders = world.create("orders")
    world.arrive(packet(1, has_negative_journaling=True, time_to_be_received=1), packet(2))
    client = world.client()
    client.receive(client.open("DIRECT=OS:vhost\\orders", RECEIVE))
    world.tick(2_000)
    world.one(commands.CloseClient("c"))
    dead = world.manager_queue("system_deadletter_queue")
    letters = {one.message_ordinal: one.class_code for one in world.positions(dead).values()}
    assert {ordinal: class_of(code) for ordinal, code in letters.items()} == {
        1: MessageClass.ACK_RECEIVE
    }, "it was received, and nobody confirmed it"
    world.arrive(packet(3, has_negative_journaling=True, time_to_be_received=3))
    world.tick(60_000)
    last = list(world.positions(dead).values())[-1]
    assert class_of(last.class_code) == MessageClass.NACK_RECEIVE_TIMEOUT
    world.one(commands.Move(request(), dead, list(world.positions(dead))[-1], orders, ()))
    back = list(world.positions(orders).values())[-1]
    assert class_of(back.class_code) == MessageClass.NORMAL


@pytest.mark.parametrize("message_class", list(MessageClass))
def test_every_acknowledgement_class_fits_its_code(message_class: MessageClass) -> None:
    if message_class is not MessageClass.ORDER_ACK:
        assert class_of(class_code(message_class)) == message_class


def test_a_sender_may_let_its_message_be_peeked_at_while_it_is_locked(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    for is_allowed in (False, True):
        raw = packet(0)
        world.one(
            commands.Send.of(
                client.request(),
                [("DIRECT=OS:vhost\\orders", raw)],
                allow_peek_when_locked=is_allowed,
            )
        )
    client.receive(client.open("DIRECT=OS:vhost\\orders", RECEIVE), 2, is_two_phase=True)
    status, found = queries.peek(world.machine.view, orders, commands.Selector())
    assert (status, found and found.message_ordinal) == (0, 2)
