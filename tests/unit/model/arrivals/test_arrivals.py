"""UserMessages from the network: taken, repeated, refused, and what each causes."""

from typing import Any

import pytest

from qm.model.machine import Machine
from qm.model.messages.message import Message
from qm.model.state.tables import MemoryState, Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts, SignatureFact, TransferVerdict
from qm.model.values.effects import EffectKind, SequenceSeen
from qm.model.values.elements import QueuePrivacyLevel
from qm.model.values.records import FinalAckRow, OutboxRow, decode
from qm.model.values.rows import PositionFlag, PositionState
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import sid_from_text
from qm.wire.codes import ErrorCode
from qm.wire.errors import ValueOutOfRange
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.identifiers import MessageIdentifier, write_message_identifier
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from tests.unit.model.world import (
    HOST,
    NOW_MS,
    NOW_S,
    OWN,
    PEER,
    PEER_ADDRESS,
    World,
    direct,
    effects,
    packet,
    request,
)

ACCEPTED, DUPLICATE = TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE
OUT_OF_ORDER = TransferVerdict.OUT_OF_ORDER
SEQUENCE = 5 << 32 | 1
ALICE = sid_from_text("S-1-5-21-1-2-3-1001")


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def final_acks(world: World) -> list[tuple[OutboxRow, FinalAckRow]]:
    rows = [decode(OutboxRow, row) for table, _, row in world.state.rows() if table == Table.OUTBOX]
    return [(row, decode(FinalAckRow, row.payload)) for row in rows]


@pytest.mark.spec("DM-3.1.7.1.9-10", "DM-3.1.7.2.2-02")
def test_a_message_enters_its_queue_once(world: World) -> None:
    orders = world.create("orders")
    first = packet(1, body=b"one", is_recoverable=True)
    verdicts, applied = world.arrive_applied(first, packet(2, body=b"two"), first)
    assert verdicts == [ACCEPTED, ACCEPTED, DUPLICATE]
    assert world.arrive(first) == [DUPLICATE]
    assert [message.properties.message_body for message in world.messages(orders)] == [
        b"one",
        b"two",
    ]
    assert effects(applied) == [(EffectKind.ARRIVED, orders)] * 2
    assert applied.woken_queue_ids == {orders}
    one, two = world.positions(orders).values()
    assert one.flags == PositionFlag.RECOVERABLE
    assert two.flags == 0
    assert one.state == two.state == PositionState.AVAILABLE
    assert (one.source_queue_manager, one.message_ordinal) == (PEER, 1)
    assert world.state.references() == {(one.body_index, 0): 1, (one.body_index, 1): 1}


@pytest.mark.spec("DM-3.1.7.1.9-07", "DM-3.1.1.12-15", "MQ-2.2.19.1-06")
def test_order_is_priority_then_arrival(world: World) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(k, priority=p) for k, p in enumerate([3, 7, 0, 3, 7], start=1)))
    assert [m.user_header.message_id for m in world.messages(orders)] == [2, 5, 1, 4, 3]


@pytest.mark.spec("DM-3.1.7.1.9-07", "DM-3.1.1.12-15", "MQ-2.2.19.1-06")
def test_so_it_is_of_messages_that_are_judged_one_by_one(world: World) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(k, priority=p) for k, p in enumerate([3, 7, 0], start=1)))
    asked: dict[str, Any] = {"admin_queue": direct("absent"), **asking(AcknowledgeFlags.PR)}
    world.arrive(*(packet(k, priority=p, **asked) for k, p in enumerate(range(8), start=4)))
    found = [m.user_header.message_id for m in world.messages(orders)]
    assert found == [2, 11, 10, 9, 8, 1, 7, 6, 5, 3, 4]


