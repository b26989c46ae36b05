"""What the queue manager does with the fields of a message: rows of [MS-MQMQ] headers that bind
behaviour rather than bytes."""

from array import array
from typing import Any

import pytest

from qm.model import queries
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import PoisonAction, QueueAccessType
from qm.model.values.records import FinalAckRow, decode
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.identifiers import MessageIdentifier, write_message_identifier
from tests.unit.model.test_delivery import TRANSACTIONAL, Sender
from tests.unit.model.world import NOW_S, OWN, PEER, World, direct, packet, request

ORDERS = "DIRECT=OS:vhost\\orders"
RECEIVE = QueueAccessType.RECEIVE_ACCESS
SEQUENCE = 5 << 32 | 1
kinds = pytest.mark.parametrize("is_transactional", [False, True], ids=["plain", "exact"])


def asking(world: World, flags: int, *, is_transactional: bool = False) -> tuple[int, int]:
    """Let a message arrive that asks for acknowledgements; return (orders, admin)."""
    orders, admin = world.create("orders", transactional=is_transactional), world.create("admin")
    asked = packet(
        7,
        sequence=(SEQUENCE, 1, 0) if is_transactional else None,
        admin_queue=direct("admin"),
        properties={"flags": flags},
        time_to_be_received=10,
        sent_time=NOW_S,
    )
    assert world.arrive(asked) == [TransferVerdict.ACCEPTED]
    return orders, admin


def classes(world: World, queue_id: int) -> list[int]:
    return [message.properties.message_class for message in world.messages(queue_id)]


@pytest.mark.spec("MQ-2.2.18.1.3-02", "MQ-2.2.19.2-08")
def test_every_message_of_the_queue_manager_has_its_guid_and_an_ordinal_of_its_own() -> None:
    sender = Sender(forgets=False)
    sender.send(5)
    positions = list(sender.positions(sender.queue_id).values())
    assert {position.source_queue_manager for position in positions} == {OWN}
    assert len({position.message_ordinal for position in positions}) == 5
    assert 0 not in {position.message_ordinal for position in positions}


@pytest.mark.spec("MQ-2.2.18.1.3-02", "MQ-2.2.19.2-08")
def test_so_have_messages_to_several_queues_and_those_that_it_makes_itself() -> None:
    world = World(forgets=True)
    orders, admin, reports = (world.create(name) for name in ("orders", "admin", "reports"))
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
        "report_to": world.record(reports).identifier,
    }
    found: list[tuple[bytes, int]] = []
    for number in (1, 2):
        client = world.client(f"c{number}")
        for name in ("DIRECT=TCP:10.9.8.7\\far", "DIRECT=OS:far\\q", ORDERS):
            outcome = client.send(name)
            assert isinstance(outcome.value, tuple)
            ordinal, ((queue_id, key),) = outcome.value
            position = world.positions(queue_id)[key]
            assert position.message_ordinal == ordinal
            found.append((position.source_queue_manager, ordinal))
        assert world.arrive(packet(number, **asked)) == [TransferVerdict.ACCEPTED]
    for queue_id in (admin, reports):
        for position in world.positions(queue_id).values():
            header = world.message(position).user_header
            identifier = (position.source_queue_manager, position.message_ordinal)
            assert (header.source_queue_manager, header.message_id) == identifier
            found.append(identifier)
    # So have final acks, and what the order acks of a sequence are given.
    for number in (1, 2):
        refused = packet(number + 2, sequence=(SEQUENCE, number, number - 1), final_ack=True)
        verdicts, applied = world.arrive_applied(refused)
        assert verdicts == [MessageClass.NACK_NOT_TRANSACTIONAL_Q]
        found += [(OWN, one.message_ordinal) for one in applied.incoming_sequences.values()]
    for row in queries.list_outbox(world.machine.view).items:
        found.append((OWN, decode(FinalAckRow, row.payload).message_id))
    assert len(found) == len(set(found)) == 14
    assert {source for source, _ in found} == {OWN}
    foreign = [one for one in world.positions(orders).values() if one.source_queue_manager == PEER]
    assert [one.message_ordinal for one in foreign] == [1, 2], "theirs are their own"


