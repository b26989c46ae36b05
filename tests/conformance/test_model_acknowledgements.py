"""Administration and final acknowledgements [MS-MQQB 3.1.7.2, 3.1.7.15, 2.2.5]."""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from qm.model.messages.message import AuthenticationLevel, Message
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts
from qm.model.values.elements import QueueAccessType
from qm.model.values.records import FinalAckRow, OutboxRow, SyntheticPacket, decode
from qm.model.values.rows import BODY_KEY, PositionFlag, class_of
from qm.wire.enums import PrivacyLevel
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.identifiers import ObjectId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from tests.unit.model.test_delivery import Sender
from tests.unit.model.world import (
    NOW_S,
    OWN,
    PEER,
    PEER_ADDRESS,
    ClientInWorld,
    World,
    direct,
    packet,
    request,
)
from tests.unit.store.test_store import Node, arrivals, place, receive, received, setup_commands

ORDERS = "DIRECT=OS:vhost\\orders"
THIRD = b"third-queue-mgr!"
RECEIVED = MessageClass.ACK_RECEIVE
CAUSES = {
    "received": RECEIVED,
    "second phase": RECEIVED,
    "committed": RECEIVED,
    "deleted": MessageClass.NACK_Q_DELETED,
    "purged": MessageClass.NACK_Q_PURGED,
    "expired": MessageClass.NACK_RECEIVE_TIMEOUT,
    "rejected": MessageClass.NACK_RECEIVE_REJECTED,
    "lent, purged, given back": MessageClass.NACK_Q_PURGED,
    "locked, purged, aborted": MessageClass.NACK_Q_PURGED,  # DM-A11
    "moved, purged, aborted": MessageClass.NACK_Q_PURGED,
    "lent, purged, taken": MessageClass.NACK_Q_PURGED,
}
PA, PR, NA, NR = (int(flag) for flag in AcknowledgeFlags)
INSECURE = {"send_insecure_nacks": encode_attribute(True)}


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def remove(world: World, queue_id: int, cause: str) -> None:
    """Make the one message of a queue leave it."""
    if cause == "deleted":
        world.one(commands.DeleteQueue(request(), queue_id, ()))
        world.settle(queue_id)
    elif cause == "purged":
        world.one(commands.PurgeQueue(request(), queue_id, ()))
        world.settle(queue_id)
    elif cause == "expired":
        world.tick(3_600_000)
    else:
        client = world.client()
        opened = client.open(ORDERS, QueueAccessType.RECEIVE_ACCESS)
        if "purged" in cause:
            outlive_a_purge(world, client, opened, cause)
            return
        if cause == "committed":
            transaction = client.begin("t")
            assert len(client.receive(opened, transaction=transaction)) == 1
            assert client.commit(transaction) == 0
            return
        (result,) = client.receive(opened, is_two_phase=cause != "received")
        reason = CAUSES[cause]
        end = commands.ReadEnd(client.request(), queue_id, result.lookup_identifier, True, reason)
        if cause != "received":
            assert world.one(end).status == 0


def outlive_a_purge(
    world: World, client: ClientInWorld, opened: tuple[int, int], cause: str
) -> None:
    """Make a message PurgePending, then end what holds it without taking it."""
    (key,) = world.positions(opened[1])
    transaction = None if "lent" in cause else client.begin("t")
    if "moved" in cause:
        _, target = client.open(ORDERS + ";later", QueueAccessType.MOVE_ACCESS)
        move = commands.Move(client.request(), opened[1], key, target, (), transaction)
        assert world.one(move).status == 0
    else:
        client.receive(opened, transaction=transaction, is_two_phase=transaction is None)
    world.one(commands.PurgeQueue(request(), opened[1], ()))
    world.settle(opened[1])
    assert list(world.positions(opened[1])) == [key]
    if transaction is not None:
        assert client.abort(transaction) == 0
    else:
        end = commands.ReadEnd(client.request(), opened[1], key, "taken" in cause)
        assert world.one(end).status == 0
    assert world.positions(opened[1]) == {}


