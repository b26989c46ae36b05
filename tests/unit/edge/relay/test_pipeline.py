"""Batches: what goes together, in which order, and what a lost stream changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from zlib import crc32

from qm.cluster.relay import OVERLAP_MIN_BYTES
from qm.edge.batches import AckItem, Batch, FinalAckItem, Item, OrderAckItem, PacketRun
from qm.edge.facts import MessageFacts
from qm.edge.limits import (
    ACK_ITEMS_MAX_COUNT,
    BATCH_FACTS_MAX_COUNT,
    BATCH_MAX_COUNT,
    BATCH_SOFT_MAX_BYTES,
)
from qm.edge.relay.pipeline import Pipeline
from qm.edge.relay.session_intake import SessionIntake
from qm.model.values.commands import EdgeBatch, Facts, FinalAcked, OrderAcked, SignatureFact, Stamp
from qm.store.codec import decode_entry, encode_stamp
from raft.batch import BatchBuilder


class Session:
    """As much of an intake as a batch uses."""

    def __init__(self, number: int = 1) -> None:
        self.facts = MessageFacts(number, bytes(16), "127.0.0.1")
        self.is_open = True

    def run(
        self, sizes: Sequence[int], last_position: int = 0, other: dict[int, Facts] | None = None
    ) -> PacketRun:
        blocks = [bytes([k % 256]) * size for k, size in enumerate(sizes)]
        offsets = [0]
        for block in blocks:
            offsets.append(offsets[-1] + len(block))
        checksums = [crc32(block) for block in blocks]
        intake = cast("SessionIntake", self)
        return PacketRun(
            intake, last_position, b"".join(blocks) + b"tail", offsets, checksums, other or {}
        )

    def ack(self, kind: type[AckItem] = OrderAckItem, subject: int = 1, number: int = 1) -> AckItem:
        return kind(cast("SessionIntake", self), 1, subject, number)


def test_what_waits_goes_together() -> None:
    pipeline, session = Pipeline(), Session()
    runs = [session.run([100, 200]), session.run([300])]
    for run in runs:
        pipeline.add(run, 5.0)
    batch = pipeline.next_batch(6.0, least_bytes=0)
    assert batch is not None
    assert (batch.number, batch.items, batch.size_bytes, batch.arrived_at) == (1, runs, 600, 5.0)
    assert pipeline.next_batch(6.0, least_bytes=0) is None
    assert pipeline.held_bytes == 600
    assert pipeline.answered(2) is None
    assert pipeline.answered(1) is batch
    assert pipeline.held_bytes == 0
    assert pipeline.is_empty


def test_batches_are_bounded_in_bytes_messages_and_facts() -> None:
    pipeline = Pipeline()
    half = BATCH_SOFT_MAX_BYTES // 2
    for size in (half, half, 1, BATCH_SOFT_MAX_BYTES * 2, 1):
        pipeline.add(Session().run([size]), 0.0)
    assert sizes(pipeline) == [2 * half, 1, 2 * BATCH_SOFT_MAX_BYTES, 1]
    for count in (BATCH_MAX_COUNT - 1, 1, 1):
        pipeline.add(Session().run([1] * count), 0.0)
    assert sizes(pipeline) == [BATCH_MAX_COUNT, 1]
    for number in range(BATCH_FACTS_MAX_COUNT + 1):
        pipeline.add(Session(number).run([1]), 0.0)
    assert sizes(pipeline) == [BATCH_FACTS_MAX_COUNT, 1]


def sizes(pipeline: Pipeline) -> list[int]:
    """Take out all batches that may leave; return their sizes."""
    found = []
    while (batch := pipeline.next_batch(0.0, least_bytes=0)) is not None:
        found.append(batch.size_bytes)
        pipeline.answered(batch.number)
    return found


def test_acknowledgements_keep_their_place_between_runs() -> None:
    pipeline, session = Pipeline(), Session()
    before, ack, behind = session.run([1]), session.ack(), session.run([1])
    for item in (before, ack, behind):
        pipeline.add(item, 0.0)
    batches = [pipeline.next_batch(0.0, least_bytes=0) for _ in range(3)]
    assert [batch and batch.items for batch in batches] == [[before], [ack], [behind]]
    pipeline.add(session.run([1]), 0.0)
    pipeline.put_first([ack], 0.0)
    first = pipeline.next_batch(0.0, least_bytes=0)
    assert first is not None
    assert first.items == [ack]


def test_sessions_do_not_wait_for_the_order_of_others() -> None:
    pipeline = Pipeline()
    sessions = [Session(number) for number in range(50)]
    expected: list[list[Item]] = [[], [], []]
    for session in sessions:
        items: list[Item] = [session.run([1]), session.ack(), session.run([2])]
        for batch, item in zip(expected, items, strict=True):
            batch.append(item)
            pipeline.add(item, 0.0)
    batches = [pipeline.next_batch(0.0, least_bytes=0) for _ in range(3)]
    assert [batch and batch.items for batch in batches] == expected
    assert pipeline.next_batch(0.0, least_bytes=0) is None


def test_what_is_left_waits_in_its_order() -> None:
    pipeline, one, other = Pipeline(), Session(1), Session(2)
    first, ack, second = one.run([1]), other.ack(), other.run([2])
    third, large = one.run([3]), one.run([BATCH_SOFT_MAX_BYTES])
    last = one.run([4])
    for item in (first, ack, second, third, large, last):
        pipeline.add(item, 0.0)
    batches = [pipeline.next_batch(0.0, least_bytes=0) for _ in range(5)]
    assert [batch and batch.items for batch in batches] == [
        [first, third], [ack], [second], [large], [last]
    ]  # fmt: skip


def test_acknowledgements_of_one_kind_travel_together() -> None:
    pipeline, session = Pipeline(), Session()
    orders = [session.ack(OrderAckItem, 7, 3), session.ack(OrderAckItem, 8, 1)]
    orders.append(session.ack(OrderAckItem, 7, 5))
    finals = [
        session.ack(FinalAckItem, ordinal, 0x4000) for ordinal in range(ACK_ITEMS_MAX_COUNT + 1)
    ]
    for ack in (*orders, *finals):
        pipeline.add(ack, 0.0)
    batches = [pipeline.next_batch(0.0, least_bytes=0) for _ in range(3)]
    assert [batch and batch.items for batch in batches] == [
        orders, finals[:ACK_ITEMS_MAX_COUNT], finals[ACK_ITEMS_MAX_COUNT:]
    ]  # fmt: skip
    builder = BatchBuilder()
    builder.add(encode_stamp(Stamp(1, "n1")))
    for batch in batches:
        assert batch is not None
        builder.add(batch.payload("n1"))
    ordered, first, rest = decode_entry(7, builder.build()).commands
    assert isinstance(ordered, OrderAcked)
    assert ordered.sequence_identifiers.tolist() == [7, 8]
    assert ordered.sequence_numbers.tolist() == [5, 1]
    assert isinstance(first, FinalAcked)
    assert first.message_ordinals.tolist() == list(range(ACK_ITEMS_MAX_COUNT))
    assert set(first.message_classes) == {0x4000}
    assert isinstance(rest, FinalAcked)
    assert rest.message_ordinals.tolist() == [ACK_ITEMS_MAX_COUNT]


def test_what_comes_while_an_entry_is_in_flight_gathers() -> None:
    """Separate batches would be in the same entry; only what is worth another entry goes."""
    pipeline, session = Pipeline(), Session()
    for _ in range(13):
        pipeline.add(session.run([10]), 0.0)
        assert pipeline.next_batch(0.0, least_bytes=OVERLAP_MIN_BYTES) is None
    together = pipeline.next_batch(0.0, least_bytes=0)
    assert together is not None
    assert len(together.items) == 13
    pipeline.add(session.run([OVERLAP_MIN_BYTES]), 0.0)
    assert pipeline.next_batch(0.0, least_bytes=OVERLAP_MIN_BYTES) is not None


def test_a_batch_leaves_when_it_is_worth_it_or_full() -> None:
    pipeline, session = Pipeline(), Session()
    for _ in range(3):
        pipeline.add(session.run([10]), 0.0)
        assert pipeline.next_batch(0.0, least_bytes=31) is None
    pipeline.add(session.run([1]), 0.0)
    worth = pipeline.next_batch(0.0, least_bytes=31)
    assert worth is not None
    assert len(worth.items) == 4
    pipeline.add(session.run([BATCH_SOFT_MAX_BYTES]), 0.0)
    assert pipeline.next_batch(0.0, least_bytes=2 * BATCH_SOFT_MAX_BYTES) is not None


def test_a_lost_stream_sends_again_in_order_without_closed_sessions() -> None:
    pipeline, session, closing = Pipeline(), Session(1), Session(2)
    pipeline.add(session.run([10]), 0.0)
    pipeline.add(closing.run([20]), 0.0)
    first = pipeline.next_batch(0.0, least_bytes=0)
    pipeline.add(closing.run([30]), 0.0)
    pipeline.next_batch(0.0, least_bytes=0)
    pipeline.add(session.run([40]), 0.0)
    third = pipeline.next_batch(0.0, least_bytes=0)
    pipeline.add(closing.run([50]), 0.0)
    pipeline.add(session.run([60]), 0.0)
    closing.is_open = False
    assert pipeline.start_again() == 3
    pipeline.drop_closed()
    assert pipeline.held_bytes == 10 + 40 + 60
    again = [pipeline.next_batch(0.0, least_bytes=0) for _ in range(3)]
    assert again[:2] == [first, third]
    assert [batch and batch.number for batch in again] == [1, 3, 4]
    assert [batch and batch.size_bytes for batch in again] == [10, 40, 60]


def test_the_command_names_each_packet_and_its_facts() -> None:
    first, second = Session(1), Session(2)
    unverified = Facts(1, bytes(16), "127.0.0.1", (), SignatureFact.UNVERIFIED)
    runs = [
        first.run([3, 5]),
        second.run([7]),
        first.run([2, 4], other={1: unverified}),
    ]
    builder = BatchBuilder()
    builder.add(encode_stamp(Stamp(1, "n1")))
    builder.add(Batch(9, list(runs), 0.0).payload("n1"))
    (command,) = decode_entry(7, builder.build()).commands
    assert isinstance(command, EdgeBatch)
    assert (command.edge, command.number, command.body_index) == ("n1", 9, 7)
    assert command.offsets.tolist() == [0, 3, 8, 15, 17, 21]
    packets = [
        bytes(command.packets[low:high])
        for low, high in zip(command.offsets, command.offsets[1:], strict=False)
    ]
    assert packets == [b"\0" * 3, b"\1" * 5, b"\0" * 7, b"\0" * 2, b"\1" * 4]
    assert command.checksums.tolist() == [crc32(packet) for packet in packets]
    facts = [command.facts[number] for number in command.facts_of]
    mine, other = first.facts.plain, second.facts.plain
    assert facts == [mine, mine, other, mine, unverified]
    assert len(command.facts) == 3


def test_what_is_put_first_waits_since_then_unless_others_wait_longer() -> None:
    pipeline, session = Pipeline(), Session()
    pipeline.put_first([session.ack()], 7.0)
    alone = pipeline.next_batch(9.0, least_bytes=0)
    assert alone is not None
    assert alone.arrived_at == 7.0
    pipeline.add(session.run([10]), 11.0)
    pipeline.put_first([session.ack()], 12.0)
    together = pipeline.next_batch(13.0, least_bytes=0)
    assert together is not None
    assert together.arrived_at == 11.0
