"""Messages for readers, in columns: bodies read from this node, MessageIDs put in.

Cost follows batches: a message costs its body's read and an element per column.
"""

from collections.abc import Iterator, Sequence
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


class Bodies:
    """Packets as this node has them."""

    def __init__(self, cluster: Cluster, applied: AppliedWatch) -> None:
        self._cluster = cluster
        self._applied = applied

    async def ready(self, results: Sequence[RequestResult]) -> None:
        """Return when this node holds the bodies of results. Raises OutOfTime, Unavailable."""
        newest = max((result.body_index for result in results), default=0)
        await self._applied.reached(newest, BODY_WAIT_S)

    def of_result(self, result: RequestResult) -> bytes:
        """Return the packet of a result. Raises BodyDamaged."""
        return self._packet(
            BodyPlace(
                result.body_index,
                result.body_offset,
                result.body_length,
                result.body_ordinal,
                result.body_crc32,
            ),
            result.source_queue_manager,
            result.message_ordinal,
            result.flags,
        )

    def of_position(self, position: PositionInfo) -> bytes:
        """Return the packet of a position. Raises BodyDamaged."""
        return self._packet(
            BodyPlace(
                position.body_index,
                position.body_offset,
                position.body_length,
                position.body_ordinal,
                position.body_crc32,
            ),
            position.source_queue_manager,
            position.message_ordinal,
            position.flags,
        )

    def _packet(self, place: BodyPlace, source: bytes, ordinal: int, flags: int) -> bytes:
        packet = self._cluster.read_body(place)
        manager = self._cluster.view.ledger.manager
        assert manager is not None, "a body of no queue manager"
        if source != manager.identifier or place.ordinal >= BODY_ORDINAL_SYNTHETIC_FIRST:
            return packet
        return completed(packet, ordinal, flags)


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


class _Columns:
    """A MessageBatch that grows."""

    def __init__(self, view: int) -> None:
        self._has_packets = view in _WITH_PACKETS
        self._has_properties = view != data_pb2.PACKETS
        self._has_body = view != data_pb2.PROPERTIES_WITHOUT_BODY
        self._packets: list[bytes] = []
        self._offsets = [0]
        self._properties: list[data_pb2.Properties] = []
        self.size_bytes = 0

    def add(self, packet: bytes, lookup_identifier: int, arrived_time_s: int) -> None:
        """Append a message."""
        self.size_bytes += len(packet)
        if self._has_packets:
            self._packets.append(packet)
            self._offsets.append(self.size_bytes)
        if self._has_properties:
            self._properties.append(
                properties_of(packet, lookup_identifier, arrived_time_s, with_body=self._has_body)
            )

    def of_results(self, results: Sequence[RequestResult]) -> data_pb2.MessageBatch:
        """Return the batch of these results, all of which were added."""
        return data_pb2.MessageBatch(
            packets=b"".join(self._packets),
            offsets=self._offsets if self._has_packets else (),
            numbers=[result.number for result in results],
            lookup_identifiers=[result.lookup_identifier for result in results],
            queue_ids=[result.queue_id for result in results],
            arrived_times_s=[result.arrival_time for result in results],
            message_classes=[class_of(result.class_code) for result in results],
            flags=[result.flags & SHOWN_FLAGS for result in results],
            properties=self._properties,
        )

    def of_positions(self, positions: Sequence[PositionInfo]) -> data_pb2.MessageBatch:
        """Return the batch of these positions, all of which were added."""
        return data_pb2.MessageBatch(
            packets=b"".join(self._packets),
            offsets=self._offsets if self._has_packets else (),
            lookup_identifiers=[position.lookup_identifier for position in positions],
            queue_ids=[position.queue_id for position in positions],
            arrived_times_s=[position.arrival_time for position in positions],
            message_classes=[position.message_class for position in positions],
            flags=[int(position.flags) & SHOWN_FLAGS for position in positions],
            properties=self._properties,
        )


def batches_of_results(
    bodies: Bodies, results: Sequence[RequestResult], view: int, bytes_max: int
) -> Iterator[tuple[data_pb2.MessageBatch, int]]:
    """Yield results that have messages in batches, with the number of results in each."""
    begin = 0
    while begin < len(results):
        columns = _Columns(view)
        end = begin
        while end < len(results):
            result = results[end]
            if end > begin and columns.size_bytes + result.body_length > bytes_max:
                break
            columns.add(bodies.of_result(result), result.lookup_identifier, result.arrival_time)
            end += 1
        yield columns.of_results(results[begin:end]), end - begin
        begin = end


def batch_of_positions(
    bodies: Bodies, positions: Sequence[PositionInfo], view: int
) -> data_pb2.MessageBatch:
    """Return positions as one batch; the caller bounded their bytes."""
    columns = _Columns(view)
    for position in positions:
        columns.add(bodies.of_position(position), position.lookup_identifier, position.arrival_time)
    return columns.of_positions(positions)
