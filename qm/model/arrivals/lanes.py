"""Lanes: what is known of all similar arrivals, and how their packets are read.

A lane is derived from records (destination, policy, stream) and is valid as long as these stay the
same. Its messages are judged by what `Lane` holds, and by the few fields that differ among them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from qm.model.arrivals.incoming_streams import History, Stream
from qm.model.state.ledger import QueueInHand
from qm.model.values.commands import Facts
from qm.model.values.records import quota_bytes
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAGS_OFFSET,
    PACKET_SIZE_OFFSET,
)
from qm.wire.headers.security_header import FLAG_EB, security_header_size
from qm.wire.headers.transaction_header import (
    FLAG_CG,
    FLAG_FA,
    SEQUENCE_OFFSET,
    TRANSACTION_HEADER_MIN_BYTES,
)
from qm.wire.headers.user_header import (
    DESTINATION_QUEUE_OFFSET,
    DESTINATION_TYPES,
    DQ_SHIFT,
    FLAG_SH,
    FLAG_TH,
    MESSAGE_ID_OFFSET,
    QUEUE_TYPE_MASK,
)
from qm.wire.headers.user_header import FLAGS_OFFSET as USER_FLAGS_OFFSET
from qm.wire.packets.peek import HEAD, Head, user_header_end
from qm.wire.structures.queue_name import (
    DIRECT_COUNT_SIZE_BYTES,
    QUEUE_TYPE_DIRECT,
    queue_name_size,
)

KIND_MASK: Final = QUEUE_TYPE_MASK << DQ_SHIFT | FLAG_TH | FLAG_SH
"""Bits of UserHeader.Flags in which the messages of a lane are equal."""
PARTED: Final = FLAG_TH | FLAG_SH
"""Bits of messages whose headers behind the UserHeader matter."""
SPECIAL: Final = FLAG_FA | FLAG_CG
"""TransactionHeader.Flags of messages that are judged one by one."""

_REACH_AT: Final = PACKET_SIZE_OFFSET + 4
"""TimeToReachQueue; all offsets here count from a packet's start."""
_MESSAGE_ID_AT: Final = BASE_HEADER_SIZE_BYTES + MESSAGE_ID_OFFSET
_FLAGS_AT: Final = BASE_HEADER_SIZE_BYTES + USER_FLAGS_OFFSET
DESTINATION_AT: Final = BASE_HEADER_SIZE_BYTES + DESTINATION_QUEUE_OFFSET
_BASE_BEGIN: Final = f"<{FLAGS_OFFSET}xH{_REACH_AT - FLAGS_OFFSET - 2}x"
"""Reads BaseHeader.Flags and continues at TimeToReachQueue."""
PACKET_HEAD: Final = Struct(f"{_BASE_BEGIN}I{2 * GUID_SIZE_BYTES}sIIIIH")
"""`qm.wire.packets.peek.HEAD` without version, signature and PacketSize, and with both GUIDs in
one.
"""
_PROBE: Final = bytes(range(HEAD.size))
_NAMED: Final = Head(*HEAD.unpack(_PROBE))
assert PACKET_HEAD.unpack(_PROBE) == (
    _NAMED.base_flags,
    _NAMED.time_to_reach_queue,
    _NAMED.source_queue_manager + _NAMED.queue_manager_address,
    _NAMED.time_to_be_received,
    _NAMED.sent_time,
    _NAMED.message_id,
    _NAMED.user_flags,
    _NAMED.direct_name_bytes,
)
NUMBERS: Final = Struct(f"<I{SEQUENCE_OFFSET - 4}xQII")
"""TransactionHeader: Flags, TxSequenceID, TxSequenceNumber, PreviousTxSequenceNumber."""
assert NUMBERS.size == TRANSACTION_HEADER_MIN_BYTES


def _destination_end(queue_type: int) -> int:
    if queue_type == QUEUE_TYPE_DIRECT:
        return DESTINATION_AT + DIRECT_COUNT_SIZE_BYTES
    if queue_type not in DESTINATION_TYPES:
        return DESTINATION_AT
    return DESTINATION_AT + queue_name_size(bytes(DIRECT_COUNT_SIZE_BYTES), 0, queue_type)


DESTINATION_END: Final = tuple(map(_destination_end, range(QUEUE_TYPE_MASK + 1)))
"""By Flags.DQ: where DestinationQueue ends in a packet; a direct name's bytes are added to it."""

RowBegins: TypeAlias = Mapping[int, bytes]
"""By the bits of UserHeader.Flags that a position keeps: the start of its row."""
Reader: TypeAlias = Callable[[bytes, int], tuple[int, bytes, int, bytes]]
PartedReader: TypeAlias = Callable[
    [bytes, int], tuple[int, bytes, int, bytes, int, int, int, int, bytes]
]


