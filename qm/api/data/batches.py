"""Messages for readers, in columns: bodies read from this node, with their MessageIDs.

Costs are per batch: a message adds only the read of its body and an element per column.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from qm.api.convert.properties import properties_of
from qm.api.gate.answers import answer_room
from qm.api.propose.applied_index import AppliedWatch
from qm.cluster.cluster import Cluster
from qm.model.queries import PositionInfo, returns_of
from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST
from qm.model.values.results import MessageColumns
from qm.model.values.rows import PositionFlag
from qm.pb import data_pb2
from qm.store.bodies.body_places import BodyDamaged, BodyPlaces, Packets
from qm.wire.headers.transaction_header import ID_SHIFT
from qm.wire.limits import TRANSACTION_ID_MAX
from qm.wire.packets.patch import patch_message_id, patch_transaction
from qm.wire.packets.peek import is_transactional, peek_head, transaction_header_offset

BATCH_MAX_BYTES: Final = 1 << 20
"""Bytes of packets in one answer, softly: a single message may exceed it. Twice that, if a view
shows bodies twice, is well below the 4 MiB default limit of gRPC's clients."""
SHOWN_FLAGS: Final = int(
    PositionFlag.RECOVERABLE
    | PositionFlag.TRANSACTIONAL
    | PositionFlag.WAS_ENCRYPTED
    | PositionFlag.AUTHENTICATED
)
BODY_WAIT_S: Final = 10.0
"""Wait for this node to apply what the leader has applied."""
HEALED_MAX: Final = 4_096
"""Damaged bodies that one call has restored."""
_WITH_PACKETS: Final = (data_pb2.PACKETS, data_pb2.PACKETS_AND_PROPERTIES)

ResultT = TypeVar("ResultT")


class Bodies:
    """Packets that this node holds."""

    def __init__(self, cluster: Cluster, applied: AppliedWatch) -> None:
        self._cluster = cluster
        self._applied = applied

    def are_here(self, messages: MessageColumns) -> bool:
        """Whether `ready` has nothing to wait for."""
        return self._applied.has_reached(max(messages.body_indexes, default=0))

    async def ready(self, messages: MessageColumns) -> None:
        """Return when this node holds the bodies of results. Raises OutOfTime, Unavailable."""
        await self._applied.reached(max(messages.body_indexes, default=0), BODY_WAIT_S)

    async def healed(self, read: Callable[[], ResultT]) -> ResultT:
        """Return what `read` returns, once the bodies that it finds damaged here have been restored
        from other nodes. Raises BodyDamaged where no node has a whole copy.
        """
        for _ in range(HEALED_MAX):
            try:
                return read()
            except BodyDamaged as error:
                if error.place is None or not await self._cluster.restore_body(error.place):
                    raise
        return read()

    def of_all(self, messages: MessageColumns) -> Packets:
        """Return the packets of messages, in order. Raises BodyDamaged."""
        packets = self._cluster.read_bodies(
            BodyPlaces(
                messages.body_indexes,
                messages.body_offsets,
                messages.body_lengths,
                messages.body_ordinals,
                messages.body_crc32s,
            )
        )
        manager = self._cluster.view.ledger.manager
        assert manager is not None, "a body without its queue manager"
        if manager.identifier in messages.source_queue_managers:
            return _completed(packets, messages, manager.identifier)
        return packets

    def returns_of(self, messages: MessageColumns) -> list[int]:
        """Return how often each message was returned; empty if none was, as almost always."""
        if not any(flags & PositionFlag.HAS_OBLIGATION for flags in messages.flags):
            return []
        view = self._cluster.view
        places = zip(messages.queue_ids, messages.lookup_identifiers, messages.flags, strict=True)
        found = [
            returns_of(view, queue_id, key) if flags & PositionFlag.HAS_OBLIGATION else None
            for queue_id, key, flags in places
        ]
        returns = [0 if one is None else one.returns for one in found]
        return returns if any(returns) else []

    def of_position(self, position: PositionInfo) -> bytes:
        """Return the packet of a position. Raises BodyDamaged."""
        return self.of_all(columns_of_positions([position])).block


