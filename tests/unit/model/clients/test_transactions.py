"""Transactions: all or nothing, over queues, in doubt, overtaken by purges and deletions."""

from typing import Any

import pytest

from qm.model import queries
from qm.model.clients.transactions import TRANSACTION_RECORD
from qm.model.machine import Machine
from qm.model.state.ledger import META_COUNTERS
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.effects import EffectKind
from qm.model.values.elements import QueueAccessType, QueueKind, QueueType
from qm.model.values.records import TransactionalOperation, decode, encode
from qm.model.values.rows import PositionFlag, PositionState
from qm.wire.codes import ErrorCode
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.identifiers import MessageIdentifier, write_message_identifier
from tests.unit.model.world import PEER, ClientInWorld, World, direct, effects, packet

RECEIVE, MOVE = QueueAccessType.RECEIVE_ACCESS, QueueAccessType.MOVE_ACCESS
A, B = "DIRECT=OS:vhost\\a", "DIRECT=OS:vhost\\b"
SEQUENCE_ERROR = ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
LEFT_BEHIND = {Table.LOCK, Table.OPERATION, Table.READ}


class Two(World):
    """Two transactional queues, three messages in `a`, one client."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__(forgets=forgets)
        self.a = self.create("a", transactional=True)
        self.b = self.create("b", transactional=True)
        self.arrive(*(packet(n, to="a", sequence=(9, n, n - 1)) for n in (1, 2, 3)))
        self.c: ClientInWorld = self.client()
        self.from_a = self.c.open(A, RECEIVE)
        self.from_b = self.c.open(B, RECEIVE)

    def ordinals(self, queue_id: int) -> list[int]:
        return [position.message_ordinal for position in self.positions(queue_id).values()]

    def tables(self) -> set[Table]:
        return {table for table, _, _ in self.state.rows()}


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def two(request: pytest.FixtureRequest) -> Two:
    return Two(forgets=request.param)


@pytest.mark.spec("DM-3.1.4.4-05", "DM-3.1.1.14-01")
def test_a_commit_ends_its_operations_in_the_order_in_which_they_were_made(two: Two) -> None:
    kept = two.create("kept", transactional=True, journaling=True)
    two.arrive(*(packet(n, to="kept", sequence=(11, n, n - 1)) for n in (1, 2, 3)))
    opened = two.c.open("DIRECT=OS:vhost\\kept", RECEIVE)
    keys = list(two.positions(kept))
    tx = two.c.begin("t")
    for key in (keys[2], keys[0], keys[1]):
        two.c.receive(opened, transaction=tx, selector=Selector(SelectorKind.EXACT, key))
    journal = two.record(kept).journal_queue
    assert two.ordinals(journal) == []
    assert two.c.commit(tx) == 0
    assert two.ordinals(journal) == [3, 1, 2]
    assert two.tables() & LEFT_BEHIND == set()
    # It is in the collection no more: only its outcome is remembered, for who asks again.
    assert [key for table, key, _ in two.state.rows() if table == Table.TRANSACTION] == [
        TRANSACTION_RECORD + tx
    ]


@pytest.mark.spec("DM-3.1.4.4-05")
def test_receives_sends_and_moves_of_a_commit_keep_their_order(two: Two) -> None:
    _, subqueue = two.c.open(A + ";retry", MOVE)
    first, second, third = two.positions(two.a)
    tx = two.c.begin("t")

    def receive_and_send(key: int, number: int) -> None:
        exactly = Selector(SelectorKind.EXACT, key)
        assert two.c.receive(two.from_a, transaction=tx, selector=exactly)
        raw = packet(0, sequence=(1, number, number - 1))
        assert two.c.send(B, raw=raw, transaction=tx).status == 0

    receive_and_send(second, 1)
    move = commands.Move(two.c.request(), two.a, first, subqueue, (), tx)
    assert two.one(move).status == 0
    receive_and_send(third, 2)
    committed = two.apply(commands.TxCommit(two.c.request(), tx))
    ends = [(EffectKind.RECEIVED, two.a), (EffectKind.ARRIVED, two.b)]
    moved = [(EffectKind.MOVED_IN, subqueue), (EffectKind.MOVED_OUT, two.a)]
    assert effects(committed) == [*ends, *moved, *ends]


@pytest.mark.spec("DM-3.1.4.4-02", "DM-3.1.4.4-05", "DM-3.1.7.1.9-09", "DM-3.1.7.1.10-11")
def test_a_commit_is_one_step_over_all_queues(two: Two) -> None:
    tx = two.c.begin("t")
    taken = two.c.receive(two.from_a, 2, transaction=tx)
    assert [r.message_ordinal for r in taken] == [1, 2]
    assert two.c.send(B, raw=packet(0, sequence=(1, 1, 0)), transaction=tx).status == 0
    rows = [row for table, _, row in two.state.rows() if table == Table.OPERATION]
    operations = [decode(TransactionalOperation, row) for row in rows]
    assert [(one.operation_type.name, one.dequeue_reason) for one in operations[:2]] == [
        ("DEQUEUE", 0x4000)
    ] * 2
    assert operations[2].operation_type.name == "ENQUEUE"
    (sent,) = two.positions(two.b).values()
    locked = [PositionState(one.state) for one in (sent, *two.positions(two.a).values())]
    assert locked == [PositionState.LOCKED] * 3 + [PositionState.AVAILABLE]
    assert two.c.receive(two.from_b, 1) == []
    assert two.c.receive(two.from_a, 1)[0].message_ordinal == 3
    committed = two.apply(commands.TxCommit(two.c.request(), tx))
    assert (EffectKind.ARRIVED, two.b) in effects(committed)
    assert two.b in committed.woken_queue_ids
    assert two.ordinals(two.a) == []
    assert len(two.c.receive(two.from_b, 1)) == 1
    assert two.tables() & LEFT_BEHIND == set()
    assert two.c.commit(tx) == 0
    assert two.c.abort(tx) == SEQUENCE_ERROR


@pytest.mark.spec("DM-3.1.4.5-03", "DM-3.1.4.5-04", "DM-3.1.4.5-05")
def test_an_abort_leaves_everything_as_it_was(two: Two) -> None:
    before = two.positions(two.a)
    _, subqueue = two.c.open(A + ";retry", MOVE)
    tx = two.c.begin("t")
    two.c.receive(two.from_a, 2, transaction=tx)
    move = commands.Move(two.c.request(), two.a, max(before), subqueue, (), tx)
    assert two.one(move).status == 0
    two.c.send(B, transaction=tx)
    # Nobody sees it meanwhile: no reader, and no peek either.
    nothing = queries.peek(two.machine.view, two.b, Selector())
    assert (nothing, two.c.receive(two.from_b)) == ((0, None), [])
    aborted = two.apply(commands.TxAbort(two.c.request(), tx))
    assert aborted.outcomes[0].status == 0
    rolled_back = (EffectKind.ROLLED_BACK, two.b)
    assert sorted(effects(aborted)) == sorted([(EffectKind.UNLOCKED, two.a)] * 3 + [rolled_back])
    assert aborted.woken_queue_ids == {two.a}
    assert two.positions(subqueue) == {}
    after = two.positions(two.a)
    for position in after.values():
        position.flags &= ~PositionFlag.HAS_OBLIGATION  # it counts the return
    assert after == before
    assert two.ordinals(two.b) == []
    assert two.stats(two.b).total_bytes == 0
    assert two.tables() & LEFT_BEHIND == set()
    assert two.c.abort(tx) == 0
    assert two.c.commit(tx) == SEQUENCE_ERROR
    again = two.c.receive(two.from_a, 3)
    assert [r.message_ordinal for r in again] == [1, 2, 3]


def test_a_pending_message_counts_against_the_quota_and_never_moves_the_numbers_back(
    two: Two,
) -> None:
    tx = two.c.begin("t")
    two.c.send(B, transaction=tx)
    assert two.stats(two.b).total_bytes > 0
    before = two.counters().sequential_id
    two.c.abort(tx)
    assert two.counters().sequential_id == before


@pytest.mark.spec("DM-3.1.1.1-28")
def test_every_enqueue_takes_the_next_of_64_bits_also_after_a_restart(two: Two) -> None:
    plain = two.create("plain")
    mask = (1 << 56) - 1
    at = two.counters().sequential_id
    two.arrive(packet(1, to="plain"), packet(2, to="absent"), packet(1, to="plain"))
    assert two.counters().sequential_id == at + 1, "one was inserted"
    two.machine = Machine(two.state)
    two.arrive(packet(3, to="plain"))
    assert [key & mask for key in two.positions(plain)] == [at + 1, at + 2]
    counters = two.counters()
    counters.sequential_id = 1 << 32
    two.state.put(Table.META, META_COUNTERS, encode(counters))
    two.machine = Machine(two.state)
    two.arrive(packet(4, to="plain"))
    assert [key & mask for key in two.positions(plain)][-1] == (1 << 32) + 1


def test_committed_messages_keep_the_place_of_their_sending(two: Two) -> None:
    first, second = two.c.begin("first"), two.c.begin("second")
    two.c.send(B, transaction=first)
    two.c.send(B, transaction=second)
    two.c.send(B, transaction=first)
    two.c.commit(second)
    two.c.commit(first)
    ordinals = [r.message_ordinal for r in two.c.receive(two.from_b, 3)]
    assert ordinals == sorted(ordinals)


@pytest.mark.spec("DM-3.1.4.4-01")
def test_wrong_states_and_owners(two: Two) -> None:
    tx = two.c.begin("t")
    other = two.client("d")
    handle = other.open(A, RECEIVE)
    assert other.receive_outcome(handle, 1, transaction=tx).status == SEQUENCE_ERROR
    assert two.c.receive_outcome(two.from_a, 1, transaction=b"?" * 16).status == SEQUENCE_ERROR
    assert two.c.commit(b"?" * 16) == SEQUENCE_ERROR
    prepare = commands.TxPrepare(two.c.request(), tx)
    assert two.one(prepare).status == SEQUENCE_ERROR  # single-phase
    begin = commands.TxBegin(two.c.request(), tx, True, "", 1000)
    assert two.one(begin).status == SEQUENCE_ERROR
    plain = two.create("plain")
    assert plain
    opened = two.c.open("DIRECT=OS:vhost\\plain", RECEIVE)
    usage = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert two.c.receive_outcome(opened, 1, transaction=tx).status == usage
    assert two.c.send("DIRECT=OS:vhost\\plain", transaction=tx).status == usage
    assert two.c.send(B).status == usage


@pytest.mark.spec("DM-3.1.1.14-01")
def test_prepared_transactions_survive_their_owner_and_wait_for_the_outcome(two: Two) -> None:
    for name in ("keep", "drop"):
        tx = two.c.begin(name, is_single_phase=False)
        two.c.receive(two.from_a, 1, transaction=tx)
        assert two.c.commit(tx) == SEQUENCE_ERROR
        assert two.one(commands.TxPrepare(two.c.request(), tx)).status == 0
        assert two.one(commands.TxPrepare(two.c.request(), tx)).status == 0
    two.one(commands.CloseClient("c"))
    two.machine = Machine(two.state)
    two.tick(23 * 3600 * 1000)
    assert two.ordinals(two.a) == [1, 2, 3]
    keeper = two.client("coordinator", lease_ms=24 * 3600 * 1000)
    kept, dropped = b"keep".ljust(16, b"-"), b"drop".ljust(16, b"-")
    assert keeper.commit(kept) == 0
    assert keeper.abort(dropped) == 0
    opened = keeper.open(A, RECEIVE)
    assert [r.message_ordinal for r in keeper.receive(opened, 3)] == [2, 3]


def test_an_unprepared_transaction_ends_with_its_owner_or_its_time(two: Two) -> None:
    tx = two.c.begin("t")
    two.c.receive(two.from_a, 1, transaction=tx)
    lasting = two.client("d", lease_ms=1 << 25)
    slow = lasting.begin("slow")
    lasting.receive(lasting.open(A, RECEIVE), 1, transaction=slow)
    two.one(commands.CloseClient("c"))
    two.tick()
    assert lasting.commit(tx) == SEQUENCE_ERROR
    two.tick(60_000)
    assert lasting.commit(slow) == SEQUENCE_ERROR
    opened = lasting.open(A, RECEIVE)
    assert [r.message_ordinal for r in lasting.receive(opened, 3)] == [1, 2, 3]


def test_an_outcome_is_forgotten_after_its_retention(two: Two) -> None:
    first, second = two.c.begin("first"), two.c.begin("second")
    two.c.commit(first)
    two.c.abort(second)
    assert two.c.commit(first) == 0
    two.one(commands.RenewClients(("c",), 24 * 3600 * 1000))
    two.tick(24 * 3600 * 1000)
    assert Table.TRANSACTION not in two.tables()


# Purge and deletion ------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.11-03", "DM-3.1.7.1.7-01")
def test_a_purge_takes_what_is_visible_at_once_and_settles_in_steps(two: Two) -> None:
    tx = two.c.begin("t")
    two.c.receive(two.from_a, 1, transaction=tx)
    outcome = two.one(commands.PurgeQueue(two.c.request(), two.a, ()))
    assert outcome.value == 2
    assert two.c.receive(two.from_a, 1) == []
    two.arrive(packet(4, to="a", sequence=(9, 4, 3)))
    assert [r.message_ordinal for r in two.c.receive(two.from_a, 3)] == [4]
    assert two.settle(two.a, 1) >= 2
    assert two.ordinals(two.a) == [1]
    (key,) = two.positions(two.a)
    pending = queries.position(two.machine.view, two.a, key)
    assert pending is not None
    assert pending.state is PositionState.PURGE_PENDING
    # What is locked after the purge is locked, and no more.
    two.arrive(packet(5, to="a", sequence=(9, 5, 4)))
    late = two.c.begin("late")
    (locked,) = two.c.receive(two.from_a, 1, transaction=late)
    found = queries.position(two.machine.view, two.a, locked.lookup_identifier)
    assert found is not None
    assert found.state is PositionState.LOCKED
    assert two.c.commit(late) == 0
    assert two.c.abort(tx) == 0  # purged while it was locked
    assert two.ordinals(two.a) == []
    assert two.stats(two.a).total_bytes == 0
    assert two.stats(two.a).hidden == 0


def test_a_purge_does_not_touch_what_was_never_visible(two: Two) -> None:
    tx = two.c.begin("t")
    two.c.send(B, transaction=tx)
    two.one(commands.PurgeQueue(two.c.request(), two.b, ()))
    two.settle(two.b)
    assert two.c.commit(tx) == 0
    assert len(two.c.receive(two.from_b, 1)) == 1


def test_a_committed_read_of_a_purged_message_still_counts_as_received(two: Two) -> None:
    tx = two.c.begin("t")
    two.c.receive(two.from_a, 1, transaction=tx)
    two.one(commands.PurgeQueue(two.c.request(), two.a, ()))
    assert two.c.commit(tx) == 0
    two.settle(two.a)
    assert two.ordinals(two.a) == []


@pytest.mark.spec("DM-3.1.7.2.2-02")
def test_whatever_becomes_available_is_in_that_state(two: Two) -> None:
    """A send and a move when they are committed, a read when it is undone."""
    _, subqueue = two.c.open(A + ";retry", MOVE)
    first, second, third = two.positions(two.a)

    def states(queue_id: int) -> list[int]:
        return [one.state for one in two.positions(queue_id).values()]

    available, locked = PositionState.AVAILABLE, PositionState.LOCKED
    done, undone = two.c.begin("done"), two.c.begin("undone")
    assert two.c.send(B, transaction=done).status == 0
    move = commands.Move(two.c.request(), two.a, first, subqueue, (), done)
    assert two.one(move).status == 0
    (taken,) = two.c.receive(two.from_a, transaction=undone)
    (lent,) = two.c.receive(two.from_a, is_two_phase=True)
    assert [taken.lookup_identifier, lent.lookup_identifier] == [second, third]
    assert (states(two.a), states(two.b), states(subqueue)) == ([locked] * 3, [locked], [])
    assert two.c.commit(done) == 0
    assert (states(two.a), states(two.b)) == ([locked] * 2, [available])
    assert states(subqueue) == [available]
    assert two.c.abort(undone) == 0
    assert states(two.a) == [available, locked]
    end = commands.ReadEnd(two.c.request(), two.a, lent.lookup_identifier, False)
    assert two.one(end).status == 0
    assert states(two.a) == [available] * 2


@pytest.mark.spec("DM-3.1.7.1.4-01")
def test_each_message_of_a_deleted_queue_ends_for_that_reason(two: Two) -> None:
    admin, plain = two.create("admin"), two.create("plain")
    asked: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.NR)},
    }
    two.arrive(*(packet(number, to="plain", **asked) for number in (1, 2, 3)))
    two.arrive(packet(4, to="plain"))
    opened = two.c.open("DIRECT=OS:vhost\\plain", RECEIVE)
    assert len(two.c.receive(opened, is_two_phase=True)) == 1  # it ends like the others
    assert two.one(commands.DeleteQueue(two.c.request(), plain, ())).status == 0
    two.settle(plain, 2)
    told = two.messages(admin)
    assert [message.properties.message_class for message in told] == [0xC000] * 3
    named = {message.properties.correlation_id for message in told}
    assert named == {write_message_identifier(MessageIdentifier(PEER, n)) for n in (1, 2, 3)}
    assert two.positions(plain) == {}


@pytest.mark.spec("DM-3.1.7.1.4-02", "DM-3.1.7.1.4-03")
def test_a_deleted_queue_is_gone_at_once_and_takes_locked_messages_with_it(two: Two) -> None:
    tx = two.c.begin("t")
    two.c.receive(two.from_a, 1, transaction=tx)
    two.c.send(A, transaction=tx)
    other = two.client("d")
    more = [(two.c, two.c.open(A, RECEIVE)), (other, other.open(A, RECEIVE))]
    assert two.one(commands.DeleteQueue(two.c.request(), two.a, ())).status == 0
    assert two.one(commands.DeleteQueue(two.c.request(), two.a, ())).status == (
        ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    )
    deleted = ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    for client, opened in ((two.c, two.from_a), *more):
        assert client.receive_outcome(opened, 1).status == deleted
    assert queries.peek(two.machine.view, two.a, Selector()) == (deleted, None)
    assert two.arrive(packet(9, to="a", sequence=(9, 4, 3))) == [0x8000]
    journal = two.record(two.a).journal_queue
    two.settle(journal)
    two.settle(two.a, 2)
    assert two.c.receive_outcome(two.from_a, 1).status == deleted
    assert two.c.commit(tx) == 0
    rows = [row for row in two.state.rows() if row[0] in (Table.POSITION, Table.LOCK, Table.PURGE)]
    assert rows == []
    assert two.create("a") not in (two.a, journal)


# Moving ------------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.16-02")
def test_what_moves_to_a_system_queue_comes_last_of_its_priority(two: Two) -> None:
    plain = two.create("plain")
    two.arrive(*(packet(n, to="plain", priority=p) for n, p in ((1, 2), (2, 6), (3, 2), (4, 6))))
    keys = {one.message_ordinal: key for key, one in two.positions(plain).items()}
    dead = two.manager_queue("system_deadletter_queue")
    for ordinal in (3, 2, 1, 4):
        move = commands.Move(two.c.request(), plain, keys[ordinal], dead, (), None)
        assert two.one(move).status == 0
    assert two.ordinals(dead) == [2, 4, 3, 1]
    assert {one.state for one in two.positions(dead).values()} == {PositionState.AVAILABLE}


@pytest.mark.spec("DM-3.1.7.1.11-02")
def test_a_two_phase_read_in_a_transaction_is_the_transaction_s(two: Two) -> None:
    for outcome, left in ((two.c.abort, [1, 2, 3]), (two.c.commit, [2, 3])):
        tx = two.c.begin(outcome.__name__)
        (lent,) = two.c.receive(two.from_a, is_two_phase=True, transaction=tx)
        assert lent.message_ordinal == 1
        end = commands.ReadEnd(two.c.request(), two.a, lent.lookup_identifier, True)
        assert two.one(end).status == SEQUENCE_ERROR
        assert two.ordinals(two.a) == [1, 2, 3]
        assert outcome(tx) == 0
        assert two.ordinals(two.a) == left


def body_places(two: Two, queue_id: int) -> list[tuple[int, ...]]:
    """Return where the messages of a queue are kept."""
    return [
        (one.body_index, one.body_offset, one.body_length, one.body_ordinal, one.body_crc32)
        for one in two.positions(queue_id).values()
    ]


@pytest.mark.spec(
    "DM-3.1.4.4-04", "DM-3.1.7.1.16-01", "DM-3.1.7.1.16-02", "DM-3.1.7.1.16-03", "DM-3.1.7.1.16-04"
)
def test_moving_to_a_subqueue_and_back_keeps_the_place(two: Two) -> None:
    _, subqueue = two.c.open(A + ";retry", MOVE)
    keys = list(two.positions(two.a))
    bodies = body_places(two, two.a)

    woken: set[int] = set()

    def move(key: int, source: int, target: int, transaction: bytes | None = None) -> int:
        command = commands.Move(two.c.request(), source, key, target, (), transaction)
        applied = two.apply(command)
        woken.clear()
        woken.update(applied.woken_queue_ids)
        return applied.outcomes[0].status

    assert move(keys[1], two.a, subqueue) == 0
    assert woken == {subqueue}
    assert two.ordinals(subqueue) == [2]
    assert two.stats(two.a).subqueue_bytes == two.stats(subqueue).total_bytes
    assert move(keys[1], two.a, subqueue) == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert move(keys[1], subqueue, two.a) == 0
    assert list(two.positions(two.a)) == keys
    assert two.stats(two.a).subqueue_bytes == 0
    assert move(keys[1], two.a, subqueue) == 0
    tx = two.c.begin("t")
    assert move(keys[0], two.a, subqueue, tx) == 0
    assert two.ordinals(subqueue) == [2]
    locked = queries.position(two.machine.view, two.a, keys[0])
    assert locked is not None
    assert (locked.state, locked.lock_owner, woken) == (PositionState.LOCKED, tx, set())
    committed = two.apply(commands.TxCommit(two.c.request(), tx))
    assert effects(committed) == [
        (EffectKind.MOVED_IN, subqueue),
        (EffectKind.MOVED_OUT, two.a),
    ], "readers of the subqueue may be woken"
    assert list(two.positions(subqueue)) == keys[:2], "in its place, before a later one"
    assert body_places(two, subqueue) == bodies[:2], "they refer to the same messages"
    assert move(keys[1], subqueue, two.a) == 0
    assert (two.ordinals(two.a), two.ordinals(subqueue)) == ([2, 3], [1])
    dead = two.manager_queue("system_transactional_deadletter_queue")
    assert move(keys[2], two.a, dead) == 0
    assert two.ordinals(dead) == [3]
    tx = two.c.begin("u")
    assert move(keys[1], two.a, dead, tx) == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert sum(two.state.references().values()) == 3
    # Nor to another queue of the system, and without one to each of them.
    (key,) = two.positions(two.a)
    for store in (
        two.record(two.a).journal_queue,
        two.manager_queue("system_journal_queue"),
        two.manager_queue("system_deadletter_queue"),
    ):
        assert two.record(store).queue_type is QueueType.SYSTEM
        assert move(key, two.a, store, tx) == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        assert (two.ordinals(two.a), two.ordinals(store)) == ([2], [])
    assert two.c.commit(tx) == 0
    assert two.ordinals(two.a) == [2]
    assert move(key, two.a, store) == 0
    assert (two.ordinals(two.a), two.ordinals(store)) == ([], [2])


@pytest.mark.spec("DM-3.1.1.2-20")
def test_deleting_a_queue_deletes_its_subqueues(two: Two) -> None:
    def subqueues(parent: int) -> set[int]:
        listed = queries.list_queues(two.machine.view).items
        return {
            one.queue_id
            for one in listed
            if (one.kind, one.parent_queue) == (QueueKind.SUBQUEUE, parent)
        }

    assert subqueues(two.a) == set()
    _, subqueue = two.c.open(A + ";retry", MOVE)
    _, second = two.c.open(A + ";dead", MOVE)
    _, other = two.c.open(B + ";retry", MOVE)
    assert (subqueues(two.a), subqueues(two.b)) == ({subqueue, second}, {other})
    key = next(iter(two.positions(two.a)))
    two.one(commands.Move(two.c.request(), two.a, key, subqueue, ()))
    two.one(commands.DeleteQueue(two.c.request(), two.a, ()))
    for queue_id in (subqueue, second, two.record(two.a).journal_queue, two.a):
        two.settle(queue_id)
    assert (subqueues(two.a), subqueues(two.b)) == (set(), {other})
    assert Table.POSITION not in two.tables()
    assert two.state.references() == {}
    assert two.counters().total_bytes == 0
