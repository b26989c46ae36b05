"""What the state says: every query, by the machine's view and by one of the bare state."""

from array import array
from collections.abc import Callable

import pytest

from qm.model import queries
from qm.model.management.directory import Filter, Operator
from qm.model.queries import View
from qm.model.queries import view as view_module
from qm.model.state.ledger import LEVELS
from qm.model.values import commands
from qm.model.values.commands import Selector, SelectorKind, TransferVerdict
from qm.model.values.elements import (
    DirectoryObjectType,
    LockKind,
    OutboxKind,
    OutgoingAdminState,
    QueueAccessType,
    QueueKind,
    TransactionState,
)
from qm.model.values.rows import PositionState
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass
from tests.unit.model.world import NOW_MS, NOW_S, OWN, PEER, ClientInWorld, World, packet, request

RECEIVE, PEEK = QueueAccessType.RECEIVE_ACCESS, QueueAccessType.PEEK_ACCESS
ORDERS = "DIRECT=OS:vhost\\orders"
AWAY = "DIRECT=OS:elsewhere\\PRIVATE$\\in"
Looker = Callable[[World], View]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=["machine", "bare state"])
def look(request: pytest.FixtureRequest) -> Looker:
    """Return how a test gets its view, a new one after each entry."""
    if request.param == "machine":
        return lambda world: world.machine.view
    return lambda world: View.of(world.state)


def keys(page: "queries.Page[queries.PositionInfo, int]") -> list[int]:
    return [one.lookup_identifier for one in page.items]


# Queues --------------------------------------------------------------------------------------


def test_queues_are_listed_in_pages(world: World, look: Looker) -> None:
    names = [f"queue{number}" for number in range(5)]
    for name in names:
        world.create(name, label=name.upper())
    world.arrive(packet(1, to="queue3", body=b"x" * 100))
    found, after = [], 0
    while True:
        page = queries.list_queues(
            look(world), after=after, limit=2, kinds=(QueueKind.APPLICATION,)
        )
        assert len(page.items) <= 2
        found += page.items
        if page.next is None:
            break
        after = page.next
    assert [one.label for one in found] == [name.upper() for name in names]
    assert [one.message_count for one in found] == [0, 0, 0, 1, 0]
    assert found[3].total_bytes > 100
    everything = queries.list_queues(look(world))
    assert {one.kind for one in everything.items} >= {QueueKind.JOURNAL, QueueKind.DEADLETTER}
    assert queries.list_queues(look(world), after=1 << 40).items == []


@pytest.mark.parametrize(
    ("name", "leads_to"),
    [
        (ORDERS, "orders"),
        (".\\orders", "orders"),
        ("vhost\\private$\\secret", "private$\\secret"),
        ("PUBLIC=" + "6F726465-7273-0000-0000-000000000000", None),
    ],
)
def test_names_lead_to_queues(world: World, look: Looker, name: str, leads_to: str | None) -> None:
    made = {one: world.create(one) for one in ("orders", "private$\\secret")}
    found = queries.find_queue(look(world), name)
    if leads_to is not None:
        assert found == queries.QueueLookup(0, made[leads_to])
    else:
        assert found.is_elsewhere


def test_names_that_lead_nowhere_or_elsewhere(world: World, look: Looker) -> None:
    view = look(world)
    missing = ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert queries.find_queue(view, "vhost\\none").status == missing
    assert queries.find_queue(view, "no name").status == ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert queries.find_queue(view, "other\\queue") == queries.QueueLookup(0, is_elsewhere=True)
    unknown = queries.find_by_format_name(view, AWAY)
    assert unknown == queries.QueueLookup(0, 0, is_elsewhere=True)
    _, made = world.client().open(AWAY, QueueAccessType.SEND_ACCESS)
    found = queries.find_by_format_name(look(world), AWAY)
    assert (found.queue_id, found.is_elsewhere) == (made, True)
    queue = look(world).queue(made)
    assert queue is not None
    assert queue.record.modify_time == queue.record.create_time == world.now_ms // 1000


