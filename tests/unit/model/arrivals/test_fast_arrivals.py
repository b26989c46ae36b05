"""The fast lane and the one-by-one way must not differ in anything."""

from itertools import chain, starmap
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qm.model.arrivals.arrivals import Arrivals
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts, SignatureFact
from qm.model.values.elements import QueuePrivacyLevel
from qm.security.body_seals import SEAL_BYTES
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.queue_name import DirectQueueFormatName, PublicQueueFormatName
from tests.unit.model.world import NOW_S, PEER, PEER_ADDRESS, World, direct, packet, request

SEQUENCE = 9 << 32 | 1
SECURED = SecurityHeader(sender_id_type=1, security_id=b"\1\1\0\0\0\0\0\5\7\0\0\0")
SEALED = SecurityHeader(is_body_encrypted=True, encryption_key=b"key")
NAMES = [
    direct("orders"),
    direct("ORDERS"),
    direct("tight"),
    direct("audit"),
    direct("absent"),
    direct("signed"),
    direct("secret"),
    direct("open"),
    DirectQueueFormatName("OS:elsewhere\\orders"),
    PublicQueueFormatName(b"orders".ljust(16, b"\0")),
]
facts_numbers = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10])
"""Of FACTS."""
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
        "time_to_be_received": st.sampled_from([0xFFFF_FFFF, 0xFFFF_FFFF, 60, 4, 0]),
        "source_queue_manager": st.sampled_from([PEER, b"OTHER-QUEUE-MNGR"]),
        "security": st.sampled_from([None, None, SECURED, SEALED]),
        "response_queue": st.sampled_from([None, direct("audit")]),
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
transactional_fields = st.fixed_dictionaries(
    {
        "to": st.sampled_from(
            [direct("exact"), direct("exact"), direct("EXACT"), direct("orders")]
        ),
        "sent_time": st.sampled_from([NOW_S, NOW_S - 5]),
        "time_to_be_received": st.sampled_from([0xFFFF_FFFF, 0xFFFF_FFFF, 60]),
        "security": st.sampled_from([None, None, SECURED, SEALED]),
        "response_queue": st.sampled_from([None, direct("audit"), direct("a longer name")]),
        "has_negative_journaling": st.sampled_from([False, False, False, True]),
        "properties": st.sampled_from([{"flags": 0}, {"flags": 0}, {"flags": 0xF}]),
        "connector_type": st.sampled_from([None, None, bytes(range(16))]),
        "source_queue_manager": st.sampled_from([PEER, PEER, b"OTHER-QUEUE-MNGR"]),
    }
)


def numbered(
    fields: dict[str, Any], facts: int, sequence: int, numbers: list[tuple[int, int, int]]
) -> list[tuple[dict[str, Any], int]]:
    """Return messages that differ in ordinal, numbers and body: of each, its number, how far the
    previous one lies before it, and its size.
    """
    return [
        (
            fields
            | {
                "message_id": number,
                "sequence": (SEQUENCE + sequence, number, max(number - gap, 0)),
                "body": b"b" * size,
                "final_ack": size == 299,
            },
            facts,
        )
        for number, gap, size in numbers
    ]