class Lane:
    """Similar messages of one source to one destination, with the facts of one session."""

    __slots__ = (
        "alike_of",
        "history",
        "limit_bytes",
        "numbered_alike_of",
        "numbers_at",
        "queue",
        "queue_id",
        "row_begins",
        "seal_bytes",
        "size_min",
        "source",
        "stream",
    )

    def __init__(
        self,
        source: bytes,
        queue: QueueInHand,
        stream: Stream,
        history: History,
        row_begins: RowBegins,
        seal_bytes: int,
    ) -> None:
        self.source = source
        self.queue = queue
        self.queue_id = queue.record.queue_id
        self.stream = stream
        self.history = history
        self.limit_bytes = -1 if queue.is_full else quota_bytes(queue.record.quota)
        self.row_begins = row_begins
        self.seal_bytes = seal_bytes
        """Size of the seal behind each packet, which quotas do not count."""
        self.size_min = 0
        """Size up to the end of what is compared, in the packet that was read last."""
        self.numbers_at = 0
        """Where the TransactionHeader of that packet begins, 0 without one."""
        self.alike_of: Reader = _alike(DESTINATION_AT)
        """Reads what messages taken together have in common, and their ordinal."""
        self.numbered_alike_of: PartedReader = _numbered_alike(DESTINATION_AT, DESTINATION_AT)
        """The same of transactional messages, and their numbers."""

    def read_to(self, end: int) -> None:
        """Set where that ends in packets without a TransactionHeader."""
        if self.size_min != end:
            self.size_min = end
            self.alike_of = _alike(end)

    def _read_numbers(self, numbers_at: int, end: int) -> None:
        if (self.numbers_at, self.size_min) != (numbers_at, end):
            self.numbers_at, self.size_min = numbers_at, end
            self.numbered_alike_of = _numbered_alike(numbers_at, end)

    def takes(self, data: bytes, at: int, flags: int) -> bool:
        """Read the headers of the packet at `at`; return whether it is plain.

        It is unless its body is still encrypted, or it asks for a final acknowledgement or for
        acknowledgements without naming a queue for them.
        """
        header_end = user_header_end(data, at, flags)
        position = header_end
        if flags & FLAG_TH:
            if data[position] & SPECIAL:
                return False
            position += TRANSACTION_HEADER_MIN_BYTES
        if flags & FLAG_SH:
            if data[position] & FLAG_EB:
                return False
            position += security_header_size(data, position)
        if data[position] & ACKNOWLEDGE_MASK:
            return False
        end = position + 1 - at
        if flags & FLAG_TH:
            self._read_numbers(header_end - at, end)
        else:
            self.read_to(end)
        return True


READERS_MAX: Final = 256
"""Lengths of headers whose readers are kept: making one costs as much as a message."""
ACKNOWLEDGE_MASK: Final = 0x0F
"""MessagePropertiesHeader.Flags: acknowledgements that a message asks for."""


@lru_cache(READERS_MAX)
def _alike(end: int) -> Reader:
    """Return a reader of BaseHeader.Flags, the fields from TimeToReachQueue to SentTime, the
    ordinal, and everything from UserHeader.Flags to `end`.
    """
    return Struct(f"{_BASE_BEGIN}{_MESSAGE_ID_AT - _REACH_AT}sI{end - _FLAGS_AT}s").unpack_from


@lru_cache(READERS_MAX)
def _numbered_alike(numbers_at: int, end: int) -> PartedReader:
    """Return a reader that takes the TransactionHeader apart in between, as `NUMBERS` does."""
    parts = Struct(
        f"{_BASE_BEGIN}{_MESSAGE_ID_AT - _REACH_AT}sI{numbers_at - _FLAGS_AT}s"
        f"{NUMBERS.format[1:]}{max(end - numbers_at - NUMBERS.size, 0)}s"
    )
    return parts.unpack_from


Speaker = tuple[bytes, str]
"""Source queue manager of messages, and address of the session that brought them."""
LanesByName = dict[bytes, Lane | None]
"""By destination name. None: one by one."""


class Lanes:
    """Lanes, valid as long as the facts from which they were derived."""

    __slots__ = ("_by_sender", "heard", "size")

    def __init__(self) -> None:
        self._by_sender: dict[tuple[bytes, Facts, int], tuple[LanesByName, Speaker]] = {}
        self.heard: list[Speaker] = []
        """Those of the batch in hand, in order, each at least once."""
        self.size = 0
        """Number of lanes and senders."""

    def of(self, guids: bytes, facts: Facts, kind: int) -> LanesByName:
        """Return the lanes of packets with these GUIDs in the UserHeader, these facts and these
        bits of KIND_MASK.
        """
        sender = (guids, facts, kind)
        known = self._by_sender.get(sender)
        if known is None:
            known = self._by_sender[sender] = ({}, (guids[:GUID_SIZE_BYTES], facts.peer_address))
            self.size += 1
        lanes, speaker = known
        self.heard.append(speaker)
        return lanes

    def forget(self, stream_ids: frozenset[int]) -> None:
        """Drop the lanes of streams that no longer exist."""
        for lanes, _ in self._by_sender.values():
            for name, lane in list(lanes.items()):
                if lane is not None and lane.stream.stream_id in stream_ids:
                    del lanes[name]
