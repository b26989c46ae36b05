"""Source journaling: what becomes of the sender's copy [MS-MQQB 1.3.4, 3.1.5.5 to 3.1.5.7]."""

from array import array

import pytest

from qm.model.messages.message import Message
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.limits import VERSION_OF_FINAL_CLASSES
from qm.wire.message_class import MessageClass
from tests.unit.model.test_delivery import JOURNALED, TRANSACTIONAL, Sender
from tests.unit.model.world import direct, packet

JP = {"has_positive_journaling": True}
JN = {"has_negative_journaling": True}
JOURNAL = "system_journal_queue"
DEAD = "system_deadletter_queue"
DEADXACT = "system_transactional_deadletter_queue"
LATE = MessageClass.NACK_REACH_QUEUE_TIMEOUT
FAR_ADMIN = "DIRECT=OS:far\\admin"


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


def copies(sender: Sender) -> dict[str, int]:
    counts = {which: len(sender.ordinals(which)) for which in (JOURNAL, DEAD, DEADXACT)}
    return {which: count for which, count in counts.items() if count}


def fail(sender: Sender, reason: MessageClass = LATE) -> None:
    keys = array("Q", sender.keys())
    assert sender.one(commands.TransferFailed(sender.queue_id, keys, reason)).status == 0
    assert sender.keys() == []


def arrived(sender: Sender) -> int:
    """Let the one transactional message arrive; return its MessageID."""
    ((key, sequence, number, _),) = sender.assign()
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    sender.session_ack(key)
    sender.order_ack(sequence, number)
    return ordinal


@pytest.mark.spec("QB-1.3.4.2-01", "QB-3.1.7.1.2-03", "MQ-2.2.19.2-14", "DM-3.1.1.12-17")
@pytest.mark.parametrize(
    "reason", [LATE, MessageClass.NACK_HOP_COUNT_EXCEEDED, MessageClass.NACK_BAD_ENCRYPTION]
)
@pytest.mark.parametrize(
    ("asked", "is_transactional", "expected"),
    [
        ({}, False, {}),
        (JP, False, {}),
        (JN, False, {DEAD: 1}),
        ({}, True, {}),
        (JP, True, {}),
        (JN, True, {DEADXACT: 1}),
    ],
)
def test_copy_of_a_message_that_cannot_be_delivered(
    sender: Sender,
    asked: dict[str, bool],
    is_transactional: bool,
    expected: dict[str, int],
    reason: MessageClass,
) -> None:
    sender.send(1, **asked, **(TRANSACTIONAL if is_transactional else {}))
    sender.assign()
    fail(sender, reason)
    assert copies(sender) == expected


@pytest.mark.spec("QB-3.1.7.1.2-03", "QB-3.1.5.7-03", "DM-3.1.1.12-04")
@pytest.mark.parametrize("by_final_ack", [False, True])
@pytest.mark.parametrize(
    ("name", "is_taken"),
    [("mydead", True), ("plain", False), ("absent", False), ("mydead;JOURNAL", False)],
)
def test_the_application_dead_letter_queue_if_it_can_be(
    sender: Sender, name: str, is_taken: bool, by_final_ack: bool
) -> None:
    mine = sender.create("mydead", transactional=True)
    sender.create("plain")
    sender.application_deadletter_queue = f"DIRECT=OS:vhost\\{name}"
    sender.send(1, **JN, **TRANSACTIONAL)
    if by_final_ack:
        ordinal = arrived(sender)
        sender.one(
            commands.FinalAcked(
                array("Q", [ordinal]), array("Q", [MessageClass.NACK_RECEIVE_TIMEOUT])
            )
        )
    else:
        sender.assign()
        fail(sender)
    assert len(sender.positions(mine)) == is_taken
    assert copies(sender) == ({} if is_taken else {DEADXACT: 1})