@pytest.mark.spec("DM-3.1.1.12-15", "DM-3.1.1.12-01")
def test_each_of_eight_priorities_has_its_place_in_the_lookup_identifier(world: World) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(priority + 1, priority=priority) for priority in range(8)))
    assert [m.user_header.message_id for m in world.messages(orders)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [key >> 56 for key in world.positions(orders)] == [*range(8)]
    client = world.client()  # what clients send takes another way to the same list
    for priority in range(8):
        assert client.send("DIRECT=OS:vhost\\orders", raw=packet(0, priority=priority)).status == 0
    assert [key >> 56 for key in world.positions(orders)] == [k // 2 for k in range(16)]
    assert Message().priority == 3
    with pytest.raises(ValueOutOfRange):
        packet(9, priority=8)


@pytest.mark.spec("DM-3.1.1.12-43")
@pytest.mark.parametrize("is_asking", [False, True], ids=["by column", "one by one"])
@pytest.mark.parametrize("connector_type", [bytes(16), b"K" * 16, b"\xff" * 16])
def test_a_connector_type_changes_nothing(
    world: World, connector_type: bytes, is_asking: bool
) -> None:
    orders = world.create("orders")
    asked = asking(AcknowledgeFlags.PA) | {"admin_queue": direct("admin")} if is_asking else {}
    raw = packet(2, **asked, connector_type=connector_type)
    assert world.arrive(packet(1, **asked), raw) == [ACCEPTED] * 2
    for number, given in ((3, bytes(16)), (4, connector_type)):
        own = packet(number, **asked, connector_type=given)
        assert world.client(str(number)).send("DIRECT=OS:vhost\\orders", raw=own).status == 0
    positions = [*world.positions(orders).values()]
    for plain, connected in (positions[:2], positions[2:]):
        assert connected.flags == plain.flags
        assert connected.state == plain.state == PositionState.AVAILABLE
        assert connected.deadline_ms == plain.deadline_ms == 0
    for message in world.messages(orders)[1::2]:
        assert message.user_header.connector_type == connector_type


@pytest.mark.parametrize(
    "name",
    [
        direct("ORDERS"),
        DirectQueueFormatName("TCP:127.0.0.11\\orders"),
        DirectQueueFormatName("OS:vhost.EXAMPLE\\orders"),
        PublicQueueFormatName(b"orders".ljust(16, b"\0")),
    ],
    ids=str,
)
def test_every_name_of_a_queue_leads_to_it(world: World, name: QueueName) -> None:
    orders = world.create("orders")
    assert world.arrive(packet(1, to=name)) == [ACCEPTED]
    assert len(world.positions(orders)) == 1


def test_a_private_queue_by_number(world: World) -> None:
    queue_id = world.create("private$\\inbox")
    number = world.record(queue_id).private_queue_number
    name = PrivateQueueFormatNameId(QueueHost.DESTINATION, number)
    assert world.arrive(packet(1, to=name, queue_manager_address=OWN)) == [ACCEPTED]
    assert world.arrive(packet(2, to=name, queue_manager_address=PEER)) == [
        MessageClass.NACK_BAD_DST_Q
    ]
    assert len(world.positions(queue_id)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "OS:vhost\\absent",
        "OS:elsewhere\\orders",
        "TCP:10.9.9.9\\orders",
        "nonsense",
        "OS:vhost\\q;s",
    ],
)
def test_no_such_queue(world: World, name: str) -> None:
    world.create("orders")
    before = world.counters().sequential_id
    refused = packet(1, to=DirectQueueFormatName(name))
    assert world.arrive(refused, refused) == [MessageClass.NACK_BAD_DST_Q] * 2
    assert world.counters().sequential_id == before


def test_what_is_refused_unheard_leaves_nothing_behind(world: World) -> None:
    """A sender to names that do not exist must not fill the state."""
    world.create("orders")
    before = [row for row in world.state.rows() if row[0] != Table.META]
    for number in range(20):
        raw = packet(number + 1, to=f"absent{number}", source_queue_manager=bytes([number]) * 16)
        assert world.arrive(raw, raw) == [MessageClass.NACK_BAD_DST_Q] * 2
    assert [row for row in world.state.rows() if row[0] != Table.META] == before
    assert world.counters().source_count == 0
    both = packet(1, to="orders"), packet(2, to="absent")
    assert world.arrive(*both) == [ACCEPTED, MessageClass.NACK_BAD_DST_Q]
    assert world.arrive(*both) == [DUPLICATE, MessageClass.NACK_BAD_DST_Q]


LATE: dict[str, Any] = {"time_to_reach_queue": 5, "sent_time": NOW_S - 6}


@pytest.mark.parametrize("late", [False, True])
def test_of_messages_to_no_queue_nothing_is_owed_to_whom_they_only_name(
    world: World, late: bool
) -> None:
    world.create("admin")
    before = [row for row in world.state.rows() if row[0] != Table.META]
    counters = world.counters()
    asked = {"admin_queue": direct("admin"), **asking(AcknowledgeFlags.NA)}
    for number in range(1, 20):
        source = bytes([number]) * 16
        more = {"source_queue_manager": source} | (LATE if late else asked)
        raw = packet(1, to="absent", sequence=(9, 1, 0), final_ack=True, **more)
        (verdict,), applied = world.arrive_applied(raw)
        assert verdict == MessageClass.NACK_BAD_DST_Q
        assert not applied.incoming_sequences
        assert not applied.outbox_ids
    assert [row for row in world.state.rows() if row[0] != Table.META] == before
    assert world.counters() == counters


def test_a_refusal_that_nobody_hears_of_is_not_remembered(world: World) -> None:
    """Its sender asked to be told, and is not, since that would tell a stranger what exists."""
    raw = packet(1, to="absent", admin_queue=direct("absent"), **asking(AcknowledgeFlags.NA))
    before = [row for row in world.state.rows() if row[0] != Table.META]
    assert world.arrive(raw, raw) == [MessageClass.NACK_BAD_DST_Q] * 2
    assert [row for row in world.state.rows() if row[0] != Table.META] == before


def test_what_a_full_queue_refuses_leaves_nothing_behind(world: World) -> None:
    """In the fast lane, too; a sender that gets one message in at last is remembered."""
    tight = world.create("tight", quota=1)
    before = world.counters().source_count
    full = packet(1, to="tight", body=bytes(1500))
    for number in range(20):
        raw = packet(number + 1, to="tight", body=bytes(1500), source_queue_manager=OWN)
        assert world.arrive(raw, full) == [MessageClass.NACK_Q_EXCEED_QUOTA] * 2
    assert world.counters().source_count == before
    assert not [row for row in world.state.rows() if row[0] == Table.STREAM]
    assert world.arrive(full, packet(1, to="tight", body=b"")) == [
        MessageClass.NACK_Q_EXCEED_QUOTA,
        ACCEPTED,
    ]
    assert world.arrive(packet(1, to="tight", body=b"")) == [DUPLICATE]
    assert len(world.positions(tight)) == 1


def test_journals_and_system_queues_take_nothing_from_the_network(world: World) -> None:
    world.create("orders")
    for name in ("OS:vhost\\orders;JOURNAL", "OS:vhost\\SYSTEM$;DEADLETTER"):
        assert world.arrive(packet(1, to=DirectQueueFormatName(name))) == [
            MessageClass.NACK_BAD_DST_Q
        ]
    order_queue = PrivateQueueFormatNameId(QueueHost.DESTINATION, 4)
    assert world.arrive(packet(2, to=order_queue, queue_manager_address=OWN)) == [
        TransferVerdict.IGNORED
    ]


# Sequences ---------------------------------------------------------------------------------


def test_transactional_messages_in_order_and_once(world: World) -> None:
    orders = world.create("orders", transactional=True)
    first, second, third = (packet(n, sequence=(SEQUENCE, n, n - 1)) for n in (1, 2, 3))
    assert world.arrive(second) == [OUT_OF_ORDER]
    assert world.arrive(first, third, second, second, third, first) == [
        ACCEPTED,
        OUT_OF_ORDER,
        ACCEPTED,
        DUPLICATE,
        ACCEPTED,
        DUPLICATE,
    ]
    ids = [message.user_header.message_id for message in world.messages(orders)]
    assert ids == [1, 2, 3]
    flags = [position.flags for position in world.positions(orders).values()]
    assert all(flag & PositionFlag.TRANSACTIONAL for flag in flags)


def test_a_new_sequence_begins_with_its_first_message(world: World) -> None:
    world.create("orders", transactional=True)
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0))) == [ACCEPTED]
    newer = SEQUENCE + 1
    assert world.arrive(packet(2, sequence=(newer, 2, 1))) == [OUT_OF_ORDER]
    assert world.arrive(packet(2, sequence=(newer, 1, 0))) == [ACCEPTED]
    assert world.arrive(packet(3, sequence=(SEQUENCE, 2, 1))) == [OUT_OF_ORDER]