@pytest.mark.spec("MQ-2.2.19.1-18")
def test_a_message_that_is_too_late_is_ignored_on_arrival() -> None:
    world = World()
    orders = world.create("orders")
    late = packet(1, time_to_reach_queue=5, sent_time=NOW_S - 6)
    in_time = packet(2, time_to_reach_queue=5, sent_time=NOW_S - 5)
    assert world.arrive(late, in_time) == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        TransferVerdict.ACCEPTED,
    ]
    assert [m.user_header.message_id for m in world.messages(orders)] == [2]
    # So is one among many that differ from it in nothing but their times.
    times = [(5, NOW_S)] * 3 + [(5, NOW_S - 6), (5, NOW_S - 5), (4, NOW_S - 5), (5, NOW_S)]
    times += [(0xFFFF_FFFF, 0), (0xFFFF_FFFF, NOW_S)]
    many = [
        packet(number, time_to_reach_queue=reach, sent_time=sent)
        for number, (reach, sent) in enumerate(times, 11)
    ]
    is_late = [number in (3, 5) for number in range(len(times))]
    assert world.arrive(*many) == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT if late else TransferVerdict.ACCEPTED
        for late in is_late
    ]
    assert [m.user_header.message_id for m in world.messages(orders)] == [
        *(2, 11, 12, 13, 15, 17, 18, 19)
    ]


@pytest.mark.spec("MQ-2.2.19.2-06", "MQ-2.2.19.2-05")
def test_a_message_leaves_its_queue_when_its_time_to_be_received_is_over() -> None:
    world = World()
    orders, _ = asking(world, 0)
    world.arrive(packet(8, time_to_be_received=0xFFFF_FFFF))
    later: dict[str, Any] = {"time_to_be_received": 10, "sent_time": NOW_S + 4}
    world.arrive(packet(9, **later), packet(10, time_to_be_received=0x8000_0001))
    world.arrive(packet(11, admin_queue=direct("admin"), **later))
    assert world.client().send(ORDERS, raw=packet(12, **later)).status == 0

    def left() -> list[int]:
        return [message.user_header.message_id for message in world.messages(orders)]

    world.tick(9_000)
    assert left() == [7, 8, 9, 10, 11, 12]
    world.tick(1_001)
    assert left() == [8, 9, 10, 11, 12]
    # It counts from when it was sent, and infinite is never over.
    world.tick(4_000)
    assert left() == [8, 10]
    world.tick(0x8000_0001 * 1000 - 14_002)
    assert left() == [8, 10]
    world.tick(1)
    assert left() == [8]


def finally_told(sender: Sender, message_class: MessageClass, **asked: bool) -> None:
    """Let a transactional message arrive, and its destination say what became of it."""
    sender.send(1, **asked, **TRANSACTIONAL)
    ((key, sequence, number, _),) = sender.assign()
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    sender.session_ack(key)
    sender.order_ack(sequence, number)
    sender.one(commands.FinalAcked(array("Q", [ordinal]), array("Q", [message_class])))
    assert sender.keys() == []


@pytest.mark.spec("MQ-2.2.19.2-14")
def test_a_failed_delivery_is_kept_where_negative_journaling_was_asked_for() -> None:
    sender = Sender(forgets=False)
    sender.send(1, has_negative_journaling=True)
    sender.send(1)
    keys = sender.keys()
    for key in keys:
        sender.one(
            commands.TransferFailed(
                sender.queue_id, array("Q", [key]), MessageClass.NACK_REACH_QUEUE_TIMEOUT
            )
        )
    assert sender.ordinals("system_deadletter_queue") == [1]
    # What arrived, and was refused there, is known by its final acknowledgement.
    for asked in ({"has_negative_journaling": True}, {"final_ack": True}):
        finally_told(sender, MessageClass.NACK_RECEIVE_TIMEOUT, **asked)
    assert sender.ordinals("system_transactional_deadletter_queue") == [3]
    assert sender.ordinals("system_deadletter_queue") == [1]


@pytest.mark.spec("MQ-2.2.19.2-15")
def test_a_delivery_is_kept_where_positive_journaling_was_asked_for() -> None:
    sender = Sender(forgets=False)
    sender.send(1, has_positive_journaling=True)
    sender.send(1)
    sender.session_ack(*sender.keys())
    assert sender.ordinals("system_journal_queue") == [1]
    for asked in ({"has_positive_journaling": True}, {"final_ack": True}):
        finally_told(sender, MessageClass.ACK_RECEIVE, **asked)
    assert sender.ordinals("system_journal_queue") == [1, 3]


