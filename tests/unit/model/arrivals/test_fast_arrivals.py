"""The fast lane and the one-by-one way must not differ in anything."""

from itertools import chain
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.model.values.commands import Facts
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.queue_name import DirectQueueFormatName, PublicQueueFormatName
from tests.unit.model.world import NOW_S, PEER, PEER_ADDRESS, World, direct, packet

SEQUENCE = 9 << 32 | 1
NAMES = [
    direct("orders"),
    direct("ORDERS"),
    direct("tight"),
    direct("audit"),
    direct("absent"),
    DirectQueueFormatName("OS:elsewhere\\orders"),
    PublicQueueFormatName(b"orders".ljust(16, b"\0")),
]
plain = st.fixed_dictionaries(
    {
        "message_id": st.integers(1, 40) | st.integers(500, 530),
        "to": st.sampled_from(NAMES),
        "priority": st.integers(0, 7),
        "body": st.binary(max_size=300),
        "is_recoverable": st.booleans(),
        "has_negative_journaling": st.booleans(),
        "has_positive_journaling": st.booleans(),
        "sent_time": st.sampled_from([NOW_S, NOW_S - 5, NOW_S - 100]),
        "time_to_reach_queue": st.sampled_from([0xFFFF_FFFF, 60, 0xFFFF_FFFF]),
        "source_queue_manager": st.sampled_from([PEER, b"OTHER-QUEUE-MNGR"]),
    }
)
special = st.fixed_dictionaries(
    {
        "message_id": st.integers(1, 40),
        "to": st.sampled_from(NAMES),
        "admin_queue": st.sampled_from([direct("audit"), direct("tight")]),
        "properties": st.sampled_from([{"flags": 0}, {"flags": int(AcknowledgeFlags.PA)}]),
        "time_to_be_received": st.sampled_from([0, 50, 0xFFFF_FFFF]),
    }
)
transactional = st.integers(1, 6).map(
    lambda n: {"message_id": n, "to": "exact", "sequence": (SEQUENCE, n, n - 1)}
)
batches = st.lists(
    st.lists(
        st.tuples(st.one_of(plain, plain, plain, special, transactional), st.integers(0, 1)),
        min_size=1,
        max_size=25,
    ),
    min_size=1,
    max_size=4,
)
alike = st.builds(
    lambda fields, facts, parts: [
        (fields | {"message_id": message_id, "body": b"b" * size}, facts)
        for message_id, size in parts
    ],
    plain,
    st.integers(0, 1),
    st.lists(
        st.tuples(st.integers(1, 20) | st.integers(480, 560), st.integers(0, 900)), max_size=24
    )
    | st.integers(1, 1000).map(lambda first: [(first + k, 10) for k in range(300)]),
)
"""Messages that differ in ordinal and body alone: some known, some beyond a quota."""
streams = st.lists(
    st.lists(alike, min_size=1, max_size=4)
    .map(lambda runs: [*chain.from_iterable(runs)])
    .filter(bool),
    min_size=1,
    max_size=3,
)
FACTS = (Facts(1, PEER, PEER_ADDRESS, ()), Facts(2, PEER, "127.0.0.98", (b"\1\1\0\0\0\0\0\5\7",)))


def run(
    plan: list[list[tuple[dict[str, Any], int]]], *, settles: bool = True
) -> tuple[object, ...]:
    world = World()
    world.create("orders", quota=6)
    world.create("tight", quota=1)
    world.create("audit")
    world.create("exact", transactional=True)
    world.settles = settles
    transcript = []
    for messages in plan:
        batch = world.edge_batch(*(packet(**fields) for fields, _ in messages))
        changed = type(batch)(
            batch.edge,
            batch.number,
            batch.packets,
            batch.body_offset,
            batch.offsets,
            batch.checksums,
            bytes(fact for _, fact in messages),
            FACTS,
            batch.body_index,
            batch.first_ordinal,
        )
        applied = world.apply(changed)
        transcript.append((applied.to_append(), applied))
    world.machine.settle()
    return transcript, list(world.state.rows()), world.state.references()


@given(batches | streams)
@settings(max_examples=120, deadline=None)
def test_both_ways_give_the_same_rows_verdicts_and_effects(
    plan: list[list[tuple[dict[str, Any], int]]],
) -> None:
    fast = run(plan)
    with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
        slow = run(plan)
    assert fast == slow
    assert fast == run(plan, settles=False), "entries in one run"


DIFFERENCES: tuple[dict[str, Any], ...] = (
    {"priority": 5},
    {"is_recoverable": True},
    {"has_positive_journaling": True},
    {"sent_time": NOW_S - 5},
    {"time_to_reach_queue": 60},
    {"source_queue_manager": b"OTHER-QUEUE-MNGR"},
    {"to": direct("audit")},
    {"time_to_be_received": 50},
    {"properties": {"label": "other"}},
)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: next(iter(one)))
def test_a_run_ends_where_messages_differ_in_anything_else(difference: dict[str, Any]) -> None:
    common: dict[str, Any] = {"to": direct("orders"), "priority": 3, "body": b"1234"}
    plain = [(common | {"message_id": n}, 0) for n in range(1, 60)]
    other = [(common | difference | {"message_id": n}, 0) for n in range(60, 65)]
    plan = [plain + other + [(common | {"message_id": n}, 0) for n in range(65, 80)]]
    fast = run(plan)
    with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
        assert run(plan) == fast


def test_messages_that_differ_in_ordinal_and_body_alone_are_a_run() -> None:
    world = World()
    queue_id = world.create("orders")
    _, applied = world.arrive_applied(*(packet(n, body=b"1234") for n in range(1, 200)))
    (run_of_all,) = applied.runs
    (alike,) = run_of_all.alike
    assert alike.message_ordinals.tolist() == list(range(1, 200))
    assert len(world.positions(queue_id)) == 199