@pytest.mark.spec("QB-3.1.7.1.2-03")
@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_an_application_has_the_transactional_dead_letters_alone(
    sender: Sender, is_transactional: bool, is_expired: bool
) -> None:
    mine = sender.create("mydead", transactional=True)
    sender.application_deadletter_queue = "DIRECT=OS:vhost\\mydead"
    kind = TRANSACTIONAL if is_transactional else {}
    sender.send(1, time_to_reach_queue=60, **JN, **kind)
    if is_expired:
        sender.tick(60_999)
        assert len(sender.keys()) == 1, "at an age of its time it is not too late yet"
        sender.tick(1)
        assert sender.keys() == []
    else:
        fail(sender)
    assert len(sender.positions(mine)) == is_transactional
    assert copies(sender) == ({} if is_transactional else {DEAD: 1})


@pytest.mark.spec("DM-3.1.1.12-04")
@pytest.mark.parametrize("asked", [{}, JP])
def test_no_application_dead_letter_queue_for_what_is_not_to_be_kept(
    sender: Sender, asked: dict[str, bool]
) -> None:
    assert Message().application_deadletter_queue == ""
    mine = sender.create("mydead", transactional=True)
    sender.application_deadletter_queue = "DIRECT=OS:vhost\\mydead"
    sender.send(1, **asked, **TRANSACTIONAL)
    sender.assign()
    fail(sender)
    assert (len(sender.positions(mine)), copies(sender)) == (0, {})


@pytest.mark.spec("QB-3.1.5.5.4-01", "QB-3.1.1.6.2-05")
def test_copy_of_an_acknowledged_message(sender: Sender) -> None:
    sender.send(1)
    sender.send(1, **JN)
    sender.send(1, **JP)
    keys = sender.keys()
    sender.session_ack(keys[0], keys[1])
    assert copies(sender) == {}
    sender.session_ack(keys[2])
    assert copies(sender) == {JOURNAL: 1}
    # Transactional: kept until the order ack, journaled by the final ack alone (QB-A19).
    sender.send(1, **JP, **TRANSACTIONAL)
    ((key, sequence, number, _),) = sender.assign()
    sender.session_ack(key)
    assert sender.keys() == [key]
    sender.order_ack(sequence, number)
    assert sender.keys() == [key]
    assert copies(sender) == {JOURNAL: 1}
    # Whoever asked for no final ack is released by the order ack, and by nothing before it.
    sender.send(2, **TRANSACTIONAL)
    first, second = [row for row in sender.assign() if row[0] != key]
    sender.session_ack(first[0], second[0])
    assert sender.keys() == [key, first[0], second[0]]
    sender.order_ack(first[1], first[2])
    assert sender.keys() == [key, second[0]]
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    received = array("Q", [MessageClass.ACK_RECEIVE])
    sender.one(commands.FinalAcked(array("Q", [ordinal]), received))
    assert sender.keys() == [second[0]]
    assert copies(sender) == {JOURNAL: 2}


@pytest.mark.spec("QB-6-02", "MQ-2.2.19.2-16")
@pytest.mark.parametrize(
    ("name", "message_class"),
    [
        ("PRIVATE=45455045-4550-5045-4545-504545455045\\00000004", MessageClass.NORMAL),
        ("PRIVATE=45455045-4550-5045-4545-504545455045\\5", MessageClass.NORMAL),
        ("DIRECT=TCP:10.9.8.7\\PRIVATE$\\Order_Queue$", MessageClass.NORMAL),
        ("DIRECT=OS:far\\private$\\notify_queue$", MessageClass.NORMAL),
        # An administration queue is one that acknowledgements are sent to, of every class.
        (FAR_ADMIN, MessageClass.ACK_REACH_QUEUE),
        (FAR_ADMIN, MessageClass.ACK_RECEIVE),
        (FAR_ADMIN, MessageClass.NACK_BAD_DST_Q),
        (FAR_ADMIN, MessageClass.NACK_RECEIVE_TIMEOUT),
    ],
)
@pytest.mark.parametrize("is_failure", [False, True])
def test_messages_to_service_queues_are_not_journaled(
    sender: Sender, name: str, message_class: MessageClass, is_failure: bool
) -> None:
    fields = JOURNALED | {"properties": {"message_class": message_class}}
    raw = packet(0, **fields)  # type: ignore[arg-type]
    outcome = sender.c.send(name, raw=raw)
    assert outcome.status == 0
    ((sender.queue_id, key),) = outcome.value[1]  # type: ignore[index]
    if is_failure:
        fail(sender)
    else:
        sender.session_ack(key)
    assert sender.keys() == []
    assert copies(sender) == {}


