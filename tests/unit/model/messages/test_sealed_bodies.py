"""Messages whose bodies are sealed for the disk: what is stored, and what is charged."""

import os

import pytest
from msgspec.structs import replace

from qm.model.values import commands
from qm.model.values.commands import Facts
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import VERSION_OF_SEALED_BODIES
from qm.model.values.rows import Position
from qm.security.body_seals import SEAL_BYTES, BodySealer
from qm.wire.codes import ErrorCode
from qm.wire.message_class import AcknowledgeFlags
from tests.unit.model.world import HOST, PEER, PEER_ADDRESS, ClientInWorld, World, direct, packet

SEALED = Facts(1, PEER, PEER_ADDRESS, (), is_sealed=True)
BODY = b"b" * 500
SEALER = BodySealer(bytes(32), 1, os.urandom)
ORDERS = f"DIRECT=OS:{HOST}\\orders"
RECEIVE = int(QueueAccessType.RECEIVE_ACCESS)


def sealed(ordinal: int, **fields: object) -> bytes:
    return SEALER.sealed(packet(ordinal, body=BODY, **fields))  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


def only(world: World, queue_id: int) -> Position:
    (position,) = world.positions(queue_id).values()
    return position


def sizes(position: Position) -> tuple[int, int]:
    return position.body_length, position.stored_size_bytes


def test_the_seal_is_stored_and_not_charged(world: World) -> None:
    orders = world.create("orders")
    assert world.arrive(sealed(1), facts=SEALED) == [0]
    size = len(packet(1, body=BODY))
    assert sizes(only(world, orders)) == (size + SEAL_BYTES, size)
    assert world.stats(orders).total_bytes == world.counters().total_bytes == size


def test_copies_are_charged_like_their_originals(world: World) -> None:
    orders = world.create("orders", journaling=True)
    world.arrive(sealed(1, has_negative_journaling=True), facts=SEALED)
    original = sizes(only(world, orders))
    client = world.client()
    client.receive(client.open(ORDERS, RECEIVE))
    journal = world.record(orders).journal_queue
    assert sizes(only(world, journal)) == original
    world.one(commands.PurgeQueue(client.request(), orders, ()))
    world.settle(orders)
    assert world.stats(orders).total_bytes == 0


def test_a_refused_message_is_dead_lettered_with_its_seal(world: World) -> None:
    """And the acknowledgement returns its body, which is opened when it is read."""
    world.create("orders", quota=0)
    audit = world.create("audit")
    flags = {"flags": int(AcknowledgeFlags.NA)}
    raw = sealed(1, has_negative_journaling=True, admin_queue=direct("audit"), properties=flags)
    (verdict,) = world.arrive(raw, facts=SEALED)
    assert verdict
    dead = only(world, world.manager_queue("system_deadletter_queue"))
    assert sizes(dead) == (len(raw), len(raw) - SEAL_BYTES)
    assert len(world.positions(audit)) == 1


def test_a_quota_takes_as_many_sealed_messages_as_plain_ones(world: World) -> None:
    size = len(packet(1, body=BODY))
    world.create("orders", quota=1)
    fitting = 1024 // size
    verdicts = world.arrive(*(sealed(k) for k in range(1, fitting + 2)), facts=SEALED)
    assert [bool(verdict) for verdict in verdicts] == [False] * fitting + [True]


def send(client: ClientInWorld, raw: bytes, *, is_sealed: bool) -> int:
    world = client.world
    made = commands.Send.of(client.request(), [(ORDERS, raw)])
    (target,) = made.targets
    made = replace(
        made,
        targets=(replace(target, is_sealed=is_sealed),),
        body_index=world.index + 1,
        body_offset=100,
    )
    return world.one(made).status


def test_a_client_sends_a_sealed_message(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    plain = packet(0, body=BODY)
    assert send(client, SEALER.sealed(plain), is_sealed=True) == 0
    assert sizes(only(world, orders)) == (len(plain) + SEAL_BYTES, len(plain))


@pytest.mark.parametrize(("is_sealed", "says"), [(True, False), (False, True)])
def test_a_seal_that_is_not_as_said_is_refused(world: World, is_sealed: bool, says: bool) -> None:
    world.create("orders")
    raw = sealed(0) if is_sealed else packet(0, body=BODY)
    refused = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert send(world.client(), raw, is_sealed=says) == refused


def test_the_largest_message_may_be_sealed(world: World) -> None:
    world.create("orders")
    empty = len(packet(0, body=b""))
    plain = packet(0, body=bytes((4 << 20) - empty))
    assert len(plain) == 4 << 20
    assert send(world.client(), SEALER.sealed(plain), is_sealed=True) == 0


def test_older_versions_know_no_seals(world: World) -> None:
    """Entries below the version keep what they meant: all that is stored is charged."""
    world.version = VERSION_OF_SEALED_BODIES - 1
    orders = world.create("orders")
    raw = sealed(1)
    assert world.arrive(raw, facts=SEALED) == [0]
    assert sizes(only(world, orders)) == (len(raw), len(raw))
    refused = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert send(world.client(), sealed(0), is_sealed=True) == refused
