"""Queues and messages of a harness's cluster, put there as an edge would."""

import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, CreateQueue, EdgeBatch, Facts
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import COMPUTER_NAME, HarnessNode
from tests.unit.model.world import PEER, PEER_ADDRESS, packet, request


async def propose(node: HarnessNode, command: Command) -> Any:
    """Propose one command, which must succeed; return its value."""
    (outcome,) = await node.cluster.propose(command)
    assert outcome.status == 0, hex(outcome.status)
    return outcome.value


async def create_queue(node: HarnessNode, name: str, **attributes: Any) -> int:
    """Create a private queue; return its queue_id."""
    identifier = name.encode().ljust(16, b"\0")[:16]
    encoded = {key: encode_attribute(value) for key, value in attributes.items()}
    path = f".\\private$\\{name}"
    command = CreateQueue(request(), identifier, identifier[::-1], path, encoded, b"", ())
    queue_id = await propose(node, command)
    assert isinstance(queue_id, int)
    return queue_id


def batch(queue: str, numbers: Sequence[int], number: int = 1, **fields: Any) -> EdgeBatch:
    """Return express messages to a private queue, as they arrive; `numbers` are their ids."""
    to = DirectQueueFormatName(f"OS:{COMPUTER_NAME}\\private$\\{queue}")
    packets = [packet(message_id, to=to, **fields) for message_id in numbers]
    offsets = array("I", [0])
    for raw in packets:
        offsets.append(offsets[-1] + len(raw))
    return EdgeBatch(
        "n1",
        number,
        memoryview(b"".join(packets)),
        0,
        offsets,
        array("I", map(zlib.crc32, packets)),
        bytes(len(packets)),
        (Facts(1, PEER, PEER_ADDRESS, ()),),
        0,
        0,
    )