@pytest.mark.spec("DM-3.1.1.12-08")
def test_a_refused_transactional_message_consumes_its_number_and_owes_a_final_ack(
    world: World,
) -> None:
    world.create("plain")
    refused = packet(9, to="plain", sequence=(SEQUENCE, 1, 0), final_ack=True)
    assert world.arrive(refused) == [MessageClass.NACK_NOT_TRANSACTIONAL_Q]
    assert world.arrive(refused) == [DUPLICATE]
    ((row, acknowledgement),) = final_acks(world)
    assert (row.queue_manager, row.address) == (PEER, PEER_ADDRESS)
    assert acknowledgement.message_class == MessageClass.NACK_NOT_TRANSACTIONAL_Q
    assert acknowledgement.sequence_identifier == SEQUENCE
    assert (acknowledgement.sequence_number, acknowledgement.previous_sequence_number) == (1, 0)
    assert acknowledgement.acknowledged_source == PEER
    assert acknowledgement.acknowledged_message_id == 9


@pytest.mark.spec("DM-3.1.1.12-09")
def test_the_kind_of_queue_and_message_must_agree(world: World) -> None:
    world.create("orders", transactional=True)
    assert world.arrive(packet(1)) == [MessageClass.NACK_NOT_TRANSACTIONAL_MSG]


@pytest.mark.spec("DM-3.1.1.12-08", "DM-3.1.1.12-09")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_also_between_others_that_agree(world: World, is_transactional: bool) -> None:
    """Whoever asked is told by the same class, and the queue stays as it was."""
    orders = world.create("orders", transactional=is_transactional)
    admin = world.create("admin")
    exact = [packet(n, sequence=(SEQUENCE, n, n - 1)) for n in range(1, 6)]
    plain = [packet(n) for n in range(11, 16)]
    mine, others = (exact, plain) if is_transactional else (plain, exact)
    refused = 0x800A if is_transactional else 0x8009
    for _ in range(2):  # the second time its ways are known
        taken, mine = mine[:2], mine[2:]
        turned, others = others[0], others[1:]
        before = len(world.positions(orders))
        assert world.arrive(taken[0], turned, taken[1]) == [ACCEPTED, refused, ACCEPTED]
        assert len(world.positions(orders)) == before + 2
    asked: dict[str, Any] = {"admin_queue": direct("admin"), **asking(AcknowledgeFlags.NA)}
    last = packet(77, sequence=None if is_transactional else (SEQUENCE, 3, 2), **asked)
    assert world.arrive(last) == [refused]
    assert [m.properties.message_class for m in world.messages(admin)] == [refused]
    assert len(world.positions(orders)) == 4


