"""Messages for readers, in columns: bodies read from this node, MessageIDs put in.

Cost follows batches: a message costs its body's read and an element per column.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from qm.api.applied import AppliedWatch
from qm.api.properties import properties_of
from qm.model.queries import PositionInfo
from qm.model.results import RequestResult
from qm.model.rows import PositionFlag, class_of
from qm.model.state import BODY_ORDINAL_SYNTHETIC_FIRST
from qm.pb import data_pb2
from qm.store.bodies import BodyPlace
from qm.store.cluster import Cluster
from qm.wire.limits import TRANSACTION_ID_MAX
from qm.wire.patch import patch_message_id, patch_transaction
from qm.wire.peek import is_transactional, peek_head, transaction_header_offset
from qm.wire.transaction_header import ID_SHIFT

BATCH_BYTES_MAX: Final = 1 << 20
"""Of packets in one answer, softly: one message may be larger alone. Twice that, where a view shows
bodies twice, is well below the 4 MiB that gRPC's clients take unless told otherwise."""
SHOWN_FLAGS: Final = int(
    PositionFlag.RECOVERABLE | PositionFlag.TRANSACTIONAL | PositionFlag.WAS_ENCRYPTED
)
BODY_WAIT_S: Final = 10.0
"""For this node to apply what the leader has."""
_WITH_PACKETS: Final = (data_pb2.PACKETS, data_pb2.PACKETS_AND_PROPERTIES)

Stored = RequestResult | PositionInfo
"""What knows of a body where it lies."""


class Bodies:
    """Packets as this node has them."""

    def __init__(self, cluster: Cluster, applied: AppliedWatch) -> None:
        self._cluster = cluster
        self._applied = applied

    async def ready(self, results: Sequence[RequestResult]) -> None:
        """Return when this node holds the bodies of results. Raises OutOfTime, Unavailable."""
        newest = max((result.body_index for result in results), default=0)
        await self._applied.reached(newest, BODY_WAIT_S)

    def of_all(self, stored: Sequence[Stored]) -> list[bytes]:
        """Return the packets of results or positions, in order. Raises BodyDamaged."""
        packets = self._cluster.read_bodies(
            [
                BodyPlace(
                    item.body_index,
                    item.body_offset,
                    item.body_length,
                    item.body_ordinal,
                    item.body_crc32,
                )
                for item in stored
            ]
        )
        manager = self._cluster.view.ledger.manager
        assert manager is not None, "a body of no queue manager"
        own = manager.identifier
        for k, item in enumerate(stored):
            if (
                item.source_queue_manager == own
                and item.body_ordinal < BODY_ORDINAL_SYNTHETIC_FIRST
            ):
                packets[k] = completed(packets[k], item.message_ordinal, item.flags)
        return packets

    def of_position(self, position: PositionInfo) -> bytes:
        """Return the packet of a position. Raises BodyDamaged."""
        return self.of_all([position])[0]


def completed(packet: bytes, ordinal: int, flags: int) -> bytes:
    """Return a packet that was stored before apply gave it its MessageID and its transaction's
    ends.
    """
    ready = bytearray(packet)
    patch_message_id(ready, 0, ordinal)
    head = peek_head(ready, 0)
    if is_transactional(head):
        at = transaction_header_offset(ready, 0, head)
        header = int.from_bytes(ready[at : at + 4], "little")
        patch_transaction(
            ready,
            0,
            transaction_id=header >> ID_SHIFT & TRANSACTION_ID_MAX,
            is_first=bool(flags & PositionFlag.FIRST_IN_TRANSACTION),
            is_last=bool(flags & PositionFlag.LAST_IN_TRANSACTION),
        )
    return bytes(ready)


def batches_of_results(
    bodies: Bodies, results: Sequence[RequestResult], view: int, bytes_max: int
) -> Iterator[tuple[data_pb2.MessageBatch, int]]:
    """Yield results that have messages in batches, with the number of results in each."""
    begin = 0
    while begin < len(results):
        end, size = begin, 0
        while end < len(results):
            size += results[end].body_length
            if end > begin and size > bytes_max:
                break
            end += 1
        together = results[begin:end]
        batch = _batch(bodies.of_all(together), together, view)
        batch.numbers.extend([result.number for result in together])
        batch.message_classes.extend([class_of(result.class_code) for result in together])
        yield batch, end - begin
        begin = end


def batch_of_positions(
    bodies: Bodies, positions: Sequence[PositionInfo], view: int
) -> data_pb2.MessageBatch:
    """Return positions as one batch; the caller bounded their bytes."""
    batch = _batch(bodies.of_all(positions), positions, view)
    batch.message_classes.extend([position.message_class for position in positions])
    return batch


def _batch(packets: Sequence[bytes], stored: Sequence[Stored], view: int) -> data_pb2.MessageBatch:
    """Return the columns that results and positions have in common."""
    batch = data_pb2.MessageBatch(
        lookup_identifiers=[item.lookup_identifier for item in stored],
        queue_ids=[item.queue_id for item in stored],
        arrived_times_s=[item.arrival_time for item in stored],
        flags=[int(item.flags) & SHOWN_FLAGS for item in stored],
    )
    if view in _WITH_PACKETS:
        batch.packets = b"".join(packets)
        batch.offsets.extend(accumulate(map(len, packets), initial=0))
    if view != data_pb2.PACKETS:
        with_body = view != data_pb2.PROPERTIES_WITHOUT_BODY
        for packet, item in zip(packets, stored, strict=True):
            batch.properties.append(
                properties_of(
                    packet, item.lookup_identifier, item.arrival_time, with_body=with_body
                )
            )
    return batch