def asking(flags: int, **more: Any) -> dict[str, Any]:
    properties = {"flags": flags, "label": "a label", "application_tag": 5}
    return {
        "admin_queue": direct("admin"),
        "properties": properties,
        "time_to_be_received": 3600,
        "sent_time": NOW_S,
    } | more


def classes(world: World, admin: int) -> list[int]:
    return [message.properties.message_class for message in world.messages(admin)]


def final_acks(world: World) -> list[tuple[OutboxRow, FinalAckRow]]:
    rows = [decode(OutboxRow, row) for table, _, row in world.state.rows() if table == Table.OUTBOX]
    return [(row, decode(FinalAckRow, row.payload)) for row in rows]


def synthetic(world: World, queue_id: int) -> SyntheticPacket:
    """The one packet in a queue, as apply made it."""
    (position,) = world.positions(queue_id).values()
    key = BODY_KEY.pack(position.body_index, position.body_ordinal)
    row = world.state.get(Table.SYNTHETIC, key)
    assert row is not None
    return decode(SyntheticPacket, row)


# When a message leaves its queue -----------------------------------------------------------


@pytest.mark.spec(
    "QB-3.1.7.2-01", "QB-3.1.7.2.1-02", "QB-2.2.5-04", "QB-2.2.5-05", "QB-3.1.7.17-03"
)
@pytest.mark.parametrize("cause", CAUSES)
def test_every_way_out_is_told(world: World, cause: str) -> None:
    assert {int(one) for one in CAUSES.values()} == {0x4000, 0xC000, 0xC001, 0xC002, 0xC004}
    is_told_once(world, cause)


@pytest.mark.spec(
    "DM-3.1.7.1.12-04", "DM-3.1.4.4-03", "DM-3.1.4.5-02", "DM-3.1.7.1.7-02", "DM-3.1.7.2.7-02"
)
@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("second phase", 0x4000),
        ("committed", 0x4000),
        ("purged", 0xC001),
        ("lent, purged, given back", 0xC001),
        ("lent, purged, taken", 0xC001),
        ("locked, purged, aborted", 0xC001),
        ("moved, purged, aborted", 0xC001),
        ("expired", 0xC002),
    ],
)
def test_reasons_for_which_a_position_is_deleted(world: World, cause: str, code: int) -> None:
    assert CAUSES[cause] == code
    is_told_once(world, cause)


def is_told_once(world: World, cause: str) -> None:
    """Let a message go for a reason, and find that reason in both acknowledgements."""
    admin = world.create("admin")
    orders = world.create("orders", transactional=True)
    # Its elder asked for nothing and is gone; its number is the previous one.
    assert world.arrive(packet(6, sequence=(9, 4, 0))) == [0]
    world.one(commands.PurgeQueue(request(), orders, ()))
    world.settle(orders)
    message = packet(7, sequence=(9, 6, 4), final_ack=True, **asking(PR | NR))
    assert world.arrive(message) == [0]
    assert final_acks(world) == []
    remove(world, orders, cause)
    assert classes(world, admin) == [CAUSES[cause]]
    ((row, final),) = final_acks(world)
    assert final == FinalAckRow(9, 6, 4, CAUSES[cause], PEER, 7, final.message_id, True)
    assert final.message_id
    assert (row.queue_manager, row.address) == (PEER, PEER_ADDRESS)
    assert not [key for table, key, _ in world.state.rows() if table == Table.OBLIGATION]


