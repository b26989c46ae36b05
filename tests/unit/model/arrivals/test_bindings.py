"""A queue manager's GUID belongs to the address that it speaks from, as far as can be known."""

from typing import Any

import pytest

from qm.model import queries
from qm.model.state.bindings import BINDING
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Facts, TransferVerdict
from qm.model.values.elements import BindingMode
from qm.model.values.limits import (
    ALARM_PEER_ELSEWHERE,
    ALARM_PEER_MOVED,
    ALARM_SEQUENCE_AHEAD,
    BINDING_GRAIN_MS,
    SEQUENCE_AHEAD_MAX_S,
    SUSPICIONS_PER_ENTRY_MAX,
    VERSION_OF_BINDINGS,
)
from qm.names.guid import guid_text
from tests.unit.model.world import NOW_S, PEER, PEER_ADDRESS, World, packet, request

ACCEPTED, ELSEWHERE = TransferVerdict.ACCEPTED, TransferVerdict.ELSEWHERE
OUT_OF_ORDER = TransferVerdict.OUT_OF_ORDER
SILENCE_MS = 60_000
MOVE_AFTER_MS = SILENCE_MS + BINDING_GRAIN_MS
SEQUENCE = NOW_S << 32 | 1
HERE = Facts(1, PEER, PEER_ADDRESS, ())
THERE = Facts(2, PEER, "10.0.0.66", ())
STRANGER = Facts(3, b"S" * 16, "10.0.0.66", ())
"""Another queue manager's session, which may name any source."""


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    made = World(forgets=request.param)
    made.create("orders", transactional=True)
    made.create("plain")
    return made


def bind(world: World, mode: BindingMode = BindingMode.BIND, **fields: Any) -> None:
    rules: dict[str, Any] = {"silence_ms": SILENCE_MS, "shared": (), "pins": ()} | fields
    assert world.one(commands.SetBindings(mode, **rules)).status == 0


def bound_rows(world: World) -> int:
    return sum(
        table == Table.STREAM and key.startswith(BINDING) for table, key, _ in world.state.rows()
    )


@pytest.mark.parametrize("facts", [THERE, STRANGER], ids=["its GUID", "as its source"])
def test_a_sequence_is_not_taken_over_from_another_address(world: World, facts: Facts) -> None:
    bind(world)
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0)), facts=HERE) == [ACCEPTED]
    injected = packet(9, sequence=(SEQUENCE, 2, 1), body=b"injected")
    verdicts, applied = world.arrive_applied(injected, facts=facts)
    assert verdicts == [ELSEWHERE]
    assert applied.alarms == [ALARM_PEER_ELSEWHERE]
    (suspicion,) = applied.suspicions
    assert (suspicion.queue_manager, suspicion.address, suspicion.expected) == (
        PEER,
        "10.0.0.66",
        PEER_ADDRESS,
    )
    assert world.arrive(packet(2, sequence=(SEQUENCE, 2, 1)), facts=HERE) == [ACCEPTED]


def test_a_plain_message_cannot_use_up_anothers_ordinal(world: World) -> None:
    bind(world)
    assert world.arrive(packet(1, to="plain"), facts=HERE) == [ACCEPTED]
    assert world.arrive(packet(2, to="plain"), facts=THERE) == [ELSEWHERE]
    assert world.arrive(packet(2, to="plain"), facts=HERE) == [ACCEPTED]


def test_a_binding_follows_after_silence(world: World) -> None:
    bind(world)
    world.arrive(packet(1, to="plain"), facts=HERE)
    world.now_ms += MOVE_AFTER_MS - 1
    assert world.arrive(packet(2, to="plain"), facts=THERE) == [ELSEWHERE]
    world.now_ms += 1
    verdicts, applied = world.arrive_applied(packet(2, to="plain"), facts=THERE)
    assert (verdicts, applied.alarms) == ([ACCEPTED], [ALARM_PEER_MOVED])
    assert world.arrive(packet(3, to="plain"), facts=HERE) == [ELSEWHERE]
    assert bound_rows(world) == 1


@pytest.mark.parametrize("spoken", [packet(2, to="plain"), packet(1, to="plain")], ids=repr)
def test_whoever_speaks_keeps_its_address(world: World, spoken: bytes) -> None:
    """New messages and repeated ones both show that it is still there."""
    bind(world)
    world.arrive(packet(1, to="plain"), facts=HERE)
    world.now_ms += MOVE_AFTER_MS - 1
    world.arrive(spoken, facts=HERE)
    world.now_ms += MOVE_AFTER_MS - 1
    assert world.arrive(packet(3, to="plain"), facts=THERE) == [ELSEWHERE]


