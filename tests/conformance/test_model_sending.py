"""Messages of ours on their way out [MS-MQQB 3.1.1.3, 3.1.5.6, 3.1.7.1]."""

from __future__ import annotations

from array import array
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from qm.model import queries
from qm.model.machine import Machine
from qm.model.messages.message import DeliveryGuarantee, Message
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.queries import View
from qm.model.state.ledger import META_COUNTERS
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import OutgoingAdminState
from qm.model.values.records import Transaction, TransactionalOperation, decode, encode
from qm.model.values.results import RequestResult
from qm.model.values.rows import PositionState
from qm.session.outgoing import Numbers, own_packet
from qm.wire.codes import ErrorCode
from qm.wire.limits import TRANSACTION_ID_MAX
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.packets.user_message import parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from tests.unit.model.test_delivery import ELSEWHERE, EPOCH, JOURNALED, TRANSACTIONAL, Sender
from tests.unit.model.world import NOW_S, OWN, World, direct, packet, request
from tests.unit.raft.log.faults import Disk, Loss
from tests.unit.store.test_store import Node, arrivals, place, receive, received, setup_commands

ORDERS = "DIRECT=OS:vhost\\orders"


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


def restart(world: World) -> None:
    """What another replica, or this node after a restart, makes of the rows."""
    world.machine = Machine(world.state)


def ordinals(sender: Sender) -> list[int]:
    positions = sender.positions(sender.queue_id).values()
    return [position.message_ordinal for position in positions]


def numbers(sequence: int, number: int, previous: int) -> Numbers:
    return Numbers(TxSequenceId.from_int(sequence), number, previous)


# MessageIDs --------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.1.3-08", "DM-3.1.1.12-02", "QB-3.1.7.1.1-01")
def test_every_message_gets_the_next_ordinal(sender: Sender) -> None:
    sender.send(2)
    restart(sender)
    sender.send(1)
    assert ordinals(sender) == [1, 2, 3]  # 0 means that there is none yet (QB-A12)
    orders = sender.create("orders")
    sender.c.send(ORDERS)
    (local,) = sender.positions(orders).values()
    assert (local.source_queue_manager, local.message_ordinal) == (OWN, 4)
    raw = sender.bodies[sender.positions(sender.queue_id)[sender.keys()[1]].body_index, 0]
    ready = own_packet(raw, ordinals(sender)[1], NOW_S)
    assert deserialize_message_from_buffer(ready).identifier.uniquifier == 2
    # So do those that the queue manager makes itself, in their packets, too.
    admin, reports = sender.create("admin"), sender.create("reports")
    asking: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
    }
    wanted = sender.record(reports).identifier
    sender.arrive(packet(7, report_to=wanted, **asking), packet(8, **asking))
    made: list[int] = []
    for queue in (admin, reports):
        found = [message.user_header.message_id for message in sender.messages(queue)]
        assert found == [one.message_ordinal for one in sender.positions(queue).values()]
        made += found
    assert sorted(made) == [5, 6, 7]


@pytest.mark.spec("QB-3.1.1.3-08")
def test_order_acks_and_messages_have_no_ordinal_in_common(sender: Sender) -> None:
    sender.send(1)
    reserved = sender.apply(commands.LeaderActivated(2, "n2")).order_ack_ordinals
    sender.send(1)
    first, second = ordinals(sender)
    assert (first + 1, second) == (reserved.start, reserved.stop)
    assert len(reserved) > 0


@pytest.mark.spec("QB-3.1.1.3-09", "DM-3.1.1.12-02")
def test_ordinals_roll_over(sender: Sender) -> None:
    counters = sender.counters()
    counters.message_ordinal = 0xFFFF_FFFE
    sender.state.put(Table.META, META_COUNTERS, encode(counters))
    sender.machine.forget()
    restart(sender)
    sender.send(3)
    assert ordinals(sender) == [0xFFFF_FFFF, 1, 2]


@pytest.mark.spec("MQ-2.2.19.2-07")
def test_a_message_is_sent_when_its_send_is_committed(sender: Sender) -> None:
    sender.now_ms += 9_000
    raw = packet(0, sent_time=12)
    first = sender.c.send("DIRECT=OS:far\\q", raw=raw)
    sender.now_ms += 9_000
    ((queue_id, _),) = first.value[1]  # type: ignore[index]
    (message,) = queries.outgoing_messages(sender.machine.view, queue_id).items
    assert message.sent_time == NOW_S + 9
    ready = own_packet(raw, message.position.message_ordinal, message.sent_time)
    assert parse_user_message(ready, 0, len(ready))[0].user_header.sent_time == NOW_S + 9


