"""What applications send to queues here enters them as what arrives does [MS-MQDMPR 3.1.7.1.9]."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from qm.model.values import commands
from qm.model.values.commands import Facts, SignatureFact
from qm.model.values.effects import Applied
from qm.model.values.elements import QueueAccessType
from qm.wire.codes import ErrorCode
from qm.wire.enums import HashAlgorithm
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from tests.conformance.test_model_directory import set_manager
from tests.unit.model.world import NOW_S, ClientInWorld, World, direct, packet

ORDERS = "DIRECT=OS:vhost\\orders"
FULL = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


in_or_outside = pytest.mark.parametrize(
    "is_transactional", [False, True], ids=["alone", "in a transaction"]
)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def sent(client: ClientInWorld, is_transactional: bool, **more: Any) -> Applied:
    """Send a packet to `orders`, and return all that came of it: of its commit, if it has one."""
    world = client.world
    raw = packet(0, sequence=(1, 1, 0) if is_transactional else None, **more)
    transaction = client.begin(f"t{client.number}") if is_transactional else None
    send = commands.Send.of(client.request(), [(ORDERS, raw)], transaction=transaction)
    world.bodies[world.index + 1, 0] = raw
    applied = world.apply(structs.replace(send, body_index=world.index + 1, body_offset=100))
    assert [outcome.status for outcome in applied.outcomes] == [0]
    if transaction is None:
        return applied
    return world.apply(commands.TxCommit(client.request(), transaction))


@pytest.mark.spec("DM-3.1.7.1.9-01", "DM-3.1.7.1.9-02", "DM-3.1.1.2-07")
@pytest.mark.parametrize("whose", ["queue", "queue manager"])
@in_or_outside
def test_a_send_that_exceeds_a_quota_changes_nothing(
    world: World, whose: str, is_transactional: bool
) -> None:
    quota = 1 if whose == "queue" else 100
    orders = world.create("orders", quota=quota, transactional=is_transactional)
    if whose == "queue manager":
        assert set_manager(world, queue_manager_quota=1) == 0
    client = world.client()
    transaction = client.begin("t") if is_transactional else None
    sequence = (1, 1, 0) if is_transactional else None
    least = packet(0, body=b"", sequence=sequence)
    half = packet(0, body=bytes(512 - len(least)), sequence=sequence)
    # It may be filled, and not be exceeded.
    for raw, expected in ((half, 0), (half, 0), (half, FULL), (least, FULL)):
        assert client.send(ORDERS, raw=raw, transaction=transaction).status == expected
    assert len(world.positions(orders)) == 2
    assert world.stats(orders).total_bytes == world.counters().total_bytes == 1024
    assert world.counters().sequential_id == 2
    # Of the queue manager it is one for all queues.
    other = world.create("other", transactional=is_transactional)
    outcome = client.send("DIRECT=OS:vhost\\other", raw=least, transaction=transaction)
    assert outcome.status == (0 if whose == "queue" else FULL)
    assert len(world.positions(other)) == (whose == "queue")


@pytest.mark.spec(
    "DM-3.1.7.1.9-08", "DM-3.1.7.1.9-10", "DM-3.1.1.12-05", "DM-3.1.1.12-27", "DM-3.1.2.4-03"
)
@in_or_outside
def test_a_message_that_is_sent_here_is_available_acknowledged_and_ends_in_time(
    world: World, is_transactional: bool
) -> None:
    orders = world.create("orders", transactional=is_transactional)
    admin = world.create("admin")
    world.now_ms += 5_000
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
    }
    applied = sent(world.client(), is_transactional, time_to_be_received=10, **asked)
    assert applied.outcomes[0].status == 0
    assert applied.woken_queue_ids == {orders, admin}
    (position,) = world.positions(orders).values()
    assert position.arrival_time == NOW_S + 5
    (told,) = world.messages(admin)
    assert told.properties.message_class == MessageClass.ACK_REACH_QUEUE
    world.tick(4_999)
    assert len(world.positions(orders)) == 1
    world.tick(1)
    assert world.positions(orders) == {}


@pytest.mark.spec("DM-3.1.2.4-01", "DM-3.1.2.4-02", "MQ-2.2.19.2-06")
@in_or_outside
def test_no_time_to_be_received_ends_what_is_sent_here_at_once(
    world: World, is_transactional: bool
) -> None:
    orders = world.create("orders", transactional=is_transactional)
    client = world.client()
    for seconds in (0, 0xFFFF_FFFF):
        applied = sent(client, is_transactional, time_to_be_received=seconds)
        assert applied.outcomes[0].status == 0
    (kept,) = world.messages(orders)
    assert kept.user_header.time_to_be_received == 0xFFFF_FFFF
    world.tick(0xFFFF_FFFF * 1000 + 1)
    assert len(world.positions(orders)) == 1


@pytest.mark.spec("MQ-2.2.19.3-03", "MQ-2.2.19.3-04", "MQ-2.2.19.3-06", "MQ-2.2.19.2-06")
@in_or_outside
def test_what_is_sent_here_is_acknowledged_as_it_asks(world: World, is_transactional: bool) -> None:
    orders = world.create("orders", transactional=is_transactional)
    admin = world.create("admin")
    client = world.client()
    opened = client.open(ORDERS, QueueAccessType.RECEIVE_ACCESS)

    def told(flags: AcknowledgeFlags, *, is_received: bool) -> list[int]:
        """Classes of what is told of a message that is received, or else expires."""
        before = len(world.messages(admin))
        asked: dict[str, Any] = {"admin_queue": direct("admin"), "properties": {"flags": flags}}
        sent(client, is_transactional, time_to_be_received=2, sent_time=NOW_S + later, **asked)
        if is_received:
            assert len(client.receive(opened)) == 1
        world.tick(3_000)
        assert world.positions(orders) == {}
        return [one.properties.message_class for one in world.messages(admin)[before:]]

    all_ = AcknowledgeFlags.PA | AcknowledgeFlags.PR | AcknowledgeFlags.NA | AcknowledgeFlags.NR
    arrived, received = MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE
    expired = MessageClass.NACK_RECEIVE_TIMEOUT
    later = 0
    for flags, taken, left in (
        (all_, [arrived, received], [arrived, expired]),
        (AcknowledgeFlags.PA, [arrived], [arrived]),
        (AcknowledgeFlags.PR, [received], []),
        (AcknowledgeFlags.NR, [], [expired]),
        (AcknowledgeFlags.NA, [], []),
    ):
        for is_received, expected in ((True, taken), (False, left)):
            assert told(flags, is_received=is_received) == expected
            later += 3


@pytest.mark.spec("MQ-2.2.19.1-06", "MQ-2.2.19.1-07")
@in_or_outside
def test_what_is_sent_here_is_in_order_of_priority(world: World, is_transactional: bool) -> None:
    orders = world.create("orders", transactional=is_transactional)
    client = world.client()
    for ordinal, priority in enumerate((3, 0, 7, 3, 6), 1):
        raw = bytearray(packet(0, sequence=(1, 1, 0) if is_transactional else None, priority=0))
        raw[2] |= priority  # the codec writes none in a transaction
        transaction = client.begin(f"t{ordinal}") if is_transactional else None
        assert client.send(ORDERS, raw=bytes(raw), transaction=transaction).status == 0
        if transaction is not None:
            world.apply(commands.TxCommit(client.request(), transaction))
    found = [(one.message_ordinal, 7 - (key >> 56)) for key, one in world.positions(orders).items()]
    first = min(ordinal for ordinal, _ in found)
    by_priority = [(2, 7), (4, 6), (0, 3), (3, 3), (1, 0)]
    wanted = [(k, 0) for k in range(5)] if is_transactional else by_priority
    assert [(ordinal - first, priority) for ordinal, priority in found] == wanted


@pytest.mark.spec("DM-3.1.1.2-08")
@pytest.mark.parametrize(
    ("signature", "authentication", "status"),
    [
        (SignatureFact.VALID, True, 0),
        (SignatureFact.INVALID, True, ErrorCode.MQ_ERROR_CORRUPTED_SECURITY_DATA),
        (SignatureFact.ABSENT, True, ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED),
        (SignatureFact.VALID, False, 0),
        (SignatureFact.INVALID, False, 0),
        (SignatureFact.ABSENT, False, 0),
    ],
)
@in_or_outside
def test_such_a_queue_takes_what_is_signed_here_and_others_take_both(
    world: World,
    is_transactional: bool,
    signature: SignatureFact,
    authentication: bool,
    status: int,
) -> None:
    orders = world.create("orders", authentication=authentication, transactional=is_transactional)
    client = world.client()
    found = Facts(0, b"", "", (), signature)
    if signature is not SignatureFact.ABSENT:
        version = 3 if signature is SignatureFact.VALID else 0
        algorithm = HashAlgorithm.SHA512 if signature is SignatureFact.VALID else 0
        found = structs.replace(found, signature_version=version, hash_algorithm=algorithm)
    transaction = client.begin("t") if is_transactional else None
    raw = packet(0, sequence=(1, 1, 0) if is_transactional else None)
    send = commands.Send.of(
        client.request(), [(ORDERS, raw)], transaction=transaction, facts=(found,)
    )
    assert world.one(structs.replace(send, body_index=world.index + 1)).status == status
    if transaction is not None:
        assert client.commit(transaction) == 0
    assert len(world.positions(orders)) == (status == 0)


@pytest.mark.spec("DM-3.1.1.2-08", "MQ-2.3.1.11-01")
@pytest.mark.parametrize("authentication", [False, True])
def test_a_queue_for_authenticated_messages_takes_no_other_from_here(
    world: World, authentication: bool
) -> None:
    orders = world.create("orders", authentication=authentication)
    refused = ErrorCode.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED
    assert world.client().send(ORDERS).status == (refused if authentication else 0)
    assert len(world.positions(orders)) == (not authentication)