sequences = st.builds(
    numbered,
    transactional_fields,
    facts_numbers,
    st.sampled_from([0, 0, 0, 1]),
    st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 3), st.sampled_from([0, 50, 50, 299])),
        max_size=12,
    )
    | st.integers(1, 20).map(
        lambda first: [(first + k, 1, 299 if k == 25 else 10) for k in range(40)]
    )
    | st.integers(1, 20).map(lambda first: [(first + 2 * k, 2, 10) for k in range(280)]),
)
batches = st.lists(
    st.lists(
        st.tuples(st.one_of(plain, plain, plain, special, transactional), facts_numbers),
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
    facts_numbers,
    st.lists(
        st.tuples(st.integers(1, 20) | st.integers(480, 560), st.integers(0, 900)), max_size=24
    )
    | st.integers(1, 1000).map(lambda first: [(first + k, 10) for k in range(300)]),
)
"""Messages that differ in ordinal and body alone: some known, some beyond a quota."""
streams = st.lists(
    st.lists(alike | sequences | sequences, min_size=1, max_size=6)
    .map(lambda runs: [*chain.from_iterable(runs)])
    .filter(bool),
    min_size=1,
    max_size=3,
)
Planned = tuple[dict[str, Any], int]
"""Fields of a message, and the number of its facts."""
ALICE = b"\1\1\0\0\0\0\0\5\7\0\0\0"
ANONYMOUS = Facts(1, PEER, PEER_ADDRESS, ())
SIGNED = replace(
    ANONYMOUS,
    sender_sids=(ALICE,),
    signature=SignatureFact.VALID,
    certificate_digest=bytes(16),
    signature_version=3,
    hash_algorithm=0x800E,
)
FACTS = (
    ANONYMOUS,
    Facts(2, PEER, "127.0.0.98", (ALICE[:-3],)),
    SIGNED,
    replace(ANONYMOUS, was_encrypted=True),
    replace(SIGNED, was_encrypted=True),
    replace(SIGNED, signature=SignatureFact.STRANGER, sender_sids=()),
    replace(SIGNED, hash_algorithm=0x8004),
    replace(ANONYMOUS, signature=SignatureFact.UNVERIFIED, decryption_failed=True),
    replace(ANONYMOUS, was_encrypted=True, is_key_reduced=True),
    replace(ANONYMOUS, is_sealed=True),
    replace(SIGNED, was_encrypted=True, is_sealed=True),
)
SEALED_FACTS = frozenset({len(FACTS) - 2, len(FACTS) - 1})


def stored(fields: dict[str, Any], facts: int) -> bytes:
    """Return a packet as it is stored: with its seal where its facts say so."""
    return packet(**fields) + (bytes(SEAL_BYTES) if facts in SEALED_FACTS else b"")


def run(
    plan: list[list[tuple[dict[str, Any], int]]], *, settles: bool = True, room_kib: int = 0
) -> tuple[object, ...]:
    """`room_kib`: quota of the queue manager, 0 for the usual one."""
    world = World()
    if room_kib:
        changes = {"queue_manager_quota": encode_attribute(room_kib)}
        world.one(commands.SetQueueManager(request(), changes, ()))
    world.create("orders", quota=6)
    world.create("tight", quota=1)
    world.create("audit")
    world.create("exact", quota=60, transactional=True)
    world.create("signed", authentication=True)
    world.create("secret", privacy_level=QueuePrivacyLevel.BODY)
    world.create("open", privacy_level=QueuePrivacyLevel.NONE)
    world.settles = settles
    transcript = []
    for messages in plan:
        batch = world.edge_batch(*starmap(stored, messages))
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


def exact(number: int, previous: int | None = None, facts: int = 0, **fields: Any) -> Planned:
    """Return the plan of a transactional message."""
    sequence = (SEQUENCE, number, number - 1 if previous is None else previous)
    return {"message_id": number, "to": "exact", "sequence": sequence} | fields, facts


def with_one(message: Planned) -> list[Planned]:
    """Return 40 messages of a sequence, and this one in between."""
    return [
        *(exact(number) for number in range(1, 21)),
        message,
        *(exact(number) for number in range(21, 41)),
    ]


UNCOMMON = {
    "wants a final ack": with_one(exact(21, final_ack=True)),
    "has a connector": with_one(exact(21, connector_type=bytes(range(16)))),
    "is known": with_one(exact(20)),
    "is too early": with_one(exact(23, 22)),
    "leaves a gap": with_one(exact(30, 20)),
    "belongs to another sequence": with_one(exact(1, sequence=(SEQUENCE + 1, 1, 0))),
    "belongs to an older sequence": with_one(exact(1, sequence=(SEQUENCE - 1, 1, 0))),
    "asks for acknowledgements": with_one(exact(21, properties={"flags": 0xF})),
    "is secured": with_one(exact(21, security=SECURED)),
    "is sealed": with_one(exact(21, security=SEALED)),
    "is journaled": with_one(exact(21, has_negative_journaling=True)),
    "expires": with_one(exact(21, time_to_be_received=60)),
    "is expired": with_one(exact(21, time_to_be_received=1, sent_time=NOW_S - 5)),
    "comes from elsewhere": with_one(exact(21, facts=1, final_ack=True)),
    "is not transactional": with_one(({"message_id": 900, "to": "exact"}, 0)),
    "all are secured": [exact(number, security=SECURED) for number in range(1, 300)],
    "all expire": [exact(number, time_to_be_received=60) for number in range(1, 300)],
    "plain ones expire": [({"message_id": n, "time_to_be_received": 9}, 0) for n in range(1, 300)],
    "plain ones are secured": [({"message_id": n, "security": SECURED}, 0) for n in range(1, 300)],
    "plain ones want to be heard of": [
        ({"message_id": n, "security": SECURED, "properties": {"flags": 0xF}}, 0)
        for n in range(1, 9)
    ],
}


@pytest.mark.parametrize("plan", UNCOMMON.values(), ids=UNCOMMON)
def test_both_ways_are_the_same_around_a_message_that(plan: list[Planned]) -> None:
    plans = [[plan[0]], plan[1:]]
    fast = run(plans)
    with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
        assert fast == run(plans)


def test_both_ways_are_the_same_behind_a_message_without_room() -> None:
    small: list[Planned] = [({"message_id": n, "body": b"b"}, n % 7 // 6) for n in range(1, 60)]
    large: Planned = ({"message_id": 99, "body": bytes(20_000)}, 0)
    plans = [[*small[:20], large, *small[20:40]], [*small[20:], large], small]
    fast = run(plans, room_kib=15)
    with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
        assert fast == run(plans, room_kib=15)


def test_a_run_of_a_sequence_is_judged_once() -> None:
    with mock.patch.object(Arrivals, "_judge", autospec=True, side_effect=Arrivals._judge) as judge:
        run([[exact(number) for number in range(1, 200)]])
    assert judge.call_count == 1


@pytest.mark.parametrize("facts", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_what_is_signed_or_was_encrypted_needs_no_judge(facts: int, is_mixed: bool) -> None:
    """Nor do the plain messages around it."""
    plan: list[Planned] = [
        ({"message_id": n, "to": "audit", "security": SECURED}, facts)
        if not is_mixed or n % 5 == 3
        else ({"message_id": n, "to": "audit"}, 0)
        for n in range(1, 200)
    ]
    with mock.patch.object(Arrivals, "_judge", autospec=True, side_effect=Arrivals._judge) as judge:
        fast = run([plan])
    assert judge.call_count == 0
    with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
        assert fast == run([plan])


@pytest.mark.parametrize("is_mixed", [False, True])
def test_seals_need_no_judge_and_use_up_no_quota(is_mixed: bool) -> None:
    """Of the queue, and of the queue manager: the last that fit are the same without seals."""
    fields: list[dict[str, Any]] = [{"message_id": n, "body": b"b" * 40} for n in range(1, 200)]

    def verdicts(facts: int, room_kib: int) -> object:
        plan = [(one, 0 if is_mixed and n % 5 == 3 else facts) for n, one in enumerate(fields)]
        fast = run([plan], room_kib=room_kib)
        with mock.patch("qm.model.arrivals.fast_arrivals.NOT_PLAIN", 0xFFFF_FFFF):
            assert fast == run([plan], room_kib=room_kib)
        applied = fast[0][0][1]  # type: ignore[index]
        return applied.outcomes[0].verdicts

    for room_kib in (0, 4):
        assert verdicts(9, room_kib) == verdicts(0, room_kib)
    plan: list[Planned] = [({"message_id": n, "to": "audit"}, 9) for n in range(1, 200)]
    with mock.patch.object(Arrivals, "_judge", autospec=True, side_effect=Arrivals._judge) as judge:
        run([plan])
    assert judge.call_count == 0


@given(batches | streams)
@settings(max_examples=120)
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