@pytest.mark.spec(
    "QB-3.1.7.2.1-01", "DM-3.1.1.12-26", "DM-3.1.1.12-30", "DM-3.1.1.12-32", "DM-3.1.1.12-33"
)
@pytest.mark.parametrize(
    ("flags", "of_receive", "of_loss"),
    [
        (0, False, False),
        (PA | NA, False, False),  # AckFullReachQueue
        (PR, True, False),  # AckPosReceive
        (NR, False, True),  # AckNegReceive
        (NA | NR, False, True),  # AckNackReceive
        (NA | PR | NR, True, True),  # AckFullReceive
        (NA | PR, True, False),
        (PA | NR, False, True),
    ],
)
@pytest.mark.parametrize("cause", ["received", "deleted", "purged", "expired", "rejected"])
def test_who_asked_for_what(
    world: World, flags: int, of_receive: bool, of_loss: bool, cause: str
) -> None:
    assert (PA, PR, NA, NR) == (0x01, 0x02, 0x04, 0x08)
    assert Message().acknowledgements_requested == 0, "by default nobody asks"
    admin = world.create("admin")
    orders = world.create("orders")
    world.arrive(packet(7, **asking(flags)))
    arrival = classes(world, admin)
    assert arrival == ([MessageClass.ACK_REACH_QUEUE] if flags & PA else [])
    remove(world, orders, cause)
    is_told = of_receive if cause == "received" else of_loss
    assert classes(world, admin)[len(arrival) :] == ([CAUSES[cause]] if is_told else [])


@pytest.mark.spec(
    "QB-3.1.7.1.2-01", "QB-3.1.7.1.2-02", "MQ-2.2.19.1-18", "MQ-2.2.18.1.6-06", "MQ-2.2.19.1-17"
)
@pytest.mark.parametrize("which", ["time_to_reach_queue", "time_to_be_received"])
@pytest.mark.parametrize("flags", [NA, PA | PR | NR])
def test_what_did_not_leave_in_its_time_is_deleted_and_told_to_who_asked(
    flags: int, which: str
) -> None:
    """Either time counts, as long as the message is on its way (2.2.18.1.6)."""
    sender = Sender(forgets=False)
    admin = sender.create("admin")
    asked: dict[str, Any] = {"admin_queue": direct("admin"), "properties": {"flags": flags}}
    sender.send(1, **{which: 60}, **asked)
    sender.send(1, **{which: 0xFFFF_FFFF}, **asked)
    late, forever = sender.keys()
    # An age equal to TimeToReachQueue is not above it; TimeToBeReceived is a timer.
    sender.tick(60_999 if which == "time_to_reach_queue" else 59_999)
    assert sender.keys() == [late, forever]
    sender.tick(1)
    assert sender.keys() == [forever]
    assert classes(sender, admin) == ([0x8002] if flags & NA else [])
    sender.tick(7 * 24 * 3600 * 1000)
    assert sender.keys() == [forever], "infinite is never over"


@pytest.mark.spec("DM-3.1.7.1.7-02")
def test_a_purge_ends_what_is_there_of_every_priority(world: World) -> None:
    admin, orders = world.create("admin"), world.create("orders")
    for number in range(8):
        world.arrive(packet(number + 1, priority=number, **asking(NR)))
    assert world.one(commands.PurgeQueue(request(), orders, ())).status == 0
    for number in range(8):
        world.arrive(packet(number + 11, priority=number, **asking(NR)))
    world.settle(orders)
    assert classes(world, admin) == [0xC001] * 8
    told = [one.properties.correlation_id for one in world.messages(admin)]
    assert sorted(identifier[16] for identifier in told) == [*range(1, 9)]
    left = [one.message_ordinal for one in world.positions(orders).values()]
    assert left == [*range(18, 10, -1)]


