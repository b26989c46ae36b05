"""Numbered requests, results, leases: exactly once towards clients."""

from typing import Any
from zlib import crc32

import pytest

from qm.model import queries
from qm.model.clients import clients as clients_module
from qm.model.clients import reads
from qm.model.clients.clients import CLIENT_FENCED
from qm.model.queries import get_client_holder
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Command, Request, Selector, SelectorKind
from qm.model.values.effects import EffectKind
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, VERSION_OF_UNKNOWN_LOOKUPS
from qm.model.values.results import RequestResult
from qm.model.values.rows import ResultKind
from qm.wire.codes import ErrorCode
from qm.wire.message_class import AcknowledgeFlags
from tests.unit.model.world import HOST, NOW_MS, ClientInWorld, World, direct, effects, packet

RECEIVE = QueueAccessType.RECEIVE_ACCESS
ORDERS = "DIRECT=OS:vhost\\orders"
STALE = ErrorCode.MQ_ERROR_STALE_HANDLE


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def ids(world: World, queue_id: int) -> list[int]:
    return [message.user_header.message_id for message in world.messages(queue_id)]


def message_of(world: World, result: RequestResult) -> bytes:
    """Return the packet that a result refers to."""
    raw = world.bodies[result.body_index, result.body_ordinal]
    assert (result.body_length, result.body_crc32) == (len(raw), crc32(raw))
    return raw


@pytest.mark.spec("DM-3.1.7.1.10-09", "DM-3.1.7.1.10-13", "DM-3.1.7.1.10-14", "DM-3.1.1.2-22")
def test_each_message_is_received_once_in_order(world: World) -> None:
    orders = world.create("orders")
    raws = {n: packet(n, priority=p) for n, p in ((1, 3), (2, 3), (3, 7))}
    world.arrive(*raws.values())
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    results = client.receive(opened, 5)
    assert [(r.number, r.message_ordinal) for r in results] == [(2, 3), (3, 1), (4, 2)]
    assert all(r.kind is ResultKind.RECEIVED for r in results)
    assert [message_of(world, one) for one in results] == [raws[3], raws[1], raws[2]]
    assert world.positions(orders) == {}
    again = client.receive(opened, 5, first=2)
    assert again == results
    world.arrive(packet(4))
    later = client.receive(opened, 2, first=5)
    assert [(r.number, r.message_ordinal) for r in later] == [(5, 4)]
    more = [packet(5), packet(6)]
    world.arrive(*more)
    client.number = 6
    (lent,) = client.receive(opened, first=6, is_two_phase=True)
    assert message_of(world, lent) == more[0]
    other = world.client("d")
    assert [r.message_ordinal for r in other.receive(other.open(ORDERS, RECEIVE))] == [6]


@pytest.mark.spec("DM-3.1.1.2-22")
def test_the_order_is_the_same_however_a_message_comes_in(world: World) -> None:
    """By priority, then by the time of arrival: sent here, arrived like others, judged alone."""
    orders = world.create("orders")
    client = world.client()
    asking: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
    }
    for number, priority in enumerate((0, 7, 3, 0, 7, 3)):
        world.arrive(packet(10 * number, priority=priority, body=b"%d like" % number))
        raw = packet(1, priority=priority, body=b"%d sent" % number)
        assert client.send(ORDERS, raw=raw).status == 0
        alone = packet(10 * number + 1, priority=priority, body=b"%d alone" % number, **asking)
        world.arrive(alone)
    opened = client.open(ORDERS, RECEIVE)
    listed = [bytes(message.properties.message_body) for message in world.messages(orders)]
    assert listed == [
        b"%d %s" % (number, how)
        for number in (1, 4, 2, 5, 0, 3)
        for how in (b"like", b"sent", b"alone")
    ]
    taken = client.receive(opened, len(listed))
    keys = [result.lookup_identifier for result in taken]
    assert keys == sorted(keys)


