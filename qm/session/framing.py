"""Cuts chunks of a stream into packets, without a value per message [MS-MQQB 3.1.5.1].

`Stream` keeps the bytes of the packet that is not complete yet. `message_run` walks over whole
UserMessages and stops at everything that needs a closer look: another kind of packet, a trailing
SessionHeader, an OrderAck or FinalAck, an error, the end. `packet_span` decides whether a packet's
start is valid; the loop only recognizes the common case.

`qm.wire.Framer` serves readers who need each packet's fields. A session needs only its kind, and
before OPEN it refuses a message by its first bytes instead of gathering it.
"""

from struct import Struct
from typing import Final

from qm.session.events import KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL
from qm.wire.errors import ProtocolError
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_DH,
    FLAG_IN,
    FLAG_PR,
    FLAG_SH,
    FLAG_TR,
    SIGNATURE,
    VERSION_NUMBER,
)
from qm.wire.headers.session_header import SessionHeader, parse_session_header
from qm.wire.headers.user_header import (
    DESTINATION_QUEUE_OFFSET,
    DM_RECOVERABLE,
    DM_SHIFT,
    DQ_SHIFT,
    FLAG_DM,
    FLAG_TH,
    FLAGS_OFFSET,
    QUEUE_TYPE_MASK,
)
from qm.wire.limits import (
    PACKET_SIZE_MAX_BYTES,
    SESSION_HEADER_SIZE_BYTES,
    USER_PACKET_SIZE_MIN_BYTES,
)
from qm.wire.packets.ack import ORDER_QUEUE_ID
from qm.wire.packets.patch import detach_session_header
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT, QueueHost

# VersionNumber, Flags, Signature, PacketSize of BaseHeader, then UserHeader.Flags: all that the
# loop needs of a message. One combined layout takes half the time of two.
_HEAD: Final = Struct(f"<BxHII{BASE_HEADER_SIZE_BYTES - 12 + FLAGS_OFFSET}xI")
MESSAGE_HEAD: Final = _HEAD.unpack_from
_SPECIAL: Final = FLAG_IN | FLAG_SH
_MEANT: Final = FLAG_PR | FLAG_IN | FLAG_SH | FLAG_DH | FLAG_TR
"""Flags of BaseHeader; reserved ones are ignored on receipt [MS-MQMQ 2.2.19.1]."""

KINDS_MASK: Final = FLAG_DM | FLAG_TH
KINDS: Final = {
    0: KIND_EXPRESS,
    DM_RECOVERABLE << DM_SHIFT: KIND_RECOVERABLE,
    DM_RECOVERABLE << DM_SHIFT | FLAG_TH: KIND_TRANSACTIONAL,
}
"""Flags.DM and Flags.TH to KIND_*; other combinations are malformed (MS-MQMQ 2.2.19.2)."""

_ORDER_QUEUE_TAIL: Final = "order_queue$\0".encode("utf-16-le")
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_NAME_AT: Final = BASE_HEADER_SIZE_BYTES + DESTINATION_QUEUE_OFFSET


