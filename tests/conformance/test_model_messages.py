"""Messages, their positions and reads of them [MS-MQDMPR 3.1.1.11, 3.1.1.12, 3.1.7.1, 3.1.7.3]."""

from __future__ import annotations

from typing import Any

import pytest

from qm.model import queries
from qm.model.machine import Machine
from qm.model.messages.seek import select
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.effects import EffectKind
from qm.model.values.elements import OperationType, QueueAccessType
from qm.model.values.records import Lock, TransactionalOperation, decode
from qm.model.values.rows import POSITION_KEY, Position, PositionFlag, PositionState
from qm.wire.codes import ErrorCode
from tests.unit.model.world import NOW_S, ClientInWorld, World, effects, packet, request

RECEIVE = QueueAccessType.RECEIVE_ACCESS
ORDERS = "DIRECT=OS:vhost\\orders"
Found = tuple[int, int | None]


class Orders(World):
    """A transactional queue `orders` and a client that has it open."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__(forgets=forgets)
        self.orders = self.create("orders", transactional=True)
        self.c: ClientInWorld = self.client()
        self.opened = self.c.open(ORDERS, RECEIVE)
        self.sent = 0

    def fill(self, count: int, **fields: Any) -> list[int]:
        for _ in range(count):
            self.sent += 1
            raw = packet(self.sent, sequence=(9, self.sent, self.sent - 1), **fields)
            assert self.arrive(raw) == [0]
        return list(self.positions(self.orders))

    def seek(self, kind: SelectorKind, key: int = 0, *, is_peek: bool = True) -> Found:
        """Seek as a peek does, on the rows as they are."""
        ledger = Ledger(self.state)
        queue = ledger.queue(self.orders)
        assert queue is not None
        status, found = select(ledger, queue, Selector(kind, key), is_peek=is_peek)
        return status, None if found is None else found[0]

    def lock_of(self, key: int) -> Lock | None:
        row = self.state.get(Table.LOCK, POSITION_KEY.pack(self.orders, key))
        return None if row is None else decode(Lock, row)

    def state_of(self, key: int) -> PositionState | None:
        position = self.positions(self.orders).get(key)
        return None if position is None else PositionState(position.state)

    def allow_peek_when_locked(self, key: int) -> None:
        """AllowPeekWhenLocked := True."""
        position: Position = self.positions(self.orders)[key]
        position.flags |= PositionFlag.ALLOW_PEEK_WHEN_LOCKED
        self.state.put(Table.POSITION, POSITION_KEY.pack(self.orders, key), position.pack())
        self.machine.forget()


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> Orders:
    return Orders(forgets=request.param)


# Positions ---------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.11-01", "DM-3.1.1.11-06", "DM-3.1.7.2.1-02", "DM-3.1.1.11-02")
def test_states_of_a_position(world: Orders) -> None:
    first, second = world.fill(2)
    assert world.state_of(first) is PositionState.AVAILABLE
    transaction = world.c.begin("t")
    world.c.receive(world.opened, transaction=transaction)
    assert world.state_of(first) is PositionState.LOCKED
    world.one(commands.PurgeQueue(request(), world.orders, ()))
    world.settle(world.orders)
    # The transaction still refers to it: PurgePending, and not reclaimed.
    assert world.state_of(first) is PositionState.LOCKED
    assert world.seek(SelectorKind.EXACT, first)[0] == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert world.state_of(second) is None
    assert world.c.abort(transaction) == 0
    assert world.state_of(first) is None
    assert [state.name for state in PositionState] == ["AVAILABLE", "LOCKED", "PURGE_PENDING"]
    # What a reader elsewhere has not acknowledged is locked too, and kept for it.
    (third,) = world.fill(1)
    for is_purged in (False, True):
        world.c.receive(world.opened, is_two_phase=True)
        assert world.state_of(third) is PositionState.LOCKED
        if is_purged:
            world.one(commands.PurgeQueue(request(), world.orders, ()))
            world.settle(world.orders)
            assert world.state_of(third) is PositionState.LOCKED
        ended = commands.ReadEnd(world.c.request(), world.orders, third, False)
        assert world.one(ended).status == 0
        assert world.state_of(third) is (None if is_purged else PositionState.AVAILABLE)
    # Nor is it reclaimed when its time ends meanwhile.
    (fourth,) = world.fill(1, time_to_be_received=10)
    for outcome in (world.c.abort, world.c.commit):
        transaction = world.c.begin(outcome.__name__)
        world.c.receive(world.opened, transaction=transaction)
        world.tick(20_000)
        assert world.state_of(fourth) is PositionState.LOCKED
        assert outcome(transaction) == 0
        assert world.state_of(fourth) is None
        (fourth,) = world.fill(1, sent_time=world.now_ms // 1000, time_to_be_received=10)


@pytest.mark.spec(
    "DM-3.1.1.11-05", "DM-3.1.1.12-01", "DM-3.1.1.2-23", "DM-3.1.7.3.2-01", "DM-3.1.7.3.2-02"
)
def test_neighbours_in_the_list(world: Orders) -> None:
    nothing = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None)
    assert world.seek(SelectorKind.FIRST) == (0, None)
    assert world.seek(SelectorKind.SEEK_LAST) == nothing
    first, second, third = keys = world.fill(3)
    assert keys == sorted(set(keys))
    assert world.seek(SelectorKind.FIRST) == (0, first)
    assert world.seek(SelectorKind.SEEK_LAST) == (0, third)
    assert world.seek(SelectorKind.SEEK_NEXT, first) == (0, second)
    assert world.seek(SelectorKind.AFTER, second) == (0, third)
    assert world.seek(SelectorKind.AFTER, third) == (0, None)
    assert world.seek(SelectorKind.SEEK_PREVIOUS, second) == (0, first)
    assert world.seek(SelectorKind.SEEK_PREVIOUS, first) == nothing
    assert world.seek(SelectorKind.SEEK_NEXT, third) == nothing
    world.c.receive(world.opened, is_two_phase=True)
    assert world.seek(SelectorKind.FIRST) == (0, second)
    assert world.seek(SelectorKind.FIRST, is_peek=False) == (0, second)
    other = world.create("other", transactional=True)
    world.arrive(packet(9, to="other", sequence=(9, 1, 0)))
    assert world.positions(other).keys().isdisjoint(keys)


@pytest.mark.spec(
    "DM-3.1.7.3.2-03", "DM-3.1.7.3.3-05", "DM-3.1.7.1.15-04", "DM-3.1.7.1.13-07", "DM-3.1.1.12-03"
)
def test_peeking_at_what_is_locked(world: Orders) -> None:
    first, second, third = world.fill(3)
    world.c.receive(world.opened, 2, is_two_phase=True)
    assert world.seek(SelectorKind.FIRST) == (0, third)
    usage = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert world.seek(SelectorKind.EXACT, second) == (usage, None)
    world.allow_peek_when_locked(second)
    before = list(world.state.rows())
    assert world.seek(SelectorKind.FIRST) == (0, second)
    assert world.seek(SelectorKind.SEEK_NEXT, first) == (0, second)
    assert world.seek(SelectorKind.EXACT, second) == (0, second)
    assert world.seek(SelectorKind.FIRST, is_peek=False) == (0, third)
    assert world.seek(SelectorKind.SEEK_NEXT, first, is_peek=False) == (0, third)
    assert world.seek(SelectorKind.EXACT, second, is_peek=False)[1] is None
    assert list(world.state.rows()) == before


@pytest.mark.spec("DM-3.1.7.3.3-06")
@pytest.mark.parametrize("is_peek", [True, False])
def test_what_is_purged_while_locked_is_not_found(world: Orders, is_peek: bool) -> None:
    (key,) = world.fill(1)
    world.c.receive(world.opened, is_two_phase=True)
    world.allow_peek_when_locked(key)
    assert world.seek(SelectorKind.EXACT, key)[0] == 0
    assert world.one(commands.PurgeQueue(world.c.request(), world.orders, ())).status == 0
    absent = ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert world.seek(SelectorKind.EXACT, key, is_peek=is_peek) == (absent, None)


@pytest.mark.spec("DM-3.1.7.1.9-05", "DM-3.1.7.1.9-06", "DM-3.1.7.1.9-04")
@pytest.mark.parametrize("priority", range(8))
def test_the_lookup_identifier(priority: int) -> None:
    """DM-A1: 7 - priority is the high byte of every message; transactional ones have none."""
    world = Orders(forgets=False)
    plain = world.create("plain")
    before = world.counters().sequential_id
    world.arrive(packet(1, to="plain", priority=priority))
    (key,) = world.positions(plain)
    assert key == (7 - priority) << 56 | before + 1
    (transactional,) = world.fill(1)
    assert transactional == 7 << 56 | before + 2
    assert world.c.send("DIRECT=OS:vhost\\plain", raw=packet(0, priority=priority)).status == 0
    assert list(world.positions(plain)) == [key, (7 - priority) << 56 | before + 3]
    world.arrive(packet(1, to="plain", priority=priority), packet(1, to="absent"))
    assert world.counters().sequential_id == before + 3


def test_positions_after_a_restart(world: Orders) -> None:
    first, second = world.fill(2)
    transaction = world.c.begin("t")
    (read,) = world.c.receive(world.opened, transaction=transaction)
    before = world.positions(world.orders)
    world.machine = Machine(world.state)
    assert world.positions(world.orders) == before
    assert world.state_of(first) is PositionState.LOCKED
    assert world.state_of(second) is PositionState.AVAILABLE
    bodies = [position.body_ordinal for position in before.values()]
    assert read.body_ordinal == bodies[0]
    assert world.c.commit(transaction) == 0
    assert list(world.positions(world.orders)) == [second]


@pytest.mark.spec("DM-3.1.7.2.1-01", "DM-3.1.7.2.1-02")
def test_what_leaves_no_longer_counts(world: Orders) -> None:
    world.fill(2)
    sizes = [position.stored_size_bytes for position in world.positions(world.orders).values()]
    assert world.stats(world.orders).total_bytes == sum(sizes)
    assert world.counters().total_bytes == sum(sizes)
    world.c.receive(world.opened)
    assert world.stats(world.orders).total_bytes == sizes[1] == world.counters().total_bytes
    assert len(world.positions(world.orders)) == 1


# Reads -------------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.10-10", "DM-3.1.7.1.10-03", "DM-3.1.7.1.11-01")
@pytest.mark.parametrize("is_two_phase", [False, True])
def test_a_read_of_an_empty_queue_stays_open(world: Orders, is_two_phase: bool) -> None:
    first = world.c.number + 1
    how: dict[str, Any] = {"first": first, "is_two_phase": is_two_phase}
    assert world.c.receive(world.opened, **how) == []
    world.c.number += 1
    world.tick(30_000)
    assert world.c.receive(world.opened, **how) == []
    world.fill(1)
    (result,) = world.c.receive(world.opened, **how)
    assert (result.number, result.message_ordinal) == (first, 1)
    assert len(world.positions(world.orders)) == is_two_phase
    second = world.c.number + 1
    world.c.receive(world.opened)
    timeout = ErrorCode.MQ_ERROR_IO_TIMEOUT
    world.one(commands.CancelRequests("c", second, 1, timeout))
    world.fill(1)
    (late,) = world.c.receive(world.opened, first=second)
    assert late.status == timeout


@pytest.mark.spec("DM-3.1.7.1.13-05", "DM-3.1.7.1.13-06", "DM-3.1.7.1.13-04", "DM-3.1.7.1.10-01")
def test_reads_by_lookup_identifier(world: Orders) -> None:
    keys = world.fill(4)

    def read(key: int, **more: Any) -> tuple[int, Lock | None]:
        selector = Selector(SelectorKind.EXACT, key)
        (result,) = world.c.receive(world.opened, selector=selector, **more)
        assert result.lookup_identifier == key
        return result.status, world.lock_of(key)

    _, lock = read(keys[3], is_two_phase=True)
    assert lock is not None
    assert (lock.kind.name, world.state_of(keys[3])) == ("REMOTE_READ", PositionState.LOCKED)
    transaction = world.c.begin("t")
    _, lock = read(keys[2], transaction=transaction)
    assert lock is not None
    assert (lock.kind.name, lock.owner) == ("TX_DEQUEUE", transaction)
    # Both are exclusive: the transaction wins (DM-A15).
    _, both = read(keys[1], transaction=transaction, is_two_phase=True)
    assert both is not None
    assert both.kind.name == "TX_DEQUEUE"
    rows = [row for table, _, row in world.state.rows() if table == Table.OPERATION]
    operations = [decode(TransactionalOperation, row) for row in rows]
    assert [(o.operation_type, o.lookup_identifier, o.dequeue_reason) for o in operations] == [
        (OperationType.DEQUEUE, keys[2], 0x4000),
        (OperationType.DEQUEUE, keys[1], 0x4000),
    ]
    selector = Selector(SelectorKind.EXACT, keys[0])
    number = world.c.number + 1
    world.c.number = number
    run = commands.ReceiveRun("c", *world.opened, number, 1, 0, selector)
    assert effects(world.apply(run)) == [(EffectKind.RECEIVED, world.orders)]
    assert world.state_of(keys[0]) is None


@pytest.mark.spec("DM-3.1.7.1.10-02", "DM-3.1.7.1.11-01", "DM-3.1.7.1.12-01", "DM-3.1.7.1.13-02")
def test_a_handle_whose_queue_is_gone(world: Orders) -> None:
    (key,) = world.fill(1)
    world.c.receive(world.opened, is_two_phase=True)
    world.one(commands.DeleteQueue(request(), world.orders, ()))
    gone = ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert gone == 0xC00E004B
    exact = Selector(SelectorKind.EXACT, key)
    for _ in range(2):
        assert world.c.receive_outcome(world.opened).status == gone
        assert world.c.receive_outcome(world.opened, is_two_phase=True).status == gone
        assert world.c.receive_outcome(world.opened, selector=exact).status == gone
        assert queries.peek(world.machine.view, world.orders, exact) == (gone, None)
        end = commands.ReadEnd(world.c.request(), world.orders, key, True)
        assert world.one(end).status == gone
        world.settle(world.orders)
    assert world.positions(world.orders) == {}


@pytest.mark.spec("DM-3.1.7.1.27-01")
def test_a_send_in_a_transaction_ends_as_the_enqueue_does(world: Orders) -> None:
    full = world.create("full", quota=0, transactional=True)
    transaction = world.c.begin("t")
    outcome = world.c.send("DIRECT=OS:vhost\\full", transaction=transaction)
    assert outcome.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert world.positions(full) == {}
    outcome = world.c.send(ORDERS, transaction=transaction)
    assert outcome.status == 0
    assert list(world.positions(world.orders)) == [outcome.value[1][0][1]]  # type: ignore[index]


@pytest.mark.spec("DM-3.1.7.1.27-01")
def test_a_send_to_one_queue_ends_as_the_enqueue_does(world: Orders) -> None:
    plain = world.create("plain", quota=0)
    full = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert world.c.send("DIRECT=OS:vhost\\plain").status == full
    assert world.positions(plain) == {}
    open_to_all = world.create("other")
    outcome = world.c.send("DIRECT=OS:vhost\\other")
    assert outcome.status == 0
    assert list(world.positions(open_to_all)) == [outcome.value[1][0][1]]  # type: ignore[index]


# Transactions ------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.4.3-01", "DM-3.1.4.5-01", "DM-3.1.4.3-02")
def test_outcomes_of_unknown_transactions(world: Orders) -> None:
    unknown = b"?" * 16
    before = list(world.state.rows())
    sequence_error = ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    stranger = commands.Request("", 1, 0)
    assert world.one(commands.TxPrepare(stranger, unknown)).status == sequence_error
    assert world.one(commands.TxAbort(stranger, unknown)).status == sequence_error
    rows = [row for row in world.state.rows() if row[0] != Table.META]
    assert rows == [row for row in before if row[0] != Table.META]
    # SinglePhase is known from the start (DM-A25), True where a client does not ask for two phases
    # (test_control.test_a_transaction_has_one_phase_if_nothing_is_said); it is never prepared then.
    single, double = world.c.begin("s"), world.c.begin("d", is_single_phase=False)
    assert world.one(commands.TxPrepare(world.c.request(), single)).status == sequence_error
    assert world.c.commit(double) == sequence_error
    assert world.one(commands.TxPrepare(world.c.request(), double)).status == 0
    assert world.c.commit(double) == 0
    assert world.c.commit(single) == 0


@pytest.mark.spec("DM-3.1.4.3-03")
@pytest.mark.parametrize("is_single_phase", [True, False])
def test_the_first_and_the_last_message_of_a_transaction(
    world: Orders, is_single_phase: bool
) -> None:
    other = world.create("other", transactional=True)
    world.fill(1)
    transaction = world.c.begin("t", is_single_phase=is_single_phase)
    world.c.receive(world.opened, transaction=transaction)  # not sent, so not marked
    for name in ("other", "orders", "orders", "other"):
        outcome = world.c.send(f"DIRECT=OS:vhost\\{name}", transaction=transaction)
        assert outcome.status == 0
    ends = PositionFlag.FIRST_IN_TRANSACTION | PositionFlag.LAST_IN_TRANSACTION

    def marks(queue_id: int) -> list[int]:
        return [position.flags & ends for position in world.positions(queue_id).values()]

    assert marks(other) == [0, 0]
    if not is_single_phase:
        assert world.one(commands.TxPrepare(world.c.request(), transaction)).status == 0
        assert marks(other) == [PositionFlag.FIRST_IN_TRANSACTION, PositionFlag.LAST_IN_TRANSACTION]
    assert world.c.commit(transaction) == 0
    assert marks(other) == [PositionFlag.FIRST_IN_TRANSACTION, PositionFlag.LAST_IN_TRANSACTION]
    assert marks(world.orders) == [0, 0]
    alone = world.c.begin("u")
    world.c.send("DIRECT=OS:vhost\\other", transaction=alone)
    assert world.c.commit(alone) == 0
    assert marks(other)[2] == ends
    empty = world.c.begin("v")
    assert world.c.commit(empty) == 0


# In each of their ways ---------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.3.2-01", "DM-3.1.7.3.2-03")
def test_a_seek_goes_on_from_one_priority_to_the_next(world: Orders) -> None:
    world.orders = world.create("plain")
    for number, priority in enumerate((7, 3, 0), start=1):
        world.arrive(packet(number, to="plain", priority=priority))
    first, second, third = world.positions(world.orders)
    assert world.seek(SelectorKind.FIRST) == (0, first)
    assert world.seek(SelectorKind.AFTER, first) == (0, second)
    assert world.seek(SelectorKind.SEEK_NEXT, second) == (0, third)
    opened = world.c.open("DIRECT=OS:vhost\\plain", RECEIVE)
    assert len(world.c.receive(opened, 3, is_two_phase=True)) == 3
    seeks = [
        (SelectorKind.FIRST, 0),
        (SelectorKind.AFTER, first),
        (SelectorKind.SEEK_NEXT, first),
        (SelectorKind.SEEK_PREVIOUS, third),
        (SelectorKind.SEEK_LAST, 0),
    ]
    assert [world.seek(*seek)[1] for seek in seeks] == [None] * 5
    world.allow_peek_when_locked(second)
    assert [world.seek(*seek) for seek in seeks] == [(0, second)] * 5
    assert [world.seek(*seek, is_peek=False)[1] for seek in seeks] == [None] * 5


@pytest.mark.spec("DM-3.1.1.12-03")
@pytest.mark.parametrize("asked_by", ["its sender", "its reader", "nobody"])
def test_a_locked_message_is_seen_if_that_was_asked_for(world: Orders, asked_by: str) -> None:
    sending = world.c.begin("send")
    send = commands.Send.of(
        world.c.request(),
        [(ORDERS, packet(0, sequence=(1, 1, 0)))],
        transaction=sending,
        allow_peek_when_locked=asked_by == "its sender",
    )
    assert world.one(send).status == 0
    assert world.c.commit(sending) == 0
    (key,) = world.positions(world.orders)
    allows = asked_by == "its reader"
    reading = world.c.begin("read")
    world.c.receive(world.opened, transaction=reading, allow_peek_when_locked=allows)
    assert world.state_of(key) is PositionState.LOCKED
    seen = key if asked_by != "nobody" else None
    assert world.seek(SelectorKind.FIRST) == (0, seen)
    assert world.seek(SelectorKind.FIRST, is_peek=False) == (0, None)
    # What its reader asked for ends with its transaction.
    assert world.c.abort(reading) == 0
    world.c.receive(world.opened, is_two_phase=True)
    if asked_by == "its reader":
        assert world.seek(SelectorKind.FIRST) == (0, None)


@pytest.mark.spec("DM-3.1.7.3.3-06")
def test_a_peek_tells_what_was_received_from_what_never_was(world: Orders) -> None:
    key, left = world.fill(2)
    world.c.receive(world.opened)

    def peek(wanted: int) -> tuple[int, object]:
        selector = Selector(SelectorKind.EXACT, wanted)
        return queries.peek(world.machine.view, world.orders, selector)

    assert peek(key) == (0xC00E001D, None)
    assert peek(left + 1000) == (0xC00E0088, None)
    assert peek(left)[0] == 0


@pytest.mark.spec("DM-3.1.7.2.1-01")
@pytest.mark.parametrize("how", ["received", "accepted", "committed", "purged", "expired"])
def test_the_bytes_of_what_left_are_not_counted(world: Orders, how: str) -> None:
    """Those of the whole packet, headers and body."""
    timed: dict[str, Any] = {"sent_time": NOW_S, "time_to_be_received": 60}
    timed = timed if how == "expired" else {}
    raw = packet(1, sequence=(9, 1, 0), body=bytes(321), **timed)
    assert world.arrive(raw) == [0]

    def counted() -> set[int]:
        return {world.stats(world.orders).total_bytes, world.counters().total_bytes}

    assert counted() == {len(raw)}
    if how == "purged":
        world.one(commands.PurgeQueue(request(), world.orders, ()))
        world.settle(world.orders)
    elif how == "expired":
        world.tick(60_000)
    else:
        transaction = world.c.begin("t") if how == "committed" else None
        (taken,) = world.c.receive(
            world.opened, transaction=transaction, is_two_phase=how == "accepted"
        )
        if how == "accepted":
            key = taken.lookup_identifier
            end = commands.ReadEnd(world.c.request(), world.orders, key, True)
            assert world.one(end).status == 0
        elif transaction is not None:
            assert counted() == {len(raw)}
            assert world.c.commit(transaction) == 0
    assert world.positions(world.orders) == {}
    assert counted() == {0}