@pytest.mark.spec("DM-3.1.7.2.7-02", "DM-3.1.2.4-03")
@pytest.mark.parametrize(
    ("name", "time_s", "sent_s"),
    [
        ("orders", 60, NOW_S),
        ("private$\\orders", 60, NOW_S),
        ("orders", 1 << 31, NOW_S),
        ("orders", 0xFFFF_FFFE, 0),  # cluster time itself ends soon behind it
    ],
)
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("way", ["arrived", "sent"])
def test_the_time_of_each_message_ends_where_it_is(
    world: World, way: str, count: int, name: str, time_s: int, sent_s: int
) -> None:
    """Of those that ask for nothing, and are taken together, too; and of every length."""
    orders = world.create(name)
    fields: dict[str, Any] = {"time_to_be_received": time_s, "sent_time": sent_s}
    fields["has_negative_journaling"] = True
    if way == "arrived":
        raw = [packet(n, to=name, **fields) for n in range(1, count + 1)]
        assert world.arrive(*raw) == [0] * count
    else:
        client = world.client()
        for _ in range(count):
            sent = client.send(f"DIRECT=OS:vhost\\{name}", raw=packet(0, **fields))
            assert sent.status == 0
    world.tick((sent_s + time_s - NOW_S) * 1000 - 1)
    assert len(world.positions(orders)) == count
    world.tick(1)
    assert world.positions(orders) == {}
    dead = world.positions(world.manager_queue("system_deadletter_queue")).values()
    assert [class_of(one.class_code) for one in dead] == [0xC002] * count
    assert sorted(one.message_ordinal for one in dead) == [*range(1, count + 1)]


@pytest.mark.spec("MQ-2.2.18.1.6-06", "MQ-2.2.18.1.6-07", "MQ-2.2.18.1.6-09")
def test_a_time_that_is_over_is_told_by_where_the_message_was(world: World) -> None:
    """Before it arrived, or when it sat in its queue; and what succeeded by what it was."""
    admin = world.create("admin")
    orders = world.create("orders")
    asked = asking(PA | PR | NA | NR)
    world.arrive(packet(1, **(asked | {"sent_time": NOW_S - 9}), time_to_reach_queue=8))
    assert classes(world, admin) == [0x8002]
    world.arrive(packet(2, **asked))
    assert classes(world, admin) == [0x8002, 0x0002]
    world.tick(3_600_001)
    assert world.positions(orders) == {}
    assert classes(world, admin) == [0x8002, 0x0002, 0xC002]
    client = world.client()
    world.arrive(packet(3, **(asked | {"sent_time": NOW_S + 3_600})))
    client.receive(client.open(ORDERS, QueueAccessType.RECEIVE_ACCESS))
    assert classes(world, admin) == [0x8002, 0x0002, 0xC002, 0x0002, 0x4000]


@pytest.mark.spec("MQ-2.2.18.1.6-07")
@pytest.mark.parametrize("way", ["lent", "read", "sent", "sent late", "committed late"])
def test_what_its_time_overtakes_in_its_queue_was_not_received(world: World, way: str) -> None:
    """Whatever kept it from being seen when its time ended."""
    is_exact = way in ("read", "committed late")
    admin, orders = world.create("admin"), world.create("orders", transactional=is_exact)
    client = world.client()
    opened = client.open(ORDERS, QueueAccessType.RECEIVE_ACCESS)
    transaction = client.begin("t") if is_exact else None
    asked = asking(NR, time_to_be_received=10, sent_time=NOW_S - (11 if way == "sent late" else 0))
    raw = packet(7, sequence=(9, 1, 0) if is_exact else None, **asked)
    if way in ("lent", "read"):
        assert world.arrive(raw) == [0]
        client.receive(opened, transaction=transaction, is_two_phase=not is_exact)
    else:
        assert client.send(ORDERS, raw=raw, transaction=transaction).status == 0
    assert classes(world, admin) == ([0xC002] if way == "sent late" else [])
    world.tick(10_000)
    if way == "lent":
        (key,) = world.positions(orders)
        assert world.one(commands.ReadEnd(client.request(), orders, key, False)).status == 0
    elif transaction is not None:
        assert (client.abort if way == "read" else client.commit)(transaction) == 0
    assert world.positions(orders) == {}
    assert classes(world, admin) == [0xC002]