def test_a_result_keeps_its_body_until_it_is_confirmed(world: World) -> None:
    world.create("orders")
    world.arrive(packet(1), packet(2))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    first, second = client.receive(opened, 2)
    assert world.state.references() == {
        (first.body_index, first.body_ordinal): 1,
        (second.body_index, second.body_ordinal): 1,
    }
    world.one(commands.Confirm("c", first.number))
    assert list(world.state.references()) == [(second.body_index, second.body_ordinal)]
    assert client.receive_outcome(opened, 1, first=first.number).value == []
    assert client.receive(opened, 1, first=second.number) == [second]
    world.one(commands.Confirm("c", 1 << 40))
    assert world.state.references() == {}
    assert not [key for table, key, _ in world.state.rows() if table == Table.RESULT]


def test_answers_with_gaps_between_their_numbers_are_confirmed_together(world: World) -> None:
    world.create("orders")
    world.arrive(*(packet(n, time_to_be_received=60) for n in (3, 4)), packet(1), packet(2))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    for first, count in ((10, 3), (20, 1)):  # of either layout, the numbers between stay open
        assert len(client.receive(opened, count, first=first)) == count
    client.number = 30
    world.one(commands.Confirm("c", 10))
    assert len(world.state.references()) == 3
    assert [r.number for r in client.receive(opened, 30, first=1)] == [11, 12, 20]
    world.one(commands.Confirm("c", 20))
    assert world.state.references() == {}
    assert not [key for table, key, _ in world.state.rows() if table == Table.RESULT]


def test_a_retried_command_returns_its_first_outcome(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    first = client.send(ORDERS)
    client.number -= 1
    second = client.send(ORDERS)
    assert first.status == second.status == 0
    assert isinstance(first.value, tuple)
    ordinal, ((queue_id, key),) = first.value
    assert second.value == [ordinal, [[queue_id, key]]]
    assert list(world.positions(orders)) == [key]
    assert ids(world, orders) == [0]
    (position,) = world.positions(orders).values()
    assert position.message_ordinal == ordinal


def test_a_number_below_what_was_confirmed_is_stale(world: World) -> None:
    world.create("orders")
    client = world.client()
    client.send(ORDERS)
    client.send(ORDERS)
    world.one(commands.Confirm("c", 1))
    client.number = 0
    assert client.send(ORDERS).status == STALE
    assert client.send(ORDERS).status == 0


def test_unknown_and_closed_clients_are_refused(world: World) -> None:
    world.create("orders")
    assert world.one(commands.CloseClient("nobody")).status == STALE
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    assert world.one(commands.CloseClient("c")).status == 0
    assert world.one(commands.CloseClient("c")).status == STALE
    assert client.receive_outcome(opened).status == STALE
    assert client.send(ORDERS).status == STALE


def test_a_client_resumes_with_its_id_and_no_other_principal_may(world: World) -> None:
    world.create("orders")
    world.arrive(packet(1), packet(2))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    results = client.receive(opened, 2)
    stranger = world.one(commands.OpenClient("c", "somebody else", 1000))
    assert stranger.status == ErrorCode.MQ_ERROR_ACCESS_DENIED
    outcome = world.one(commands.OpenClient("c", "principal", 60_000))
    assert outcome.value == (0, 0, results[-1].number, 0)
    assert client.receive(opened, 2, first=results[0].number) == results


def test_a_client_that_resumes_has_its_new_lease_and_no_other(world: World) -> None:
    world.create("orders")
    client = world.client(lease_ms=1_000)
    assert world.one(commands.OpenClient("c", "principal", 60_000)).status == 0
    assert len(world.state.scan(Table.LEASE, b"", b"\xff" * 32, 10)) == 1
    world.tick(2_000)
    assert client.open(ORDERS, RECEIVE)
    world.tick(60_000)
    assert world.one(commands.OpenQueue(client.request(), ORDERS, RECEIVE, 0, ())).status != 0


@pytest.mark.parametrize(
    ("client_id", "lease_ms"), [("", 1000), ("x" * 129, 1000), ("a\0b", 1000), ("c", 0)]
)
def test_impossible_sessions(world: World, client_id: str, lease_ms: int) -> None:
    outcome = world.one(commands.OpenClient(client_id, "p", lease_ms))
    assert outcome.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_cancel_is_a_committed_result(world: World) -> None:
    world.create("orders")
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    world.arrive(packet(1), packet(2))
    taken, _ = client.receive(opened, 3)
    timeout = ErrorCode.MQ_ERROR_IO_TIMEOUT
    outcome = world.one(commands.CancelRequests("c", taken.number, 3, timeout))
    results = outcome.value
    assert isinstance(results, list)
    assert [(r.number, r.status) for r in results] == [
        (taken.number, 0),
        (taken.number + 1, 0),
        (taken.number + 2, timeout),
    ]
    world.arrive(packet(3), packet(4))
    again = client.receive(opened, 3, first=taken.number)
    assert [(r.number, r.status) for r in again] == [(r.number, r.status) for r in results]


def test_unconfirmed_results_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "UNCONFIRMED_RESULTS_PER_CLIENT_MAX", 4)
    world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 9)))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    results = client.receive(opened, 8)
    assert len(results) == 3
    assert client.send(ORDERS).status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    more = client.receive(opened, 8, first=2, confirmed_upto=results[1].number)
    assert [r.message_ordinal for r in more] == [3, 4, 5, 6]
    other = world.client("d")
    again = other.receive(other.open(ORDERS, RECEIVE), 8)
    assert [r.message_ordinal for r in again] == [7, 8], "the bound is each client's own"