@kinds
@pytest.mark.spec("MQ-2.2.19.3-03", "DM-3.1.1.12-27")
def test_arrival_is_acknowledged_on_request(is_transactional: bool) -> None:
    world = World()
    _, admin = asking(world, AcknowledgeFlags.PA, is_transactional=is_transactional)
    assert classes(world, admin) == [0x0002]


@pytest.mark.spec("DM-3.1.7.2.1-03")
@pytest.mark.parametrize("reason", [0x4000, 0xC000, 0xC001, 0xC002])
def test_the_final_acknowledgement_has_the_reason_too(reason: int) -> None:
    world = World()
    orders = world.create("orders", transactional=True)
    timed: dict[str, Any] = {"time_to_be_received": 10, "sent_time": NOW_S}
    world.arrive(packet(7, sequence=(SEQUENCE, 1, 0), final_ack=True, **timed))
    if reason == 0x4000:
        client = world.client()
        assert len(client.receive(client.open(ORDERS, RECEIVE))) == 1
    elif reason == 0xC002:
        world.tick(10_000)
    elif reason == 0xC000:
        assert world.one(commands.DeleteQueue(request(), orders, ())).status == 0
    else:
        assert world.one(commands.PurgeQueue(request(), orders, ())).status == 0
    world.settle(orders)
    (owed,) = queries.list_outbox(world.machine.view).items
    assert decode(FinalAckRow, owed.payload).message_class == reason


@kinds
@pytest.mark.spec("MQ-2.2.19.3-04")
def test_retrieval_is_acknowledged_whatever_way_it_takes(is_transactional: bool) -> None:
    """Of what is locked first: when its transaction, or the reader that borrowed it, ends it."""
    world = World()
    _, admin = asking(world, AcknowledgeFlags.PR, is_transactional=is_transactional)
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    if is_transactional:
        transaction = client.begin("t")
        assert len(client.receive(opened, transaction=transaction)) == 1
        assert classes(world, admin) == []
        assert client.commit(transaction) == 0
    else:
        (lent,) = client.receive(opened, is_two_phase=True)
        assert classes(world, admin) == []
        end = commands.ReadEnd(client.request(), opened[1], lent.lookup_identifier, True)
        assert world.one(end).status == 0
    assert classes(world, admin) == [0x4000]


@pytest.mark.spec("MQ-2.2.19.3-04")
def test_retrieval_is_acknowledged_on_request() -> None:
    world = World()
    _, admin = asking(world, AcknowledgeFlags.PR)
    assert classes(world, admin) == []
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    client.receive(opened)
    assert classes(world, admin) == [MessageClass.ACK_RECEIVE]
    # Also of some that are taken together, and have no end of their time.
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": AcknowledgeFlags.PR},
    }
    world.arrive(packet(8), packet(9, **asked), packet(10), packet(11, **asked))
    assert len(client.receive(opened, 4)) == 4
    assert classes(world, admin) == [MessageClass.ACK_RECEIVE] * 3


@pytest.mark.spec("MQ-2.2.19.3-05", "DM-3.1.1.12-29")
@pytest.mark.parametrize(
    ("message_class", "fields"),
    [
        (0x8002, {"to": "plain", "time_to_reach_queue": 5, "sent_time": NOW_S - 6}),
        (0x8005, {"to": "plain", "hop_count": 30}),
        (0x8003, {"to": "full"}),
        (0x8003, {"to": "full-exact", "sequence": (SEQUENCE, 1, 0)}),
        (0x8009, {"to": "plain", "sequence": (SEQUENCE, 1, 0)}),
        (0x800A, {"to": "exact"}),
    ],
)
def test_each_refusal_of_what_arrives_is_told_on_request(
    message_class: int, fields: dict[str, Any]
) -> None:
    world = World()
    refusing = (
        world.create("full", quota=0),
        world.create("full-exact", quota=0, transactional=True),
        world.create("plain"),
        world.create("exact", transactional=True),
    )
    admin = world.create("admin")
    others = AcknowledgeFlags.PA | AcknowledgeFlags.PR | AcknowledgeFlags.NR
    for number, flags in ((1, AcknowledgeFlags.NA), (2, others)):
        if "sequence" in fields:
            fields |= {"sequence": (SEQUENCE, number, number - 1)}
        asked: dict[str, Any] = {"admin_queue": direct("admin"), "properties": {"flags": flags}}
        assert world.arrive(packet(number, **asked, **fields)) == [message_class]
    (told,) = world.messages(admin)
    assert told.properties.message_class == message_class
    assert told.properties.correlation_id == write_message_identifier(MessageIdentifier(PEER, 1))
    assert not any(world.positions(queue_id) for queue_id in refusing)


