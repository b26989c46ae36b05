"""Numbers of the replicated state near their ends: none is used up, what is refused uses none."""

from array import array
from collections.abc import Callable

import msgspec
import pytest

from qm.model import queries
from qm.model.state.ledger import META_COUNTERS, QUEUE_ID_MAX
from qm.model.state.registry import PRIVATE_QUEUE_NUMBER_FIRST
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import POSITIONS_PER_QUEUE_MAX
from qm.model.values.records import Counters, encode
from qm.model.values.rows import (
    QUEUE_KEY,
    SEQUENTIAL_ID_MAX,
    STATS_ROW,
    number_in,
    number_key,
)
from qm.wire.codes import ErrorCode
from qm.wire.limits import TRANSACTION_ID_MAX
from qm.wire.message_class import MessageClass
from tests.unit.model.world import NOW_S, PEER, World, direct, packet, request

U32, U64 = 0xFFFF_FFFF, (1 << 64) - 1
ACCEPTED, DUPLICATE = TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE
FAR = "DIRECT=TCP:10.9.8.7\\far"
SEQUENCE = 1 << 32

ENDS: dict[str, int] = {
    "sequential_id": SEQUENTIAL_ID_MAX,
    "message_ordinal": U32,
    "tx_ordinal": U32,
    "queue_id": QUEUE_ID_MAX,
    "private_queue_number": U32,
    "stream_id": U32,
    "source_id": U32,
    "transaction_tag": TRANSACTION_ID_MAX,
}
"""Where numbers that are given out change their form or begin again."""
WIDE = {"outbox_id", "handle", "epoch", "usn", "tx_time_stamp"}
"""Given out one by one, 64 bits wide; the last by restores and every 2**32 sequences."""
NOT_GIVEN = {
    "queue_count", "source_count", "client_count", "clock_ms", "total_bytes", "journal_bytes",
    "leader_since_ms", "apply_version", "directory_object_count", "outgoing_queue_count",
    "deadlines_from_ms", "leases_from_ms", "memories_from_ms",
}  # fmt: skip
"""How many or how much there is, and times."""


def preset(world: World, **numbers: int) -> None:
    """Let counters stand there."""
    changed = msgspec.structs.replace(world.counters(), **numbers)
    world.state.put(Table.META, META_COUNTERS, encode(changed))
    world.machine.forget()


def guid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def facts(source: bytes, address: str = "127.0.0.50") -> Facts:
    return Facts(1, source, address, ())


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def test_every_counter_is_tried_or_is_none_that_gives_numbers() -> None:
    assert ENDS.keys() | WIDE | NOT_GIVEN == set(Counters.__struct_fields__)