def test_a_lane_that_was_open_during_silence_closes_when_the_owner_speaks(world: World) -> None:
    bind(world)
    world.arrive(packet(1, to="plain"), facts=HERE)
    world.now_ms += MOVE_AFTER_MS
    known = TransferVerdict.DUPLICATE
    assert world.arrive(packet(1, to="plain"), facts=THERE) == [known], "nothing was accepted"
    assert world.arrive(packet(2, to="plain"), facts=HERE) == [ACCEPTED]
    assert world.arrive(packet(3, to="plain"), facts=THERE) == [ELSEWHERE]


def test_a_strict_binding_never_moves_by_itself(world: World) -> None:
    bind(world, BindingMode.STRICT)
    world.arrive(packet(1, to="plain"), facts=HERE)
    world.now_ms += 1_000 * MOVE_AFTER_MS
    assert world.arrive(packet(2, to="plain"), facts=THERE) == [ELSEWHERE]


def test_a_pin_decides_for_its_queue_manager(world: World) -> None:
    world.arrive(packet(1, to="plain"), facts=HERE)
    pins = (f"{guid_text(PEER)} 10.0.0.0/24", f"{guid_text(PEER)} 2001:db8::/32")
    bind(world, pins=pins)
    assert world.arrive(packet(2, to="plain"), facts=HERE) == [ELSEWHERE]
    assert world.arrive(packet(2, to="plain"), facts=THERE) == [ACCEPTED]
    sixth = Facts(4, PEER, "2001:db8::7%eth0", ())
    assert world.arrive(packet(3, to="plain"), facts=sixth) == [ACCEPTED]
    assert bound_rows(world) == 0


def test_shared_networks_and_a_host_of_ipv6_are_one_place(world: World) -> None:
    bind(world, shared=("10.0.0.0/24", "192.0.2.0/28"))
    places = ("10.0.0.1", "192.0.2.3", "::ffff:10.0.0.9")
    for number, address in enumerate(places, start=1):
        facts = Facts(number, PEER, address, ())
        assert world.arrive(packet(number, to="plain"), facts=facts) == [ACCEPTED]
    assert world.arrive(packet(9, to="plain"), facts=HERE) == [ELSEWHERE]
    other = b"6" * 16
    for number, address in enumerate(("2001:db8::1", "2001:db8::2"), start=1):
        message = packet(number, to="plain", source_queue_manager=other)
        assert world.arrive(message, facts=Facts(number, other, address, ())) == [ACCEPTED]


def test_without_rules_nothing_is_bound(world: World) -> None:
    for facts, number in ((HERE, 1), (THERE, 2)):
        assert world.arrive(packet(number, to="plain"), facts=facts) == [ACCEPTED]
    bind(world, BindingMode.OFF)
    assert world.arrive(packet(3, to="plain"), facts=HERE) == [ACCEPTED]
    assert bound_rows(world) == 0


def test_what_is_refused_binds_nothing(world: World) -> None:
    bind(world)
    world.arrive(packet(1, to="nowhere"), facts=THERE)
    world.arrive(packet(2, to="nowhere", sequence=(SEQUENCE, 1, 0)), facts=STRANGER)
    assert bound_rows(world) == 0
    assert world.arrive(packet(3, to="plain"), facts=HERE) == [ACCEPTED]
    assert world.arrive(packet(4, to="plain"), facts=THERE) == [ELSEWHERE]


def test_a_binding_ends_with_what_is_remembered_of_its_source(world: World) -> None:
    bind(world)
    world.arrive(packet(1, to="plain", time_to_reach_queue=60), facts=HERE)
    assert bound_rows(world) == 1
    world.tick(10 * 60_000)
    assert bound_rows(world) == 0


def test_rules_that_cannot_be_read_change_nothing(world: World) -> None:
    for fields in ({"pins": ("x 10.0.0.0/8",)}, {"shared": ("10.0.0.1/8",)}, {"mode": 9}):
        rules: dict[str, Any] = {"mode": 1, "silence_ms": 1, "shared": (), "pins": ()} | fields
        assert world.one(commands.SetBindings(**rules)).status
    assert world.arrive(packet(1, to="plain"), facts=HERE) == [ACCEPTED]
    assert world.arrive(packet(2, to="plain"), facts=THERE) == [ACCEPTED]


def test_an_entry_names_a_bounded_number_of_peers(world: World) -> None:
    bind(world)
    world.arrive(packet(1, to="plain"), facts=HERE)
    batch = [
        world.edge_batch(packet(2, to="plain"), facts=Facts(1, PEER, f"10.0.1.{place}", ()))
        for place in range(40)
    ]
    applied = world.apply(*batch)
    assert len(applied.suspicions) == len(applied.alarms) == SUSPICIONS_PER_ENTRY_MAX