# Expiry, quotas ----------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.9-03", "QB-3.1.5.8-02", "DM-3.1.1.12-34")
@pytest.mark.parametrize("is_asking", [False, True], ids=["by column", "one by one"])
def test_too_late_to_reach_the_queue(world: World, is_asking: bool) -> None:
    orders = world.create("orders")
    asked = asking(AcknowledgeFlags.PA) | {"admin_queue": direct("admin")} if is_asking else {}
    late = packet(1, time_to_reach_queue=10, sent_time=NOW_S - 11, **asked)
    just = packet(2, time_to_reach_queue=10, sent_time=NOW_S - 10, **asked)
    ahead = packet(3, time_to_reach_queue=0, sent_time=NOW_S + 3600, **asked)
    ever = packet(4, time_to_reach_queue=0xFFFF_FFFF, sent_time=0, **asked)
    assert world.arrive(late, just, ahead, ever) == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        ACCEPTED,
        ACCEPTED,
        ACCEPTED,
    ]
    arrived = [one.message_ordinal for one in world.positions(orders).values()]
    assert arrived == [2, 3, 4]
    world.tick(86_400_000)  # what has arrived is not in transit
    assert [one.message_ordinal for one in world.positions(orders).values()] == arrived


@pytest.mark.spec("DM-3.1.1.12-34", "DM-3.1.1.12-35")
def test_what_is_sent_here_is_not_in_transit_and_waits_for_its_time(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    times: tuple[dict[str, int], ...] = (
        {"time_to_reach_queue": 10},
        {"time_to_be_received": 20, "sent_time": NOW_S - 5},
        {"time_to_be_received": 20, "sent_time": NOW_S, "time_to_reach_queue": 10},
        {},
    )
    for fields in times:
        raw = packet(0, **fields)  # type: ignore[arg-type]
        assert client.send("DIRECT=OS:vhost\\orders", raw=raw).status == 0
    deadlines = [one.deadline_ms for one in world.positions(orders).values()]
    assert deadlines == [0, NOW_MS + 15_000, NOW_MS + 20_000, 0]
    for passed_ms, left in ((14_999, 4), (1, 3), (4_999, 3), (1, 2), (86_400_000, 2)):
        world.tick(passed_ms)
        assert len(world.positions(orders)) == left


@pytest.mark.spec("DM-3.1.2.4-01", "DM-3.1.2.4-02")
def test_no_time_to_be_received_ends_at_once_and_an_infinite_one_never(world: World) -> None:
    orders = world.create("orders")
    verdicts, applied = world.arrive_applied(
        packet(1, time_to_be_received=0), packet(2, time_to_be_received=0xFFFF_FFFF)
    )
    assert verdicts == [ACCEPTED, ACCEPTED]
    assert effects(applied)[:2] == [(EffectKind.ARRIVED, orders), (EffectKind.EXPIRED, orders)]
    world.tick(0xFFFF_FFFF * 1000 + 1)
    (kept,) = world.positions(orders).values()
    assert (kept.message_ordinal, kept.deadline_ms) == (2, 0)


@pytest.mark.spec("DM-3.1.1.12-35")
@pytest.mark.parametrize("is_asking", [False, True], ids=["by column", "one by one"])
def test_time_to_be_received_is_absolute_and_may_be_over_at_once(
    world: World, is_asking: bool
) -> None:
    orders = world.create("orders")
    asked = asking(AcknowledgeFlags.PA) | {"admin_queue": direct("admin")} if is_asking else {}
    over = packet(1, time_to_be_received=5, sent_time=NOW_S - 5, **asked)
    alive = packet(2, time_to_be_received=6, sent_time=NOW_S - 5, **asked)
    ever = packet(3, time_to_be_received=0xFFFF_FFFF, sent_time=NOW_S - 5, **asked)
    verdicts, applied = world.arrive_applied(over, alive, ever)
    assert verdicts == [ACCEPTED] * 3
    ended = [key[0] for key in effects(applied)]
    assert ended.count(EffectKind.EXPIRED) == 1
    if not is_asking:
        assert effects(applied)[:2] == [
            (EffectKind.ARRIVED, orders),
            (EffectKind.EXPIRED, orders),
        ]
    position, kept = world.positions(orders).values()
    assert (position.message_ordinal, position.deadline_ms) == (2, NOW_MS + 1000)
    assert (kept.message_ordinal, kept.deadline_ms) == (3, 0)
    deadlines = [key for table, key, _ in world.state.rows() if table == Table.DEADLINE]
    assert len(deadlines) == 1


@pytest.mark.spec("DM-3.1.7.1.9-02", "DM-3.1.1.2-07", "DM-3.1.1.2-16", "DM-3.1.7.2.2-01")
def test_queue_quota_refuses_and_equal_is_allowed(world: World) -> None:
    body = bytes(1024 - len(packet(1, body=b"")))
    orders = world.create("orders", quota=2)
    assert world.arrive(packet(1, body=body), packet(2, body=body), packet(3, body=b"")) == [
        ACCEPTED,
        ACCEPTED,
        MessageClass.NACK_Q_EXCEED_QUOTA,
    ]
    assert world.stats(orders).total_bytes == 2048
    assert world.counters().total_bytes == 2048
    client = world.client()
    assert len(client.receive(client.open("DIRECT=OS:vhost\\orders", 0))) == 1
    assert world.stats(orders).total_bytes == 1024
    world.one(commands.PurgeQueue(request(), orders, ()))
    world.settle(orders)
    assert (world.stats(orders).total_bytes, world.counters().total_bytes) == (0, 0)


@pytest.mark.spec("DM-3.1.1.2-16", "DM-3.1.7.2.2-01")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_every_message_in_the_queue_counts_with_its_size(
    world: World, is_transactional: bool
) -> None:
    orders = world.create("orders", transactional=is_transactional)
    world.create("admin")
    asked: dict[str, Any] = {"admin_queue": direct("admin"), **asking(AcknowledgeFlags.PR)}
    sizes = (10, 2_000, 50, 51, 52, 53, 1_001, 1_002)
    raws = [
        packet(
            number,
            body=bytes(size),
            sequence=(SEQUENCE, number, number - 1) if is_transactional else None,
            is_recoverable=is_transactional or number % 2 == 0,
            **(asked if size > 1_000 else {}),
        )
        for number, size in enumerate(sizes, start=1)
    ]
    lengths = [len(raw) for raw in raws]
    for begin, end in ((0, 1), (1, 6), (6, 8)):
        assert world.arrive(*raws[begin:end]) == [ACCEPTED] * (end - begin)
        assert world.stats(orders).total_bytes == sum(lengths[:end])
    client = world.client()
    opened = client.open("DIRECT=OS:vhost\\orders", 0)
    (lent,) = client.receive(opened, is_two_phase=True)
    assert world.stats(orders).total_bytes == sum(lengths), "what is locked is still there"
    assert len(client.receive(opened, 2)) == 2
    assert world.stats(orders).total_bytes == sum(lengths) - sum(lengths[1:3])
    ended = commands.ReadEnd(client.request(), orders, lent.lookup_identifier, True)
    assert world.one(ended).status == 0
    assert world.stats(orders).total_bytes == sum(lengths[3:])


@pytest.mark.spec("DM-3.1.1.2-07")
def test_what_is_moved_is_bound_by_the_quota_of_its_new_queue(world: World) -> None:
    orders, small = world.create("orders"), world.create("small", quota=1)
    world.arrive(packet(1, body=bytes(600)), packet(2, body=bytes(600)))
    first, second = world.positions(orders)
    client = world.client()
    for key, status in ((first, 0), (second, ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)):
        move = commands.Move(client.request(), orders, key, small, ())
        assert world.one(move).status == status
    assert (list(world.positions(orders)), list(world.positions(small))) == ([second], [first])
    assert world.stats(small).total_bytes <= 1024


@pytest.mark.spec("DM-3.1.1.2-07")
def test_journal_quota_bounds_the_journal_and_nothing_else(world: World) -> None:
    body = bytes(1024 - len(packet(1, body=b"")))
    orders = world.create("orders", journaling=True, journal_quota=2)
    assert world.arrive(*(packet(k, body=body) for k in (1, 2, 3))) == [ACCEPTED] * 3
    client = world.client()
    assert len(client.receive(client.open("DIRECT=OS:vhost\\orders", 0), 3)) == 3
    journal = world.record(orders).journal_queue
    assert [one.message_ordinal for one in world.positions(journal).values()] == [1, 2]
    assert world.stats(journal).total_bytes == 2048
    # It can be changed, for what comes later.
    larger = {"journal_quota": encode_attribute(3)}
    assert world.one(commands.SetQueue(request(), orders, larger, ())).status == 0
    assert world.arrive(*(packet(k, body=body) for k in (4, 5))) == [ACCEPTED] * 2
    assert len(client.receive(client.open("DIRECT=OS:vhost\\orders", 0), 2)) == 2
    assert [one.message_ordinal for one in world.positions(journal).values()] == [1, 2, 4]


def test_a_message_refused_for_quota_with_negative_journaling_is_kept_here(world: World) -> None:
    world.create("orders", quota=0)
    refused = packet(1, has_negative_journaling=True)
    assert world.arrive(refused, refused) == [MessageClass.NACK_Q_EXCEED_QUOTA, DUPLICATE]
    dead = world.manager_queue("system_deadletter_queue")
    assert [m.user_header.message_id for m in world.messages(dead)] == [1]
    assert world.counters().journal_bytes == len(refused)


@pytest.mark.spec("DM-3.1.7.1.9-01")
def test_quota_of_the_queue_manager_closes_the_session_and_remembers_nothing(
    world: World,
) -> None:
    world.create("orders", transactional=True)
    changes = {"queue_manager_quota": encode_attribute(0)}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
    message = packet(1, sequence=(SEQUENCE, 1, 0))
    assert world.arrive(message) == [TransferVerdict.CLOSE_SESSION]
    # It is asked first: a queue that is full says so only when the queue manager is not.
    world.create("full", quota=0)
    other = Facts(3, PEER, PEER_ADDRESS, ())
    assert world.arrive(packet(2, to="full"), facts=other) == [TransferVerdict.CLOSE_SESSION]
    changes = {"queue_manager_quota": encode_attribute(100)}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
    again = Facts(2, PEER, PEER_ADDRESS, ())
    assert world.arrive(message, facts=again) == [ACCEPTED]
    assert world.arrive(packet(2, to="full"), facts=again) == [MessageClass.NACK_Q_EXCEED_QUOTA]


@pytest.mark.spec("DM-3.1.7.1.9-01")
@pytest.mark.parametrize("form", ["alike", "numbered", "one by one", "asking"])
def test_quota_of_the_queue_manager_may_be_filled_by_what_arrives_and_not_exceeded(
    world: World, form: str
) -> None:
    orders = world.create("orders", transactional=form == "numbered")
    changes = {"queue_manager_quota": encode_attribute(1)}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
    before = world.counters().sequential_id

    def quarter(number: int) -> bytes:
        more: dict[str, Any] = {}
        if form == "numbered":
            more["sequence"] = (SEQUENCE, number, number - 1)
        if form == "asking":
            more |= asking(AcknowledgeFlags.NA) | {"admin_queue": direct("nowhere")}
        return packet(number, body=bytes(256 - len(packet(number, body=b"", **more))), **more)

    sent = [quarter(number) for number in range(1, 7)]
    assert {len(one) for one in sent} == {256}
    full = TransferVerdict.CLOSE_SESSION
    if form == "one by one":
        verdicts = [verdict for one in sent for verdict in world.arrive(one)]
    else:
        verdicts = world.arrive(*sent)
    assert verdicts == [ACCEPTED] * 4 + [full] * 2
    # The quota is one for all queues.
    world.create("other")
    assert world.arrive(packet(9, to="other", body=b"")) == [full]
    # What was too much left no trace.
    assert [one.message_ordinal for one in world.positions(orders).values()] == [1, 2, 3, 4]
    assert world.stats(orders).total_bytes == world.counters().total_bytes == 1024
    assert world.counters().sequential_id == before + 4


@pytest.mark.spec("MQ-2.2.18.1.2-02")
def test_sequences_follow_one_another_by_time_stamp_and_then_ordinal(world: World) -> None:
    orders = world.create("orders", transactional=True)
    ascending = [1 << 32 | 0xFFFF_FFFF, 2 << 32, 2 << 32 | 1, NOW_S << 32, NOW_S << 32 | 1 << 31]
    for place, sequence in enumerate(ascending):
        first = packet(2 * place + 1, sequence=(sequence, 1, 0))
        second = packet(2 * place + 2, sequence=(sequence, 2, 1))
        assert world.arrive(first, second) == [ACCEPTED, ACCEPTED]
        # What is older has come to its end.
        for older in ascending[:place]:
            for number in (1, 2, 3):
                late = packet(50, sequence=(older, number, number - 1))
                assert world.arrive(late) == [OUT_OF_ORDER]
    assert len(world.positions(orders)) == 2 * len(ascending)


# Policy ------------------------------------------------------------------------------------


def test_only_who_may_write_may_send(world: World) -> None:
    acl = Acl((Ace(ACE_ALLOWED, 0, 0x4, ALICE),))
    world.create("orders", security=write_descriptor(SecurityDescriptor(dacl=acl)))
    alice = Facts(1, PEER, PEER_ADDRESS, (ALICE,))
    assert world.arrive(packet(1)) == [MessageClass.NACK_ACCESS_DENIED]
    assert world.arrive(packet(2), facts=alice) == [ACCEPTED]


@pytest.mark.spec("DM-3.1.1.2-08", "AC-2.2.2.6-01")
@pytest.mark.parametrize(
    ("signature", "authentication", "verdict"),
    [
        (SignatureFact.ABSENT, False, ACCEPTED),
        (SignatureFact.ABSENT, True, MessageClass.NACK_BAD_SIGNATURE),
        (SignatureFact.VALID, True, ACCEPTED),
        (SignatureFact.VALID, False, ACCEPTED),
        (SignatureFact.INVALID, False, MessageClass.NACK_BAD_SIGNATURE),
        (SignatureFact.INVALID, True, MessageClass.NACK_BAD_SIGNATURE),
        (SignatureFact.UNVERIFIED, False, MessageClass.NACK_BAD_SIGNATURE),
        (SignatureFact.UNVERIFIED, True, MessageClass.NACK_BAD_SIGNATURE),
    ],
)
def test_signatures(
    world: World, signature: SignatureFact, authentication: bool, verdict: int
) -> None:
    world.create("orders", authentication=authentication)
    facts = Facts(1, PEER, PEER_ADDRESS, (), signature)
    assert world.arrive(packet(1), facts=facts) == [verdict]


@pytest.mark.spec("DM-3.1.1.2-09", "MQ-2.3.1.12-01", "AC-2.2.2.7-01")
@pytest.mark.parametrize(
    ("privacy_level", "was_encrypted", "is_accepted"),
    [
        (QueuePrivacyLevel.NONE, False, True),
        (QueuePrivacyLevel.NONE, True, False),
        (QueuePrivacyLevel.OPTIONAL, False, True),
        (QueuePrivacyLevel.OPTIONAL, True, True),
        (QueuePrivacyLevel.BODY, False, False),
        (QueuePrivacyLevel.BODY, True, True),
    ],
)
def test_bodies_are_protected_as_the_queue_demands(
    world: World, privacy_level: int, was_encrypted: bool, is_accepted: bool
) -> None:
    assert [*QueuePrivacyLevel] == [0, 1, 2]
    world.create("orders", privacy_level=int(privacy_level))
    world.create("exact", privacy_level=int(privacy_level), transactional=True)
    expected = ACCEPTED if is_accepted else MessageClass.NACK_BAD_ENCRYPTION
    facts = Facts(1, PEER, PEER_ADDRESS, (), was_encrypted=was_encrypted)
    security = (
        SecurityHeader(is_body_encrypted=True, encryption_key=b"key") if was_encrypted else None
    )
    plain = packet(1, security=security)
    exact = packet(2, to="exact", security=security, sequence=(5 << 32 | 1, 1, 0))
    assert world.arrive(plain, exact, facts=facts) == [expected, expected]


# Acknowledgements --------------------------------------------------------------------------


def asking(flags: AcknowledgeFlags) -> dict[str, Any]:
    return {"properties": {"flags": int(flags), "label": "greetings"}}


@pytest.mark.spec("DM-3.1.1.12-27")
def test_arrival_is_acknowledged_to_a_local_queue(world: World) -> None:
    world.create("orders")
    admin = world.create("private$\\admin")
    number = world.record(admin).private_queue_number
    message = packet(
        7,
        is_recoverable=True,
        admin_queue=PrivateQueueFormatNameId(QueueHost.DESTINATION, number),
        queue_manager_address=OWN,
        **asking(AcknowledgeFlags.PA),
    )
    assert world.arrive(message, message) == [ACCEPTED, DUPLICATE]
    (acknowledgement,) = world.messages(admin)
    properties, header = acknowledgement.properties, acknowledgement.user_header
    assert properties.message_class == MessageClass.ACK_REACH_QUEUE
    assert properties.correlation_id == write_message_identifier(MessageIdentifier(PEER, 7))
    assert properties.label == "greetings"
    assert properties.flags == 0
    assert header.source_queue_manager == OWN
    assert header.is_recoverable
    assert header.response_queue == direct("orders")


@pytest.mark.parametrize("is_recoverable", [False, True])
def test_whoever_asks_to_be_told_says_whether_the_message_is_recoverable(
    world: World, is_recoverable: bool
) -> None:
    orders = world.create("orders")
    world.create("admin")
    asked = asking(AcknowledgeFlags.PA)
    message = packet(1, is_recoverable=is_recoverable, admin_queue=direct("admin"), **asked)
    assert world.arrive(message) == [ACCEPTED]
    (position,) = world.positions(orders).values()
    assert bool(position.flags & PositionFlag.RECOVERABLE) is is_recoverable


def test_arrival_is_acknowledged_to_another_queue_manager(world: World) -> None:
    world.create("orders")
    message = packet(
        7,
        admin_queue=DirectQueueFormatName("TCP:10.1.2.3\\admin"),
        **asking(AcknowledgeFlags.PA),
    )
    verdicts, applied = world.arrive_applied(message)
    assert verdicts == [ACCEPTED]
    (outgoing,) = applied.outgoing_queue_ids
    assert world.record(outgoing).pathname == "DIRECT=TCP:10.1.2.3\\admin"
    (position,) = world.positions(outgoing).values()
    assert position.flags & PositionFlag.HAS_OUTGOING
    (acknowledgement,) = world.messages(outgoing)
    assert acknowledgement.user_header.destination_queue == DirectQueueFormatName(
        "TCP:10.1.2.3\\admin"
    )


def test_a_refusal_is_told_once_to_whoever_asked(world: World) -> None:
    world.create("orders", quota=0)
    admin = world.create("admin")
    told = packet(1, admin_queue=direct("admin"), **asking(AcknowledgeFlags.NA))
    untold = packet(2, admin_queue=direct("admin"), **asking(AcknowledgeFlags.PA))
    full = MessageClass.NACK_Q_EXCEED_QUOTA
    assert world.arrive(told, told, untold) == [full, DUPLICATE, full]
    (acknowledgement,) = world.messages(admin)
    assert acknowledgement.properties.message_class == full


def test_what_would_tell_a_stranger_what_exists_is_not_said_unless_set(world: World) -> None:
    admin = world.create("admin")
    lost = packet(1, to="absent", admin_queue=direct("admin"), **asking(AcknowledgeFlags.NA))
    assert world.arrive(lost) == [MessageClass.NACK_BAD_DST_Q]
    assert world.messages(admin) == []
    changes = {"send_insecure_nacks": encode_attribute(True)}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
    again = packet(2, to="absent", admin_queue=direct("admin"), **asking(AcknowledgeFlags.NA))
    assert world.arrive(again) == [MessageClass.NACK_BAD_DST_Q]
    (acknowledgement,) = world.messages(admin)
    assert acknowledgement.properties.message_class == MessageClass.NACK_BAD_DST_Q


def test_an_acknowledgement_is_dropped_where_it_cannot_go(world: World) -> None:
    world.create("orders")
    world.create("transactional", transactional=True)
    for number, admin in enumerate(
        ("absent", "transactional", "orders;JOURNAL", "SYSTEM$;DEADLETTER"), start=1
    ):
        message = packet(number, admin_queue=direct(admin), **asking(AcknowledgeFlags.PA))
        assert world.arrive(message) == [ACCEPTED]
    assert {row[0] for row in world.state.rows()} & {Table.SYNTHETIC, Table.OUTGOING} == set()


def test_what_is_owed_at_the_end_is_noted_with_the_position(world: World) -> None:
    orders = world.create("orders")
    world.arrive(
        packet(1, admin_queue=direct("admin"), **asking(AcknowledgeFlags.PR)),
        packet(2),
    )
    owing, free = world.positions(orders).values()
    assert owing.flags & PositionFlag.HAS_OBLIGATION
    assert not free.flags & PositionFlag.HAS_OBLIGATION


def test_nothing_is_taken_before_the_queue_manager_exists() -> None:
    world = World()
    world.state = MemoryState()
    world.machine = Machine(world.state)
    assert world.arrive(packet(1)) == [TransferVerdict.CLOSE_SESSION]


def test_every_transactional_arrival_makes_an_order_ack_due(world: World) -> None:
    world.create("orders", transactional=True)
    _, taken = world.arrive_applied(packet(1, sequence=(9, 1, 0)))
    _, repeated = world.arrive_applied(packet(1, sequence=(9, 1, 0)))
    assert taken.incoming_sequences.keys() == repeated.incoming_sequences.keys()
    (seen,), (again,) = taken.incoming_sequences.values(), repeated.incoming_sequences.values()
    assert seen == SequenceSeen(PEER, PEER_ADDRESS, True, 1)
    assert again == SequenceSeen(PEER, PEER_ADDRESS, True, 2), "each has a MessageID of its own"
    _, plain = world.arrive_applied(packet(2))
    assert not plain.incoming_sequences


def test_whoever_names_another_source_is_not_answered_in_its_place(world: World) -> None:
    stranger = Facts(1, b"S" * 16, "127.0.0.66", ())
    world.create("plain")
    _, applied = world.arrive_applied(packet(1, to="plain", sequence=(9, 1, 0)), facts=stranger)
    (seen,) = applied.incoming_sequences.values()
    assert seen.address == ""
    ((row, _),) = final_acks(world)
    assert (row.queue_manager, row.address, row.since_ms) == (PEER, "", world.now_ms)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\U0001f600", "\u0130"])
def test_texts_of_a_packet_need_not_be_text(world: World, text: str) -> None:
    """16-bit units of labels and names are the sender's: they must not stop a node."""
    admin = world.create("admin")
    orders = world.create("orders")
    flags = int(AcknowledgeFlags.PA | AcknowledgeFlags.NR)
    labelled = packet(1, admin_queue=direct("admin"), properties={"flags": flags, "label": text})
    asking: dict[str, Any] = {"properties": {"flags": flags}}
    odd = DirectQueueFormatName(f"OS:vhost\\{text}")
    assert world.arrive(
        labelled,
        packet(2, admin_queue=odd, **asking),
        packet(3, to=odd, admin_queue=direct("admin"), **asking),
        packet(4, to=odd, report_to=world.record(admin).identifier),
        packet(5, response_queue=odd, admin_queue=direct("admin"), **asking),
    ) == [ACCEPTED, ACCEPTED, MessageClass.NACK_BAD_DST_Q, MessageClass.NACK_BAD_DST_Q, ACCEPTED]
    assert [one.properties.label for one in world.messages(admin)] == [text, None]
    world.one(commands.PurgeQueue(request(), orders, ()))
    world.settle(orders)
    assert [one.properties.label for one in world.messages(admin)][2:] == [text, None]


@pytest.mark.spec("MQ-2.2.19.2-10")
@pytest.mark.parametrize("plain", [True, False])
def test_the_hop_limit(world: World, plain: bool) -> None:
    """[MS-MQMQ] 2.2.19.2 RC: 29 at most (MQ-A32)."""
    world.create("orders")
    more: dict[str, Any] = {} if plain else {"time_to_be_received": 100}
    raw = [packet(hops, hop_count=hops, **more) for hops in (29, 30, 31, 1)]
    far = MessageClass.NACK_HOP_COUNT_EXCEEDED
    accepted = TransferVerdict.ACCEPTED
    assert world.arrive(*raw) == [accepted, far, far, accepted]
    assert world.arrive(raw[1]) == [far]


@pytest.mark.parametrize("name", [f"http://{HOST}/msmq/orders", f"HTTPS://{HOST}/msmq/orders"])
@pytest.mark.parametrize("plain", [True, False])
def test_http_names_lead_nowhere_over_tcp(world: World, name: str, plain: bool) -> None:
    orders = world.create("orders")
    more: dict[str, Any] = {} if plain else {"time_to_be_received": 100}
    to = DirectQueueFormatName(name)
    assert world.arrive(packet(1, to=to, source_queue_manager=PEER, **more)) == [
        MessageClass.NACK_BAD_DST_Q
    ]
    assert world.positions(orders) == {}