def test_acknowledgements_of_ours_are_not_journaled(sender: Sender) -> None:
    sender.create("orders")
    admin = {"admin_queue": direct("orders"), "properties": {"flags": 0x01}} | JOURNALED
    elsewhere = packet(1, **admin | {"admin_queue": direct("x")})  # type: ignore[arg-type]
    assert sender.arrive(elsewhere) == [0]
    far = type(direct("x"))("TCP:10.9.8.7\\admin")
    _, applied = sender.arrive_applied(packet(2, **admin | {"admin_queue": far}))  # type: ignore[arg-type]
    (sender.queue_id,) = applied.outgoing_queue_ids
    fail(sender)
    assert copies(sender) == {}


@pytest.mark.spec("QB-3.1.5.6-06", "QB-3.1.1.3.1-13", "QB-2.2.4-06", "MQ-2.2.20.5-05")
@pytest.mark.parametrize("wish", ["positive", "negative", "final ack", "nothing"])
def test_copy_after_the_order_ack(sender: Sender, wish: str) -> None:
    fields = {
        "positive": JP,
        "negative": JN,
        "final ack": {"final_ack": True},
        "nothing": {},
    }[wish]
    sender.send(1, **fields, **TRANSACTIONAL)
    arrived(sender)
    is_kept = wish != "nothing"
    assert len(sender.keys()) == is_kept
    awaiting = [row for row in sender.state.rows() if row[0] == Table.AWAITING_FINAL_ACK]
    assert len(awaiting) == is_kept
    assert copies(sender) == {}


@pytest.mark.spec("QB-3.1.5.7-02", "QB-3.1.5.7-03", "QB-3.1.5.7-04", "QB-1.3.4.2-01")
@pytest.mark.parametrize(
    ("fields", "received", "refused"),
    [
        (JP, {JOURNAL: 1}, {}),
        (JN, {}, {DEADXACT: 1}),
        (JOURNALED, {JOURNAL: 1}, {DEADXACT: 1}),
        ({"final_ack": True}, {}, {}),
    ],
    ids=["JP", "JN", "both", "FA"],
)
@pytest.mark.parametrize(
    "message_class",
    [
        *(MessageClass.ACK_RECEIVE, MessageClass.NACK_BAD_DST_Q, MessageClass.NACK_RECEIVE_TIMEOUT),
        *(0x4001, 0x4200, 0x7FFF),  # nor do others without the bit of failures mean success
    ],
)
def test_copy_after_the_final_ack(
    sender: Sender,
    fields: dict[str, object],
    received: dict[str, int],
    refused: dict[str, int],
    message_class: int,
) -> None:
    sender.send(1, **fields, **TRANSACTIONAL)
    ordinal = arrived(sender)
    assert (
        sender.one(commands.FinalAcked(array("Q", [ordinal]), array("Q", [message_class]))).status
        == 0
    )
    expected = received if message_class == MessageClass.ACK_RECEIVE else refused
    assert copies(sender) == expected
    assert sender.keys() == []
    left = {Table.OUTGOING, Table.AWAITING_FINAL_ACK, Table.LOCK, Table.OBLIGATION}
    assert {row[0] for row in sender.state.rows()} & left == set()


def test_an_older_cluster_takes_what_is_no_failure_for_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", VERSION_OF_FINAL_CLASSES - 1)
    older = Sender(forgets=False)
    older.send(1, **JOURNALED, **TRANSACTIONAL)
    final = commands.FinalAcked(array("Q", [arrived(older)]), array("Q", [0x4001]))
    assert older.one(final).status == 0
    assert copies(older) == {JOURNAL: 1}