@pytest.mark.spec("MQ-2.2.20.5-06", "MQ-2.2.20.5-07", "MQ-2.2.20.5-08")
def test_what_one_transaction_sends_is_marked(sender: Sender) -> None:
    names = ["DIRECT=OS:far\\a", "DIRECT=OS:far\\b", "DIRECT=OS:far\\a"]
    queue_ids = set()
    for name in ("first", "second"):
        transaction = sender.c.begin(name)
        for target in names:
            outcome = sender.c.send(target, transaction=transaction)
            queue_ids |= {outcome.value[1][0][0]}  # type: ignore[index]
        assert sender.c.commit(transaction) == 0
        restart(sender)
    headers: dict[int, tuple[int, bool, bool]] = {}
    for queue_id in queue_ids:
        sender.queue_id = queue_id
        given = {row[0]: row[1:] for row in sender.assign()}
        for one in queries.outgoing_messages(sender.machine.view, queue_id).items:
            position = one.position
            numbers = Numbers(
                TxSequenceId.from_int(given[position.lookup_identifier][0]),
                *given[position.lookup_identifier][1:],
                one.transaction_tag,
                one.is_first,
                one.is_last,
            )
            raw = sender.bodies[position.body_index, position.body_ordinal]
            ready = own_packet(raw, position.message_ordinal, one.sent_time, numbers)
            header = parse_user_message(ready, 0, len(ready))[0].transaction
            assert header is not None
            headers[position.message_ordinal] = (
                header.transaction_id,
                header.is_first,
                header.is_last,
            )
    assert [headers[ordinal] for ordinal in sorted(headers)] == [
        (tag, place == 0, place == 2) for tag in (1, 2) for place in range(3)
    ]


@pytest.mark.spec("MQ-2.2.20.5-08")
def test_a_transaction_tag_is_free_again_when_all_of_it_has_left(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL)
    counters = sender.counters()
    counters.transaction_tag = TRANSACTION_ID_MAX
    sender.state.put(Table.META, META_COUNTERS, encode(counters))
    sender.machine.forget()
    sender.order_ack(sender.assign()[0][1], 1)
    sender.session_ack(*sender.keys()[:1])
    sender.send(2, **TRANSACTIONAL)
    messages = queries.outgoing_messages(sender.machine.view, sender.queue_id).items
    assert [one.transaction_tag for one in messages] == [2, 1, 3], "2 was still to be sent"


# Sequences ---------------------------------------------------------------------------------


@pytest.mark.spec(
    "QB-3.1.1.3.1-04", "QB-3.1.1.3.1-05", "QB-3.1.1.3.1.2-02", "QB-3.1.7.1.3-01", "MQ-2.2.20.5-12"
)
def test_numbers_are_committed_before_anything_leaves(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL)
    first, second = sender.keys()
    sequence = EPOCH | 1
    given = [(first, sequence, 1, 0), (second, sequence, 2, 1)]
    assert sender.assign() == given
    restart(sender)
    assert sender.assign() == given
    sender.send(1, **TRANSACTIONAL)
    assert sender.assign()[2][1:] == (sequence, 3, 2)
    position = sender.positions(sender.queue_id)[second]
    raw = sender.bodies[position.body_index, position.body_ordinal]
    message = deserialize_message_from_buffer(
        own_packet(raw, position.message_ordinal, NOW_S, numbers(*given[1][1:]))
    )
    identifier = message.transactional_message_sequence_identifier
    assert identifier is not None
    assert identifier.to_int() == sequence
    assert message.transaction_sequence_number == 2
    assert message.transaction_previous_sequence_number == 1
    # Another destination has a sequence of its own, and its identifier is greater.
    far, mine = sender.queue_id, sender.c
    transaction = mine.begin("other")
    outcome = mine.send("DIRECT=OS:other\\q", transaction=transaction)
    ((sender.queue_id, _),) = outcome.value[1]  # type: ignore[index]
    mine.commit(transaction)
    assert [row[1:] for row in sender.assign()] == [(EPOCH | 2, 1, 0)]
    assert far != sender.queue_id