@pytest.mark.parametrize("is_two_phase", [False, True])
@pytest.mark.parametrize("journaling", [False, True])
def test_unconfirmed_results_are_bounded_in_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch, journaling: bool, is_two_phase: bool
) -> None:
    message = packet(1, body=bytes(1000))
    monkeypatch.setattr(clients_module, "UNCONFIRMED_PER_CLIENT_MAX_BYTES", 3 * len(message) - 1)
    world.create("orders", journaling=journaling)
    world.arrive(*(packet(n, body=bytes(1000)) for n in range(1, 9)))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    results = client.receive(opened, 8, is_two_phase=is_two_phase)
    assert [r.message_ordinal for r in results] == [1, 2, 3]
    refused = client.receive_outcome(opened, 8, first=5, is_two_phase=is_two_phase)
    assert refused.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert client.send(ORDERS).status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    confirmed = results[0].number
    more = client.receive(opened, 8, first=5, confirmed_upto=confirmed, is_two_phase=is_two_phase)
    assert [r.message_ordinal for r in more] == [4]


def test_a_byte_that_is_left_is_room_for_a_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(packet(1))
    monkeypatch.setattr(clients_module, "UNCONFIRMED_PER_CLIENT_MAX_BYTES", size + 1)
    world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 4)))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    assert [r.message_ordinal for r in client.receive(opened)] == [1]
    assert [r.message_ordinal for r in client.receive(opened)] == [2]
    refused = client.receive_outcome(opened)
    assert refused.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


# The end of a session ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "lease over"])
def test_what_nobody_confirmed_is_dead_lettered_and_what_was_lent_goes_back(
    world: World, how: str
) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 6)))
    client = world.client(lease_ms=60_000)
    opened = client.open(ORDERS, RECEIVE)
    held, _, _ = client.receive(opened, 3)
    (lent,) = client.receive(opened, is_two_phase=True)
    world.one(commands.Confirm("c", held.number))
    if how == "closed":
        world.one(commands.CloseClient("c"))
    else:
        world.tick(59_999)
        assert ids(world, world.manager_queue("system_deadletter_queue")) == []
        world.tick(1)
    assert ids(world, world.manager_queue("system_deadletter_queue")) == [2, 3]
    assert lent.message_ordinal == 4
    assert ids(world, orders) == [4, 5]
    assert sum(world.state.references().values()) == 4
    assert {table for table, _, _ in world.state.rows()} & {Table.LOCK, Table.READ} == set()
    other = world.client("d")
    assert [r.message_ordinal for r in other.receive(other.open(ORDERS, RECEIVE), 9)] == [4, 5]


