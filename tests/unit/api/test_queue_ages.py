"""Ages that are looked for in very many queues at once are those that each queue has alone."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from qm.api.control import queue_ages
from qm.api.control.queue_ages import SCANNED_MESSAGES_MAX, YOUNGEST, QueueAges, parts_of
from qm.model.queries import QueueInfo, View, list_queues, oldest_arrival
from qm.model.values import commands
from qm.model.values.elements import QueueAccessType, QueueKind
from tests.unit.model.world import ClientInWorld, World, packet, request

RECEIVE, MOVE = QueueAccessType.RECEIVE_ACCESS, QueueAccessType.MOVE_ACCESS
QUEUES = 30
Looker = Callable[[World], View]
LOOKERS: list[Looker] = [lambda world: world.machine.view, lambda world: View.of(world.state)]


def listed(view: View, *kinds: QueueKind) -> list[QueueInfo]:
    page = list_queues(view, limit=1_000, kinds=kinds or None)
    assert page.next is None
    return page.items


def alone(view: View, info: QueueInfo) -> float:
    arrived = oldest_arrival(view, info.queue_id)
    return YOUNGEST if arrived is None else -arrived


def name(number: int) -> str:
    return f"DIRECT=OS:vhost\\queue{number}"


def change(world: World, client: ClientInWorld, chance: random.Random) -> None:
    """Let something happen to a queue, at a time of its own."""
    number = chance.randrange(QUEUES)
    world.now_ms += 3_000
    match chance.choice(["arrive", "arrive", "many", "take", "lock", "purge", "settle", "move"]):
        case "arrive" | "many" as how:
            count = chance.randrange(1, 4) if how == "arrive" else SCANNED_MESSAGES_MAX
            first = chance.randrange(1, 1 << 31)
            world.arrive(
                *(
                    packet(first + k, to=f"queue{number}", priority=chance.randrange(8))
                    for k in range(count)
                )
            )
        case "take" | "lock" as how:
            opened = client.open(name(number), RECEIVE)
            count = chance.randrange(1, 9)
            client.receive_outcome(opened, count, is_two_phase=how == "lock")
        case "purge":
            world.one(commands.PurgeQueue(request(), number_of(world, number), ()))
        case "settle":
            world.one(commands.PurgeStep(number_of(world, number), chance.randrange(1, 20)))
        case _:
            client.open(f"{name(number)};later", MOVE)


def number_of(world: World, number: int) -> int:
    path = f"vhost\\queue{number}"
    (found,) = [one.queue_id for one in listed(world.machine.view) if one.pathname == path]
    return found


@pytest.mark.parametrize("look", LOOKERS, ids=["machine", "bare state"])
@pytest.mark.parametrize("rows", [1, 40, queue_ages.SCAN_ROWS])
def test_ages_are_those_of_each_queue_alone(
    look: Looker, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_ages, "SCAN_ROWS", rows)
    monkeypatch.setattr(queue_ages, "SCANNED_REMOVALS_MAX", 30)
    chance = random.Random(rows)
    world = World()
    for number in range(QUEUES):
        world.create(f"queue{number}", journaling=number % 3 == 0)
    client = world.client()
    ages, kept = QueueAges(), 0
    for _ in range(60):
        for _ in range(5):
            change(world, client, chance)
        view = look(world)
        for chosen in (listed(view, QueueKind.APPLICATION), listed(view)):
            found = [age for part in parts_of(chosen) for age in ages.of(view, part)]
            assert found == [alone(view, info) for info in chosen]
            assert QueueAges().of(view, chosen) == found
        kept += len(set(found))
    assert kept > 60 * 5, "there were ages to tell apart"


@pytest.mark.parametrize("attributes", [{}, {"journaling": True}])
def test_very_many_queues_are_read_together(
    attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a journal with many messages lies behind each."""
    world = World()
    client = world.client()
    count, rows = 150, 30
    monkeypatch.setattr(queue_ages, "SCAN_ROWS", rows)
    for number in range(count):
        world.create(f"queue{number}", **attributes)
        world.now_ms += 1_000
        many = 40 if attributes and number % 2 else 1
        ids = range(1_000 * number + 1, 1_000 * number + 1 + many)
        world.arrive(*(packet(one, to=f"queue{number}") for one in ids))
        if many > 1:
            client.receive(client.open(name(number), RECEIVE), many - 1)
    chosen = listed(world.machine.view, QueueKind.APPLICATION)
    asked: list[int] = []
    scan = world.state.scan

    def counted(*arguments: Any, **options: Any) -> list[tuple[bytes, bytes]]:
        found = scan(*arguments, **options)
        asked.append(len(found))
        return found

    monkeypatch.setattr(world.state, "scan", counted)
    found = QueueAges().of(world.machine.view, chosen)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == count
    assert len(asked) <= (count if attributes else count // rows + 2)
    assert sum(asked) <= (20 * count if attributes else 4 * count)


def test_others_have_their_turn_where_much_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan goes over what was removed; so many rows without a pause, and no more."""
    monkeypatch.setattr(queue_ages, "SCANNED_REMOVALS_MAX", 10)
    world = World()
    client = world.client()
    removed = (4, 6, 1, 0, 12, 9, 2, 0)
    for number, count in enumerate(removed):
        world.create(f"queue{number}")
        ids = range(100 * number + 1, 100 * number + 2 + count)
        world.arrive(*(packet(one, to=f"queue{number}") for one in ids))
        if count:
            client.receive(client.open(name(number), RECEIVE), count)
    chosen = listed(world.machine.view, QueueKind.APPLICATION)
    parts = [[info.removal_count for info in part] for part in parts_of(chosen)]
    assert parts == [[4, 6], [1, 0, 12, 9], [2, 0]], "the queue with 12 is not scanned"
    assert list(parts_of([])) == [[]]