def test_every_queue_has_the_name_that_finds_it(world: World, look: Looker) -> None:
    world.create("orders")
    world.create("private$\\secret")
    client = world.client()
    _, subqueue = client.open(f"{ORDERS};later", QueueAccessType.MOVE_ACCESS)
    _, outgoing = client.open(AWAY, QueueAccessType.SEND_ACCESS)
    view = look(world)
    hidden = (QueueKind.ORDER, QueueKind.NOTIFICATION)
    for one in queries.list_queues(view).items:
        properties = queries.queue_properties(view, one.queue_id)
        assert properties is not None
        found = queries.find_by_format_name(view, properties.format_name)
        assert found.queue_id == one.queue_id or one.kind in hidden, properties.format_name
        assert properties.attributes.pathname == one.pathname
        assert properties.is_active == (one.queue_id in {subqueue, outgoing})
    (orders,) = (one for one in queries.list_queues(view).items if one.pathname == "vhost\\orders")
    properties = queries.queue_properties(view, orders.queue_id)
    assert properties is not None
    assert properties.subqueues == (subqueue,)
    assert queries.queue_properties(view, 999) is None
    assert queries.queue_properties(view, -1) is None


def test_statistics(world: World, look: Looker) -> None:
    orders = world.create("orders", quota=64)
    world.arrive(packet(1, priority=1), packet(2, priority=6), packet(3, priority=6))
    world.now_ms += 7_000
    world.arrive(packet(4, priority=7))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    client.receive(opened, is_two_phase=True)
    found = queries.queue_statistics(look(world), orders)
    assert found is not None
    assert (found.message_count, found.locked_count, found.hidden_count) == (4, 1, 0)
    assert found.count_by_priority == (0, 1, 0, 0, 0, 0, 2, 1)
    assert found.oldest_arrival_time == NOW_S
    assert (found.arrival_count, found.removal_count) == (4, 0)
    assert found.quota_bytes == 64 * 1024
    assert found.total_bytes == found.quota_used_bytes > 0
    world.one(commands.PurgeQueue(request(), orders, ()))
    purged = queries.queue_statistics(look(world), orders)
    assert purged is not None
    assert (purged.message_count, purged.hidden_count) == (1, 3)
    assert purged.oldest_arrival_time is None
    assert queries.purging_queue_ids(look(world), 9) == [orders]
    assert queries.queue_statistics(look(world), 999) is None


# Messages ------------------------------------------------------------------------------------


def test_browsing_pages_forward_and_backward(world: World, look: Looker) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(number, priority=number % 3) for number in range(1, 8)))
    view = look(world)
    everything = keys(queries.browse(view, orders))
    assert [7 - (key >> 56) for key in everything] == [2, 2, 1, 1, 1, 0, 0]
    pages, after = [], None
    while True:
        page = queries.browse(view, orders, after=after, limit=3)
        pages.append(keys(page))
        if page.next is None:
            break
        after = page.next
    assert pages == [everything[:3], everything[3:6], everything[6:]]
    assert keys(queries.browse(view, orders, is_backward=True, limit=2)) == everything[:-3:-1]
    backward = queries.browse(view, orders, after=everything[3], is_backward=True)
    assert keys(backward) == everything[2::-1]
    assert keys(queries.browse(view, orders, after=everything[3] + 1)) == everything[4:]
    assert queries.browse(view, 999).items == []
    assert queries.last_key(view, orders) == everything[-1]
    assert queries.last_key(view, world.manager_queue("order_queue")) == -1


