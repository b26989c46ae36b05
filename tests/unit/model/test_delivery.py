"""Outgoing queues: numbers, acknowledgements in any order, final acks, failures."""

from array import array

import pytest
from msgspec import structs

from qm.model import queries
from qm.model.messages.message import Message
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.state.ledger import META_COUNTERS
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import (
    DirectoryObjectType,
    OutgoingAdminState,
    QueueAccessType,
    QueueKind,
)
from qm.model.values.limits import (
    SETTLED_PER_COMMAND_MAX,
    TIME_TO_LIVE_DEFAULT_S,
    VERSION_OF_PRIVATE_BODIES,
    VERSION_OF_TIME_TO_LIVE,
    VERSION_OF_TIME_TO_REACH,
)
from qm.model.values.records import Queue, SyntheticPacket, decode, encode
from qm.model.values.rows import QUEUE_KEY
from qm.wire.codes import ErrorCode
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.model.management.test_directory import write
from tests.unit.model.world import ClientInWorld, World, direct, packet, request

ELSEWHERE = "DIRECT=TCP:10.9.8.7\\far"
EPOCH = 7 << 32
Numbers = list[tuple[int, int, int, int]]


class Sender(World):
    """A client that sends to another queue manager."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__(forgets=forgets)
        self.c: ClientInWorld = self.client(lease_ms=24 * 3600 * 1000)
        self.queue_id = 0
        self.application_deadletter_queue = ""

    def send(self, count: int = 1, **fields: object) -> None:
        raw = packet(0, **fields)  # type: ignore[arg-type]
        is_transactional = "sequence" in fields
        for _ in range(count):
            transaction = self.c.begin(f"t{self.c.number}") if is_transactional else None
            outcome = self.c.send(
                ELSEWHERE,
                raw=raw,
                transaction=transaction,
                application_deadletter_queue=self.application_deadletter_queue,
            )
            assert outcome.status == 0, hex(outcome.status)
            assert isinstance(outcome.value, tuple)
            self.queue_id = outcome.value[1][0][0]
            if transaction is not None:
                self.c.commit(transaction)

    def keys(self) -> list[int]:
        return list(self.positions(self.queue_id))

    def assign(self, *keys: int) -> Numbers:
        command = commands.AssignTransfer(self.queue_id, array("Q", keys or self.keys()))
        outcome = self.one(command)
        assert isinstance(outcome.value, list)
        return outcome.value

    def session_ack(self, *keys: int) -> None:
        assert self.one(commands.TransferAcked(self.queue_id, array("Q", keys))).status == 0

    def order_ack(self, sequence: int, number: int) -> None:
        outcome = self.one(commands.OrderAcked(array("Q", [sequence]), array("Q", [number])))
        assert (outcome.status, outcome.value) == (0, False)

    def ordinals(self, which: str) -> list[int]:
        queue_id = self.manager_queue(which)
        return [position.message_ordinal for position in self.positions(queue_id).values()]


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


TRANSACTIONAL: dict[str, object] = {"sequence": (1, 1, 0)}
JOURNALED = {"has_positive_journaling": True, "has_negative_journaling": True}


@pytest.mark.spec("DM-3.1.1.12-16", "QB-3.1.5.5.2-01", "QB-3.1.5.5.3-01", "QB-3.1.5.5-02")
def test_a_plain_message_is_done_when_its_session_acknowledged_it(sender: Sender) -> None:
    sender.send(2)
    sender.send(1, has_positive_journaling=True)
    assert sender.assign() == []
    keys = sender.keys()
    sender.session_ack(keys[0], keys[2], keys[2], 999)
    assert sender.keys() == [keys[1]]
    assert len(sender.ordinals("system_journal_queue")) == 1
    rows = [row for row in sender.state.rows() if row[0] == Table.OUTGOING]
    assert len(rows) == 1


@pytest.mark.spec("DM-3.1.1.12-16", "DM-3.1.1.12-17")
@pytest.mark.parametrize("quota", [None, 0])
@pytest.mark.parametrize("is_delivered", [True, False])
def test_copies_are_made_for_those_who_ask_while_there_is_room(
    sender: Sender, quota: int | None, is_delivered: bool
) -> None:
    message = Message()
    assert not message.positive_journaling_requested
    assert not message.negative_journaling_requested
    if quota is not None:
        changes = {"journal_quota": encode_attribute(quota)}
        assert sender.one(commands.SetQueueManager(request(), changes, ())).status == 0
    sender.send(1)
    for asked in ("has_positive_journaling", "has_negative_journaling"):
        sender.send(1, **{asked: True})
    ordinals = [one.message_ordinal for one in sender.positions(sender.queue_id).values()]
    if is_delivered:
        sender.session_ack(*sender.keys())
    else:
        late = commands.TransferFailed(
            sender.queue_id, array("Q", sender.keys()), MessageClass.NACK_REACH_QUEUE_TIMEOUT
        )
        assert sender.one(late).status == 0
    assert sender.keys() == [], "with or without a copy it is done"
    journal, dead = "system_journal_queue", "system_deadletter_queue"
    is_kept = quota is None
    assert sender.ordinals(journal) == ordinals[1:2] * (is_kept and is_delivered)
    assert sender.ordinals(dead) == ordinals[2:3] * (is_kept and not is_delivered)


@pytest.mark.spec("DM-3.1.1.12-16", "DM-3.1.1.12-17")
@pytest.mark.parametrize("is_delivered", [True, False])
def test_the_copies_that_are_there_count_against_the_journal_quota(
    sender: Sender, is_delivered: bool
) -> None:
    changes = {"journal_quota": encode_attribute(1)}
    assert sender.one(commands.SetQueueManager(request(), changes, ())).status == 0
    sender.send(2, body=bytes(600), **JOURNALED)
    ordinals = [one.message_ordinal for one in sender.positions(sender.queue_id).values()]
    late = MessageClass.NACK_REACH_QUEUE_TIMEOUT
    keys = sender.keys()
    for key in keys:
        if is_delivered:
            sender.session_ack(key)
        else:
            failed = commands.TransferFailed(sender.queue_id, array("Q", [key]), late)
            assert sender.one(failed).status == 0
    assert sender.keys() == []
    assert sender.ordinals("system_journal_queue") == ordinals[:1] * is_delivered
    assert sender.ordinals("system_deadletter_queue") == ordinals[:1] * (not is_delivered)


@pytest.mark.spec("DM-3.1.1.12-47")
def test_sequences_begin_anew_above_all_earlier_ones_and_other_messages_have_none(
    sender: Sender,
) -> None:
    sender.send(2)
    assert sender.assign() == [], "no sequence, no number"
    plain = deserialize_message_from_buffer(packet(1))
    assert plain.transactional_message_sequence_identifier is None
    seen = []
    for term in range(2, 5):
        client = sender.c
        transaction = client.begin(f"s{term}")
        there = f"DIRECT=OS:far{term}\\q"
        outcome = client.send(there, raw=packet(0, sequence=(1, 1, 0)), transaction=transaction)
        assert client.commit(transaction) == 0
        sender.queue_id = outcome.value[1][0][0]  # type: ignore[index]
        ((_, sequence, number, previous),) = sender.assign()
        assert (number, previous) == (1, 0)
        seen.append((sequence >> 32, sequence & 0xFFFF_FFFF))  # TimeStamp, Ordinal
        sender.now_ms += 60_000
        sender.one(commands.LeaderActivated(term, "n2"))
    assert seen == sorted(set(seen))


@pytest.mark.spec("DM-3.1.1.12-48")
def test_numbers_are_given_once_and_count_on(sender: Sender) -> None:
    sender.send(3, **TRANSACTIONAL)
    first, second, third = sender.keys()
    sequence = EPOCH | 1
    assert sender.assign(first, second) == [(first, sequence, 1, 0), (second, sequence, 2, 1)]
    assert sender.assign() == [
        (first, sequence, 1, 0),
        (second, sequence, 2, 1),
        (third, sequence, 3, 2),
    ]


@pytest.mark.spec("QB-3.1.5.6-03", "QB-3.1.5.6-05", "QB-3.1.5.5.3-03", "QB-3.1.5.5.5-03")
@pytest.mark.spec("QB-3.1.1.6.2-04")
@pytest.mark.parametrize("is_order_first", [False, True])
def test_both_acknowledgements_are_needed_in_either_order(
    sender: Sender, is_order_first: bool
) -> None:
    sender.send(3, **TRANSACTIONAL)
    sender.assign()
    keys = sender.keys()
    sequence = EPOCH | 1
    if is_order_first:
        sender.order_ack(sequence, 2)
        assert sender.keys() == keys
        sender.session_ack(*keys)
    else:
        sender.session_ack(*keys)
        assert sender.keys() == keys
        sender.order_ack(sequence, 2)
    assert sender.keys() == keys[2:]
    sender.order_ack(sequence, 2)
    sender.order_ack(sequence, 1)  # one that was overtaken
    assert sender.keys() == keys[2:]
    info = queries.outgoing_queue(sender.machine.view, sender.queue_id)
    assert info is not None
    assert info.eod_last_ack is not None
    assert info.eod_last_ack.sequence_number == 2
    sender.order_ack(sequence, 0xFFFF_FFFF)
    assert sender.keys() == []


@pytest.mark.spec("QB-3.1.5.6-03", "QB-3.1.5.6-07")
def test_an_empty_sequence_is_followed_by_a_new_one_and_old_acks_are_void(sender: Sender) -> None:
    sender.send(1, **TRANSACTIONAL)
    sender.assign()
    sender.session_ack(*sender.keys())
    sender.order_ack(EPOCH | 1, 1)
    sender.send(2, **TRANSACTIONAL)
    keys = sender.keys()
    assert sender.assign() == [(keys[0], EPOCH | 2, 1, 0), (keys[1], EPOCH | 2, 2, 1)]
    sender.session_ack(*keys)
    sender.order_ack(EPOCH | 1, 2)
    assert sender.keys() == keys
    sender.order_ack(EPOCH | 2, 1)
    assert sender.keys() == keys[1:]


@pytest.mark.spec("QB-3.1.5.6-07")
@pytest.mark.parametrize("is_acked", [False, True])
def test_what_failed_holds_no_sequence_open(sender: Sender, is_acked: bool) -> None:
    sender.send(2, **TRANSACTIONAL)
    sender.assign()
    first, second = sender.keys()
    sender.session_ack(first, *([second] if is_acked else []))
    late = MessageClass.NACK_REACH_QUEUE_TIMEOUT
    failed = commands.TransferFailed(sender.queue_id, array("Q", [second]), late)
    assert sender.one(failed).status == 0
    sender.order_ack(EPOCH | 1, 1)
    assert sender.keys() == []
    sender.send(1, **TRANSACTIONAL)
    assert [row[1:] for row in sender.assign()] == [(EPOCH | 2, 1, 0)]


@pytest.mark.spec("QB-3.1.5.7-02", "QB-3.1.5.7-03", "QB-3.1.5.7-04", "DM-3.1.1.12-16")
@pytest.mark.parametrize(
    ("message_class", "journal", "dead"),
    [
        (MessageClass.ACK_RECEIVE, 1, 0),
        (MessageClass.NACK_RECEIVE_TIMEOUT, 0, 1),
        (MessageClass.NACK_BAD_DST_Q, 0, 1),
    ],
)
@pytest.mark.parametrize("is_early", [False, True])
def test_a_final_ack_says_what_became_of_it(
    sender: Sender, message_class: int, journal: int, dead: int, is_early: bool
) -> None:
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    ((key, sequence, number, _),) = sender.assign()
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    if not is_early:
        sender.session_ack(key)
        sender.order_ack(sequence, number)
        assert sender.keys() == [key]
        assert sender.ordinals("system_journal_queue") == []
    final = commands.FinalAcked(array("Q", [ordinal]), array("Q", [message_class]))
    assert sender.one(final).status == 0
    assert sender.one(final).status == 0
    assert sender.keys() == []
    assert len(sender.ordinals("system_journal_queue")) == journal
    assert len(sender.ordinals("system_transactional_deadletter_queue")) == dead
    left = {Table.OUTGOING, Table.AWAITING_FINAL_ACK, Table.LOCK, Table.OBLIGATION}
    assert {row[0] for row in sender.state.rows()} & left == set()
    sender.session_ack(key)
    sender.order_ack(sequence, number)


@pytest.mark.spec("QB-3.1.5.6-06", "QB-3.1.5.6-07")
def test_waiting_for_a_final_ack_ends_the_sequence_but_not_the_message(sender: Sender) -> None:
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    ((key, sequence, number, _),) = sender.assign()
    sender.session_ack(key)
    sender.order_ack(sequence, number)
    sender.send(1, **TRANSACTIONAL)
    (numbered,) = [n for n in sender.assign() if n[0] != key]
    assert numbered[1:] == (EPOCH | 2, 1, 0)
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    sender.one(commands.FinalAcked(array("Q", [ordinal]), array("Q", [MessageClass.ACK_RECEIVE])))
    assert sender.keys() == [numbered[0]]
    sender.session_ack(numbered[0])
    sender.order_ack(EPOCH | 2, 1)
    assert sender.keys() == []


@pytest.mark.spec("DM-3.1.1.12-17", "DM-3.1.1.12-29")
def test_what_cannot_be_delivered_is_nacked_and_dead_lettered(sender: Sender) -> None:
    admin = sender.create("admin")
    asking = {"admin_queue": direct("admin"), "properties": {"flags": 0x04}}
    sender.send(1, has_negative_journaling=True, **asking)
    sender.send(1, **TRANSACTIONAL, has_negative_journaling=True)
    sender.assign()
    keys = array("Q", sender.keys())
    late = MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert sender.one(commands.TransferFailed(sender.queue_id, keys, late)).status == 0
    assert sender.keys() == []
    assert len(sender.ordinals("system_deadletter_queue")) == 1
    assert len(sender.ordinals("system_transactional_deadletter_queue")) == 1
    (nack,) = sender.messages(admin)
    assert nack.properties.message_class == late
    bad = commands.TransferFailed(sender.queue_id, keys, MessageClass.ACK_RECEIVE)
    assert sender.one(bad).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_purging_an_outgoing_queue_dead_letters_what_asked_for_it(sender: Sender) -> None:
    sender.send(2, has_negative_journaling=True)
    sender.one(commands.PurgeQueue(request(), sender.queue_id, ()))
    sender.settle(sender.queue_id)
    assert sender.keys() == []
    assert len(sender.ordinals("system_deadletter_queue")) == 2


def test_a_purge_does_not_end_what_has_arrived_meanwhile(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL, **JOURNALED)
    (first, sequence, _, _), _ = sender.assign()
    sender.one(commands.PurgeQueue(request(), sender.queue_id, ()))
    sender.session_ack(first)
    sender.order_ack(sequence, 1)
    stats = sender.stats(sender.queue_id)
    assert (stats.count(), sum(stats.locked), stats.hidden) == (1, 1, 1)
    sender.settle(sender.queue_id)
    assert sender.keys() == [first]
    assert sender.ordinals("system_transactional_deadletter_queue") == [2]
    end = commands.FinalAcked(array("Q", [1]), array("Q", [MessageClass.ACK_RECEIVE]))
    assert sender.one(end).status == 0
    assert sender.ordinals("system_journal_queue") == [1]
    stats = sender.stats(sender.queue_id)
    assert (stats.count(), sum(stats.locked), stats.hidden, stats.total_bytes) == (0, 0, 0, 0)


@pytest.mark.spec("DM-3.1.4.14-01", "DM-3.1.7.2.3-01")
def test_an_outgoing_queue_alone_is_paused_and_is_on_hold_until_it_is_resumed(
    sender: Sender,
) -> None:
    local = sender.create("orders")
    sender.send(1)

    def pause(queue_id: int, state: OutgoingAdminState = OutgoingAdminState.ON_HOLD) -> int:
        return sender.one(commands.SetOutgoingAdminState(request(), queue_id, state, ())).status

    def state() -> OutgoingAdminState:
        found = queries.outgoing_queue(sender.machine.view, sender.queue_id)
        assert found is not None
        return found.admin_state

    before = sender.record(local)
    assert pause(local) == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert sender.record(local) == before
    assert state() is OutgoingAdminState.NORMAL
    assert pause(sender.queue_id) == 0
    sender.machine.forget()
    assert state() is OutgoingAdminState.ON_HOLD
    sender.send(1)
    assert len(sender.keys()) == 2
    assert pause(sender.queue_id, OutgoingAdminState.LOCKED) == (
        ErrorCode.MQ_ERROR_INVALID_PARAMETER
    )
    assert pause(sender.queue_id, OutgoingAdminState.NORMAL) == 0
    assert state() is OutgoingAdminState.NORMAL


def test_pausing_and_removing(sender: Sender) -> None:
    sender.send(1)
    pause = commands.SetOutgoingAdminState(
        request(), sender.queue_id, OutgoingAdminState.ON_HOLD, ()
    )
    applied = sender.apply(pause)
    assert applied.outgoing_queue_ids == {sender.queue_id}
    assert sender.record(sender.queue_id).admin_state is OutgoingAdminState.ON_HOLD
    remove = commands.RemoveOutgoingQueue(sender.queue_id)
    assert sender.one(remove).status == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
    sender.session_ack(*sender.keys())
    removed = sender.apply(remove)
    assert removed.outcomes[0].status == 0
    assert removed.outgoing_queue_ids == {sender.queue_id}
    assert sender.one(remove).status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    _, made = sender.c.open(ELSEWHERE, QueueAccessType.SEND_ACCESS)
    assert made != sender.queue_id


@pytest.mark.spec("DM-3.1.7.1.27-03")
def test_several_targets_share_one_message_id_and_stop_at_the_first_failure(
    sender: Sender,
) -> None:
    orders = sender.create("orders")
    outcome = sender.c.send("DIRECT=OS:vhost\\orders", ELSEWHERE, "DIRECT=OS:vhost\\absent")
    assert outcome.status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert isinstance(outcome.value, tuple)
    ordinal, places = outcome.value
    assert places[0][0] == orders
    for queue_id, key in places:
        assert sender.positions(queue_id)[key].message_ordinal == ordinal
    assert list(sender.state.references().values()) == [1, 1], "each has a packet of its own"
    third = sender.create("third")
    names = ("orders", "absent", "third")
    stopped = sender.c.send(*(f"DIRECT=OS:vhost\\{name}" for name in names))
    assert stopped.status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert (len(sender.positions(orders)), len(sender.positions(third))) == (2, 0)
    assert sender.c.send("DIRECT=OS:vhost\\third", "DIRECT=OS:vhost\\orders").status == 0
    assert (len(sender.positions(orders)), len(sender.positions(third))) == (3, 1)
    changes = {"quota": encode_attribute(0)}
    assert sender.one(commands.SetQueue(request(), third, changes, ())).status == 0
    stopped = sender.c.send(ELSEWHERE, "DIRECT=OS:vhost\\third", "DIRECT=OS:vhost\\absent")
    assert stopped.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


@pytest.mark.spec("DM-3.1.7.3.9-03")
@pytest.mark.parametrize(
    "name",
    [
        "DIRECT=HTTP://web/MSMQ\\q",
        "MULTICAST=234.1.1.1:8001",
        "DL=00000000-0000-0000-0000-000000000001",
        "PUBLIC=00000000-0000-0000-0000-000000000001",
        "CONNECTOR=00000000-0000-0000-0000-000000000001",
    ],
)
def test_what_is_not_delivered_yet_is_refused(sender: Sender, name: str) -> None:
    """So nothing waits that would have to leave by SRMP: ProtocolData is never NULL."""
    refused = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert sender.c.send(name).status == refused
    opening = commands.OpenQueue(sender.c.request(), name, QueueAccessType.SEND_ACCESS, 0, ())
    assert sender.one(opening).status == refused


def test_reading_what_was_sent_to_the_own_name_is_local(sender: Sender) -> None:
    orders = sender.create("orders", quota=100)
    sender.create("limits", quota=0)
    assert sender.c.send("DIRECT=TCP:127.0.0.11\\orders").status == 0
    assert len(sender.positions(orders)) == 1
    full = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert sender.c.send("DIRECT=OS:vhost\\limits").status == full
    changes = {"queue_manager_quota": encode_attribute(0)}
    sender.one(commands.SetQueueManager(request(), changes, ()))
    assert sender.c.send("DIRECT=OS:vhost\\orders").status == full
    assert sender.arrive(packet(5)) == [TransferVerdict.CLOSE_SESSION]


@pytest.mark.spec("QB-3.1.7.1.2-01", "DM-3.1.1.12-34")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_what_is_on_its_way_for_too_long_is_nacked_and_dead_lettered(
    sender: Sender, is_transactional: bool
) -> None:
    admin = sender.create("admin")
    asking = {"admin_queue": direct("admin"), "properties": {"flags": 0x04}}
    kind = TRANSACTIONAL if is_transactional else {}
    sender.send(2, time_to_reach_queue=60, has_negative_journaling=True, **kind, **asking)
    if is_transactional:
        sender.assign()
    sender.session_ack(sender.keys()[0])
    sender.tick(60_999)
    assert len(sender.keys()) == 1 + is_transactional
    sender.tick(1)
    # What its peer has seen is left to the node that would send it again.
    assert len(sender.keys()) == is_transactional
    which = (
        "system_transactional_deadletter_queue" if is_transactional else "system_deadletter_queue"
    )
    assert len(sender.ordinals(which)) == 1
    (nack,) = sender.messages(admin)
    assert nack.properties.message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT


@pytest.mark.spec("QB-3.1.7.15-05")
@pytest.mark.parametrize("version", [VERSION_OF_PRIVATE_BODIES - 1, VERSION_OF_PRIVATE_BODIES])
@pytest.mark.parametrize("level", [0, 1, 3, 5])
def test_no_nack_returns_the_body_of_a_private_message(
    monkeypatch: pytest.MonkeyPatch, level: int, version: int
) -> None:
    """Neither when it could not leave, nor when it was purged here."""
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", version)
    sender = Sender(forgets=False)
    admin, orders = sender.create("admin"), sender.create("orders")
    asked = {"properties": {"flags": 0x0C, "privacy_level": level}, "admin_queue": direct("admin")}
    sender.send(1, body=b"a secret", **asked)
    sender.one(commands.TransferFailed(sender.queue_id, array("Q", sender.keys()), 0x8001))
    raw = packet(0, body=b"a secret", **asked)  # type: ignore[arg-type]
    assert sender.c.send("DIRECT=OS:vhost\\orders", raw=raw).status == 0
    sender.one(commands.PurgeQueue(request(), orders, ()))
    sender.settle(orders)
    told = [one.properties for one in sender.messages(admin)]
    assert [one.message_class for one in told] == [0x8001, 0xC001]
    is_returned = not level or version < VERSION_OF_PRIVATE_BODIES
    nacks = [decode(SyntheticPacket, row) for table, _, row in sender.state.rows()
             if table == Table.SYNTHETIC]  # fmt: skip
    assert [one.body_of is not None for one in nacks] == [is_returned] * 2


@pytest.mark.spec("QB-3.1.7.1.2-01")
def test_a_message_with_no_time_to_reach_its_queue_has_the_second_in_which_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = Sender(forgets=False)
    sender.send(1, time_to_reach_queue=0)
    sender.tick(999)
    assert len(sender.keys()) == 1
    sender.tick(1)
    assert not sender.keys()
    sender.send(1, time_to_reach_queue=0xFFFF_FFFE, time_to_be_received=0xFFFF_FFFF)
    sender.tick(24 * 3600 * 1000)
    assert len(sender.keys()) == 1
    # Members of an older build end it a second sooner; they agree until all know the rule.
    older_version = VERSION_OF_TIME_TO_REACH - 1
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", older_version)
    older = Sender(forgets=False)
    older.send(1, time_to_reach_queue=60)
    older.tick(59_999)
    assert len(older.keys()) == 1
    older.tick(1)
    assert not older.keys()


def test_order_acks_are_counted_once_each_when_all_that_they_settle_is_settled(
    sender: Sender,
) -> None:
    more = SETTLED_PER_COMMAND_MAX + 5
    sender.send(more, **TRANSACTIONAL)
    keys = sender.keys()
    identifier = sender.assign(*keys[:SETTLED_PER_COMMAND_MAX])[0][1]
    sender.assign(*keys[SETTLED_PER_COMMAND_MAX:])
    acks = commands.OrderAcked(array("Q", [identifier, identifier]), array("Q", [1, more]))
    first = sender.apply(acks)
    assert (first.outcomes[0].value, first.order_acks) == (True, {})
    second = sender.apply(acks)
    assert (second.outcomes[0].value, second.order_acks) == (False, {sender.queue_id: 2})
    strange = commands.OrderAcked(
        array("Q", [identifier, identifier + 7]), array("Q", [more + 1, 1])
    )
    assert sender.apply(strange).order_acks == {}, "what was never sent is not acknowledged"


def test_the_leader_hears_of_every_change_of_an_outgoing_queue(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL, has_positive_journaling=True)
    numbers = sender.assign()
    acked = sender.apply(commands.OrderAcked(array("Q", [numbers[0][1]]), array("Q", [1])))
    assert acked.outgoing_queue_ids == {sender.queue_id}
    settled = sender.apply(commands.TransferAcked(sender.queue_id, array("Q", [sender.keys()[0]])))
    assert settled.outgoing_queue_ids == {sender.queue_id}
    ended = sender.apply(
        commands.TransferFailed(sender.queue_id, array("Q", sender.keys()), 0x8002)
    )
    assert ended.outgoing_queue_ids == {sender.queue_id}


def test_an_outgoing_queue_that_is_being_purged_is_not_removed(sender: Sender) -> None:
    sender.send(2, has_negative_journaling=True)
    sender.one(commands.PurgeQueue(request(), sender.queue_id, ()))
    remove = commands.RemoveOutgoingQueue(sender.queue_id)
    assert sender.one(remove).status == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
    sender.settle(sender.queue_id)
    assert sender.one(remove).status == 0
    assert len(sender.ordinals("system_deadletter_queue")) == 2


def test_acknowledgements_come_in_columns(sender: Sender) -> None:
    sender.send(3, **TRANSACTIONAL, **JOURNALED)
    (first, sequence, _, _), second, third = sender.assign()
    sender.session_ack(*sender.keys())
    old = sequence - 1
    command = commands.OrderAcked(array("Q", [old, sequence, sequence]), array("Q", [9, 1, 3]))
    assert sender.one(command).value is False
    rows = sender.positions(sender.queue_id)
    ordinals = [rows[key].message_ordinal for key in (first, second[0], third[0])]
    received, rejected = MessageClass.ACK_RECEIVE, MessageClass.NACK_RECEIVE_REJECTED
    final = commands.FinalAcked(
        array("Q", [ordinals[0], 0, 1 << 40, ordinals[2]]),
        array("Q", [received, received, received, rejected]),
    )
    assert sender.one(final).status == 0
    assert list(sender.positions(sender.queue_id)) == [second[0]]
    assert sender.ordinals("system_journal_queue") == [ordinals[0]]
    assert sender.ordinals("system_transactional_deadletter_queue") == [ordinals[2]]


def test_acknowledgements_of_what_was_never_sent_are_told_from_old_ones(sender: Sender) -> None:
    accepted, ignored, never = (
        int(TransferVerdict.ACCEPTED), int(TransferVerdict.IGNORED), int(TransferVerdict.NEVER_SENT)
    )  # fmt: skip
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    ((key, first, _, _),) = sender.assign()
    ordinal = sender.positions(sender.queue_id)[key].message_ordinal
    sender.session_ack(key)
    sender.order_ack(first, 1)
    sender.send(1, **TRANSACTIONAL)
    second = sender.assign()[-1][1]
    assert second == first + 1
    ordered = commands.OrderAcked(
        array("Q", [first, second, second, second + 1, 0, 6 << 32 | 1, 1 << 63]),
        array("Q", [1, 1, 2, 1, 1, 1, 1]),
    )
    expected = [ignored, accepted, never, never, never, ignored, never]
    assert sender.one(ordered).verdicts == array("H", expected)
    ends = [ordinal, ordinal, ordinal + 2, 0xFFFF_FFFF, 0x7FFF_FFFF, 0, 1 << 32]
    final = commands.FinalAcked(
        array("Q", ends), array("Q", [MessageClass.ACK_RECEIVE] * len(ends))
    )
    expected = [accepted, ignored, never, ignored, never, never, never]
    assert sender.one(final).verdicts == array("H", expected)


@pytest.mark.spec("QB-2.2.5-05")
def test_a_final_ack_has_any_class_that_16_bits_can_say(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL, **JOURNALED)
    sender.assign()
    ordinals = [one.message_ordinal for one in sender.positions(sender.queue_id).values()]
    final = commands.FinalAcked(array("Q", ordinals), array("Q", [0xFFFF, 0x1_0000]))
    expected = [int(TransferVerdict.ACCEPTED), int(TransferVerdict.NEVER_SENT)]
    assert sender.one(final).verdicts == array("H", expected)


@pytest.mark.spec("MQ-2.2.20.5-08")
def test_a_transactions_tag_is_not_given_again_while_messages_have_it(sender: Sender) -> None:
    sender.send(1, **TRANSACTIONAL)
    counters = sender.counters()
    before = structs.replace(counters, transaction_tag=counters.transaction_tag - 1)
    sender.state.put(Table.META, META_COUNTERS, encode(before))
    sender.machine.forget()
    sender.send(1, **TRANSACTIONAL)
    sent = queries.outgoing_messages(sender.machine.view, sender.queue_id).items
    tags = [one.transaction_tag for one in sent]
    assert tags == [counters.transaction_tag, counters.transaction_tag + 1]


def test_columns_must_be_of_one_length_and_bounded(sender: Sender) -> None:
    many = array("Q", range(1025))
    for kind in (commands.OrderAcked, commands.FinalAcked):
        assert sender.one(kind(many, many)).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        assert sender.one(kind(many[:2], many[:1])).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_destinations_that_peers_name_are_bounded_and_leave_room_for_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.model.state.outgoing_queues.OUTGOING_QUEUES_MAX", 2)
    world = World()
    world.create("orders")
    for number in range(1, 5):
        there = DirectQueueFormatName(f"TCP:10.9.8.{number}\\admin")
        asking = packet(number, admin_queue=there, properties={"flags": 0x01})
        assert world.arrive(asking) == [TransferVerdict.ACCEPTED]
    assert world.counters().outgoing_queue_count == 2
    world.create("more")
    # What is never fetched is given up, and its queue may be removed.
    waiting = [queue for queue in range(1, 20) if _is_outgoing(world, queue)]
    assert [len(world.positions(queue)) for queue in waiting] == [1, 1]
    world.tick(TIME_TO_LIVE_DEFAULT_S * 1000)
    assert [len(world.positions(queue)) for queue in waiting] == [0, 0]
    assert world.one(commands.RemoveOutgoingQueue(waiting[0])).status == 0
    assert world.counters().outgoing_queue_count == 1


@pytest.mark.spec("DM-3.1.1.6-03")
@pytest.mark.parametrize(
    ("version", "kept_s"),
    [(VERSION_OF_TIME_TO_LIVE, 90), (VERSION_OF_TIME_TO_LIVE - 1, TIME_TO_LIVE_DEFAULT_S)],
)
def test_the_enterprise_says_how_long_acknowledgements_are_kept(version: int, kept_s: int) -> None:
    world = World()
    world.version = version
    world.create("orders")
    write(world, 1, DirectoryObjectType.ENTERPRISE, name="Corp", default_time_to_live=90)
    there = DirectQueueFormatName("TCP:10.9.8.1\\admin")
    world.arrive(packet(1, admin_queue=there, properties={"flags": int(AcknowledgeFlags.PA)}))
    (queue,) = [queue for queue in range(1, 20) if _is_outgoing(world, queue)]
    world.tick((kept_s - 1) * 1000)
    assert len(world.positions(queue)) == 1
    world.tick(1000)
    assert len(world.positions(queue)) == 0


def _is_outgoing(world: World, queue_id: int) -> bool:
    row = world.state.get(Table.QUEUE, QUEUE_KEY.pack(queue_id))
    return row is not None and decode(Queue, row).kind is QueueKind.OUTGOING