@pytest.mark.spec("MQ-2.2.18.1.6-09")
def test_what_is_sent_here_arrives_and_is_taken_when_its_transaction_commits(world: World) -> None:
    admin = world.create("admin")
    world.create("orders")
    world.create("exact", transactional=True)
    client = world.client()
    asked = asking(PA | PR | NA | NR)
    assert client.send(ORDERS, raw=packet(0, **asked)).status == 0
    assert classes(world, admin) == [0x0002]
    exact = "DIRECT=OS:vhost\\exact"
    for end in (client.abort, client.commit):
        transaction = client.begin(f"send {end.__name__}")
        raw = packet(0, to="exact", sequence=(1, 1, 0), **asked)
        assert client.send(exact, raw=raw, transaction=transaction).status == 0
        assert classes(world, admin) == [0x0002]
        assert end(transaction) == 0
    assert classes(world, admin) == [0x0002, 0x0002]
    opened = client.open(exact, QueueAccessType.RECEIVE_ACCESS)
    for end in (client.abort, client.commit):
        transaction = client.begin(f"take {end.__name__}")
        assert client.receive(opened, transaction=transaction)[0].status == 0
        assert classes(world, admin) == [0x0002, 0x0002], "neither taken nor given back"
        assert end(transaction) == 0
    assert classes(world, admin) == [0x0002, 0x0002, 0x4000]


@pytest.mark.spec("DM-3.1.1.12-32", "DM-3.1.1.12-33")
@pytest.mark.parametrize("flags", [NA | NR, NA | PR | NR, NA, PR | NR, 0])
def test_failed_delivery_is_told_to_who_asked(flags: int) -> None:
    sender = Sender(forgets=False)
    admin = sender.create("admin")
    sender.send(1, admin_queue=direct("admin"), properties={"flags": flags})
    late = MessageClass.NACK_REACH_QUEUE_TIMEOUT
    sender.one(commands.TransferFailed(sender.queue_id, array("Q", sender.keys()), late))
    assert classes(sender, admin) == ([late] if flags & NA else [])
    # So does the queue manager that it went to.
    sender.create("full", quota=0)
    assert sender.arrive(packet(7, to="full", **asking(flags))) == [0x8003]
    assert classes(sender, admin) == ([late, 0x8003] if flags & NA else [])


@pytest.mark.spec("DM-3.1.1.12-31")
def test_both_arrival_and_failed_delivery_are_told_to_who_asked() -> None:
    """AckFullReachQueue, of what is sent here and of what is to leave."""
    sender = Sender(forgets=False)
    admin = sender.create("admin")
    for name in ("orders", "exact"):
        sender.create(name, transactional=name == "exact")
    asked = asking(0x05)
    assert sender.c.send(ORDERS, raw=packet(0, **asked)).status == 0
    assert classes(sender, admin) == [0x0002]
    transaction = sender.c.begin("t")
    raw = packet(0, to="exact", sequence=(1, 1, 0), **asked)
    exact = "DIRECT=OS:vhost\\exact"
    assert sender.c.send(exact, raw=raw, transaction=transaction).status == 0
    assert classes(sender, admin) == [0x0002]
    assert sender.c.commit(transaction) == 0
    assert classes(sender, admin) == [0x0002, 0x0002]
    for reach_s in (0xFFFF_FFFF, 60):
        sender.send(1, **asked, time_to_reach_queue=reach_s)
    lost, _ = sender.keys()
    given_up = array("Q", [lost])
    gone = MessageClass.NACK_DELETED
    assert sender.one(commands.TransferFailed(sender.queue_id, given_up, gone)).status == 0
    assert sorted(classes(sender, admin)) == [0x0002, 0x0002, 0x8001]
    sender.tick(61_000)
    assert sorted(classes(sender, admin)) == [0x0002, 0x0002, 0x8001, 0x8002]


