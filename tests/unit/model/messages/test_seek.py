"""Seeks begin at what is linked, not at what was received before (DESIGN 1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from qm.model.queries import peek
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.elements import QueueAccessType
from qm.model.values.rows import POSITION_KEY
from tests.unit.model.world import World, packet

ORDERS = "DIRECT=OS:vhost\\orders"
FIRST = Selector(SelectorKind.FIRST)


def looked_from(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keys from which positions are scanned from now on."""
    lows: list[int] = []
    scan = world.state.scan

    def noted(table: Table, low: bytes, *more: Any, **how: Any) -> Any:
        if table is Table.POSITION:
            lows.append(POSITION_KEY.unpack(low)[1])
        return scan(table, low, *more, **how)

    monkeypatch.setattr(world.state, "scan", noted)
    return lows


def found(world: World, queue: int, selector: Selector) -> int | None:
    status, position = peek(world.machine.view, queue, selector)
    assert status == 0
    return None if position is None else position.lookup_identifier


@pytest.mark.parametrize("priority", [3, 0])
def test_a_peek_past_locked_positions_begins_at_the_head(
    monkeypatch: pytest.MonkeyPatch, priority: int
) -> None:
    world = World()
    queue = world.create("orders")
    client = world.client()
    opened = client.open(ORDERS, int(QueueAccessType.RECEIVE_ACCESS))
    for first in range(1, 1_001, 50):
        world.arrive(*(packet(n, priority=priority) for n in range(first, first + 50)))
        received = client.receive(opened, 49, confirmed_upto=client.number)
        assert len(received) == 49
        client.receive(opened, 1, confirmed_upto=client.number)
    world.arrive(*(packet(n, priority=priority) for n in range(1_001, 1_011)))
    keys = list(world.positions(queue))
    held = client.receive(opened, 3, confirmed_upto=client.number, is_two_phase=True)
    assert [one.lookup_identifier for one in held] == keys[:3]
    assert found(world, queue, FIRST) == keys[3]
    lows = looked_from(world, monkeypatch)
    assert found(world, queue, FIRST) == keys[3]
    # A cursor behind which everything was received also continues from the head.
    stale = Selector(SelectorKind.AFTER, keys[0] - 900)
    assert found(world, queue, stale) == keys[3]
    assert found(world, queue, Selector(SelectorKind.AFTER, keys[4])) == keys[5]
    assert lows == [keys[0], keys[0], keys[4] + 1]


def test_a_seek_crosses_pages_of_what_it_may_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.model.messages.seek._SCAN_ROWS", 4)
    world = World()
    queue = world.create("orders")
    client = world.client()
    opened = client.open(ORDERS, int(QueueAccessType.RECEIVE_ACCESS))
    world.arrive(*(packet(n) for n in range(1, 13)))
    keys = list(world.positions(queue))
    assert found(world, queue, FIRST) == keys[0], "though more follow on its page"
    held = client.receive(opened, 9, confirmed_upto=client.number, is_two_phase=True)
    assert len(held) == 9
    assert found(world, queue, FIRST) == keys[9]


def test_what_is_moved_before_the_head_is_found() -> None:
    """It keeps its key, which may be before everything that the queue has seen."""
    world = World()
    queue, other = world.create("orders"), world.create("other")
    world.arrive(packet(1, to="other"), packet(2), packet(3))
    client = world.client()
    opened = client.open(ORDERS, int(QueueAccessType.RECEIVE_ACCESS))
    client.receive(opened, 1, is_two_phase=True)
    first, second = world.positions(queue)
    assert found(world, queue, FIRST) == second
    (early,) = world.positions(other)
    assert early < first
    moved = commands.Move(client.request(), other, early, queue, ())
    assert world.one(moved).status == 0
    assert found(world, queue, FIRST) == early
