"""Terms of MS-MQMQ 1.1 that say what queues, their names and their managers are."""

from __future__ import annotations

from typing import Any

import pytest

from qm.model import queries
from qm.model.management.directory import Filter, Operator
from qm.model.messages.cursors import Cursor, CursorAnswer
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Selector, SelectorKind, TransferVerdict
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    QueueAccessType,
    QueueKind,
)
from qm.names.guid import guid_text
from qm.wire.codes import ErrorCode
from qm.wire.guid import GUID_NULL
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.property_id import Choices, QueueProperty
from tests.conformance.test_model_cursors import Keys
from tests.unit.model.management.test_directory import write
from tests.unit.model.test_delivery import ELSEWHERE, JOURNALED, TRANSACTIONAL, Sender
from tests.unit.model.world import OWN, PEER, World, direct, packet, request

ORDERS = "DIRECT=OS:vhost\\orders"
SEND, RECEIVE = QueueAccessType.SEND_ACCESS, QueueAccessType.RECEIVE_ACCESS
MOVE = QueueAccessType.MOVE_ACCESS
SEQUENCE = 5 << 32 | 1


@pytest.fixture
def sender() -> Sender:
    return Sender(forgets=True)


@pytest.fixture
def world() -> World:
    return World(forgets=True)


@pytest.mark.spec("MQ-1.1-05")
def test_each_kind_of_message_has_its_dead_letter_queue(sender: Sender) -> None:
    plain = sender.manager_queue("system_deadletter_queue")
    exact = sender.manager_queue("system_transactional_deadletter_queue")
    assert sender.record(plain).kind is QueueKind.DEADLETTER
    assert sender.record(exact).kind is QueueKind.TRANSACTIONAL_DEADLETTER
    sender.send(1, has_negative_journaling=True)
    sender.send(1)
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    sender.send(1, **TRANSACTIONAL)
    sender.send(1, **TRANSACTIONAL, has_positive_journaling=True)
    sender.one(commands.PurgeQueue(request(), sender.queue_id, ()))
    sender.settle(sender.queue_id)
    assert not sender.keys()
    assert sender.ordinals("system_deadletter_queue") == [1]
    assert sender.ordinals("system_transactional_deadletter_queue") == [3]


@pytest.mark.spec("MQ-2.1.2-01")
def test_direct_names_lead_to_queues_without_a_directory(world: World) -> None:
    """In workgroup mode, to public, private and system queues, and across the Internet."""
    made = {
        "DIRECT=OS:vhost\\orders": world.create("orders"),
        "DIRECT=TCP:127.0.0.11\\private$\\inbox": world.create("private$\\inbox"),
        "DIRECT=OS:vhost\\SYSTEM$;DEADXACT": world.manager_queue(
            "system_transactional_deadletter_queue"
        ),
    }
    alone = {"directory_integrated": encode_attribute(False)}
    assert world.one(commands.SetQueueManager(request(), alone, ())).status == 0
    public = commands.CreateQueue(request(), b"n" * 16, b"j" * 16, ".\\new", {}, b"", ())
    refused = ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION
    assert world.one(public).status == refused, "there is no directory"
    client = world.client()
    for name, queue_id in made.items():
        assert client.open(name, RECEIVE)[1] == queue_id
        if "SYSTEM$" not in name:
            assert client.send(name).status == 0
            assert len(client.receive(client.open(name, RECEIVE))) == 1
    assert client.send("DIRECT=OS:far.example\\q").status == 0


@pytest.mark.spec("MQ-2.1.6-01")
def test_a_machine_name_leads_to_the_stores_of_the_queue_manager(world: World) -> None:
    client = world.client()
    for word, which in (
        ("JOURNAL", "system_journal_queue"),
        ("DEADLETTER", "system_deadletter_queue"),
        ("DEADXACT", "system_transactional_deadletter_queue"),
    ):
        name = f"MACHINE={guid_text(OWN)};{word}"
        assert client.open(name, RECEIVE)[1] == world.manager_queue(which)
        # Of another queue manager it names nothing here.
        other = f"MACHINE={guid_text(PEER)};{word}"
        opening = commands.OpenQueue(client.request(), other, RECEIVE, 0, ())
        assert world.one(opening).status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQ-2.3.1.5-01", "MQ-2.3.1.7-01")