def test_renewal_keeps_a_session_and_a_new_leader_gives_a_full_term(world: World) -> None:
    world.client("c", lease_ms=10_000)
    world.client("d", lease_ms=10_000)
    world.now_ms += 6_000
    assert world.one(commands.RenewClients(("c", "nobody"), 10_000)).value == ["c"]
    world.now_ms += 3_000
    world.one(commands.LeaderActivated(2, "n2.1"))
    world.tick(9_999)
    assert world.one(commands.RenewClients(("c", "d"), 10_000)).value == ["c", "d"]
    world.tick(20_000)
    assert world.one(commands.RenewClients(("c", "d"), 10_000)).value == []


def test_a_full_term_after_a_change_of_leader_ends_as_well(world: World) -> None:
    world.client("c", lease_ms=10_000)
    world.now_ms += 9_000
    world.one(commands.LeaderActivated(2, "n2.1"))
    world.tick(5_000)  # the time that the session had under the first leader is over
    world.tick(4_000)
    assert world.one(commands.RenewClients(("nobody",), 10_000)).value == []
    world.tick(2_000)
    assert world.one(commands.RenewClients(("c",), 10_000)).value == []


def test_a_closed_clients_numbers_are_remembered_for_the_retention(world: World) -> None:
    world.create("orders")
    client = world.client()
    client.send(ORDERS)
    world.one(commands.CloseClient("c"))
    world.client()
    client.number = 0
    assert client.send(ORDERS).value is not None
    world.one(commands.CloseClient("c"))
    world.tick(24 * 3600 * 1000)
    assert not [row for row in world.state.rows() if row[0] in (Table.CLIENT, Table.RESULT)]
    assert world.counters().client_count == 0


# Two-phase reads, lookups ------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.7.1.10-12", "DM-3.1.7.1.12-02", "DM-3.1.7.1.12-05", "DM-3.1.1.11-02", "DM-3.1.7.1.11-02"
)
def test_two_phase_reads(world: World) -> None:
    orders = world.create("orders")
    world.arrive(packet(1), packet(2), packet(3))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    first, second = client.receive(opened, 2, is_two_phase=True)
    assert first.kind is ResultKind.BORROWED
    assert len(world.positions(orders)) == 3

    def end(result_key: int, *, delete: bool, by: str = "c", number: int = 0) -> int:
        request = client.request() if by == "c" else Request(by, number, 0)
        return world.one(commands.ReadEnd(request, orders, result_key, delete)).status

    other = world.client("d")
    assert end(first.lookup_identifier, delete=True, by="d", number=99) == (
        ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    )
    assert [r.message_ordinal for r in other.receive(other.open(ORDERS, RECEIVE), 9)] == [3]
    assert end(first.lookup_identifier, delete=True) == 0
    given_back = world.apply(
        commands.ReadEnd(client.request(), orders, second.lookup_identifier, False)
    )
    assert given_back.outcomes[0].status == 0
    assert given_back.woken_queue_ids == {orders}
    for delete in (True, False):
        assert end(second.lookup_identifier, delete=delete) == 0xC00E_0051
    assert ids(world, orders) == [2]
    assert client.receive(opened)[0].lookup_identifier == second.lookup_identifier
    assert {table for table, _, _ in world.state.rows()} & {Table.LOCK, Table.READ} == set()


def test_what_is_lent_counts_until_it_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "READS_PER_CLIENT_MAX", 3)
    orders = world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 9)))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)

    def lent(count: int) -> list[int]:
        return [one.lookup_identifier for one in client.receive(opened, count, is_two_phase=True)]

    def end(key: int, *, delete: bool) -> None:
        ended = commands.ReadEnd(client.request(), orders, key, delete)
        assert world.one(ended).status == 0

    taken = lent(2)
    assert (len(taken), len(lent(5))) == (2, 1)
    end(taken[0], delete=True)
    end(taken[1], delete=False)
    assert len(lent(5)) == 2
    world.one(commands.CloseClient("c"))
    number, client = client.number, world.client()
    client.number = number
    opened = client.open(ORDERS, RECEIVE)
    assert len(lent(5)) == 3