class Stream:
    """The receive buffer: amortised O(bytes), never more than one incomplete packet and a chunk.

    A chunk that meets an empty buffer is read in place; only what is left over is kept. A chunk
    that completes nothing is appended without being inspected, so 4 MiB in 64 KiB chunks are
    copied once, not 64 times.
    """

    __slots__ = ("_kept", "_wanted")

    def __init__(self) -> None:
        self._kept = bytearray()
        # Bytes that must be there before another look can find more.
        self._wanted = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of the incomplete packet."""
        return len(self._kept)

    def join(self, data: bytes) -> bytes | bytearray | None:
        """Return the bytes to inspect, or None when `data` completes nothing."""
        if not self._kept:
            return data
        self._kept += data
        return self._kept if len(self._kept) >= self._wanted else None

    def keep(self, buffer: bytes | bytearray, consumed: int, wanted: int) -> None:
        """Drop `consumed` bytes of `buffer`; inspect it again when `wanted` bytes are there."""
        if buffer is self._kept:
            del self._kept[:consumed]
        else:
            self._kept = bytearray(memoryview(buffer)[consumed:])
        self._wanted = wanted

    def clear(self) -> None:
        """Forget the bytes of a session that has ended."""
        self._kept = bytearray()


def message_run(
    buffer: bytes | bytearray, start: int, end: int, offsets: list[int], kinds: bytearray
) -> int:
    """Walk over whole ordinary UserMessages from `start`; return where anything else begins.

    Appends each packet's end, relative to `start`, to `offsets` and its KIND_* to `kinds`.
    """
    at, last = start, end - _HEAD.size
    head, kind_of = MESSAGE_HEAD, KINDS.get
    add_offset, add_kind = offsets.append, kinds.append
    while at <= last:
        version, flags, signature, size, user_flags = head(buffer, at)
        stop = at + size
        kind = kind_of(user_flags & KINDS_MASK)
        if (
            stop > end
            or signature != SIGNATURE
            or version != VERSION_NUMBER
            or flags & _SPECIAL
            or not USER_PACKET_SIZE_MIN_BYTES <= size <= PACKET_SIZE_MAX_BYTES
            or kind is None
            # The acks have base flags of zero; a transactional message can have them too.
            or (
                not flags & _MEANT
                and kind != KIND_TRANSACTIONAL
                and _is_to_order_queue(buffer, at, user_flags)
            )
        ):
            break
        add_offset(stop - start)
        add_kind(kind)
        at = stop
    return at


def message_kind(buffer: bytes | bytearray, at: int) -> int:
    """Return KIND_* of the UserMessage at `at`, which has at least its smallest size."""
    _, _, _, _, user_flags = MESSAGE_HEAD(buffer, at)
    kind = KINDS.get(user_flags & KINDS_MASK)
    if kind is None:
        raise ProtocolError(
            BASE_HEADER_SIZE_BYTES + FLAGS_OFFSET,
            "UserHeader.Flags.DM",
            "MS-MQMQ 2.2.19.2",
            "a message is express, recoverable, or recoverable and transactional",
        )
    return kind


def split_session_header(
    buffer: bytes | bytearray, at: int, stop: int
) -> tuple[bytes, SessionHeader]:
    """Return a UserMessage without the SessionHeader at its end, and that header.

    Raises ProtocolError for a malformed header.
    """
    try:
        header, _ = parse_session_header(buffer, stop - SESSION_HEADER_SIZE_BYTES, stop)
    except ProtocolError as error:
        raise error.counted_from(at) from None
    packet = bytearray(memoryview(buffer)[at:stop])
    detach_session_header(packet)
    return bytes(packet), header


def may_be_acknowledgement(buffer: bytes | bytearray, at: int) -> bool:
    """Whether the message can be OrderAck or FinalAck; only its label and class tell for sure.

    All bits of their BaseHeader.Flags are clear and they go to order_queue$ [MS-MQQB 3.1.5.1.1].
    """
    _, flags, _, _, user_flags = MESSAGE_HEAD(buffer, at)
    return not flags & _MEANT and _is_to_order_queue(buffer, at, user_flags)


def _is_to_order_queue(buffer: bytes | bytearray, at: int, user_flags: int) -> bool:
    queue_type = user_flags >> DQ_SHIFT & QUEUE_TYPE_MASK
    name_at = at + _NAME_AT
    if queue_type == QueueHost.DESTINATION.value:
        return bool(_U32.unpack_from(buffer, name_at)[0] == ORDER_QUEUE_ID)
    if queue_type != QUEUE_TYPE_DIRECT:
        return False
    name_end = name_at + _U16.size + _U16.unpack_from(buffer, name_at)[0]
    return buffer[name_end - len(_ORDER_QUEUE_TAIL) : name_end].lower() == _ORDER_QUEUE_TAIL