@pytest.mark.spec("MQ-2.2.19.3-05")
def test_so_is_a_failure_to_leave() -> None:
    sender = Sender(forgets=False)
    admin = sender.create("admin")
    others = AcknowledgeFlags.PA | AcknowledgeFlags.PR | AcknowledgeFlags.NR
    for flags in (AcknowledgeFlags.NA, others):
        sender.send(1, admin_queue=direct("admin"), properties={"flags": flags})
    late = MessageClass.NACK_REACH_QUEUE_TIMEOUT
    failed = commands.TransferFailed(sender.queue_id, array("Q", sender.keys()), late)
    assert sender.one(failed).status == 0
    (told,) = sender.messages(admin)
    assert told.properties.message_class == late
    assert told.properties.correlation_id == write_message_identifier(MessageIdentifier(OWN, 1))


@pytest.mark.spec("MQ-2.2.19.3-05")
def test_a_failure_to_reach_the_queue_is_told_on_request() -> None:
    world = World()
    world.create("orders", quota=0)
    admin = world.create("admin")
    for number, flags in ((1, AcknowledgeFlags.NA), (2, AcknowledgeFlags.NR)):
        world.arrive(packet(number, admin_queue=direct("admin"), properties={"flags": flags}))
    assert classes(world, admin) == [MessageClass.NACK_Q_EXCEED_QUOTA]


@kinds
@pytest.mark.spec("MQ-2.2.19.3-06", "DM-3.1.7.2.1-03")
@pytest.mark.parametrize("how", ["expired", "purged", "deleted", "rejected"])
def test_never_being_retrieved_is_told_on_request(how: str, is_transactional: bool) -> None:
    world = World()
    orders, admin = asking(world, AcknowledgeFlags.NR, is_transactional=is_transactional)
    if how == "expired":
        world.tick(10_000)
        expected = 0xC002
    elif how == "purged":
        world.one(commands.PurgeQueue(request(), orders, ()))
        world.settle(orders)
        expected = 0xC001
    elif how == "deleted":
        world.one(commands.DeleteQueue(request(), orders, ()))
        world.settle(orders)
        expected = 0xC000
    else:
        reject = {"max_deliveries": 1, "poison_action": int(PoisonAction.REJECT)}
        changes = {name: encode_attribute(value) for name, value in reject.items()}
        assert world.one(commands.SetQueue(request(), orders, changes, ())).status == 0
        client = world.client()
        (lent,) = client.receive(client.open(ORDERS, RECEIVE), is_two_phase=True)
        world.one(commands.ReadEnd(client.request(), orders, lent.lookup_identifier, False))
        expected = 0xC004
    assert classes(world, admin) == [expected]
    assert world.positions(orders) == {}


@pytest.mark.spec("MQ-2.2.19.3-13", "MQ-2.2.19.2-07")
def test_an_acknowledgement_names_the_message_it_is_about() -> None:
    """Of arrival, of retrieval, of a refusal, and the sender's own of what could not leave."""
    sender = Sender(forgets=False)
    _, admin = asking(sender, AcknowledgeFlags.PA | AcknowledgeFlags.PR)
    sender.c.receive(sender.c.open(ORDERS, RECEIVE))
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.NA)},
    }
    sender.create("full", quota=0)
    sender.arrive(packet(8, to="full", **asked))
    sender.send(2, time_to_reach_queue=1, **asked)
    own = [one.message_ordinal for one in sender.positions(sender.queue_id).values()]
    sender.tick(2_001)
    assert classes(sender, admin) == [0x0002, 0x4000, 0x8003, 0x8002, 0x8002]
    at = [NOW_S] * 3 + [sender.now_ms // 1000] * 2
    assert [one.user_header.sent_time for one in sender.messages(admin)] == at
    about = [(PEER, 7), (PEER, 7), (PEER, 8), *((OWN, ordinal) for ordinal in own)]
    assert [one.properties.correlation_id for one in sender.messages(admin)] == [
        write_message_identifier(MessageIdentifier(*identifier)) for identifier in about
    ]