@pytest.mark.spec("QB-3.1.1.5-03", "QB-3.1.5.6-07", "QB-3.1.1.3.1-04", "MQ-2.2.18.1.2-01")
def test_a_sequence_ends_when_all_of_it_is_acknowledged(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL)
    sender.assign()
    keys = sender.keys()
    sender.session_ack(*keys)
    sender.order_ack(EPOCH | 1, 1)
    sender.send(1, **TRANSACTIONAL)
    assert sender.assign()[-1][1:] == (EPOCH | 1, 3, 2)  # one is still unacknowledged
    sender.session_ack(*sender.keys())
    sender.order_ack(EPOCH | 1, 3)
    assert sender.keys() == []
    restart(sender)
    sender.send(2, **TRANSACTIONAL)
    assert [row[1:] for row in sender.assign()] == [(EPOCH | 2, 1, 0), (EPOCH | 2, 2, 1)]
    sender.order_ack(EPOCH | 1, 2)
    sender.session_ack(*sender.keys())
    assert len(sender.keys()) == 2  # the old identifier acknowledges nothing


@pytest.mark.spec("QB-3.1.1.3.1-12", "QB-3.1.1.3.1-13", "QB-1.3.2.1.2-01")
def test_tables_survive_in_their_order(sender: Sender) -> None:
    for fields in ({"is_recoverable": True}, TRANSACTIONAL, {"is_recoverable": True}):
        sender.send(1, **fields)
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    assert sender.assign()
    sender.session_ack(sender.keys()[-1])
    sender.order_ack(EPOCH | 1, 2)
    before = sender.positions(sender.queue_id)
    restart(sender)
    assert sender.positions(sender.queue_id) == before
    by_kind = {flag & 2: [] for flag in (0, 2)}  # type: dict[int, list[int]]
    for position in before.values():
        by_kind[position.flags & 2].append(position.message_ordinal)
    assert by_kind == {0: [1, 3], 2: [2, 4]}
    ordinal = by_kind[2][-1]
    assert (
        sender.one(
            commands.FinalAcked(array("Q", [ordinal]), array("Q", [MessageClass.ACK_RECEIVE]))
        ).status
        == 0
    )
    assert sender.ordinals("system_journal_queue") == [ordinal]


@pytest.mark.spec("QB-3.1.5.7-01")
@pytest.mark.parametrize("is_early", [True, False])
def test_a_final_ack_names_its_message(sender: Sender, is_early: bool) -> None:
    sender.send(2, **TRANSACTIONAL, **JOURNALED)
    assigned = sender.assign()
    first, second = ordinals(sender)
    if not is_early:
        sender.session_ack(*sender.keys())
        sender.order_ack(assigned[1][1], 2)
    sender.one(commands.FinalAcked(array("Q", [second]), array("Q", [MessageClass.ACK_RECEIVE])))
    assert ordinals(sender) == [first]
    sender.one(commands.FinalAcked(array("Q", [77]), array("Q", [MessageClass.ACK_RECEIVE])))
    assert ordinals(sender) == [first]


@pytest.mark.spec("QB-1.3.3-01")
def test_a_transactional_message_leaves_after_its_commit_only(sender: Sender) -> None:
    transaction = sender.c.begin("t")
    outcome = sender.c.send(ELSEWHERE, transaction=transaction)
    assert outcome.status == 0
    ((sender.queue_id, key),) = outcome.value[1]  # type: ignore[index]
    assert sender.assign() == []
    commit = commands.TxCommit(sender.c.request(), transaction)
    assert sender.apply(commit).outgoing_queue_ids == {sender.queue_id}
    assert [row[0] for row in sender.assign()] == [key]
    aborted = sender.c.begin("u")
    sender.c.send(ELSEWHERE, transaction=aborted)
    sender.c.abort(aborted)
    assert sender.keys() == [key]


# Outgoing queues ---------------------------------------------------------------------------


@pytest.mark.spec("MQ-2.2.18.1.2-01")
def test_identifiers_of_sequences_rise_beyond_the_last_ordinal(sender: Sender) -> None:
    counters = sender.counters()
    counters.tx_ordinal = 0xFFFF_FFFE
    sender.state.put(Table.META, META_COUNTERS, encode(counters))
    sender.machine.forget()
    restart(sender)
    for identifier in (7 << 32 | 0xFFFF_FFFF, 8 << 32, 8 << 32 | 1):
        sender.send(1, **TRANSACTIONAL)
        assert [row[1:] for row in sender.assign()] == [(identifier, 1, 0)]
        sender.session_ack(*sender.keys())
        sender.order_ack(identifier, 1)
        assert sender.keys() == []