def test_browsing_shows_locks_and_what_a_purge_hid(world: World, look: Looker) -> None:
    orders = world.create("orders")
    world.arrive(packet(1), packet(2), packet(3, time_to_be_received=60))
    client = world.client()
    client.receive(client.open(ORDERS, RECEIVE), is_two_phase=True)
    first, second, third = queries.browse(look(world), orders).items
    assert (first.state, first.lock_kind) == (PositionState.LOCKED, LockKind.REMOTE_READ)
    assert first.lock_owner == b"c"
    assert (second.state, second.lock_kind, second.lock_owner) == (0, None, b"")
    assert (second.source_queue_manager, second.message_ordinal) == (PEER, 2)
    assert third.deadline_ms == NOW_MS + 60_000
    world.one(commands.PurgeQueue(request(), orders, ()))
    (pending,) = queries.browse(look(world), orders).items
    assert (pending.lookup_identifier, pending.state) == (
        first.lookup_identifier,
        PositionState.PURGE_PENDING,
    )
    seen = queries.browse(look(world), orders, with_hidden=True).items
    assert [one.is_hidden for one in seen] == [False, True, True]
    assert queries.position(look(world), orders, second.lookup_identifier) == seen[1]
    assert queries.position(look(world), orders, 1 << 70) is None


def test_peeks_take_nothing(world: World, look: Looker) -> None:
    orders = world.create("orders")
    assert queries.peek(look(world), orders, Selector()) == (0, None)
    world.arrive(packet(1), packet(2))
    first, second = keys(queries.browse(look(world), orders))
    for kind, start, expected in (
        (SelectorKind.FIRST, 0, first),
        (SelectorKind.AFTER, first, second),
        (SelectorKind.EXACT, second, second),
        (SelectorKind.SEEK_PREVIOUS, second, first),
        (SelectorKind.SEEK_LAST, 0, second),
    ):
        status, found = queries.peek(look(world), orders, Selector(kind, start))
        assert status == 0
        assert found is not None
        assert found.lookup_identifier == expected
    status, _ = queries.peek(look(world), orders, Selector(SelectorKind.SEEK_NEXT, second))
    assert status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    status, _ = queries.peek(look(world), orders, Selector(SelectorKind.EXACT, 1 << 70))
    assert status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert queries.peek(look(world), 999, Selector())[0] == ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE
    statistics = queries.queue_statistics(look(world), orders)
    assert statistics is not None
    assert statistics.message_count == 2


def test_dead_letters_are_counted_by_reason(world: World, look: Looker) -> None:
    world.create("orders", quota=0)
    world.create("later")
    world.arrive(packet(1, has_negative_journaling=True))
    for number in (2, 3):
        world.arrive(
            packet(number, to="later", has_negative_journaling=True, time_to_be_received=1)
        )
    world.tick(60_000)
    dead = world.manager_queue("system_deadletter_queue")
    counts = queries.count_classes(look(world), dead)
    assert counts.next is None
    assert counts.counts == {
        MessageClass.NACK_Q_EXCEED_QUOTA: 1,
        MessageClass.NACK_RECEIVE_TIMEOUT: 2,
    }
    last = queries.last_key(look(world), dead)
    assert queries.count_classes(look(world), dead, after=last).counts == {}