@pytest.mark.spec("QB-3.1.7.2.2-01", "QB-2.2.5-01", "DM-3.1.1.12-49", "MQ-2.2.20.5-05")
@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({"sequence": (9, 1, 0)}, False),
        ({"sequence": (9, 1, 0), "final_ack": True}, True),
        ({"sequence": (9, 1, 0), "has_positive_journaling": True}, True),
        ({"sequence": (9, 1, 0), "has_negative_journaling": True}, True),
        ({"has_positive_journaling": True, "has_negative_journaling": True}, False),
    ],
)
@pytest.mark.parametrize("cause", ["received", "second phase", "deleted", "purged", "expired"])
def test_final_acks_of_what_left_its_queue(
    world: World, fields: dict[str, Any], is_told: bool, cause: str
) -> None:
    orders = world.create("orders", transactional="sequence" in fields)
    asked = asking(PR | NR)
    if "sequence" in fields:
        # Its elders owe nothing, are gone, and opened the sequence's fast lane, which it might take
        # since it wants no other acknowledgement.
        elders = [packet(n, sequence=(9, n, n - 1), sent_time=NOW_S) for n in (1, 2, 3, 4, 5)]
        for elder in elders[:3]:
            assert world.arrive(elder) == [0]
        world.one(commands.PurgeQueue(request(), orders, ()))
        world.settle(orders)
        fields, asked = fields | {"sequence": (9, 4, 3)}, {"sent_time": NOW_S}
        if cause == "expired":
            asked["time_to_be_received"] = 3600
        if cause == "purged":
            # One more way: in the middle of a run of its sequence.
            world.arrive(*elders[3:])
            fields |= {"sequence": (9, 7, 6)}
            run = [packet(n, sequence=(9, n, n - 1), sent_time=NOW_S) for n in (6, 8)]
            world.arrive(run[0], packet(7, **asked, **fields), run[1])
            asked = {}
    if asked:
        world.arrive(packet(7, **asked, **fields))
    remove(world, orders, cause)
    assert [final.message_class for _, final in final_acks(world)] == [CAUSES[cause]] * is_told
    assert [row.queue_manager for row, _ in final_acks(world)] == [PEER] * is_told


# What an administration acknowledgement is -------------------------------------------------


@pytest.mark.spec("QB-3.1.7.15-04")
@pytest.mark.parametrize("cause", ["arrived", "received"])
@pytest.mark.parametrize("kind", ["DIRECT", "PRIVATE", "PUBLIC"])
def test_the_response_queue_is_the_destination_as_the_sender_named_it(
    world: World, cause: str, kind: str
) -> None:
    admin = world.create("admin")
    orders = world.create("orders" if kind != "PRIVATE" else "private$\\orders")
    record = world.record(orders)
    own, public = (str(UUID(bytes_le=one)).upper() for one in (OWN, record.identifier))
    names: dict[str, tuple[QueueName, str]] = {
        "DIRECT": (direct("orders"), ORDERS),
        "PRIVATE": (
            PrivateQueueFormatNameId(QueueHost.DESTINATION, record.private_queue_number),
            f"PRIVATE={own}\\{record.private_queue_number:08X}",
        ),
        "PUBLIC": (PublicQueueFormatName(record.identifier), f"PUBLIC={public}"),
    }
    to, told = names[kind]
    address = bytes(16) if kind == "DIRECT" else OWN
    asked = asking(PA if cause == "arrived" else PR, queue_manager_address=address)
    assert world.arrive(packet(7, to=to, **asked)) == [0]
    if cause == "received":
        client = world.client()
        client.receive(client.open(told, QueueAccessType.RECEIVE_ACCESS))
    message = deserialize_message_from_buffer(synthetic(world, admin).packet)
    assert message.response_queue_format_name.upper() == told.upper()