def test_quotas_are_in_kilobytes_and_bind_nothing_while_they_are_unset(world: World) -> None:
    limited = world.create("limited", quota=2, journaling=True, journal_quota=1)
    free = world.create("free", journaling=True)
    assert (world.record(free).quota, world.record(free).journal_quota) == (0xFFFF_FFFF,) * 2
    client = world.client()
    raw = packet(0, body=bytes(1024 - len(packet(0, body=b""))))
    assert len(raw) == 1024, "a KB"
    exceeded = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    for name, expected in (("limited", [0, 0, exceeded]), ("free", [0, 0, 0])):
        target = f"DIRECT=OS:vhost\\{name}"
        assert [client.send(target, raw=raw).status for _ in range(3)] == expected
        client.receive(client.open(target, RECEIVE), 3)
    journals = [world.record(queue_id).journal_queue for queue_id in (limited, free)]
    assert [len(world.positions(journal)) for journal in journals] == [1, 3]
    # What has no quota of its own is bound by the computer's.
    computer = {"queue_manager_quota": encode_attribute(5)}
    assert world.one(commands.SetQueueManager(request(), computer, ())).status == 0
    target = "DIRECT=OS:vhost\\free"
    assert [client.send(target, raw=raw).status for _ in range(2)] == [0, exceeded]


@pytest.mark.parametrize("name", ["quota", "journal_quota"])
@pytest.mark.spec("MQ-2.3.1.5-01", "MQ-2.3.1.7-01")
def test_a_quota_is_any_number_of_32_bits(world: World, name: str) -> None:
    orders = world.create("orders", journaling=True)
    client, target = world.client(), ORDERS

    def changed(value: int) -> int:
        values = {name: encode_attribute(value)}
        return world.one(commands.SetQueue(request(), orders, values, ())).status

    for value, kept in ((0, 0), (1, 1), (0xFFFF_FFFE, 2), (0xFFFF_FFFF, 3)):
        assert changed(value) == 0
        assert getattr(world.record(orders), name) == value
        client.send(target)
        client.receive(client.open(target, RECEIVE))
        assert len(world.positions(world.record(orders).journal_queue)) == kept
    for value in (-1, 1 << 32):
        assert changed(value) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