def _completed(packets: Packets, messages: MessageColumns, own: bytes) -> Packets:
    """Return packets with MessageIDs and transaction ends filled in where they were stored before
    apply assigned them.
    """
    block = bytearray(packets.block)
    at = 0
    for k, length in enumerate(packets.lengths):
        is_synthetic = messages.body_ordinals[k] >= BODY_ORDINAL_SYNTHETIC_FIRST
        if messages.source_queue_managers[k] == own and not is_synthetic:
            _complete(block, at, messages.message_ordinals[k], messages.flags[k])
        at += length
    return Packets(bytes(block), packets.lengths)


def _complete(block: bytearray, at: int, ordinal: int, flags: int) -> None:
    patch_message_id(block, at, ordinal)
    head = peek_head(block, at)
    if is_transactional(head):
        header_at = transaction_header_offset(block, at, head)
        header = int.from_bytes(block[header_at : header_at + 4], "little")
        patch_transaction(
            block,
            at,
            transaction_id=header >> ID_SHIFT & TRANSACTION_ID_MAX,
            is_first=bool(flags & PositionFlag.FIRST_IN_TRANSACTION),
            is_last=bool(flags & PositionFlag.LAST_IN_TRANSACTION),
        )


def columns_of_positions(positions: Sequence[PositionInfo]) -> MessageColumns:
    """Return positions as columns."""
    return MessageColumns(
        (),
        [one.queue_id for one in positions],
        [one.lookup_identifier for one in positions],
        [one.message_class for one in positions],
        [int(one.flags) for one in positions],
        [one.body_index for one in positions],
        [one.body_offset for one in positions],
        [one.body_length for one in positions],
        [one.body_ordinal for one in positions],
        [one.body_crc32 for one in positions],
        [one.source_queue_manager for one in positions],
        [one.message_ordinal for one in positions],
        [one.arrival_time for one in positions],
    )


def parts_of(messages: MessageColumns, bytes_max: int) -> Iterator[MessageColumns]:
    """Yield messages in parts whose packets have at most so many bytes, or are one."""
    if not messages.count:
        return
    ends = [0]
    size = 0
    for k, length in enumerate(messages.body_lengths):
        size += length
        if size > bytes_max and k > ends[-1]:
            ends.append(k)
            size = length
    if len(ends) == 1:
        yield messages
        return
    for begin, end in pairwise((*ends, messages.count)):
        yield messages.part(begin, end)


async def batch_of(bodies: Bodies, messages: MessageColumns, view: int) -> data_pb2.MessageBatch:
    """Return messages as one batch; the caller has limited their bytes. Raises BodyDamaged.

    Waits while much of what was read before for the principal is not delivered.
    """
    shown = 1 if view in (data_pb2.PACKETS, data_pb2.PROPERTIES) else 2
    await answer_room(shown * sum(messages.body_lengths))
    packets = await bodies.healed(lambda: bodies.of_all(messages))
    offsets = [*accumulate(packets.lengths, initial=0)]
    batch = data_pb2.MessageBatch(
        numbers=messages.numbers,
        lookup_identifiers=messages.lookup_identifiers,
        queue_ids=messages.queue_ids,
        arrived_times_s=messages.arrival_times,
        message_classes=messages.message_classes,
        flags=[flags & SHOWN_FLAGS for flags in messages.flags],
        returns=bodies.returns_of(messages),
    )
    if view in _WITH_PACKETS:
        batch.packets = packets.block
        batch.offsets.extend(offsets)
    if view != data_pb2.PACKETS:
        with_body = view != data_pb2.PROPERTIES_WITHOUT_BODY
        places = zip(
            pairwise(offsets),
            messages.lookup_identifiers,
            messages.arrival_times,
            messages.flags,
            strict=True,
        )
        for (begin, end), key, arrival_time, flags in places:
            properties = properties_of(
                packets.block[begin:end], key, arrival_time, flags, with_body=with_body
            )
            batch.properties.append(properties)
    return batch