@pytest.mark.spec("QB-3.1.7.15-04", "QB-3.1.7.2.1-03", "QB-1.3.5.2-01")
@pytest.mark.parametrize("is_recoverable", [True, False])
@pytest.mark.parametrize("cause", ["arrived", "received", "purged"])
def test_attributes_of_an_acknowledgement(world: World, is_recoverable: bool, cause: str) -> None:
    admin = world.create("admin")
    orders = world.create("orders")
    flags = PA if cause == "arrived" else PR | NR
    journals = {"has_positive_journaling": True, "has_negative_journaling": True}
    world.arrive(packet(7, is_recoverable=is_recoverable, **asking(flags, **journals)))
    if cause != "arrived":
        remove(world, orders, cause)
    message = deserialize_message_from_buffer(synthetic(world, admin).packet)
    assert message.correlation_identifier == ObjectId(PEER, 7)
    assert message.response_queue_format_name == ORDERS
    assert bool(message.delivery_guarantee) is is_recoverable
    (position,) = world.positions(admin).values()
    assert bool(position.flags & PositionFlag.RECOVERABLE) is is_recoverable
    assert message.acknowledgements_requested == 0
    assert message.administration_queue_format_name == ""
    assert message.time_to_reach_queue == message.time_to_be_received == 0xFFFF_FFFF
    assert not message.positive_journaling_requested
    assert not message.negative_journaling_requested
    assert message.privacy_level == PrivacyLevel.NONE
    assert message.authentication_level is AuthenticationLevel.NONE
    assert (message.label, message.application_tag) == ("a label", 5)
    assert message.source_machine_identifier == OWN
    assert message.identifier.uniquifier


@pytest.mark.spec("QB-3.1.7.15-03", "QB-1.3.5.2-01", "MQ-2.2.19.2-20")
@pytest.mark.parametrize(
    ("name", "goes_to"),
    [
        (
            PrivateQueueFormatNameId(QueueHost.SOURCE, 0xAB),
            f"PRIVATE={str(UUID(bytes_le=PEER)).upper()}\\000000AB",
        ),
        (PrivateQueueFormatNameId(QueueHost.DESTINATION, 16), "here"),
        (PublicQueueFormatName(THIRD), "here"),
        (
            PrivateQueueFormatName(THIRD, 0x1F),
            f"PRIVATE={str(UUID(bytes_le=THIRD)).upper()}\\0000001F",
        ),
        (PrivateQueueFormatName(OWN, 16), "here"),
        (DirectQueueFormatName("TCP:10.1.2.3\\admin"), "DIRECT=TCP:10.1.2.3\\admin"),
        (DirectQueueFormatName("OS:vhost\\private$\\admin"), "here"),
    ],
    ids=str,
)
def test_where_an_acknowledgement_goes(world: World, name: QueueName, goes_to: str) -> None:
    local = world.create("private$\\admin")
    assert world.record(local).private_queue_number == 16
    if isinstance(name, PublicQueueFormatName):
        local = world.create("admin")
        name = PublicQueueFormatName(world.record(local).identifier)
    world.create("orders")
    message = packet(7, **asking(PA, admin_queue=name, queue_manager_address=OWN))
    verdicts, applied = world.arrive_applied(message)
    assert verdicts == [0]
    if goes_to == "here":
        assert classes(world, local) == [MessageClass.ACK_REACH_QUEUE]
        return
    (outgoing,) = applied.outgoing_queue_ids
    assert world.record(outgoing).pathname == goes_to
    assert classes(world, outgoing) == [MessageClass.ACK_REACH_QUEUE]
    assert classes(world, local) == []


@pytest.mark.spec("QB-3.1.7.15-01", "QB-3.1.7.15-06")
def test_an_acknowledgement_needs_a_queue_that_takes_it(world: World) -> None:
    world.create("orders")
    strict = world.create("strict", transactional=True)
    full = world.create("full", quota=0)
    nowhere = [None, *(direct(name) for name in ("absent", "strict", "full", "orders;JOURNAL"))]
    for number, name in enumerate(nowhere, start=1):
        assert world.arrive(packet(number, **asking(PA, admin_queue=name))) == [0]
    assert world.positions(strict) == world.positions(full) == {}
    assert Table.SYNTHETIC not in {table for table, _, _ in world.state.rows()}
    admin = world.create("admin")
    world.arrive(packet(9, **asking(PA)))
    assert classes(world, admin) == [MessageClass.ACK_REACH_QUEUE]
    # Its class says what became of the message.
    late = {"time_to_reach_queue": 5, "sent_time": NOW_S - 60}
    for number, (to, how, refusal) in enumerate(
        (("strict", {}, 0x800A), ("full", {}, 0x8003), ("orders", late, 0x8002)), start=10
    ):
        assert world.arrive(packet(number, to=to, **(asking(NA) | how))) == [refusal]
        assert classes(world, admin)[number - 9 :] == [refusal]


