"""What a session sent behind a message for which there was no room does not overtake it."""

from typing import Any

import pytest

from qm.model.arrivals.refused_sessions import META_REFUSED
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.limits import (
    REFUSED_SESSION_KEPT_MS,
    REFUSED_SESSIONS_MAX,
    REFUSED_SESSIONS_PER_ADDRESS_MAX,
    VERSION_OF_REFUSED_SESSIONS,
)
from qm.model.values.records import RefusedSessions, decode
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import AcknowledgeFlags
from tests.unit.model.world import PEER, PEER_ADDRESS, World, packet, request

ACCEPTED, CLOSE = TransferVerdict.ACCEPTED, TransferVerdict.CLOSE_SESSION
LARGE = packet(1, body=bytes(2_000))
SMALL = [packet(k, body=b"small") for k in range(2, 12)]
SESSION = Facts(1, PEER, PEER_ADDRESS, ())
OTHER = Facts(2, PEER, PEER_ADDRESS, ())


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    world = World(forgets=request.param)
    world.create("orders")
    world.create("audit")
    give_room(world, 1)
    return world


def give_room(world: World, kib: int) -> None:
    changes = {"queue_manager_quota": encode_attribute(kib)}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0


def remembered(world: World) -> list[tuple[str, int]]:
    row = world.state.get(Table.META, META_REFUSED)
    return (
        []
        if row is None
        else [(one.edge, one.number) for one in decode(RefusedSessions, row).sessions]
    )


def arrive_of(world: World, *messages: tuple[bytes, int], facts: tuple[Facts, ...]) -> list[int]:
    """Let messages of several sessions arrive in one batch."""
    batch = world.edge_batch(*(raw for raw, _ in messages))
    mixed = type(batch)(
        batch.edge,
        batch.number,
        batch.packets,
        batch.body_offset,
        batch.offsets,
        batch.checksums,
        bytes(fact for _, fact in messages),
        facts,
        batch.body_index,
        batch.first_ordinal,
    )
    verdicts = world.apply(mixed).outcomes[0].verdicts
    assert verdicts is not None
    return verdicts.tolist()


def test_a_smaller_message_does_not_overtake_one_without_room(world: World) -> None:
    before, *after = SMALL
    assert world.arrive(before, LARGE, *after, facts=SESSION) == [ACCEPTED, *[CLOSE] * 10]


def test_what_is_on_its_way_does_not_overtake_it_when_there_is_room_again(world: World) -> None:
    assert world.arrive(LARGE, facts=SESSION) == [CLOSE]
    give_room(world, 1_000)
    assert world.arrive(*SMALL, facts=SESSION) == [CLOSE] * 10
    assert world.arrive(LARGE, *SMALL, facts=OTHER) == [ACCEPTED] * 11


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": {"flags": int(AcknowledgeFlags.PA)}},
        {"security": SecurityHeader(sender_id_type=1, security_id=b"\1\1\0\0\0\0\0\5\7\0\0\0")},
    ],
    ids=["wants an acknowledgement", "names its sender"],
)
def test_nothing_overtakes_it_that_is_judged_alone(world: World, fields: dict[str, Any]) -> None:
    assert world.arrive(LARGE, packet(20, **fields), facts=SESSION) == [CLOSE, CLOSE]
    assert world.arrive(packet(20, **fields), facts=SESSION) == [CLOSE]


def test_other_sessions_of_the_batch_go_on(world: World) -> None:
    signed = Facts(1, PEER, PEER_ADDRESS, (), claimed_sid=b"\1\1\0\0\0\0\0\5\7\0\0\0")
    found = arrive_of(
        world,
        (LARGE, 0),
        (SMALL[0], 1),
        (SMALL[1], 0),
        (SMALL[2], 2),
        facts=(SESSION, OTHER, signed),
    )
    assert found == [CLOSE, ACCEPTED, CLOSE, CLOSE]
    assert remembered(world) == [("n1", 1)]


def test_it_is_forgotten_after_a_while(world: World) -> None:
    assert world.arrive(LARGE, facts=SESSION) == [CLOSE]
    assert remembered(world)
    world.now_ms += REFUSED_SESSION_KEPT_MS - 1
    assert world.arrive(SMALL[0], facts=SESSION) == [CLOSE]
    world.now_ms += 1
    assert world.arrive(SMALL[0], facts=SESSION) == [ACCEPTED]
    assert not remembered(world)


def test_sessions_of_one_address_and_of_all_are_limited(world: World) -> None:
    own = REFUSED_SESSIONS_PER_ADDRESS_MAX
    for number in range(own + 5):
        world.arrive(LARGE, facts=Facts(number, PEER, PEER_ADDRESS, ()))
    assert [number for _, number in remembered(world)] == list(range(5, own + 5))
    for number in range(1_000, 1_000 + REFUSED_SESSIONS_MAX):
        world.arrive(LARGE, facts=Facts(number, PEER, f"10.0.{number >> 8}.{number & 255}", ()))
    kept = remembered(world)
    assert len(kept) == REFUSED_SESSIONS_MAX
    assert kept[0][1] == 1_000


def test_older_entries_are_judged_as_they_were() -> None:
    world = World()
    world.version = VERSION_OF_REFUSED_SESSIONS - 1
    world.create("orders")
    give_room(world, 1)
    assert world.arrive(LARGE, SMALL[0], facts=SESSION) == [CLOSE, ACCEPTED]
    assert not remembered(world)