@pytest.mark.spec("MQ-1.1-06")
def test_a_queue_is_read_in_the_order_of_its_messages(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    world.arrive(packet(3), packet(1), packet(2))
    for _ in range(2):
        # Peeking removes nothing: the head is still there.
        status, head = queries.peek(world.machine.view, orders, Selector())
        assert (status, head and head.message_ordinal) == (0, 3)
    assert [one.message_ordinal for one in world.positions(orders).values()] == [3, 1, 2]
    assert [one.message_ordinal for one in client.receive(opened)] == [3]
    world.arrive(packet(9))
    assert [one.message_ordinal for one in client.receive(opened, 3)] == [1, 2, 9]
    assert not world.positions(orders)


@pytest.mark.spec("MQ-1.1-07")
def test_two_names_of_one_destination_are_two_outgoing_queues(world: World) -> None:
    client = world.client()
    names = (ELSEWHERE, "DIRECT=OS:10.9.8.7\\far")
    made = [client.open(name, SEND)[1] for name in names]
    assert made[0] != made[1]
    for queue_id, name in zip(made, names, strict=True):
        record = world.record(queue_id)
        assert record.kind is QueueKind.OUTGOING
        assert record.pathname == name
        assert client.open(name, SEND)[1] == queue_id


@pytest.mark.spec("MQ-1.1-08", "MQ-1.1-09")
def test_public_queues_are_in_the_directory_and_the_manager_is_known_by_guid(world: World) -> None:
    public, private = world.create("orders"), world.create("private$\\orders")

    def listed(queue_id: int) -> DirectoryOperationResult:
        identifier = world.record(queue_id).identifier
        wanted = [Filter("identifier", Operator.EQUALS, identifier)]
        return world.machine.directory.read(DirectoryObjectType.QUEUE, wanted)[0]

    assert listed(public) is DirectoryOperationResult.SUCCESS
    assert listed(private) is DirectoryOperationResult.OBJECT_NOT_FOUND
    assert world.record(private).private_queue_number
    assert not world.record(public).private_queue_number
    manager = world.machine.manager
    assert manager is not None
    assert manager.identifier == OWN
    assert bytes(16) == GUID_NULL


@pytest.mark.spec("MQ-1.1-10")
def test_an_order_ack_is_owed_for_what_reached_a_transactional_queue(world: World) -> None:
    world.create("exact", transactional=True)
    world.create("plain")
    _, applied = world.arrive_applied(packet(1, to="plain"))
    assert not applied.incoming_sequences
    _, applied = world.arrive_applied(packet(2, to="exact", sequence=(SEQUENCE, 1, 0)))
    (seen,) = applied.incoming_sequences.values()
    assert seen.source_queue_manager == PEER
    assert seen.message_ordinal


@pytest.mark.spec("MQ-1.1-11")
def test_messages_and_queues_are_of_one_kind(world: World) -> None:
    plain, exact = world.create("plain"), world.create("exact", transactional=True)
    assert world.arrive(
        packet(1, to="plain", sequence=(SEQUENCE, 1, 0)), packet(2, to="exact")
    ) == [MessageClass.NACK_NOT_TRANSACTIONAL_Q, MessageClass.NACK_NOT_TRANSACTIONAL_MSG]
    client = world.client()
    transaction = client.begin("t")
    usage = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert client.send("DIRECT=OS:vhost\\exact").status == usage
    assert client.send("DIRECT=OS:vhost\\plain", transaction=transaction).status == usage
    assert client.send("DIRECT=OS:vhost\\exact", transaction=transaction).status == 0
    assert client.commit(transaction) == 0
    assert client.send("DIRECT=OS:vhost\\plain").status == 0
    assert (len(world.positions(plain)), len(world.positions(exact))) == (1, 1)
    # What an application sends as a packet is of the kind of its transaction.
    transaction = client.begin("u")
    sequenced = packet(0, sequence=(1, 1, 0))
    other = client.send("DIRECT=OS:vhost\\exact", raw=packet(0), transaction=transaction)
    assert other.status == client.send("DIRECT=OS:vhost\\plain", raw=sequenced).status == usage
    # In one batch each message is judged by its own kind.
    assert world.arrive(
        packet(3, to="exact", sequence=(SEQUENCE, 1, 0)),
        packet(4, to="exact"),
        packet(5, to="plain"),
        packet(6, to="plain", sequence=(SEQUENCE, 2, 1)),
    ) == [
        *(TransferVerdict.ACCEPTED, MessageClass.NACK_NOT_TRANSACTIONAL_MSG),
        *(TransferVerdict.ACCEPTED, MessageClass.NACK_NOT_TRANSACTIONAL_Q),
    ]
    assert (len(world.positions(plain)), len(world.positions(exact))) == (2, 2)


@pytest.mark.spec("MQ-1.1-11")
def test_no_transactional_queue_gets_what_the_queue_manager_sends_itself(world: World) -> None:
    """Neither acknowledgements nor reports are transactional."""
    world.create("orders")
    plain, exact = world.create("plain"), world.create("exact", transactional=True)
    for number, (name, queue_id) in enumerate((("plain", plain), ("exact", exact))):
        asked = packet(
            2 * number,
            admin_queue=direct(name),
            properties={"flags": int(AcknowledgeFlags.PA)},
        )
        traced = packet(2 * number + 1, report_to=world.record(queue_id).identifier)
        assert world.arrive(asked, traced) == [TransferVerdict.ACCEPTED] * 2
    assert (len(world.positions(plain)), len(world.positions(exact))) == (2, 0)


@pytest.mark.spec("MQ-1.1-12")
def test_a_subqueue_stands_under_its_queue_by_its_name(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    _, subqueue = client.open(ORDERS + ";later", MOVE)
    for queue_id, kind, suffix in (
        (subqueue, QueueKind.SUBQUEUE, ";later"),
        (world.record(orders).journal_queue, QueueKind.JOURNAL, ";JOURNAL"),
    ):
        record = world.record(queue_id)
        assert (record.kind, record.parent_queue) == (kind, orders)
        assert record.pathname == world.record(orders).pathname + suffix
        assert client.open(ORDERS + suffix, RECEIVE)[1] == queue_id


@pytest.mark.spec("MQ-2.3.1.3-01", "MQ-2.3.1.4-01", "MQ-2.3.2.24-01")
def test_what_properties_of_a_queue_entail(world: World) -> None:
    """A path name stays, journaling copies what was received, nobody makes a routing server."""
    journaled, plain = world.create("orders", journaling=True), world.create("plain")
    client = world.client()
    for name in ("orders", "plain"):
        world.arrive(packet(1 if name == "orders" else 2, to=name))
        client.receive(client.open(f"DIRECT=OS:vhost\\{name}", RECEIVE))
    # No application removed what was purged, or was over.
    world.arrive(packet(3), packet(4, time_to_be_received=0))
    world.one(commands.PurgeQueue(request(), journaled, ()))
    world.settle(journaled)
    assert not world.positions(journaled)
    for queue_id, copies in ((journaled, [1]), (plain, [])):
        journal = world.positions(world.record(queue_id).journal_queue)
        assert [one.message_ordinal for one in journal.values()] == copies
    path = {"pathname": encode_attribute("vhost\\other")}
    unknown = ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    assert world.one(commands.SetQueue(request(), journaled, path, ())).status == unknown
    assert world.record(journaled).pathname == "vhost\\orders"
    routing = {"routing_server": encode_attribute(True)}
    assert world.one(commands.SetQueueManager(request(), routing, ())).status == unknown
    manager = world.machine.manager
    assert manager is not None
    assert not manager.routing_server
    # Nor of another one, in what the directory says of it.
    far: dict[str, object] = {"computer_name": "far", "routing_server": True}
    assert write(world, 9, DirectoryObjectType.QUEUE_MANAGER, **far) == unknown
    wanted = [Filter("computer_name", Operator.EQUALS, "far")]
    found, _ = world.machine.directory.read(DirectoryObjectType.QUEUE_MANAGER, wanted)
    assert found is DirectoryOperationResult.OBJECT_NOT_FOUND
    for name, number, vartype in (("PATHNAME", 103, 31), ("JOURNAL", 104, 17)):
        row = QueueProperty[name].value
        assert (row.number, row.vartype) == (number, vartype)
    switch = QueueProperty.JOURNAL.value
    assert switch.valid == Choices((("MQ_JOURNAL_NONE", 0), ("MQ_JOURNAL", 1)))
    assert switch.default == 0


@pytest.mark.spec("MQ-2.3.1.4-01")
def test_each_message_that_an_application_removes_is_copied_and_no_other(world: World) -> None:
    plain = world.create("orders", journaling=True)
    exact = world.create("exact", journaling=True, transactional=True)
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    subqueue = client.open(f"{ORDERS};later", MOVE)

    def copies(queue_id: int) -> list[int]:
        journal = world.positions(world.record(queue_id).journal_queue)
        return [one.message_ordinal for one in journal.values()]

    world.arrive(*map(packet, range(1, 8)))
    keys = [*world.positions(plain)]
    client.receive(opened, 2)
    client.receive(opened, selector=Selector(SelectorKind.EXACT, keys[3]))
    assert copies(plain) == [1, 2, 4]
    for delete in (False, True):
        client.receive(opened, is_two_phase=True)
        end = commands.ReadEnd(client.request(), plain, keys[2], delete)
        assert world.one(end).status == 0
        assert copies(plain) == [1, 2, 4] + [3] * delete
    # Rejected by whom it was read for, or moved: no application removed it.
    client.receive(opened, is_two_phase=True)
    rejected = MessageClass.NACK_RECEIVE_REJECTED
    end = commands.ReadEnd(client.request(), plain, keys[4], delete=True, reason=int(rejected))
    assert world.one(end).status == 0
    move = commands.Move(client.request(), plain, keys[5], subqueue[1], ())
    assert world.one(move).status == 0
    assert copies(plain) == [1, 2, 4, 3]

    sequenced = [(SEQUENCE, number, number - 1) for number in (1, 2)]
    world.arrive(*(packet(one[1], to="exact", sequence=one) for one in sequenced))
    opened = client.open("DIRECT=OS:vhost\\exact", RECEIVE)
    for name, ends, expected in (("aborts", client.abort, []), ("stays", client.commit, [1, 2])):
        transaction = client.begin(name)
        client.receive(opened, 2, transaction=transaction)
        assert copies(exact) == []
        assert ends(transaction) == 0
        assert copies(exact) == expected


@pytest.mark.spec("MQ-1.1-02")
def test_acknowledgements_go_to_the_queue_that_the_sender_names(world: World) -> None:
    admin, other = world.create("admin"), world.create("other")
    world.create("orders")
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
    }
    world.arrive(packet(7, **asked))
    (told,) = world.messages(admin)
    assert told.properties.message_class == MessageClass.ACK_REACH_QUEUE
    assert told.user_header.source_queue_manager == OWN
    # So do all others: of what is received, is not received, or does not get there.
    flags = int(AcknowledgeFlags.PR | AcknowledgeFlags.NR | AcknowledgeFlags.NA)
    asked["properties"] = {"flags": flags}
    client = world.client()
    world.arrive(packet(8, **asked), packet(9, time_to_be_received=1, **asked))
    assert len(client.receive(client.open(ORDERS, RECEIVE), 3)) == 3
    world.arrive(packet(10, time_to_be_received=1, **asked), packet(11, hop_count=30, **asked))
    world.tick(2_000)
    classes = [one.properties.message_class for one in world.messages(admin)]
    assert classes == [0x0002, 0x4000, 0x4000, 0x8005, 0xC002]
    assert not world.positions(other)


@pytest.mark.spec("MQ-1.1-04")
def test_a_cursor_stands_between_head_and_tail(world: World) -> None:
    queue, cursor = Keys(3, 5, 8), Cursor(1)
    assert cursor.get_message_for_peek(queue.seek, queue.has) is CursorAnswer.SUCCEEDED
    assert cursor.get_next_message_for_peek(queue.seek) is CursorAnswer.SUCCEEDED
    assert cursor.key == 5
    assert cursor.get_message_for_peek(queue.seek, queue.has) is CursorAnswer.SUCCEEDED
    assert cursor.key == 5
    assert cursor.selector_for_dequeue() == Selector(SelectorKind.EXACT, 5)
    other = Cursor(2)
    assert other.selector_for_dequeue() == Selector(SelectorKind.FIRST)
    assert queue.keys == [3, 5, 8]
    # Behind the tail it waits, and is still where it was.
    assert cursor.get_next_message_for_peek(queue.seek) is CursorAnswer.SUCCEEDED
    assert cursor.key == 8
    assert cursor.get_next_message_for_peek(queue.seek) is CursorAnswer.WAITING
    assert cursor.key == 8
