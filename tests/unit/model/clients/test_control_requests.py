"""A control request is done once, and what is remembered of the last ones has a bound."""

import pytest

from qm.model.clients import control_requests
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Request
from qm.wire.codes import ErrorCode
from tests.unit.model.world import World, packet


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def named(number: int) -> Request:
    return Request("", 0, 0, number.to_bytes(16, "big"))


def kept(world: World) -> int:
    return len(world.state.scan(Table.META, b"control/", b"control0", 100_000))


def test_a_repeat_returns_the_first_result_and_does_nothing(world: World) -> None:
    queue_id = world.create("orders")
    world.arrive(packet(1), packet(2))
    purge = commands.PurgeQueue(named(1), queue_id, ())
    first = world.one(purge)
    world.arrive(packet(3))
    again = world.one(purge)
    assert (again.status, again.value) == (first.status, first.value)
    world.settle(queue_id)
    assert len(world.positions(queue_id)) == 1
    assert world.one(commands.PurgeQueue(named(2), queue_id, ())).status == 0
    world.settle(queue_id)
    assert not world.positions(queue_id)


def test_a_refusal_is_a_result(world: World) -> None:
    queue_id = world.create("orders")
    label = {"label": encode_attribute("x")}
    stale = commands.SetQueue(named(1), queue_id, label, (), if_version=99)
    assert world.one(stale).status == ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT
    assert world.one(stale).status == ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT
    assert world.record(queue_id).label == ""


def test_requests_without_a_name_are_done_each_time(world: World) -> None:
    queue_id = world.create("orders")
    for _ in range(2):
        world.arrive(packet(1))
        assert world.one(commands.PurgeQueue(Request("", 0, 0), queue_id, ())).status == 0
    assert kept(world) == 0
    short = commands.PurgeQueue(Request("", 0, 0, b"short"), queue_id, ())
    assert world.one(short).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_the_oldest_results_go_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_requests, "CONTROL_RESULTS_MAX", 3)
    queue_id = world.create("orders")
    versions = [
        world.one(
            commands.SetQueue(named(number), queue_id, {"label": encode_attribute(f"{number}")}, ())
        ).value
        for number in range(1, 6)
    ]
    assert kept(world) == 3
    for number in (3, 4, 5):
        repeat = commands.SetQueue(
            named(number), queue_id, {"label": encode_attribute("again")}, ()
        )
        assert world.one(repeat).value == versions[number - 1]
    assert world.record(queue_id).label == "5"
    rows = world.state.scan(Table.META, b"control#", b"control$", 100)
    assert len(rows) == 3
