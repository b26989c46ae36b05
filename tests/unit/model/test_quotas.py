"""One principal cannot take what others need: sessions, and queues that it creates."""

import pytest

from qm.model.clients import clients as clients_module
from qm.model.management import administration
from qm.model.state.principals import META_CLIENT_OF, META_PRINCIPAL, META_QUEUE_OF
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import (
    APPLY_VERSION,
    QUOTA_QUEUES,
    QUOTA_SESSIONS,
    VERSION_OF_BINDINGS,
)
from qm.security.sid import ADMINISTRATORS, sid_from_text
from qm.wire.codes import ErrorCode
from tests.unit.model.world import World, packet, request

ALICE, BOB = (sid_from_text(f"S-1-5-21-1-2-3-100{who}") for who in (1, 2))
HOUR_MS = 3_600_000
TOO_MANY = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def opened(world: World, client_id: str, principal: str) -> Outcome:
    return world.one(commands.OpenClient(client_id, principal, HOUR_MS))


def created(world: World, name: str, *sids: bytes) -> Outcome:
    identifier = name.encode().ljust(16, b"\0")
    command = commands.CreateQueue(
        request(), identifier, identifier[::-1], f".\\{name}", {}, b"", sids
    )
    return world.one(command)


def count_rows(world: World) -> int:
    marks = (META_CLIENT_OF, META_PRINCIPAL, META_QUEUE_OF)
    return sum(
        table == Table.META and key.startswith(marks) for table, key, _ in world.state.rows()
    )


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few sessions be enough for the quota."""
    monkeypatch.setattr(clients_module, "CLIENTS_SHARED_MAX", 4)
    monkeypatch.setattr(clients_module, "CLIENTS_FEW_COUNT", 2)


@pytest.mark.usefixtures("scarce")
@pytest.mark.parametrize("version", [VERSION_OF_BINDINGS, APPLY_VERSION])
def test_the_last_sessions_are_for_principals_with_few(world: World, version: int) -> None:
    world.version = version
    for number in range(4):
        assert opened(world, f"a{number}", "alice").status == 0
    refused = opened(world, "a4", "alice")
    assert (refused.status, refused.value) == (TOO_MANY, QUOTA_SESSIONS)
    assert opened(world, "b0", "bob").status == opened(world, "b1", "bob").status == 0
    assert opened(world, "b2", "bob").value == QUOTA_SESSIONS
    assert opened(world, "a0", "alice").status == 0, "a known one is resumed"


@pytest.mark.usefixtures("scarce")
def test_a_session_counts_until_it_is_forgotten(world: World) -> None:
    for number in range(4):
        opened(world, f"a{number}", "alice")
        world.one(commands.CloseClient(f"a{number}"))
    assert opened(world, "a4", "alice").value == QUOTA_SESSIONS, "its results are remembered"
    world.tick(25 * HOUR_MS)
    assert opened(world, "a4", "alice").status == 0
    world.one(commands.CloseClient("a4"))
    world.tick(25 * HOUR_MS)
    assert count_rows(world) == 0


def test_a_principal_creates_a_limited_number_of_queues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "QUEUES_PER_PRINCIPAL_MAX", 2)
    first = created(world, "q0", ALICE)
    assert first.status == created(world, "q1", ALICE).status == 0
    refused = created(world, "q2", ALICE)
    assert (refused.status, refused.value) == (TOO_MANY, QUOTA_QUEUES)
    assert created(world, "q1", ALICE).status == ErrorCode.MQ_ERROR_QUEUE_EXISTS
    assert created(world, "q3", BOB).status == 0
    for name in ("q4", "q5", "q6"):
        assert created(world, name, BOB, ADMINISTRATORS).status == 0
    assert isinstance(first.value, int)
    assert world.one(commands.DeleteQueue(request(), first.value, (ALICE,))).status == 0
    world.settle(first.value)
    assert created(world, "q2", ALICE).status == 0


def test_what_was_there_before_is_not_counted(world: World) -> None:
    world.version = VERSION_OF_BINDINGS - 1
    opened(world, "old", "alice")
    queue = created(world, "old", ALICE)
    assert count_rows(world) == 0
    world.version = VERSION_OF_BINDINGS
    assert isinstance(queue.value, int)
    world.one(commands.DeleteQueue(request(), queue.value, (ALICE,)))
    world.settle(queue.value)
    world.one(commands.CloseClient("old"))
    world.tick(25 * HOUR_MS)
    assert count_rows(world) == 0


def test_a_message_is_not_moved_to_where_it_has_no_room(world: World) -> None:
    world.create("orders")
    tight = world.create("tight", quota=1)
    world.arrive(packet(1, body=bytes(2_000)))
    client = world.client()
    _, orders = client.open("DIRECT=OS:vhost\\orders", QueueAccessType.RECEIVE_ACCESS)
    (key,) = world.positions(orders)
    moved = world.one(commands.Move(client.request(), orders, key, tight, ()))
    assert moved.status == TOO_MANY
    assert list(world.positions(orders)) == [key]