@pytest.mark.spec("QB-3.1.7.15-05")
@pytest.mark.parametrize("was_encrypted", [False, True])
@pytest.mark.parametrize("cause", ["arrived", "received", "purged", "expired", "full"])
def test_a_negative_acknowledgement_returns_the_body(
    world: World, cause: str, was_encrypted: bool
) -> None:
    admin = world.create("admin")
    orders = world.create("orders", quota=0 if cause == "full" else 1000)
    facts = Facts(1, PEER, PEER_ADDRESS, (), was_encrypted=was_encrypted)
    flags = PA if cause == "arrived" else PR | NR | NA
    world.arrive(packet(7, **asking(flags)), facts=facts)
    index = world.index
    if cause not in ("arrived", "full"):
        remove(world, orders, cause)
    made = synthetic(world, admin)
    is_returned = cause in ("purged", "expired", "full") and not was_encrypted
    assert (made.body_of is not None) == is_returned
    if made.body_of is not None:
        place, offset, length, ordinal, checksum = made.body_of
        assert (place, ordinal) == (index, 0)
        returned = world.bodies[place, ordinal]
        assert (offset, length, checksum) == (100, len(returned), zlib.crc32(returned))
    assert world.state.references().get((index, 0), 0) >= is_returned


@pytest.mark.spec("QB-3.1.7.15-05")
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_body_of_what_found_no_queue_is_returned_if_it_is_in_clear(
    world: World, is_encrypted: bool
) -> None:
    """Flags.EB is what counts of a body that was not decrypted here."""
    assert world.one(commands.SetQueueManager(request(), INSECURE, ())).status == 0
    admin = world.create("admin")
    security = SecurityHeader(is_body_encrypted=is_encrypted, encryption_key=b"key")
    assert world.arrive(packet(7, to="absent", security=security, **asking(NA))) == [0x8000]
    made = synthetic(world, admin)
    assert (made.body_of is None) is is_encrypted


@pytest.mark.spec("QB-3.1.7.15-05")
@pytest.mark.parametrize("reason", [0x8001, 0x8002])
def test_the_body_of_what_could_not_leave_is_returned(reason: int) -> None:
    sender = Sender(forgets=False)
    admin = sender.create("admin")
    sender.send(1, **asking(NA), body=b"lost")
    (position,) = sender.positions(sender.queue_id).values()
    lost = array("Q", sender.keys())
    assert sender.one(commands.TransferFailed(sender.queue_id, lost, reason)).status == 0
    assert classes(sender, admin) == [reason]
    made = synthetic(sender, admin)
    assert made.body_of is not None
    assert (made.body_of[0], made.body_of[3]) == (position.body_index, position.body_ordinal)


@pytest.mark.spec("QB-3.1.7.15-05")
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_reader_of_a_negative_acknowledgement_gets_the_body(
    tmp_path: Path, is_taken: bool
) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    raw = packet(1, body=b"returned", **asking(PR | NR, admin_queue=direct("kept")))
    node.put([arrivals(raw)])
    if is_taken:
        node.put([receive(2, 1)])
    else:
        (purged,) = node.put([commands.PurgeQueue(request(), 6, ())])
        assert purged.outcomes[0].status == 0
        node.put([commands.PurgeStep(6, 10)])
    opened = commands.OpenQueue(request(3, "c"), "DIRECT=OS:vhost\\kept", 0, 0, ())
    found = node.put([opened])[0].outcomes[0].value
    assert isinstance(found, tuple)
    handle, queue_id = found
    taking = commands.ReceiveRun("c", handle, queue_id, 4, 1, 0)
    (result,) = received(node.put([taking])[0])
    told = deserialize_message_from_buffer(node.store.bodies.read(place(result)))
    assert told.body == (b"" if is_taken else b"returned")
    assert told.correlation_identifier == ObjectId(PEER, 1)
    node.close()
