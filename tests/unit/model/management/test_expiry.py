"""What falls due is looked for from where the last look ended (DESIGN 1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.elements import QueueAccessType
from qm.model.values.rows import BUCKET_BY_TIME_KEY, DEADLINE_KEY, LEASE_KEY
from tests.unit.model.world import NOW_S, World, direct, packet

ORDERS = "DIRECT=OS:vhost\\orders"
RECEIVE = int(QueueAccessType.RECEIVE_ACCESS)


class Looks:
    """From which time on each index was scanned for what is due, the first bucket's excepted."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.since: dict[Table, list[int]] = {}
        self._scan = world.state.scan
        monkeypatch.setattr(world.state, "scan", self._noted)

    def _noted(self, table: Table, low: bytes, *more: Any, **how: Any) -> Any:
        if table is Table.DEADLINE:
            self.since.setdefault(table, []).append(DEADLINE_KEY.unpack(low)[0])
        elif table is Table.LEASE:
            self.since.setdefault(table, []).append(LEASE_KEY.unpack(low)[0])
        elif table is Table.HISTORY_BUCKET and low[:1] == b"\0":
            self.since.setdefault(table, []).append(BUCKET_BY_TIME_KEY.unpack(low)[1])
        return self._scan(table, low, *more, **how)


@pytest.mark.parametrize("forgets", [False, True], ids=["in hand", "from rows"])
def test_no_tick_looks_at_a_time_that_was_settled(
    monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    world = World(forgets=forgets)
    orders = world.create("orders")
    client = world.client(lease_ms=5_000)
    opened = client.open(ORDERS, RECEIVE)
    timed: dict[str, Any] = {"time_to_be_received": 20, "time_to_reach_queue": 60}
    world.arrive(*(packet(n, **timed) for n in range(1, 51)))
    client.receive(opened, 20)
    looks = Looks(world, monkeypatch)
    for _ in range(20):
        world.one(commands.RenewClients(("c",), 5_000))
        world.tick(4_000)
    assert not world.positions(orders)
    settled = world.now_ms - 4_000
    for table in (Table.DEADLINE, Table.LEASE, Table.HISTORY_BUCKET):
        since = looks.since[table]
        assert len(since) >= 20
        assert since == sorted(since)
        assert since[-1] > settled, table
    counters = world.counters()
    times = (counters.deadlines_from_ms, counters.leases_from_ms, counters.memories_from_ms)
    assert times == (world.now_ms + 1,) * 3


def test_what_is_late_when_it_comes_is_found_all_the_same() -> None:
    """Its deadline is before everything that is left to settle."""
    world = World()
    orders = world.create("orders", transactional=True)
    client = world.client(lease_ms=3600_000)
    world.tick(60_000)
    late: dict[str, Any] = {"to": direct("orders"), "time_to_be_received": 10, "sent_time": NOW_S}
    transaction = client.begin("t")
    outcome = client.send(
        ORDERS, raw=packet(0, sequence=(1, 1, 0), **late), transaction=transaction
    )
    assert outcome.status == 0
    assert world.counters().deadlines_from_ms <= (NOW_S + 10) * 1000
    world.tick()
    assert len(world.positions(orders)) == 1, "it is locked: settled on unlock (DM-A13)"
    assert client.commit(transaction) == 0
    world.tick()
    assert not world.positions(orders)