@pytest.mark.spec("DM-3.1.4.15-01")
def test_resuming_a_queue(sender: Sender) -> None:
    sender.send(1)

    def change(state: OutgoingAdminState) -> set[int]:
        command = commands.SetOutgoingAdminState(request(), sender.queue_id, state, ())
        applied = sender.apply(command)
        assert applied.outcomes[0].status == 0
        return applied.outgoing_queue_ids

    change(OutgoingAdminState.ON_HOLD)
    assert change(OutgoingAdminState.NORMAL) == {sender.queue_id}
    assert sender.record(sender.queue_id).admin_state is OutgoingAdminState.NORMAL
    orders = sender.create("orders")
    local = commands.SetOutgoingAdminState(request(), orders, OutgoingAdminState.NORMAL, ())
    assert sender.one(local).status != 0


@pytest.mark.spec("DM-3.1.7.1.5-16", "DM-3.1.1.3-04", "DM-3.1.3-18", "DM-3.1.3-19")
def test_a_hardened_queue_manager_locks_its_outgoing_queues(sender: Sender) -> None:
    """None of them speaks HTTP, so all are locked, those that exist and those to come."""
    sender.send(1)
    old = sender.queue_id
    pause = commands.SetOutgoingAdminState(request(), old, OutgoingAdminState.ON_HOLD, ())
    assert sender.one(pause).status == 0

    def harden(is_hardened: bool) -> None:
        changes = {"hardened_security": encode_attribute(is_hardened)}
        applied = sender.apply(commands.SetQueueManager(request(), changes, ()))
        assert applied.is_manager_changed
        restart(sender)

    def state(queue_id: int) -> OutgoingAdminState:
        found = queries.outgoing_queue(sender.machine.view, queue_id)
        assert found is not None
        return found.admin_state

    harden(True)
    ((new, _),) = sender.c.send("DIRECT=OS:other\\q").value[1]  # type: ignore[index]
    assert [state(old), state(new)] == [OutgoingAdminState.LOCKED] * 2
    refused = sender.one(pause).status
    assert refused == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
    harden(False)
    assert [state(old), state(new)] == [OutgoingAdminState.ON_HOLD, OutgoingAdminState.NORMAL]


# Persistence -------------------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.1.12-12", "DM-3.1.1.12-13", "DM-3.1.1.12-51", "QB-1.3.2.1.2-01", "DM-3.1.1.12-22"
)
@pytest.mark.parametrize("end", ["closed", "killed", "power cut"])
def test_messages_after_a_restart_of_the_node(tmp_path: Path, end: str) -> None:
    disk = Disk()
    node = Node(tmp_path / "node", directory=disk.root if end == "power cut" else None)
    node.put(setup_commands())
    properties: dict[str, Any] = {
        "label": "l",
        "extension_data": b"x",
        "application_tag": 7,
        "body_type": 8,
    }
    packets = [
        packet(1, is_recoverable=True, body=b"one", properties=properties),
        packet(2, body=b"two", properties=properties),
    ]
    assert Message().delivery_guarantee is DeliveryGuarantee.EXPRESS
    node.put([arrivals(*packets)])
    if end == "killed":  # what is on the disk at that moment, of a node that finishes nothing
        copytree(tmp_path / "node", tmp_path / "killed")
        node.close()
        node = Node(tmp_path / "killed")
    elif end == "power cut":  # of the log, what the disk had confirmed; no state
        left = disk.after_crash(Loss.NOTHING_SURVIVES, Random(0))
        node.close()
        node = Node(tmp_path / "cut", directory=left.root)
    else:
        node = node.reopen()
    results = received(node.put([receive(2, 2)])[0])
    assert [result.message_ordinal for result in results] == [1, 2]
    for result, raw in zip(results, packets, strict=True):
        found = node.store.bodies.read(place(result))
        assert deserialize_message_from_buffer(found) == deserialize_message_from_buffer(raw)
    node.close()