# Outgoing ------------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.6-08", "MQ-2.2.5-01", "MQ-2.2.5.1-02")
def test_outgoing_queues_and_their_sequences(
    world: World, look: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client()
    for number in range(4):
        transaction = client.begin(f"t{number}")
        raw = packet(0, sequence=(1, 1, 0), final_ack=number == 0)
        assert client.send(AWAY, raw=raw, transaction=transaction).status == 0
        client.commit(transaction)
    assert client.send("DIRECT=OS:third\\in").status == 0
    first, third = queries.list_outgoing_queues(look(world)).items
    assert (first.destination_format_name, first.message_count) == (AWAY, 4)
    assert (first.eod_next_seq, first.eod_first_non_ack) == (None, None)
    assert first.admin_state is OutgoingAdminState.NORMAL
    assert third.message_count == 1
    unsent = queries.outgoing_messages(look(world), first.queue_id).items
    assert [(one.is_first, one.is_last, one.sent_time) for one in unsent] == [
        (True, True, NOW_S)
    ] * 4
    assert [one.place for one in unsent] == [None] * 4
    in_order = [one.position.lookup_identifier for one in unsent]
    queue_id = first.queue_id
    world.one(commands.AssignTransfer(queue_id, array("Q", in_order)))
    numbered = [one.place for one in queries.outgoing_messages(look(world), queue_id).items]
    assert [place and place.sequence_number for place in numbered] == [1, 2, 3, 4]
    sequence = numbered[0].sequence_identifier if numbered[0] else 0
    world.one(commands.TransferAcked(queue_id, array("Q", in_order[:2])))
    world.one(commands.OrderAcked(array("Q", [sequence]), array("Q", [2])))
    monkeypatch.setattr("qm.model.queries.outgoing.SCANNED_ROWS_MAX", 1)
    assert queries.count_numbered(look(world)) == 3, "one has left, whichever page it was on"
    info = queries.outgoing_queue(look(world), queue_id)
    assert info is not None
    assert info.eod_last_ack == queries.SequencePlace(sequence, 2, 1)
    assert info.eod_first_non_ack == queries.SequencePlace(sequence, 3, 2)
    assert info.eod_last_non_ack == queries.SequencePlace(sequence, 4, 3)
    assert info.eod_next_seq == queries.SequencePlace(sequence, 5, 4)
    assert (info.eod_no_ack_count, info.eod_no_read_count) == (2, 1)
    left = queries.outgoing_messages(look(world), queue_id).items
    assert [one.position.lookup_identifier for one in left] == in_order[2:]
    assert queries.outgoing_queue(look(world), 1) is None


@pytest.mark.spec("MQ-2.2.5-01", "MQ-2.2.5.1-02")
def test_each_destination_has_a_stream_of_its_own(world: World, look: Looker) -> None:
    client = world.client()
    names = [rf"DIRECT=OS:{host}\in" for host in ("first", "second")]
    for number, name in enumerate([names[0]] * 3 + [names[1]] * 2):
        transaction = client.begin(f"t{number}")
        raw = packet(0, sequence=(1, 1, 0))
        assert client.send(name, raw=raw, transaction=transaction).status == 0
        client.commit(transaction)
    queue_ids = [one.queue_id for one in queries.list_outgoing_queues(look(world)).items]
    identifiers = []
    for queue_id in queue_ids:
        waiting = queries.outgoing_messages(look(world), queue_id).items
        in_order = array("Q", [one.position.lookup_identifier for one in waiting])
        world.one(commands.AssignTransfer(queue_id, in_order))
        places = [one.place for one in queries.outgoing_messages(look(world), queue_id).items]
        assert places[0] is not None
        identifiers.append(places[0].sequence_identifier)
        assert places == [
            queries.SequencePlace(identifiers[-1], number, number - 1)
            for number in range(1, len(waiting) + 1)
        ]
    assert len({*identifiers, 0}) == 3
    world.one(commands.TransferAcked(queue_ids[0], array("Q", [])))
    world.one(commands.OrderAcked(array("Q", identifiers[:1]), array("Q", [2])))
    for queue_id, identifier, acked, last in zip(
        queue_ids, identifiers, (2, 0), (3, 2), strict=True
    ):
        info = queries.outgoing_queue(look(world), queue_id)
        assert info is not None
        told = (info.eod_last_ack, info.eod_first_non_ack, info.eod_last_non_ack, info.eod_next_seq)
        assert told == tuple(
            queries.SequencePlace(identifier, number, number - 1) if number else None
            for number in (acked, acked + 1, last, last + 1)
        )


# Transactions, clients, the rest -------------------------------------------------------------


def test_transactions_in_doubt(world: World, look: Looker) -> None:
    world.create("exact", transactional=True)
    client = world.client()
    decided, doubtful = client.begin("a"), client.begin("b", is_single_phase=False)
    client.send("DIRECT=OS:vhost\\exact", transaction=doubtful)
    client.abort(decided)
    world.one(commands.TxPrepare(client.request(), doubtful))
    in_doubt = queries.list_transactions(look(world), states=(TransactionState.PREPARED,))
    assert [one.identifier for one in in_doubt.items] == [doubtful]
    assert in_doubt.items[0].operation_count == 1
    (operation,) = queries.transaction_operations(look(world), doubtful).items
    assert operation.number == 0
    first = queries.list_transactions(look(world), limit=1)
    assert [one.identifier for one in first.items] == [decided]
    assert first.next is not None
    rest = queries.list_transactions(look(world), after=first.next)
    assert ([one.identifier for one in rest.items], rest.next) == ([doubtful], None)
    known = queries.get_transaction(look(world), decided)
    assert known is not None
    assert (known.state, known.owner) == (TransactionState.ABORTED, "c")
    assert queries.get_transaction(look(world), b"unknown") is None
    assert queries.transaction_operations(look(world), b"unknown").items == []
    several = client.begin("c")
    for _ in range(3):
        client.send("DIRECT=OS:vhost\\exact", transaction=several)
    page = queries.transaction_operations(look(world), several, limit=2)
    assert ([one.number for one in page.items], page.next) == ([0, 1], 1)
    page = queries.transaction_operations(look(world), several, after=1, limit=2)
    assert ([one.number for one in page.items], page.next) == ([2], None)
    client.abort(several)
    assert queries.transaction_operations(look(world), several).items == []


def test_clients_and_what_they_opened(world: World, look: Looker) -> None:
    orders = world.create("orders")
    clients = [world.client(name) for name in ("a", "b", "b2")]
    handles = [one.open(ORDERS, PEEK)[0] for one in clients]
    first = queries.list_clients(look(world), limit=2)
    assert [one.client_id for one in first.items] == ["a", "b"]
    assert first.next == "b"
    (last,) = queries.list_clients(look(world), after="b").items
    assert (last.client_id, last.is_open, last.unconfirmed_count) == ("b2", True, 1)
    assert queries.get_client(look(world), "b2") == last
    assert queries.get_client(look(world), "nobody") is None
    opens = queries.list_opens(look(world), queue_id=orders)
    assert [one.handle for one in opens.items] == handles
    (mine,) = queries.list_opens(look(world), client_id="b").items
    assert (mine.handle, mine.access, mine.format_name) == (handles[1], PEEK, ORDERS)
    assert queries.list_opens(look(world), limit=1).next == handles[0]


def test_what_is_due_and_what_is_owed(world: World, look: Looker) -> None:
    assert not queries.is_due(look(world), 0, NOW_MS + 60_000)
    assert queries.purging_queue_ids(look(world), 9) == []
    world.create("exact", transactional=True)
    world.arrive(
        packet(1, to="exact", sequence=(1 << 32, 1, 0), final_ack=True, time_to_be_received=5)
    )
    due = NOW_MS + 5_000
    assert queries.is_due(look(world), 0, due)
    assert queries.is_due(look(world), due, due)
    assert not queries.is_due(look(world), 0, due - 1)
    assert not queries.is_due(look(world), due + 1, due + 1_000)
    world.tick(6_000)
    (owed,) = queries.list_outbox(look(world)).items
    assert (owed.kind, owed.queue_manager) == (OutboxKind.FINAL_ACK, PEER)
    assert queries.list_outbox(look(world), after=owed.outbox_id).items == []


def test_the_queue_manager(world: World, look: Looker) -> None:
    found = queries.queue_manager(look(world))
    assert found is not None
    assert (found.attributes.identifier, found.counters.clock_ms) == (OWN, NOW_MS)
    found.attributes.computer_name = "changed"
    again = queries.queue_manager(look(world))
    assert again is not None
    assert again.attributes.computer_name == "vhost", "an answer shares nothing with the machine"


def test_the_directory(world: World, look: Looker) -> None:
    for name in ("c", "a", "b"):
        world.create(name, label=f"label {name}")
    world.create("private$\\d")
    queue = DirectoryObjectType.QUEUE
    page = queries.read_directory(look(world), queue, attributes=["label"], limit=2)
    assert [one.attributes for one in page.items] == [{"label": "label c"}, {"label": "label a"}]
    assert page.next is not None
    rest = queries.read_directory(look(world), queue, after=page.next)
    assert [one.attributes["label"] for one in rest.items] == ["label b"]
    assert rest.next is None
    none = queries.read_directory(look(world), queue, [Filter("label", Operator.EQUALS, "x")])
    assert none == queries.Page([], None)
    (manager,) = queries.read_directory(look(world), DirectoryObjectType.QUEUE_MANAGER).items
    assert manager.identifier == OWN


def test_a_page_looks_at_a_bounded_number_of_rows(
    world: World, look: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a filter leaves out counts: the page is short, and says where to go on."""
    monkeypatch.setattr(view_module, "SCANNED_ROWS_MAX", 10)
    monkeypatch.setattr(view_module, "_CHUNK_ROWS_MIN", 4)
    names = [f"queue{number}" for number in range(12)]
    for name in names:
        world.create(name)
    found: list[str] = []
    after, pages = 0, 0
    while True:
        page = queries.list_queues(look(world), after=after, kinds=(QueueKind.APPLICATION,))
        found += [one.pathname for one in page.items]
        pages += 1
        if page.next is None:
            break
        after = page.next
    assert found == [f"vhost\\{name}" for name in names]
    assert pages == 3
    orders = world.create("orders")
    world.arrive(*(packet(number) for number in range(1, 24)))
    for is_backward in (False, True):
        seen: list[int] = []
        last: int | None = None
        while True:
            some = queries.browse(look(world), orders, after=last, limit=7, is_backward=is_backward)
            seen += keys(some)
            last = some.next
            if last is None:
                break
        assert seen == sorted(world.positions(orders), reverse=is_backward)


@pytest.mark.parametrize("number", [-(10**30), -1, 0, 1 << 32, (1 << 64) - 1, 10**30])
def test_numbers_that_nothing_has(world: World, look: Looker, number: int) -> None:
    """Callers may ask anything."""
    view = look(world)
    transaction = world.client().begin("t")
    for ask in (queries.queue_statistics, queries.queue_properties, queries.outgoing_queue):
        assert ask(view, number) is None
    assert queries.last_key(view, number) == -1
    assert queries.position(view, number, number) is None
    assert queries.peek(view, number, Selector(SelectorKind.EXACT, number))[1] is None
    for page in (
        queries.browse(view, number, after=number, limit=number),
        queries.outgoing_messages(view, number, after=number, limit=number),
        queries.transaction_operations(view, transaction, after=number, limit=number),
        queries.list_opens(view, after=number, limit=number, queue_id=number),
        queries.list_outbox(view, after=number, limit=number),
        queries.list_incoming_sequences(view, after=number, limit=number),
        queries.list_outgoing_queues(view, after=number, limit=number),
    ):
        assert page.items == []
    assert len(queries.list_queues(view, after=-1, limit=number).items) <= queries.PAGE_ITEMS_MAX


def test_a_machines_view_is_never_behind(world: World) -> None:
    """Heads are kept between entries: what the machine's view says is what the rows say."""
    orders = world.create("orders")
    client = ClientInWorld(world, world.client().client_id)
    opened = client.open(ORDERS, RECEIVE)
    for round_number in range(20):
        world.arrive(*(packet(round_number * 3 + k + 1, priority=k) for k in range(3)))
        client.receive(opened, 2)
        warm = queries.peek(world.machine.view, orders, Selector())
        assert warm == queries.peek(View.of(world.state), orders, Selector())
        assert queries.queue_statistics(world.machine.view, orders) == queries.queue_statistics(
            View.of(world.state), orders
        )


@pytest.mark.parametrize("kind", SelectorKind)
def test_nothing_is_beyond_the_last_place_of_a_queue(
    world: World, look: Looker, kind: SelectorKind
) -> None:
    orders = world.create("orders")
    assert world.arrive(packet(1)) == [TransferVerdict.ACCEPTED]
    status, found = queries.peek(look(world), orders, Selector(kind, LEVELS << 56))
    assert (status, found) == (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None)