@pytest.mark.spec(
    "DM-3.1.1.17-02", "DM-3.1.7.3.3-02", "DM-3.1.7.3.3-03", "DM-3.1.7.3.3-04", "DM-3.1.7.3.2-04"
)
@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        (SelectorKind.EXACT, 1, 2),
        (SelectorKind.SEEK_NEXT, 1, 3),
        (SelectorKind.SEEK_PREVIOUS, 1, 1),
        (SelectorKind.SEEK_LAST, 0, 4),
        (SelectorKind.AFTER, 2, 4),
        (SelectorKind.FIRST, 3, 1),
    ],
)
def test_selectors(world: World, kind: SelectorKind, start: int, expected: int) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 5)))
    keys = list(world.positions(orders))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    status, seen = queries.peek(world.machine.view, orders, Selector(kind, keys[start]))
    assert (status, seen and seen.message_ordinal) == (0, expected)
    (result,) = client.receive(opened, selector=Selector(kind, keys[start]))
    assert (result.status, result.message_ordinal) == (0, expected)


@pytest.mark.spec("DM-3.1.7.3.3-02")
def test_the_first_and_the_last_are_so_by_priority_too(world: World) -> None:
    orders = world.create("orders")
    world.arrive(*(packet(n, priority=p) for n, p in ((1, 3), (2, 0), (3, 7), (4, 0), (5, 7))))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    for kind, expected in ((SelectorKind.FIRST, (3, 5, 1)), (SelectorKind.SEEK_LAST, (4, 2))):
        for number in expected:
            status, seen = queries.peek(world.machine.view, orders, Selector(kind))
            assert (status, seen and seen.message_ordinal) == (0, number)
            (result,) = client.receive(opened, selector=Selector(kind))
            assert (result.status, result.message_ordinal) == (0, number)


@pytest.mark.spec("DM-3.1.7.3.3-01", "DM-3.1.7.3.3-06", "DM-3.1.7.1.13-03", "DM-3.1.7.3.2-04")
def test_what_a_lookup_misses_is_its_result(world: World) -> None:
    orders = world.create("orders")
    world.arrive(packet(1), packet(2))
    one, two = world.positions(orders)
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)

    def status(kind: SelectorKind, key: int) -> int:
        peeked, seen = queries.peek(world.machine.view, orders, Selector(kind, key))
        (result,) = client.receive(opened, selector=Selector(kind, key))
        if result.status != ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED and not is_lent:
            assert (peeked, seen is None) == (result.status, result.status != 0)
        return result.status

    is_lent = False
    assert status(SelectorKind.SEEK_PREVIOUS, one) == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert status(SelectorKind.SEEK_NEXT, two) == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    for kind in (SelectorKind.SEEK_NEXT, SelectorKind.SEEK_PREVIOUS, SelectorKind.EXACT):
        for unknown in (12345, two + 1000):
            assert status(kind, unknown) == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    assert status(SelectorKind.EXACT, one) == 0
    assert status(SelectorKind.EXACT, one) == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    client.receive(opened, is_two_phase=True)
    is_lent = True
    assert status(SelectorKind.EXACT, two) == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    # Back from the end there is none that is available.
    assert status(SelectorKind.SEEK_LAST, 0) == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
    world.version = VERSION_OF_UNKNOWN_LOOKUPS - 1
    assert status(SelectorKind.EXACT, two + 1) == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED


