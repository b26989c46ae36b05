"""What a lane reads of packets that are judged together."""

from types import SimpleNamespace
from typing import Any

import pytest

from qm.model.arrivals.lanes import DESTINATION_AT, DESTINATION_END, Lane
from qm.wire.headers.user_header import DQ_SHIFT, QUEUE_TYPE_MASK
from qm.wire.packets.peek import peek_head
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from tests.unit.model.world import packet

SEQUENCE = 7 << 32 | 9


def new_lane() -> Lane:
    queue: Any = SimpleNamespace(record=SimpleNamespace(queue_id=1, quota=1), is_full=False)
    nothing: Any = None
    return Lane(b"", queue, nothing, nothing, {}, 0)


def read(lane: Lane, raw: bytes) -> tuple[Any, ...]:
    """Return what it reads of a transactional packet behind another one."""
    block = bytes(40) + raw
    assert lane.takes(block, 40, peek_head(block, 40).user_flags)
    return lane.numbered_alike_of(block, 40)


def made(number: int = 5, ordinal: int = 11, **other: Any) -> bytes:
    return packet(ordinal, sequence=(SEQUENCE, number, number - 1), **other)


def test_packets_of_a_sequence_differ_in_their_numbers_and_ordinals_alone() -> None:
    lane = new_lane()
    one = read(lane, made(body=b"x"))
    other = read(lane, made(6, 12, body=b"longer"))
    bits, head, ordinal, tail, _, sequence, number, previous, rest = one
    assert (ordinal, sequence, number, previous) == (11, SEQUENCE, 5, 4)
    assert other[5:8] == (SEQUENCE, 6, 5)
    assert other[2] == 12
    assert (bits, head, tail, rest) == (other[0], other[1], other[3], other[8])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (DirectQueueFormatName("OS:vhost\\orders"), 2 + 2 * len("OS:vhost\\orders\0")),
        (PrivateQueueFormatNameId(QueueHost.DESTINATION, 7), 4),
        (PublicQueueFormatName(b"p" * 16), 16),
    ],
)
def test_a_destination_ends_where_its_type_says(name: QueueName, size: int) -> None:
    """[MS-MQMQ 2.2.18.1]: queues whose names begin alike would otherwise share a lane."""
    head = peek_head(packet(1, to=name), 0)
    kind = head.user_flags >> DQ_SHIFT & QUEUE_TYPE_MASK
    text = head.direct_name_bytes if isinstance(name, DirectQueueFormatName) else 0
    assert DESTINATION_END[kind] + text == DESTINATION_AT + size


@pytest.mark.parametrize(
    "other",
    [
        {"time_to_reach_queue": 99},
        {"sent_time": 1},
        {"source_queue_manager": b"q" * 16},
        {"to": "ORDERS"},
    ],
)
def test_what_else_differs_is_seen(other: dict[str, Any]) -> None:
    lane = new_lane()
    one, changed = read(lane, made()), read(lane, made(**other))
    assert [one[k] for k in (0, 1, 3, 8)] != [changed[k] for k in (0, 1, 3, 8)]
