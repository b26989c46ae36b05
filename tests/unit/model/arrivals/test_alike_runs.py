"""Rules of arrival where messages that are alike are taken together, without being looked at.

A run begins after a session's first message: what follows it and differs only in ordinal, numbers
and body belongs to it. Each test lets a rule decide in the middle of one.
"""

from functools import partial

import pytest

from qm.model.machine import Machine
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.rows import SEQUENCE_IN_ROW
from qm.wire.message_class import MessageClass
from tests.unit.model.world import NOW_S, PEER, PEER_ADDRESS, World, packet, request

ACCEPTED, DUPLICATE = TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE
OUT_OF_ORDER, CLOSE = TransferVerdict.OUT_OF_ORDER, TransferVerdict.CLOSE_SESSION
SEQUENCE = 5 << 32 | 1
LAST_LEVEL = 7
RUN = 20


@pytest.fixture
def world() -> World:
    return World()


def restart(world: World) -> None:
    """What another replica makes of the rows."""
    world.machine = Machine(world.state)


def reached(world: World) -> list[tuple[int, int]]:
    """(sequence, number) of every stream."""
    rows = [row for table, _, row in world.state.rows() if table == Table.SEQUENCE_IN]
    return [SEQUENCE_IN_ROW.unpack(row)[:2] for row in rows]


def numbered(*numbers: tuple[int, int], sequence: int = SEQUENCE) -> list[bytes]:
    """Transactional messages of these numbers and those before them."""
    return [packet(number, sequence=(sequence, number, previous)) for number, previous in numbers]


# Duplicates --------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.1-02", "QB-3.1.5.8.2-04")
def test_a_run_has_each_message_once_and_remembers_it(world: World) -> None:
    orders = world.create("orders")
    run = [packet(n) for n in range(1, RUN)]
    assert world.arrive(*run, run[4], *[packet(n) for n in range(RUN, RUN + 5)]) == [
        *[ACCEPTED] * len(run),
        DUPLICATE,
        *[ACCEPTED] * 5,
    ]
    kept = [one.message_ordinal for one in world.positions(orders).values()]
    assert kept == [*range(1, RUN + 5)]
    for _ in range(2):
        assert world.arrive(*run, packet(RUN + 4)) == [DUPLICATE] * RUN
        restart(world)


# Quotas ------------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.8-02", "QB-3.1.5.8.8-03")
@pytest.mark.parametrize("is_of_queue", [True, False], ids=["queue", "queue manager"])
@pytest.mark.parametrize("is_transactional", [False, True], ids=["plain", "transactional"])
def test_a_run_ends_where_the_quota_does(
    world: World, is_of_queue: bool, is_transactional: bool
) -> None:
    """The rest is refused, or the session ends, and what fits no more leaves no trace."""
    run = [
        packet(n, body=bytes(200), sequence=(SEQUENCE, n, n - 1) if is_transactional else None)
        for n in range(1, RUN + 1)
    ]
    fits = 2048 // len(run[0])
    assert 3 < fits < RUN - 3
    quota = 2 if is_of_queue else 100
    orders = world.create("orders", quota=quota, transactional=is_transactional)
    if not is_of_queue:
        limit = {"queue_manager_quota": encode_attribute(2)}
        assert world.one(commands.SetQueueManager(request(), limit, ())).status == 0
    refused = MessageClass.NACK_Q_EXCEED_QUOTA if is_of_queue else CLOSE
    assert world.arrive(*run) == [ACCEPTED] * fits + [refused] * (RUN - fits)
    assert len(world.positions(orders)) == fits
    assert world.counters().total_bytes == fits * len(run[0])
    if not is_of_queue:
        limit = {"queue_manager_quota": encode_attribute(9)}
        assert world.one(commands.SetQueueManager(request(), limit, ())).status == 0
        again = world.arrive(*run, facts=Facts(2, PEER, PEER_ADDRESS, ()))
        assert again == [DUPLICATE] * fits + [ACCEPTED] * (RUN - fits), "they left no trace"


