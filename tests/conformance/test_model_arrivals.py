"""Messages from other queue managers, as apply judges them [MS-MQQB 3.1.5.8, 2.2.5]."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from qm.model import queries
from qm.model.machine import Machine
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Facts, SignatureFact, TransferVerdict
from qm.model.values.limits import VERSION_OF_JUDGEMENT, VERSION_OF_RENEWED_MEMORY
from qm.model.values.records import FinalAckRow, OutboxRow, SyntheticPacket, decode
from qm.model.values.rows import BODY_KEY, SEQUENCE_IN_ROW
from qm.names.guid import guid_text
from qm.security.descriptor import Acl, SecurityDescriptor, write_descriptor
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.queue_name import (
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
)
from tests.unit.model.world import (
    NOW_MS,
    NOW_S,
    OWN,
    PEER,
    PEER_ADDRESS,
    World,
    direct,
    packet,
    request,
)
from tests.unit.store.test_store import Node, arrivals, setup_commands

ACCEPTED, DUPLICATE = TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE
OUT_OF_ORDER, CLOSE = TransferVerdict.OUT_OF_ORDER, TransferVerdict.CLOSE_SESSION
SEQUENCE = 5 << 32 | 1
NA, PA = int(AcknowledgeFlags.NA), int(AcknowledgeFlags.PA)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    made = World(forgets=request.param)
    set_manager(made, send_insecure_nacks=True)
    return made


def set_manager(world: World, **values: object) -> None:
    changes = {name: encode_attribute(value) for name, value in values.items()}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0


def restart(world: World) -> None:
    """What another replica, or this node after a restart, makes of the rows."""
    world.machine = Machine(world.state)


def final_acks(world: World) -> list[tuple[OutboxRow, FinalAckRow]]:
    rows = [decode(OutboxRow, row) for table, _, row in world.state.rows() if table == Table.OUTBOX]
    return [(row, decode(FinalAckRow, row.payload)) for row in rows]


def classes(world: World, admin: int) -> list[int]:
    return [message.properties.message_class for message in world.messages(admin)]


def sequences(world: World) -> list[tuple[int, ...]]:
    """(sequence, number, rejects, last access) of every stream."""
    rows = [row for table, _, row in world.state.rows() if table == Table.SEQUENCE_IN]
    return [SEQUENCE_IN_ROW.unpack(row) for row in rows]


def asking(flags: int, **more: Any) -> dict[str, Any]:
    return {"admin_queue": direct("admin"), "properties": {"flags": flags}} | more


# Duplicates --------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.1-01")
def test_an_identifier_that_is_remembered_is_nothing_to_a_numbered_message(world: World) -> None:
    world.create("admin")
    orders = world.create("orders", transactional=True)
    refused = packet(7, **asking(NA))
    assert world.arrive(refused, refused) == [0x800A, DUPLICATE]
    for number in range(1, 5):
        numbered = packet(7, sequence=(SEQUENCE, number, number - 1))
        assert world.arrive(numbered, numbered) == [ACCEPTED, DUPLICATE]
        assert len(world.positions(orders)) == number


@pytest.mark.spec("QB-3.1.5.8.1-01", "QB-3.1.5.8.6-01")
def test_a_transactional_message_is_known_by_its_number_alone(world: World) -> None:
    orders = world.create("orders", transactional=True)
    inbox = world.create("private$\\inbox", transactional=True)
    number = world.record(inbox).private_queue_number
    assert world.arrive(
        packet(7, sequence=(SEQUENCE, 1, 0)),
        packet(7, sequence=(SEQUENCE, 2, 1)),
        packet(8, sequence=(SEQUENCE, 2, 1)),
    ) == [ACCEPTED, ACCEPTED, DUPLICATE]
    assert len(world.positions(orders)) == 2
    own = packet(
        9,
        to=PrivateQueueFormatNameId(QueueHost.DESTINATION, number),
        queue_manager_address=OWN,
        sequence=(SEQUENCE, 1, 0),
    )
    assert world.arrive(own, own) == [ACCEPTED, DUPLICATE]
    # What is for another queue manager counts in no sequence here.
    for_another = packet(
        10,
        to=PrivateQueueFormatNameId(QueueHost.DESTINATION, number),
        queue_manager_address=b"another manager!",
        sequence=(SEQUENCE, 2, 1),
    )
    assert world.arrive(for_another) not in ([ACCEPTED], [DUPLICATE])
    assert [row[:2] for row in sequences(world)] == [(SEQUENCE, 2), (SEQUENCE, 1)]
    assert not [row for row in world.state.rows() if row[0] == Table.HISTORY]


@pytest.mark.spec("QB-3.1.1.3-06")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_node_that_starts_again_knows_what_it_took(tmp_path: Path, is_killed: bool) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())

    def arrive(*numbers: int) -> list[int]:
        (applied,) = node.put([arrivals(*(packet(n) for n in numbers))])
        verdicts = applied.outcomes[0].verdicts
        assert verdicts is not None
        return verdicts.tolist()

    assert arrive(1, 2) == [ACCEPTED, ACCEPTED]
    if is_killed:  # what is on the disk at that moment
        copytree(tmp_path / "node", tmp_path / "killed")
        node.close()
        node = Node(tmp_path / "killed")
    else:
        node = node.reopen()
    assert arrive(2, 3, 1) == [DUPLICATE, ACCEPTED, DUPLICATE]
    node.close()


@pytest.mark.spec("QB-3.1.5.8.1-02", "QB-3.1.1.3-06")
@pytest.mark.parametrize("asked", [{}, asking(PA)], ids=["plain", "with an acknowledgement"])
def test_a_repeated_message_is_discarded_for_as_long_as_it_may_be_repeated(
    world: World, asked: dict[str, Any]
) -> None:
    orders = world.create("orders")
    message = packet(7, time_to_reach_queue=3600, **asked)
    assert world.arrive(message) == [ACCEPTED]
    for _ in range(6):
        world.tick(600_000)
        restart(world)
        assert world.arrive(message) == [DUPLICATE]
    assert len(world.positions(orders)) == 1
    assert world.arrive(packet(7, source_queue_manager=OWN, **asked)) == [ACCEPTED]
    assert world.arrive(packet(8, **asked)) == [ACCEPTED]


@pytest.mark.spec("QB-3.1.5.8.1-02")
@pytest.mark.parametrize("version", [VERSION_OF_RENEWED_MEMORY - 1, VERSION_OF_RENEWED_MEMORY])
@pytest.mark.parametrize("asked", [{}, asking(PA)], ids=["plain", "with an acknowledgement"])
def test_each_repeat_is_remembered_as_the_message_was(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], version: int
) -> None:
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", version)
    world = World()
    world.create("orders")
    manager = world.machine.manager
    assert manager is not None
    nearly_ms = manager.duplicate_horizon_ms - 3_600_000
    message, other = packet(7, **asked), packet(8, sent_time=NOW_S - 1, **asked)
    assert world.arrive(message, other) == [ACCEPTED, ACCEPTED]
    for _ in range(3):
        world.tick(nearly_ms)
        restart(world)
        is_known = version >= VERSION_OF_RENEWED_MEMORY or world.now_ms == NOW_MS + nearly_ms
        assert world.arrive(message, message) == [DUPLICATE if is_known else ACCEPTED, DUPLICATE]
        if not is_known:
            return
    assert world.arrive(other) == [ACCEPTED], "what was not repeated is forgotten"


@pytest.mark.spec("QB-3.1.5.8.2-04", "QB-3.1.1.3-05", "QB-3.1.5.8.8-03")
def test_a_message_is_remembered_in_the_entry_that_takes_it(world: World) -> None:
    world.create("orders")
    exact = world.create("exact", transactional=True)

    def remembered() -> int:
        rows = [row for table, _, row in world.state.rows() if table == Table.HISTORY]
        return sum(int.from_bytes(row, "little").bit_count() for row in rows)

    assert remembered() == 0
    set_manager(world, queue_manager_quota=0)
    message = packet(7)
    numbered = packet(8, to="exact", sequence=(SEQUENCE, 1, 0))
    for session, refused in enumerate((message, numbered), start=1):
        assert world.arrive(refused, facts=Facts(session, PEER, PEER_ADDRESS, ())) == [CLOSE]
    assert remembered() == 0
    assert sequences(world) == []
    assert final_acks(world) == []
    set_manager(world, queue_manager_quota=1000)
    # The resend, on another session, is accepted: nothing was left of the refusal.
    again = Facts(3, PEER, PEER_ADDRESS, ())
    assert world.arrive(numbered, facts=again) == [ACCEPTED]
    assert len(world.positions(exact)) == 1
    assert world.arrive(message, message, facts=again) == [ACCEPTED, DUPLICATE]
    assert remembered() == 1
    world.tick(8 * 24 * 3600 * 1000)
    assert remembered() == 0


@pytest.mark.spec("QB-3.1.5.8-01")
def test_the_order_of_judgement(world: World) -> None:
    """Each message but the last breaks two rules that follow each other; the earlier one tells.

    The number of a transactional message is judged with the duplicates (QB-A20), and a message is
    expired before it is inserted (QB-A41).
    """
    nobody = write_descriptor(SecurityDescriptor(dacl=Acl(())))
    world.create("open")
    world.create("full", quota=0)
    world.create("closed", quota=0, security=nobody)
    world.create("sealed", quota=0, security=nobody, privacy_level=2)
    late: dict[str, Any] = {"time_to_reach_queue": 5, "sent_time": NOW_S - 6}
    unsigned = Facts(1, PEER, PEER_ADDRESS, ())
    forged = Facts(1, PEER, PEER_ADDRESS, (), SignatureFact.INVALID)
    steps: list[tuple[Facts, bytes, int]] = [
        (unsigned, packet(1, to="open"), ACCEPTED),
        (forged, packet(1, to="open"), DUPLICATE),
        (unsigned, packet(2, to="absent", sequence=(SEQUENCE, 2, 1)), OUT_OF_ORDER),
        (forged, packet(3, to="absent", **late), MessageClass.NACK_BAD_DST_Q),
        (
            forged,
            packet(4, to="open", sequence=(SEQUENCE, 1, 0)),
            MessageClass.NACK_NOT_TRANSACTIONAL_Q,
        ),
        (forged, packet(5, to="sealed"), MessageClass.NACK_BAD_SIGNATURE),
        (unsigned, packet(6, to="sealed"), MessageClass.NACK_BAD_ENCRYPTION),
        (unsigned, packet(7, to="closed", **late), MessageClass.NACK_ACCESS_DENIED),
        (unsigned, packet(8, to="full", **late), MessageClass.NACK_REACH_QUEUE_TIMEOUT),
        (unsigned, packet(9, to="full"), MessageClass.NACK_Q_EXCEED_QUOTA),
    ]
    for facts, message, verdict in steps:
        assert world.arrive(message, facts=facts) == [verdict]
    # What is inserted is reported, and then acknowledged.
    reports, admin = world.create("reports"), world.create("admin")
    told = packet(11, to="open", report_to=world.record(reports).identifier, **asking(PA))
    assert world.arrive(told) == [ACCEPTED]
    ((report,), (acknowledgement,)) = (world.messages(queue) for queue in (reports, admin))
    assert report.user_header.message_id < acknowledgement.user_header.message_id


def test_an_older_state_keeps_the_older_order_of_judgement(world: World) -> None:
    """Entries below apply version 5 ask first whether a message came in time."""
    world.version = VERSION_OF_JUDGEMENT - 1
    nobody = write_descriptor(SecurityDescriptor(dacl=Acl(())))
    world.create("closed", security=nobody)
    late: dict[str, Any] = {"time_to_reach_queue": 5, "sent_time": NOW_S - 6}
    assert world.arrive(
        packet(1, to="absent", **late),
        packet(2, to="closed", **late),
        packet(3, to="closed", sequence=(SEQUENCE, 1, 0)),
    ) == [
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        MessageClass.NACK_ACCESS_DENIED,
    ]


# Refusals ----------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.2-06", "QB-2.2.5-01", "QB-2.2.4-06")
def test_a_queue_that_is_not_here(world: World) -> None:
    admin = world.create("admin")
    verdict = MessageClass.NACK_BAD_DST_Q
    plain = packet(1, to="absent", **asking(NA))
    unasked = packet(2, to="absent", **asking(PA))
    first = packet(3, to="absent", sequence=(SEQUENCE, 1, 0), **asking(NA))
    assert world.arrive(plain, unasked, first) == [verdict] * 3
    assert classes(world, admin) == [verdict, verdict]
    ((_, final),) = final_acks(world)
    assert (final.message_class, final.acknowledged_message_id) == (verdict, 3)
    # Rejected, and its number is used: the next one is in order.
    assert world.arrive(packet(4, to="absent", sequence=(SEQUENCE, 2, 1))) == [verdict]
    assert len(final_acks(world)) == 2


@pytest.mark.spec(
    "QB-3.1.5.8.2-07", "QB-3.1.5.8.2-08", "QB-1.3.3-01", "MQ-2.2.18.1.6-08", "MQ-2.3.1.13-01"
)
def test_the_kinds_of_message_and_queue_must_agree(world: World) -> None:
    admin = world.create("admin")
    plain, strict = world.create("plain"), world.create("strict", transactional=True)
    assert MessageClass.NACK_NOT_TRANSACTIONAL_Q.value == 0x8009
    assert MessageClass.NACK_NOT_TRANSACTIONAL_MSG.value == 0x800A
    wrong = packet(1, to="plain", sequence=(SEQUENCE, 1, 0), **asking(NA))
    silent = packet(6, to="plain", sequence=(SEQUENCE, 2, 1), **asking(PA))
    refused = MessageClass.NACK_NOT_TRANSACTIONAL_Q
    assert world.arrive(wrong, silent) == [refused, refused]
    assert classes(world, admin) == [refused]
    assert [final.message_class for _, final in final_acks(world)] == [refused, refused]
    express = packet(2, to="strict", **asking(NA))
    recoverable = packet(3, to="strict", is_recoverable=True)
    verdict = MessageClass.NACK_NOT_TRANSACTIONAL_MSG
    assert world.arrive(express, recoverable) == [verdict, verdict]
    assert sorted(classes(world, admin)) == [MessageClass.NACK_NOT_TRANSACTIONAL_Q, verdict]
    assert len(final_acks(world)) == 2
    assert world.positions(plain) == world.positions(strict) == {}
    first = packet(5, to="strict", sequence=(SEQUENCE, 1, 0))
    assert world.arrive(packet(4, to="plain"), first) == [ACCEPTED, ACCEPTED]
    assert world.arrive(packet(7, to="plain", is_recoverable=True)) == [ACCEPTED]
    # Exactly once, and in order: neither what came before, nor what is not the next one.
    early, second = (packet(n, to="strict", sequence=(SEQUENCE, n, n - 1)) for n in (3, 2))
    assert world.arrive(first, early, second) == [DUPLICATE, OUT_OF_ORDER, ACCEPTED]
    assert [one.message_ordinal for one in world.positions(strict).values()] == [5, 2]
    another = packet(9, to="strict", sequence=(SEQUENCE + 1, 2, 1))
    assert world.arrive(another) == [OUT_OF_ORDER], "a sequence begins with its first message"


@pytest.mark.spec("QB-3.1.5.8.8-02")
@pytest.mark.parametrize("keeps", [True, False])
def test_a_full_queue(world: World, keeps: bool) -> None:
    set_manager(world, copy_to_deadletter_on_quota=keeps)
    admin = world.create("admin")
    full = world.create("full", quota=0)
    exact = world.create("tx", quota=0, transactional=True)
    refused = packet(1, to="full", **asking(NA, has_negative_journaling=True))
    silent = packet(2, to="full", **asking(0xB))  # of anything but a failed delivery
    transactional = packet(3, to="tx", sequence=(SEQUENCE, 1, 0), has_negative_journaling=True)
    verdict = MessageClass.NACK_Q_EXCEED_QUOTA
    assert verdict.value == 0x8003
    assert world.arrive(refused, silent, transactional) == [verdict] * 3
    assert classes(world, admin) == [verdict]
    dead = world.messages(world.manager_queue("system_deadletter_queue"))
    assert [message.user_header.message_id for message in dead] == ([1] if keeps else [])
    ((_, final),) = final_acks(world)
    assert (final.message_class, final.acknowledged_message_id) == (verdict, 3)
    assert world.positions(full) == world.positions(exact) == {}


@pytest.mark.spec("QB-2.2.5-05", "QB-2.2.5.1-02", "QB-3.1.7.17-03")
@pytest.mark.parametrize(
    ("queue", "attributes", "facts", "verdict"),
    [
        ("absent", None, {}, 0x8000),
        ("q", {"transactional": True, "quota": 0}, {}, 0x8003),
        ("q", {"transactional": True, "security": "nobody"}, {}, 0x8004),
        ("q", {"transactional": True}, {"signature": SignatureFact.INVALID}, 0x8006),
        ("q", {"transactional": True, "privacy_level": 2}, {}, 0x8007),
        ("q", {}, {}, 0x8009),
        (
            "q",
            {"transactional": True},
            {"signature": SignatureFact.UNVERIFIED, "is_provider_unknown": True},
            0x800B,
        ),
    ],
)
def test_final_acks_of_refusals(
    world: World,
    queue: str,
    attributes: dict[str, Any] | None,
    facts: dict[str, Any],
    verdict: int,
) -> None:
    if attributes is not None:
        if attributes.get("security"):
            nobody = write_descriptor(SecurityDescriptor(dacl=Acl(())))
            attributes = attributes | {"security": nobody}
        world.create(queue, **attributes)
    elder = packet(76, to=queue, sequence=(SEQUENCE, 4, 0))
    message = packet(77, to=queue, sequence=(SEQUENCE, 6, 4))
    seen = Facts(1, PEER, PEER_ADDRESS, (), **facts)
    assert world.arrive(elder, message, facts=seen) == [verdict, verdict]
    _, (row, final) = final_acks(world)
    assert row.queue_manager == PEER
    assert final == FinalAckRow(SEQUENCE, 6, 4, verdict, PEER, 77, final.message_id, True)
    assert final.message_id


# Sequences ---------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.6-07")
def test_what_cannot_be_enqueued_now_does_not_advance_its_sequence(world: World) -> None:
    orders = world.create("orders", transactional=True)
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0))) == [ACCEPTED]
    set_manager(world, queue_manager_quota=1)
    for session, later in enumerate(((SEQUENCE, 2, 1), (SEQUENCE + 1, 1, 0)), start=2):
        raw = packet(2, sequence=later, body=bytes(2_000))
        assert world.arrive(raw, facts=Facts(session, PEER, PEER_ADDRESS, ())) == [CLOSE]
        assert [one[:2] for one in sequences(world)] == [(SEQUENCE, 1)]
        restart(world)
        assert [one[:2] for one in sequences(world)] == [(SEQUENCE, 1)]
    assert len(world.positions(orders)) == 1
    # Room was made: the same message is accepted, and takes its number.
    set_manager(world, queue_manager_quota=100)
    assert world.arrive(raw, facts=Facts(4, PEER, PEER_ADDRESS, ())) == [ACCEPTED]
    assert [one[:2] for one in sequences(world)] == [(SEQUENCE + 1, 1)]


@pytest.mark.spec("QB-3.1.5.8.6-03", "QB-3.1.5.8.6-04", "QB-3.1.1.6.2-02", "QB-3.1.1.3.1-06")
@pytest.mark.parametrize(
    ("sequence", "number", "previous", "verdict"),
    [
        (SEQUENCE, 6, 5, ACCEPTED),
        (SEQUENCE, 9, 5, ACCEPTED),  # numbers between never existed
        (SEQUENCE, 9, 4, ACCEPTED),
        (SEQUENCE, 5, 4, DUPLICATE),
        (SEQUENCE, 4, 0, DUPLICATE),
        (SEQUENCE, 7, 6, OUT_OF_ORDER),  # 6 is not here yet
        (SEQUENCE + 1, 1, 0, ACCEPTED),
        (6 << 32, 1, 0, ACCEPTED),  # a later TimeStamp is greater, whatever the Ordinal
        (SEQUENCE + 1, 2, 1, OUT_OF_ORDER),
        (4 << 32 | 0xFFFF_FFFF, 1, 0, OUT_OF_ORDER),
    ],
)
@pytest.mark.parametrize("asked", [{}, {"admin_queue": direct("admin")}], ids=["plain", "judged"])
def test_the_acceptance_rules(
    world: World, sequence: int, number: int, previous: int, verdict: int, asked: dict[str, Any]
) -> None:
    orders = world.create("orders", transactional=True)
    assert sequences(world) == []
    # The number before the first one is 0, in whatever sequence.
    assert world.arrive(packet(9, sequence=(SEQUENCE, 5, 4))) == [OUT_OF_ORDER]
    assert world.arrive(packet(1, sequence=(SEQUENCE, 5, 0))) == [ACCEPTED]
    restart(world)
    assert world.arrive(packet(2, sequence=(sequence, number, previous), **asked)) == [verdict]
    assert len(world.positions(orders)) == (2 if verdict == ACCEPTED else 1)


@pytest.mark.spec(
    "QB-3.1.5.8.6-05", "QB-3.1.5.8.6-06", "QB-3.1.5.8.6-07", "QB-3.1.1.3.1-07", "QB-3.1.5.8.8-04"
)
def test_what_is_kept_of_a_sequence(world: World) -> None:
    orders = world.create("orders", transactional=True)
    world.arrive(packet(1, sequence=(SEQUENCE, 1, 0)))
    # QB-A43: by sender and destination name, and brought up to date with what is accepted.
    (info,) = queries.list_incoming_sequences(world.machine.view).items
    assert (info.queue_id, info.sender_identifier, info.sequence_identifier) == (
        *(orders, PEER, SEQUENCE),
    )
    assert (info.sequence_number, info.last_access_ms, info.reject_count) == (1, world.now_ms, 0)
    ((sequence, number, rejects, accessed),) = sequences(world)
    assert (sequence, number, rejects, accessed) == (SEQUENCE, 1, 0, world.now_ms)
    streams = [key for table, key, _ in world.state.rows() if table == Table.STREAM]
    assert [key for key in streams if PEER in key and b"o\0r\0d\0e\0r\0s\0" in key]
    world.now_ms += 5_000
    gap = packet(3, sequence=(SEQUENCE, 3, 2))
    world.arrive(gap, gap)
    restart(world)
    assert sequences(world) == [(SEQUENCE, 1, 2, world.now_ms)]
    (info,) = queries.list_incoming_sequences(world.machine.view).items
    assert (info.sequence_number, info.reject_count, info.last_access_ms) == (1, 2, world.now_ms)
    assert info.format_name == "DIRECT=OS:vhost\\orders"
    assert info.wire_name == b"\7" + "OS:vhost\\orders".encode("utf-16-le")
    world.now_ms += 5_000
    world.arrive(gap)
    assert sequences(world) == [(SEQUENCE, 1, 3, world.now_ms)]
    world.now_ms += 5_000
    world.arrive(packet(2, sequence=(SEQUENCE, 2, 1)))
    assert sequences(world) == [(SEQUENCE, 2, 0, world.now_ms)]
    # Another sender's sequence, and the same sender's to another queue, are others.
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0), source_queue_manager=b"3" * 16)) == [
        ACCEPTED
    ]
    assert len(sequences(world)) == 2


def test_nothing_of_a_sequence_moves_when_the_message_cannot_be_stored(world: World) -> None:
    world.create("orders", transactional=True)
    world.arrive(packet(1, sequence=(SEQUENCE, 1, 0)))
    before = sequences(world)
    set_manager(world, queue_manager_quota=0)
    assert world.arrive(packet(2, sequence=(SEQUENCE, 2, 1))) == [CLOSE]
    assert sequences(world) == before


@pytest.mark.spec("QB-3.1.5.8.2-03", "QB-3.1.1.3.1-14")
def test_where_a_final_ack_goes_follows_from_the_message(world: World) -> None:
    inbox = world.create("private$\\inbox")
    number = world.record(inbox).private_queue_number
    by_number = PrivateQueueFormatNameId(QueueHost.DESTINATION, number)
    world.arrive(
        packet(1, to="private$\\inbox", sequence=(SEQUENCE, 1, 0)),
        packet(2, to=by_number, queue_manager_address=OWN, sequence=(SEQUENCE, 1, 0)),
    )
    assert {row.address for row, _ in final_acks(world)} == {PEER_ADDRESS}
    assert {row.queue_manager for row, _ in final_acks(world)} == {PEER}
    found = {final.acknowledged_message_id: final.is_direct for _, final in final_acks(world)}
    assert found == {1: True, 2: False}
    # So do order acks, of the first message of a sequence and of those behind it.
    box = world.create("private$\\box", transactional=True)
    by_number = PrivateQueueFormatNameId(
        QueueHost.DESTINATION, world.record(box).private_queue_number
    )
    for number in (1, 2):
        _, applied = world.arrive_applied(
            packet(2 + number, to="private$\\box", sequence=(SEQUENCE, number, number - 1)),
            packet(
                4 + number,
                to=by_number,
                queue_manager_address=OWN,
                sequence=(SEQUENCE + 1, number, number - 1),
            ),
        )
        seen = [one.is_direct for one in applied.incoming_sequences.values()]
        assert sorted(seen) == [False, True]


# Acceptance --------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.5.8.8-01", "DM-3.1.1.12-25", "DM-3.1.7.1.9-04", "DM-3.1.7.1.9-06")
def test_what_arrived_is_what_is_in_the_queue(world: World) -> None:
    orders = world.create("orders")
    raw = packet(
        7, body=b"the body", priority=6, properties={"label": "a label", "application_tag": 9}
    )
    before = world.counters().sequential_id
    assert world.arrive(raw, packet(8)) == [ACCEPTED, ACCEPTED]
    assert world.counters().sequential_id == before + 2
    keys = list(world.positions(orders))
    assert [key & (1 << 56) - 1 for key in keys] == [before + 1, before + 2]
    position = world.positions(orders)[keys[0]]
    stored = world.bodies[position.body_index, position.body_ordinal]
    message = deserialize_message_from_buffer(stored)
    assert (message.body, message.label, message.application_tag) == (b"the body", "a label", 9)
    assert message.source_machine_identifier == position.source_queue_manager == PEER
    client = world.client()
    client.send("DIRECT=OS:vhost\\orders")
    assert [p.source_queue_manager for p in world.positions(orders).values()][2:] == [OWN]
    # Those that are taken together count each.
    assert world.arrive(*(packet(n) for n in range(20, 26)), packet(27, body=b"")) == [0] * 7
    assert world.counters().sequential_id == before + 10
    assert [key & (1 << 56) - 1 for key in world.positions(orders)] == [
        before + n for n in range(1, 11)
    ]


@pytest.mark.spec("QB-3.1.5.11-01")
@pytest.mark.parametrize("message_class", [0x0002, 0x4000, 0x8000, 0xC001])
def test_an_acknowledgement_enters_its_queue_as_any_message(
    world: World, message_class: int
) -> None:
    admin = world.create("admin")
    raw = packet(7, to="admin", properties={"message_class": message_class}, body=b"returned")
    assert world.arrive(raw, raw) == [ACCEPTED, TransferVerdict.DUPLICATE]
    assert classes(world, admin) == [message_class]
    client = world.client()
    (taken,) = client.receive(client.open("DIRECT=OS:vhost\\admin", 0))
    assert taken.message_ordinal == 7


@pytest.mark.spec("QB-3.1.5.8.9-01")
@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_of_messages_that_are_alike_the_traced_one_is_reported(world: World, kind: str) -> None:
    reports = world.create("reports")
    world.create("orders", transactional=kind == "transactional")
    queue = world.record(reports).identifier
    numbers = range(1, 9)
    sequences = [(SEQUENCE, n, n - 1) if kind == "transactional" else None for n in numbers]
    run = [
        packet(n, sequence=sequence, report_to=queue if n == 6 else None)
        for n, sequence in zip(numbers, sequences, strict=True)
    ]
    assert world.arrive(*run) == [ACCEPTED] * len(run)
    (report,) = world.messages(reports)
    assert f":{6:08X}:00 received" in (report.properties.label or "")


@pytest.mark.spec("QB-3.1.5.8.10-01", "DM-3.1.1.12-31")
def test_arrival_is_acknowledged_unless_the_queue_is_a_service_queue(world: World) -> None:
    admin = world.create("admin")
    world.create("orders")
    world.create("full", quota=0)
    both = PA | NA
    assert world.arrive(
        packet(1, **asking(both)), packet(2), packet(3, to="full", **asking(both))
    ) == [ACCEPTED, ACCEPTED, MessageClass.NACK_Q_EXCEED_QUOTA]
    assert classes(world, admin) == [
        MessageClass.ACK_REACH_QUEUE,
        MessageClass.NACK_Q_EXCEED_QUOTA,
    ]
    for number in (4, 5):
        name = PrivateQueueFormatNameId(QueueHost.DESTINATION, number)
        to_service = packet(10 + number, to=name, queue_manager_address=OWN, **asking(PA))
        assert world.arrive(to_service) == [TransferVerdict.IGNORED]
    for number, service in enumerate(("admin", "notify", "order"), start=20):
        to_service = packet(number, to=f"private$\\{service}_queue$", **asking(PA))
        assert world.arrive(to_service) != [ACCEPTED]
    assert len(classes(world, admin)) == 2


@pytest.mark.spec("QB-3.1.5.8.9-04", "QB-3.1.5.8.9-01", "QB-3.1.5.8.9-02", "MQ-2.2.20.8-03")
@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_an_arrival_is_reported_to_the_queue_that_a_traced_message_names(
    world: World, kind: str
) -> None:
    is_transactional = kind == "transactional"
    reports, exact = world.create("reports"), world.create("exact", transactional=True)
    world.create("orders", transactional=is_transactional)
    queue = world.record(reports).identifier
    sequence = (SEQUENCE, 1, 0) if is_transactional else None
    raw = packet(0x1AB, report_to=queue, sequence=sequence)
    assert world.arrive(raw, raw) == [TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE]
    (report,) = world.messages(reports)
    assert report.properties.message_class == MessageClass.REPORT
    assert not report.user_header.is_recoverable
    assert report.user_header.source_queue_manager == OWN
    assert report.user_header.destination_queue == PublicQueueFormatName(queue)
    assert (report.properties.label or "").startswith(f"{guid_text(PEER)[:4]}:000001AB:00 received")
    label = report.properties.label or ""
    (position,) = world.positions(reports).values()
    place = BODY_KEY.pack(position.body_index, position.body_ordinal)
    stored = world.state.get(Table.SYNTHETIC, place)
    assert stored is not None
    # On the wire it is terminated.
    assert f"{label}\0".encode("utf-16-le") in decode(SyntheticPacket, stored).packet
    body = bytes(report.properties.message_body).decode("utf-16-le")
    assert "<TARGET QUEUE>DIRECT=OS:vhost\\orders</TARGET QUEUE>\r\n" in body
    # What cannot be opened for sending drops the report, not the message.
    full, gone = world.create("full", quota=0), world.create("gone")
    journal = world.record(world.record(reports).journal_queue).identifier
    others = [world.record(one).identifier for one in (exact, full, gone)]
    world.one(commands.DeleteQueue(request(), gone, ()))
    for number, unfit in enumerate((b"?" * 16, journal, OWN, *others), start=2):
        numbers = sequence and (SEQUENCE, number, number - 1)
        more = packet(7 + number, report_to=unfit, sequence=numbers)
        assert world.arrive(more) == [TransferVerdict.ACCEPTED]
    assert len(world.messages(reports)) == 1
    for one in (exact, full, gone, world.record(reports).journal_queue):
        assert world.positions(one) == {}
