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
from qm.wire.codes import ErrorCode
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


@pytest.mark.spec("DM-3.1.7.3.2-02", "DM-3.1.7.3.3-03")
def test_a_seek_goes_on_to_the_next_position_that_is_available_or_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over pages of locked ones, and from one priority to the next."""
    monkeypatch.setattr("qm.model.messages.seek._SCAN_ROWS", 4)
    world = World()
    queue = world.create("orders")
    client = world.client()
    opened = client.open(ORDERS, int(QueueAccessType.RECEIVE_ACCESS))
    world.arrive(*(packet(n, priority=7 - n // 10) for n in range(40)))
    keys = list(world.positions(queue))
    assert len({key >> 56 for key in keys}) == 4
    first, last = keys[3], keys[-4]

    def lock(*locked: int) -> None:
        for key in locked:
            exact = Selector(SelectorKind.EXACT, key)
            (one,) = client.receive(opened, selector=exact, is_two_phase=True)
            assert one.status == 0

    lock(*(key for key in keys if key not in (first, last)))
    assert found(world, queue, FIRST) == first
    assert found(world, queue, Selector(SelectorKind.AFTER, first)) == last
    assert found(world, queue, Selector(SelectorKind.SEEK_NEXT, first)) == last
    assert found(world, queue, Selector(SelectorKind.SEEK_PREVIOUS, last)) == first
    assert found(world, queue, Selector(SelectorKind.SEEK_LAST)) == last
    assert found(world, queue, Selector(SelectorKind.AFTER, last)) is None
    nothing = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None)
    for kind, key in ((SelectorKind.SEEK_NEXT, last), (SelectorKind.SEEK_PREVIOUS, first)):
        assert peek(world.machine.view, queue, Selector(kind, key)) == nothing
    # A receive goes the same way.
    (taken,) = client.receive(opened, selector=Selector(SelectorKind.SEEK_NEXT, first))
    assert (taken.status, taken.lookup_identifier) == (0, last)
    lock(first)
    assert found(world, queue, FIRST) is None
    assert client.receive(opened) == []


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