class Life:
    """Everything that numbers are given for, again and again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.round = 0
        self.last_sequence = 0
        self.queue_id = 0
        world.create("orders")
        world.create("exact", transactional=True)
        self.c = world.client(lease_ms=24 * 3600 * 1000)
        self.opened = self.c.open("DIRECT=OS:vhost\\orders", QueueAccessType.RECEIVE_ACCESS)

    def arrivals(self) -> None:
        """Messages of a new source, in both ways."""
        n = self.round
        plain = [packet(k, source_queue_manager=guid(n)) for k in (1, 2, 3)]
        slow = packet(4, source_queue_manager=guid(n), time_to_be_received=1_000)
        exact = packet(5, to="exact", sequence=(SEQUENCE, 1, 0), source_queue_manager=guid(n))
        said = facts(guid(n))
        assert self.world.arrive(*plain, slow, exact, facts=said) == [ACCEPTED] * 5
        self.world.machine.forget()
        assert self.world.arrive(*plain, slow, exact, facts=said) == [DUPLICATE] * 5
        results = self.c.receive(self.opened, 4, confirmed_upto=self.c.number)
        assert [result.status for result in results] == [0] * 4

    def departures(self) -> None:
        """Two transactions to another queue manager that are acknowledged to the end."""
        world, c = self.world, self.c
        raw = packet(0, sequence=(1, 1, 0), has_positive_journaling=True)
        for _ in range(2):
            transaction = c.begin(f"t{c.number}")
            outcome = c.send(FAR, raw=raw, transaction=transaction)
            assert outcome.status == 0, hex(outcome.status)
            assert isinstance(outcome.value, tuple)
            queue_id = outcome.value[1][0][0]
            assert c.commit(transaction) == 0
        keys = list(world.positions(queue_id))
        assert len(keys) == 2
        numbered = world.one(commands.AssignTransfer(queue_id, array("Q", keys))).value
        assert isinstance(numbered, list)
        (_, sequence, first, _), (_, same, second, _) = numbered
        assert (same, first, second) == (sequence, 1, 2)
        assert sequence > self.last_sequence, "TxSequenceIDs rise"
        self.last_sequence = sequence
        sent = [position.message_ordinal for position in world.positions(queue_id).values()]
        assert len(set(sent)) == 2
        assert all(sent)
        world.one(commands.TransferAcked(queue_id, array("Q", keys)))
        world.one(commands.OrderAcked(array("Q", [sequence]), array("Q", [2])))
        classes = array("Q", [MessageClass.ACK_RECEIVE] * 2)
        outcome = world.one(commands.FinalAcked(array("Q", sent), classes))
        assert outcome.verdicts is not None
        assert outcome.verdicts.tolist() == [ACCEPTED] * 2
        assert world.positions(queue_id) == {}
        world.one(commands.RemoveOutgoingQueue(queue_id))

    def queues(self) -> None:
        """A private queue with a subqueue that come and go."""
        world, n = self.world, self.round
        queue_id = world.create(f"private$\\p{n}")
        number = world.record(queue_id).private_queue_number
        assert number >= PRIVATE_QUEUE_NUMBER_FIRST
        assert world.arrive(packet(9, to=f"private$\\p{n}", sent_time=NOW_S + n)) == [ACCEPTED]
        assert world.one(commands.DeleteQueue(request(), queue_id, ())).status == 0
        world.settle(queue_id)
        handle, _ = self.c.open("DIRECT=OS:vhost\\exact", QueueAccessType.SEND_ACCESS)
        assert world.one(commands.CloseQueue(self.c.request(), handle)).status == 0

    def turn(self) -> None:
        """Do all of it once."""
        self.round += 1
        self.arrivals()
        self.departures()
        self.queues()
        self.world.one(commands.LeaderActivated(self.round, "n", is_archived=False))
        self.world.tick(1_000)


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_number_that_comes_to_its_end_stops_nothing(world: World, name: str) -> None:
    life = Life(world)
    life.turn()
    preset(world, **{name: ENDS[name] - 3})
    for _ in range(4):
        life.turn()
    for _ in range(10):
        world.tick(24 * 3600 * 1000)
    assert not [
        row for row in world.state.rows() if row[0] in (Table.HISTORY, Table.HISTORY_BUCKET)
    ]
    assert world.counters().source_count == 5, "sequences are what is left"


@pytest.mark.parametrize("name", sorted(WIDE - {"tx_time_stamp"}))
def test_a_wide_number_is_one(world: World, name: str) -> None:
    life = Life(world)
    preset(world, **{name: 1 << 48})
    for _ in range(2):
        life.turn()
    assert getattr(world.counters(), name) >= 1 << 48


def test_wide_numbers_stand_in_keys_in_their_order() -> None:
    numbers = [0, 1, U32 - 1, U32, U32 + 1, 1 << 40, U64]
    keys = [number_key(number) for number in numbers]
    assert keys == sorted(keys)
    assert [len(key) for key in keys] == [4, 4, 4, 12, 12, 12, 12], "rows of before are found"
    assert [number_in(b"x" + key, 1) for key in keys] == [
        (number, 1 + len(key)) for number, key in zip(numbers, keys, strict=True)
    ]


def test_streams_beyond_32_bits_are_listed_in_order(world: World) -> None:
    world.create("exact", transactional=True)
    preset(world, stream_id=U32 - 2)
    for n in range(1, 5):
        raw = packet(1, to="exact", sequence=(SEQUENCE, 1, 0), source_queue_manager=guid(n))
        assert world.arrive(raw, facts=facts(guid(n))) == [ACCEPTED]
    first = queries.list_incoming_sequences(world.machine.view, limit=2)
    assert [item.stream_id for item in first.items] == [U32 - 1, U32]
    assert first.next == U32
    rest = queries.list_incoming_sequences(world.machine.view, after=U32, limit=9)
    assert [item.stream_id for item in rest.items] == [U32 + 1, U32 + 2]


def test_ids_in_use_are_not_given_again(world: World) -> None:
    kept = world.create("private$\\kept")
    kept_number = world.record(kept).private_queue_number
    preset(world, queue_id=kept - 2, private_queue_number=kept_number - 1)
    other = world.create("private$\\other")
    assert world.record(kept).pathname.endswith("kept")
    assert world.record(other).private_queue_number == kept_number + 1


def test_a_message_id_is_not_given_again_while_its_final_ack_is_awaited(world: World) -> None:
    life = Life(world)
    raw = packet(0, sequence=(1, 1, 0), has_positive_journaling=True)

    def send() -> int:
        transaction = life.c.begin(f"t{life.c.number}")
        outcome = life.c.send(FAR, raw=raw, transaction=transaction)
        assert isinstance(outcome.value, tuple)
        assert life.c.commit(transaction) == 0
        life.queue_id = outcome.value[1][0][0]
        return list(world.positions(life.queue_id).values())[-1].message_ordinal

    preset(world, message_ordinal=100)
    early, late = send(), send()
    queue_id = life.queue_id
    keys = list(world.positions(queue_id))
    assert isinstance(
        world.one(commands.AssignTransfer(queue_id, array("Q", keys[:1]))).value, list
    )
    preset(world, message_ordinal=early - 2)
    before = send()
    assert before == early - 1
    # Only now the other one, of the circle before, is numbered and awaited.
    assert isinstance(
        world.one(commands.AssignTransfer(queue_id, array("Q", keys[1:2]))).value, list
    )
    assert send() == late + 1


def test_the_first_message_id_is_not_given_again_either(world: World) -> None:
    life = Life(world)
    raw = packet(0, sequence=(1, 1, 0), has_positive_journaling=True)

    def send() -> int:
        transaction = life.c.begin(f"t{life.c.number}")
        outcome = life.c.send(FAR, raw=raw, transaction=transaction)
        assert isinstance(outcome.value, tuple)
        assert life.c.commit(transaction) == 0
        queue_id = outcome.value[1][0][0]
        positions = world.positions(queue_id)
        world.one(commands.AssignTransfer(queue_id, array("Q", positions)))
        return list(positions.values())[-1].message_ordinal

    preset(world, message_ordinal=0)
    assert send() == 1
    preset(world, message_ordinal=U32 - 1)
    assert [send(), send()] == [U32, 2]


REFUSED: dict[str, Callable[[World, int], bytes]] = {
    "no such queue": lambda _, n: packet(1, to="nosuch", source_queue_manager=guid(n)),
    "out of order": lambda _, n: packet(
        1, to="exact", sequence=(SEQUENCE, 5, 4), source_queue_manager=guid(n)
    ),
    "the wrong kind": lambda _, n: packet(1, to="exact", source_queue_manager=guid(n)),
    "a full queue": lambda _, n: packet(
        1, to="tight", body=bytes(2_000), source_queue_manager=guid(n)
    ),
    "sealed": lambda _, n: packet(1, to="sealed", source_queue_manager=guid(n)),
    "too late": lambda _, n: packet(
        1, to="orders", time_to_reach_queue=1, sent_time=NOW_S - 9, source_queue_manager=guid(n)
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused_uses_no_number(world: World, why: str) -> None:
    world.create("orders")
    world.create("exact", transactional=True)
    world.create("tight", quota=1)
    world.create("sealed", privacy_level=2)
    before = {row for row in world.state.rows() if row[:2] != (Table.META, META_COUNTERS)}
    counters = world.counters()
    for n in range(1, 30):
        raw = REFUSED[why](world, n)
        (verdict,) = world.arrive(raw, facts=facts(guid(n)))
        assert verdict != ACCEPTED
        (verdict,) = world.arrive(raw, facts=facts(PEER))
        assert verdict != ACCEPTED
    assert {row for row in world.state.rows() if row[:2] != (Table.META, META_COUNTERS)} == before
    assert world.counters() == counters


def test_refused_and_taken_ones_of_an_entry_keep_apart(world: World) -> None:
    orders = world.create("orders")
    raw = [
        packet(1, to="nosuch", source_queue_manager=guid(1)),
        packet(2, source_queue_manager=guid(1), time_to_be_received=1_000),
        packet(3, to="nosuch", source_queue_manager=guid(2)),
        packet(4, source_queue_manager=guid(3), sent_time=NOW_S + 1),
        packet(5, to=direct("nosuch"), source_queue_manager=guid(3)),
        packet(6, source_queue_manager=guid(3), sent_time=NOW_S),
    ]
    refused = MessageClass.NACK_BAD_DST_Q
    verdicts = [refused, ACCEPTED, refused, ACCEPTED, refused, ACCEPTED]
    assert world.arrive(*raw) == verdicts
    again = [verdict if verdict == refused else DUPLICATE for verdict in verdicts]
    assert world.arrive(*raw) == again
    world.machine.forget()
    assert world.arrive(*raw) == again
    assert len(world.positions(orders)) == 3
    counters = world.counters()
    assert (counters.stream_id, counters.source_id, counters.source_count) == (2, 2, 2)


def test_a_queue_that_can_count_no_further_takes_nothing_and_gives(world: World) -> None:
    queue_id = world.create("orders")
    c = world.client()
    opened = c.open("DIRECT=OS:vhost\\orders", QueueAccessType.RECEIVE_ACCESS)
    alike = [packet(k, source_queue_manager=PEER) for k in (1, 2, 3)]
    assert world.arrive(*alike, facts=facts(PEER)) == [ACCEPTED] * 3

    def count(level: int, number: int) -> None:
        key = QUEUE_KEY.pack(queue_id)
        row = world.state.get(Table.QUEUE_STATS, key)
        assert row is not None
        stats = list(STATS_ROW.unpack(row))
        stats[level] = number
        world.state.put(Table.QUEUE_STATS, key, STATS_ROW.pack(*stats))
        world.machine.forget()

    count(7, POSITIONS_PER_QUEUE_MAX)
    more = [packet(k, source_queue_manager=PEER) for k in (4, 5, 6)]
    verdicts = world.arrive(*more, facts=facts(PEER))
    assert verdicts == [MessageClass.NACK_Q_EXCEED_QUOTA] * 3
    assert c.send("DIRECT=OS:vhost\\orders").status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert [one.status for one in c.receive(opened, 3)] == [0] * 3
    count(7, 0)
    assert world.arrive(*more, facts=facts(PEER)) == [ACCEPTED] * 3
    anew = [packet(k, source_queue_manager=PEER) for k in (7, 8, 9)]
    assert world.arrive(*anew, facts=facts(PEER)) == [ACCEPTED] * 3