def test_a_read_needs_its_own_open_handle(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    handle, _ = client.open(ORDERS, RECEIVE)
    peeking = client.open(ORDERS, QueueAccessType.PEEK_ACCESS)
    invalid = ErrorCode.MQ_ERROR_INVALID_HANDLE
    assert client.receive_outcome((handle + 7, orders)).status == invalid
    assert client.receive_outcome((handle, orders + 1)).status == invalid
    assert client.receive_outcome(peeking).status == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert world.client("d").receive_outcome((handle, orders)).status == invalid
    assert world.one(commands.CloseQueue(client.request(), handle)).status == 0
    assert client.receive_outcome((handle, orders)).status == invalid


@pytest.mark.spec(
    "DM-3.1.1.2-06", "DM-3.1.1.12-28", "DM-3.1.1.2-19", "DM-3.1.7.2.1-03", "DM-3.1.7.1.10-13"
)
def test_a_receive_is_journaled_and_acknowledged_in_the_same_entry(world: World) -> None:
    orders = world.create("orders", journaling=True)
    admin = world.create("admin")
    plain = world.create("plain")
    world.arrive(packet(1, admin_queue=direct("admin"), properties={"flags": 0x02}))
    world.arrive(packet(2, to="plain"))
    other, client = world.client("d"), world.client()
    assert len(other.receive(other.open("DIRECT=OS:vhost\\plain", RECEIVE))) == 1
    assert ids(world, world.record(plain).journal_queue) == []
    _, subqueue = other.open(ORDERS + ";later", QueueAccessType.MOVE_ACCESS)
    assert world.record(subqueue).journal_queue == 0
    opened = client.open(ORDERS, RECEIVE)
    run = commands.ReceiveRun("c", *opened, 2, 1, 0)
    applied = world.apply(run)
    journal = world.record(orders).journal_queue
    assert effects(applied) == [
        (EffectKind.JOURNALED, journal),
        (EffectKind.ARRIVED, admin),
        (EffectKind.RECEIVED, orders),
    ]
    assert ids(world, journal) == [1]
    (acknowledgement,) = world.messages(admin)
    assert acknowledgement.properties.message_class == 0x4000
    # Only what is consumed: neither what is purged, nor what nobody received in time.
    client.number = 2
    for lost in (packet(3), packet(4, time_to_be_received=1)):
        world.arrive(lost)
        if ids(world, orders) == [3]:
            world.one(commands.PurgeQueue(client.request(), orders, ()))
            world.settle(orders)
        world.tick(1_000)
        assert (ids(world, orders), ids(world, journal)) == ([], [1])
    journal_open = client.open(ORDERS + ";JOURNAL", RECEIVE)
    assert [r.message_ordinal for r in client.receive(journal_open)] == [1]


@pytest.mark.spec("DM-3.1.1.2-06", "DM-3.1.1.12-28")
@pytest.mark.parametrize("journaling", [False, True], ids=["", "journaling"])
@pytest.mark.parametrize(
    "how",
    ["in order", "behind a position", "by lookup", "two phases", "transaction", "replaced"],
)
def test_whatever_way_it_is_consumed_it_is_journaled_and_acknowledged(
    world: World, how: str, journaling: bool
) -> None:
    is_transactional = how == "transaction"
    admin = world.create("admin")
    world.create("other")
    orders = world.create("orders", journaling=journaling, transactional=is_transactional)
    asking: list[dict[str, Any]] = [
        {},
        {"admin_queue": direct("admin"), "properties": {"flags": int(AcknowledgeFlags.PR)}},
        {},
    ]
    for number, asked in enumerate(asking, start=1):
        sequence = (9, number, number - 1) if is_transactional else None
        assert world.arrive(packet(number, sequence=sequence, **asked)) == [0]
    journal = world.record(orders).journal_queue
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    if how in ("two phases", "transaction"):
        consume(client, opened, how, is_kept=True)
        assert len(world.positions(orders)) == 3
        assert (ids(world, journal), ids(world, admin)) == ([], []), "nobody has consumed them"
    consume(client, opened, how)
    assert world.positions(orders) == {}
    assert ids(world, journal) == ([1, 2, 3] if journaling else [])
    (told,) = world.messages(admin)
    assert told.properties.message_class == 0x4000
    assert told.properties.correlation_id[16:] == (2).to_bytes(4, "little")


def consume(
    client: ClientInWorld, opened: tuple[int, int], how: str, *, is_kept: bool = False
) -> None:
    """Take all messages of a queue in one of the ways there are, or return what was taken."""
    world, keys = client.world, list(client.world.positions(opened[1]))
    if how == "in order":
        assert len(client.receive(opened, 3)) == 3
    elif how == "behind a position":
        behind = Selector(SelectorKind.AFTER, keys[0] - 1)
        assert len(client.receive(opened, 3, selector=behind)) == 3
    elif how == "by lookup":
        for key in keys:
            assert len(client.receive(opened, selector=Selector(SelectorKind.EXACT, key))) == 1
    elif how == "two phases":
        assert len(client.receive(opened, 3, is_two_phase=True)) == 3
        for key in keys:
            ended = commands.ReadEnd(client.request(), opened[1], key, not is_kept)
            assert world.one(ended).status == 0
    elif how == "transaction":
        transaction = client.begin(f"t{client.number}")
        assert len(client.receive(opened, 3, transaction=transaction)) == 3
        assert (client.abort if is_kept else client.commit)(transaction) == 0
    else:
        for key in keys:
            sent = client.send("DIRECT=OS:vhost\\other", replaced=(opened[0], key))
            assert sent.status == 0


@pytest.mark.spec("DM-3.1.2.4-03", "DM-3.1.7.1.9-08")
def test_time_to_be_received_ends_while_available_or_when_given_back(world: World) -> None:
    orders = world.create("orders")
    dying: dict[str, Any] = {"time_to_be_received": 10, "sent_time": NOW_MS // 1000}
    world.arrive(packet(1, **dying), packet(2, **dying), packet(3))
    client = world.client()
    opened = client.open(ORDERS, RECEIVE)
    (lent,) = client.receive(opened, is_two_phase=True)
    world.tick(9_999)
    assert ids(world, orders) == [1, 2, 3]
    world.tick(1)
    assert ids(world, orders) == [1, 3]
    end = commands.ReadEnd(client.request(), orders, lent.lookup_identifier, False)
    assert world.one(end).status == 0
    assert ids(world, orders) == [3]
    assert not [row for row in world.state.rows() if row[0] == Table.DEADLINE]
    # So it is with one that is judged by itself, and wherever in the queue it is by then.
    dying["sent_time"] = world.now_ms // 1000
    asking: dict[str, Any] = {
        "admin_queue": direct("admin"),
        "properties": {"flags": int(AcknowledgeFlags.PA)},
    }
    world.arrive(packet(4, **dying, **asking), packet(5, **dying, **asking), packet(6, **dying))
    _, later = client.open(f"{ORDERS};later", QueueAccessType.MOVE_ACCESS)
    for key in list(world.positions(orders))[2:]:
        move = commands.Move(client.request(), orders, key, later, (), None)
        assert world.one(move).status == 0
    world.tick(9_999)
    assert (ids(world, orders), ids(world, later)) == ([3, 4], [5, 6])
    world.tick(1)
    assert (ids(world, orders), ids(world, later)) == ([3], [])
    # What comes, or is committed, when its time is over ends at once.
    world.arrive(packet(7, **dying, **asking), packet(8, **dying))
    assert ids(world, orders) == [3]
    exact = world.create("exact", transactional=True)
    transaction = client.begin("late")
    raw = packet(0, sequence=(1, 1, 0), time_to_be_received=10)
    name = "DIRECT=OS:vhost\\exact"
    assert client.send(name, raw=raw, transaction=transaction).status == 0
    world.tick(10_000)
    assert client.commit(transaction) == 0
    assert world.positions(exact) == {}


def test_what_is_locked_at_the_head_does_not_end_its_priority(world: World) -> None:
    """More is held of a head than a read wants, and the first of it is locked by then."""
    orders = world.create("orders")
    world.arrive(*(packet(number, priority=5) for number in range(1, 6)), packet(6, priority=1))
    client = world.client()
    handle = client.open("DIRECT=OS:vhost\\orders", RECEIVE)
    for result in client.receive(handle, 5, is_two_phase=True):
        end = commands.ReadEnd(client.request(), orders, result.lookup_identifier, delete=False)
        assert world.one(end).status == 0
    client.receive(handle, 2, is_two_phase=True)
    found = client.receive(handle, 3)
    assert [one.message_ordinal for one in found] == [3, 4, 5]


@pytest.mark.parametrize("first", [0, (1 << 64) - 1, (1 << 64) - 3])
def test_numbers_beyond_the_last_are_refused(world: World, first: int) -> None:
    """A client chooses its numbers: none may stop a node."""
    world.create("orders")
    world.arrive(*(packet(number) for number in range(1, 6)))
    client = world.client()
    handle = client.open(ORDERS, RECEIVE)
    refused = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert client.receive_outcome(handle, 5, first=first).status == refused
    assert world.one(commands.CancelRequests("c", first, 5, 0)).status == refused


def test_the_last_number_that_a_command_may_begin_at(world: World) -> None:
    """All numbers of the largest command from there on are 64 bits wide."""
    world.client()
    last = (1 << 64) - 1 - POSITIONS_PER_ENTRY_MAX
    refused = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert world.one(commands.CancelRequests("c", last + 1, 1, 0)).status == refused
    assert world.one(commands.CancelRequests("c", last, 1, 0)).status == 0


# Two openers of one id -------------------------------------------------------------------------


def opened(world: World, instance: bytes, address: str = "") -> int:
    outcome = world.one(commands.OpenClient("c", "principal", 60_000, instance, address))
    assert outcome.status == 0, hex(outcome.status)
    assert isinstance(outcome.value, tuple)
    return int(outcome.value[3])


def test_a_second_opener_fences_every_command_of_the_first(world: World) -> None:
    world.create("orders")
    first = opened(world, b"one", "10.0.0.1")
    assert opened(world, b"one") == first, "the same one resumes"
    handle, queue_id = ClientInWorld(world, "c").open(f"DIRECT=OS:{HOST}\\orders", 0)
    world.now_ms += 5
    second = opened(world, b"two", "10.0.0.2")
    assert second > first
    fenced: list[Command] = [
        commands.CloseQueue(commands.Request("c", 2, 0, session_epoch=first), handle),
        commands.ReceiveRun("c", handle, queue_id, 2, 1, 0, session_epoch=first),
        commands.CancelRequests("c", 2, 1, 0xC00E_001B, first),
        commands.Confirm("c", 1, first),
        commands.CloseClient("c", first),
    ]
    before = {row for row in world.state.rows() if row[0] != Table.META}
    assert [world.one(command).status for command in fenced] == [CLIENT_FENCED] * len(fenced)
    assert {row for row in world.state.rows() if row[0] != Table.META} == before
    holder = get_client_holder(world.machine.view, "c")
    assert holder is not None
    assert (holder.address, holder.since_ms) == ("10.0.0.2", NOW_MS + 5)
    assert (holder.before_address, holder.before_since_ms) == ("10.0.0.1", NOW_MS)
    # Commands of the second one, and of clients that do not say, are done.
    assert world.one(commands.Confirm("c", 1, second)).status == 0
    assert world.one(commands.Confirm("c", 1)).status == 0
    assert world.one(commands.CloseClient("c", second)).status == 0


def test_a_session_that_belongs_to_another_is_fenced_with_it(world: World) -> None:
    first = opened(world, b"one")
    own = commands.OpenClient("c/q", "principal", 60_000, b"q", "", "c", first)
    outcome = world.one(own)
    assert isinstance(outcome.value, tuple)
    assert world.one(commands.Confirm("c/q", 0, outcome.value[3])).status == 0
    opened(world, b"two")
    assert world.one(commands.Confirm("c/q", 0, outcome.value[3])).status == CLIENT_FENCED
    assert world.one(own).status == CLIENT_FENCED


def test_an_id_that_was_forgotten_begins_with_a_higher_epoch(world: World) -> None:
    first = opened(world, b"one")
    assert world.one(commands.CloseClient("c", first)).status == 0
    world.tick(2 * 24 * 3600 * 1000)
    assert get_client_holder(world.machine.view, "c") is None
    assert opened(world, b"two") > first


def test_before_its_version_nobody_is_fenced(world: World) -> None:
    world.version = 3
    outcome = world.one(commands.OpenClient("c", "principal", 60_000, b"one", "10.0.0.1"))
    assert isinstance(outcome.value, tuple)
    assert len(outcome.value) == 3
    assert get_client_holder(world.machine.view, "c") is None
    assert world.one(commands.Confirm("c", 0, 7)).status == 0