# Sequences ---------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.6-03", "QB-3.1.5.8.6-04", "QB-3.1.5.8.6-07")
def test_a_run_follows_its_sequence(world: World) -> None:
    orders = world.create("orders", transactional=True)
    assert world.arrive(*numbered((1, 0))) == [ACCEPTED]
    assert world.arrive(
        *numbered((2, 1), (3, 2), (4, 3), (4, 3)),  # once more
        *numbered((6, 5), (5, 4), (9, 5), (8, 7)),  # before its previous one, behind a gap, late
        *numbered((10, 9), (11, 10)),
    ) == [
        *(ACCEPTED, ACCEPTED, ACCEPTED, DUPLICATE),
        *(OUT_OF_ORDER, ACCEPTED, ACCEPTED, DUPLICATE),
        *(ACCEPTED, ACCEPTED),
    ]
    assert reached(world) == [(SEQUENCE, 11)]
    kept = [one.message_ordinal for one in world.positions(orders).values()]
    assert kept == [1, 2, 3, 4, 5, 9, 10, 11]
    restart(world)
    assert world.arrive(*numbered((11, 10), (12, 11))) == [DUPLICATE, ACCEPTED]
    # Within a run: another sequence goes on from nothing, and an older one does not at all.
    later, earlier = SEQUENCE + 1, SEQUENCE - 1
    for other, numbers, verdict in (
        (later, (15, 14), OUT_OF_ORDER),
        (earlier, (15, 0), OUT_OF_ORDER),
        (later, (1, 0), ACCEPTED),
    ):
        assert (
            world.arrive(
                *numbered((13, 12), (14, 13)) if reached(world)[0][1] == 12 else (),
                *numbered(numbers, sequence=other),
            )[-1]
            == verdict
        )
    assert reached(world) == [(later, 1)]
    assert world.arrive(*numbered((2, 1), (3, 2), sequence=later)) == [ACCEPTED] * 2
    assert world.arrive(*numbered((16, 14))) == [OUT_OF_ORDER]
    assert world.arrive(*numbered((4, 3), (5, 5), (6, 4), sequence=later)) == [
        *(ACCEPTED, OUT_OF_ORDER, ACCEPTED),
    ]


@pytest.mark.spec("QB-3.1.5.8.6-03", "QB-3.1.5.8.6-07")
def test_messages_of_one_lane_that_are_not_alike_follow_their_sequence(world: World) -> None:
    world.create("orders", transactional=True)
    unlike = [
        packet(n, sequence=(SEQUENCE, n, n - 1), sent_time=NOW_S - n % 3) for n in range(1, 9)
    ]
    assert world.arrive(*unlike[:1]) == [ACCEPTED]
    assert world.arrive(*unlike[1:], unlike[5]) == [ACCEPTED] * 7 + [DUPLICATE]
    assert reached(world) == [(SEQUENCE, 8)]


# Order and time ----------------------------------------------------------------------------


@pytest.mark.spec("MQ-2.2.19.1-06", "MQ-2.2.19.1-07", "DM-3.1.7.1.32-01")
def test_a_run_has_one_priority_and_none_in_transactions(world: World) -> None:
    orders, exact = world.create("orders"), world.create("exact", transactional=True)
    world.arrive(*[packet(n, priority=n // 4) for n in range(32)])
    levels = {one.message_ordinal: key >> 56 for key, one in world.positions(orders).items()}
    assert levels == {n: LAST_LEVEL - n // 4 for n in range(32)}

    def urgent(n: int) -> bytes:
        # The codec writes none, but a peer may (MQ-A27).
        raw = bytearray(packet(n, to="exact", sequence=(SEQUENCE, n, n - 1)))
        raw[2] |= 5
        return bytes(raw)

    assert world.arrive(*map(urgent, range(1, 9))) == [ACCEPTED] * 8
    assert world.arrive(*map(urgent, range(9, 17))) == [ACCEPTED] * 8
    assert [key >> 56 for key in world.positions(exact)] == [LAST_LEVEL] * 16
    kept = [one.message_ordinal for one in world.positions(exact).values()]
    assert kept == [*range(1, 17)]


@pytest.mark.spec("MQ-2.2.19.2-06")
def test_all_of_a_run_leave_when_their_time_to_be_received_is_over(world: World) -> None:
    orders = world.create("orders")
    first = packet(3 * RUN, time_to_be_received=9)
    world.arrive(first, *[packet(n, time_to_be_received=10) for n in range(RUN)])
    world.tick(9_000)
    assert len(world.positions(orders)) == RUN
    world.tick(1_001)
    assert not world.positions(orders)
    # What is over when it arrives never stands there.
    over = [packet(RUN + n, time_to_be_received=10) for n in range(RUN)]
    world.arrive(*over)
    assert not world.positions(orders)


def test_a_run_is_remembered_as_long_as_its_longest_living_message(world: World) -> None:
    world.create("orders")
    short = partial(packet, time_to_reach_queue=60)
    lasting = packet(5, time_to_reach_queue=7_200)
    assert world.arrive(short(1)) == [ACCEPTED]
    run = [*[short(n) for n in (2, 3, 4)], lasting, short(6)]
    assert world.arrive(*run) == [ACCEPTED] * len(run)
    world.tick(3_600_000)
    assert world.arrive(lasting) == [DUPLICATE]