@pytest.mark.spec("DM-3.1.1.1-25", "DM-3.1.1.13-01", "DM-3.1.1.13-02", "DM-3.1.7.1.8-01")
def test_transactions_and_their_operations_are_rows(sender: Sender) -> None:
    sender.create("orders", transactional=True)
    target_name = "DIRECT=OS:vhost\\orders;later"
    sender.arrive(*(packet(n, sequence=(9, n, n - 1)) for n in (1, 2)))
    opened = sender.c.open(ORDERS, 0)
    _, subqueue = sender.c.open(target_name, 3)
    transaction = sender.c.begin("t")
    sender.c.send(ELSEWHERE, transaction=transaction)
    (read,) = sender.c.receive(opened, transaction=transaction)
    key = next(k for k in sender.positions(opened[1]) if k != read.lookup_identifier)
    move = commands.Move(sender.c.request(), opened[1], key, subqueue, (), transaction)
    assert sender.one(move).status == 0
    rows = [row for table, _, row in sender.state.rows() if table == Table.OPERATION]
    operations = [decode(TransactionalOperation, row) for row in rows]
    assert [operation.operation_type.name for operation in operations] == [
        "ENQUEUE",
        "DEQUEUE",
        "MOVE",
    ]
    assert operations[1].lookup_identifier == read.lookup_identifier
    assert operations[1].dequeue_reason == MessageClass.ACK_RECEIVE
    assert (operations[2].lookup_identifier, operations[2].target_queue) == (key, subqueue)
    found = sender.state.get(Table.TRANSACTION, b"\0" + transaction)
    assert found is not None
    assert decode(Transaction, found).operation_count == 3
    other = sender.c.begin("other", is_single_phase=False)
    restart(sender)
    ready = sender.c.begin("ready", is_single_phase=False)
    assert sender.one(commands.TxPrepare(sender.c.request(), ready)).status == 0
    restart(sender)
    listed = queries.list_transactions(sender.machine.view).items
    assert {one.identifier: one.state.name for one in listed} == {
        transaction: "ACTIVE",
        other: "ACTIVE",
        ready: "PREPARED",
    }
    assert sender.c.commit(transaction) == 0
    assert sender.positions(opened[1]) == {}
    assert list(sender.positions(subqueue)) == [key]
    # A message that takes the place of another is received and sent.
    sender.arrive(packet(3, sequence=(9, 3, 2)))
    (left,) = sender.positions(opened[1])
    replacing = sender.c.begin("replacing")
    assert sender.c.send(ORDERS, transaction=replacing, replaced=(opened[0], left)).status == 0
    rows = [row for table, _, row in sender.state.rows() if table == Table.OPERATION]
    operations = [decode(TransactionalOperation, row) for row in rows]
    (sent,) = sender.positions(opened[1]).keys() - {left}
    assert {(one.operation_type.name, one.lookup_identifier) for one in operations} == {
        ("DEQUEUE", left),
        ("ENQUEUE", sent),
    }
    assert {one.queue_id for one in operations} == {opened[1]}
    assert sender.c.commit(replacing) == 0
    assert list(sender.positions(opened[1])) == [sent]


@pytest.mark.spec("DM-3.1.1.11-04")
@pytest.mark.parametrize("is_compacted", [False, True])
def test_positions_after_a_restart_of_the_node(tmp_path: Path, is_compacted: bool) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    node.put([arrivals(packet(1, is_recoverable=True), packet(2, is_recoverable=True))])
    (lent,) = received(node.put([commands.ReceiveRun("c", 1, 6, 2, 1, 0, is_two_phase=True)])[0])

    def positions() -> list[queries.PositionInfo]:
        return queries.browse(View.of(node.store.state), 6).items

    before = positions()
    assert [one.state for one in before] == [PositionState.LOCKED, PositionState.AVAILABLE]
    if is_compacted:
        node.compact()
    node = node.reopen()
    after = positions()
    assert [(one.lookup_identifier, one.state) for one in after] == [
        (one.lookup_identifier, one.state) for one in before
    ]
    assert after[0].lock_owner == b"c"
    # MessageReference: each leads to its message.
    raw = [node.store.bodies.read(place(result)) for result in (lent, *_taken(node))]
    assert raw == [packet(1, is_recoverable=True), packet(2, is_recoverable=True)]
    node.close()


def _taken(node: Node) -> list[RequestResult]:
    """What the client receives next."""
    return received(node.put([receive(3, 1)])[0])