def test_an_identifier_from_the_future_bars_no_sequence(world: World) -> None:
    ahead = (NOW_S + SEQUENCE_AHEAD_MAX_S + 1) << 32
    verdicts, applied = world.arrive_applied(packet(9, sequence=(ahead, 1, 0)), facts=THERE)
    assert (verdicts, applied.alarms) == ([OUT_OF_ORDER], [ALARM_SEQUENCE_AHEAD])
    assert not any(table == Table.STREAM for table, _, _ in world.state.rows())
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0)), facts=HERE) == [ACCEPTED]
    fast = (NOW_S + SEQUENCE_AHEAD_MAX_S) << 32
    assert world.arrive(packet(2, sequence=(fast, 1, 0)), facts=HERE) == [ACCEPTED]
    assert world.arrive(packet(3, sequence=(ahead, 1, 0)), facts=HERE) == [OUT_OF_ORDER]


def test_a_sequence_that_was_ahead_before_goes_on() -> None:
    world = World()
    world.create("orders", transactional=True)
    world.version = 4
    ahead = (NOW_S + SEQUENCE_AHEAD_MAX_S + 1) << 32
    assert world.arrive(packet(1, sequence=(ahead, 1, 0)), facts=HERE) == [ACCEPTED]
    world.version = VERSION_OF_BINDINGS
    assert world.arrive(packet(2, sequence=(ahead, 2, 1)), facts=HERE) == [ACCEPTED]
    further = ahead + (1 << 32)
    assert world.arrive(packet(3, sequence=(further, 1, 0)), facts=HERE) == [OUT_OF_ORDER]


def forget(world: World, count: int = 3, *, is_address_only: bool = False) -> int:
    """Forget PEER in steps; return their number."""
    for steps in range(1, 100):
        outcome = world.one(commands.ForgetPeer(request(), PEER, count, is_address_only, ()))
        assert outcome.status == 0, hex(outcome.status)
        if not outcome.value:
            return steps
    raise AssertionError("there is always more")


def test_a_forgotten_peer_leaves_no_row_and_may_begin_anew(world: World) -> None:
    before = sorted(world.state.rows())
    bind(world)
    for number in range(1, 6):
        world.create(f"q{number}")
        world.arrive(
            packet(number, to=f"q{number}"), packet(number + (1 << 16), to=f"q{number}"), facts=HERE
        )
    world.arrive(packet(9, sequence=(SEQUENCE, 1, 0)), facts=HERE)
    world.arrive(packet(1, to="plain", source_queue_manager=b"O" * 16), facts=THERE)
    assert forget(world) > 3
    kept = {bytes(key[1:17]) for table, key, _ in world.state.rows() if table == Table.STREAM}
    assert PEER not in kept
    assert not [row for row in world.state.rows() if row[0] in (Table.SEQUENCE_IN,)]
    assert len(before) < len(list(world.state.rows())), "queues and messages stay"
    assert world.arrive(packet(9, sequence=(SEQUENCE, 1, 0)), facts=THERE) == [ACCEPTED]
    world.tick(200 * 24 * 3_600_000)
    assert not [row for row in world.state.rows() if row[0] == Table.STREAM], "nor what is due"


def test_only_the_address_is_forgotten_if_that_is_all_that_changed(world: World) -> None:
    bind(world, BindingMode.STRICT)
    world.arrive(packet(1, to="plain"), facts=HERE)
    assert forget(world, is_address_only=True) == 1
    known = TransferVerdict.DUPLICATE
    assert world.arrive(packet(1, to="plain"), packet(2, to="plain"), facts=THERE) == [
        known,
        ACCEPTED,
    ]
    assert world.arrive(packet(3, to="plain"), facts=HERE) == [ELSEWHERE]


def test_peers_are_listed_with_where_they_are_bound(world: World) -> None:
    bind(world, pins=(f"{guid_text(b'P' * 16)} 10.0.0.0/8",))
    world.arrive(packet(1, to="plain"), packet(2, sequence=(SEQUENCE, 1, 0)), facts=HERE)
    for number, source in enumerate((b"O" * 16, b"P" * 16), start=1):
        message = packet(number, to="plain", source_queue_manager=source)
        world.arrive(message, facts=THERE)
    view = world.machine.view
    page = queries.list_peers(view, limit=2)
    rest = queries.list_peers(view, after=page.next or b"", limit=2)
    assert [one.queue_manager for one in (*page.items, *rest.items)] == [
        b"O" * 16,
        PEER,
        b"P" * 16,
    ]
    assert rest.next is None
    mine = queries.get_peer(view, PEER)
    assert mine is not None
    assert mine == page.items[1]
    assert (mine.address, mine.counted_at, mine.stream_count) == (PEER_ADDRESS, PEER_ADDRESS, 2)
    pinned = queries.get_peer(view, b"P" * 16)
    assert pinned is not None
    assert (pinned.address, pinned.pins) == ("", ("10.0.0.0/8",))
    there = queries.list_peers(view, address="10.0.0.66").items
    assert [one.queue_manager for one in there] == [b"O" * 16, b"P" * 16]
    (sequence,) = queries.peer_sequences(view, PEER).items
    assert (sequence.sequence_identifier, sequence.sequence_number) == (SEQUENCE, 1)
    assert queries.get_peer(view, b"nobody") is None
