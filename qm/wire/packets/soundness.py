"""Check that a packet is sound, made for every UserMessage before it may enter the log.

A packet is sound exactly when `parse_user_message` reads it. Parsing costs ten times as much as the
rest of an arrival, so common packets are judged by their shape: the bytes of UserHeader from its
Flags to the end of the names alone decide whether that header is valid, and senders repeat them
from message to message. The same holds for the whole SecurityHeader of messages that are neither
signed nor encrypted, which names their sender. What varies (sequence numbers, sizes, label) is
checked each time, unless it equals the previous packet's; packets with rarer headers go through the
parser.
"""

from struct import Struct
from typing import Final

from qm.wire.bounds import aligned
from qm.wire.headers.base_header import BASE_HEADER_SIZE_BYTES, FLAG_PR
from qm.wire.headers.message_properties import MESSAGE_PROPERTIES_MIN_BYTES
from qm.wire.headers.security_header import SECURITY_HEADER_MIN_BYTES, security_header_size
from qm.wire.headers.transaction_header import FLAG_CG, TRANSACTION_HEADER_MIN_BYTES
from qm.wire.headers.user_header import (
    AQ_SHIFT,
    DESTINATION_QUEUE_OFFSET,
    DQ_SHIFT,
    FLAG_CQ,
    FLAG_HH,
    FLAG_MQ,
    FLAG_SH,
    FLAG_TH,
    FLAGS_OFFSET,
    QUEUE_TYPE_MASK,
    RQ_SHIFT,
)
from qm.wire.limits import (
    LABEL_LENGTH_MAX_CHARS,
    PACKET_SIZE_MAX_BYTES,
    PREVIOUS_TX_SEQUENCE_NUMBER_MAX,
    USER_PACKET_SIZE_MIN_BYTES,
)
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT, queue_name_size
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES

SHAPES_MAX: Final = 1_024
"""Shapes that one judge remembers before it starts again."""
SHAPE_MAX_BYTES: Final = 1_024
"""Longer shapes are not remembered."""

_SHAPE_AT: Final = BASE_HEADER_SIZE_BYTES + FLAGS_OFFSET
_BASE_END: Final = 4
"""VersionNumber, Reserved, Flags."""
_NAMES_AT: Final = BASE_HEADER_SIZE_BYTES + DESTINATION_QUEUE_OFFSET
# BaseHeader.Flags, UserHeader.Flags, Count of a direct destination.
_GLANCE: Final = Struct(f"<2xH{_SHAPE_AT - 4}xIH").unpack_from
_TRANSACTION: Final = Struct("<I8xII").unpack_from
# LabelLength, MessageSize, AllocationBodySize, ExtensionSize.
_PROPERTIES: Final = Struct("<xB30xII12xI").unpack_from
_RARE: Final = FLAG_MQ | FLAG_HH | FLAG_CQ
_OTHER_NAMES: Final = QUEUE_TYPE_MASK << AQ_SHIFT | QUEUE_TYPE_MASK << RQ_SHIFT
_NUL: Final = b"\0\0"
_DIRECT: Final = QUEUE_TYPE_DIRECT << DQ_SHIFT
_DESTINATION: Final = QUEUE_TYPE_MASK << DQ_SHIFT


class PacketJudge:
    """Judges packets; one serves all sessions of an edge."""

    __slots__ = ("_base", "_repeated", "_repeated_end", "_senders", "_shapes", "_size")

    def __init__(self) -> None:
        self._shapes: set[bytes] = set()
        # SecurityHeaders that only name a sender.
        self._senders: set[bytes] = set()
        # From the last sound packet that was not transactional: its size, the start of its
        # BaseHeader, and everything from UserHeader.Flags to the end of the label.
        self._size = 0
        self._base = self._repeated = b""
        self._repeated_end = 0

    def judge(self, block: bytes, start: int, stop: int) -> UserMessage | None:
        """Return None for a sound packet that is neither signed nor encrypted.

        `block[start:stop]` was framed: BaseHeader is valid, PacketSize is `stop - start`, and no
        SessionHeader follows. A packet that had to be parsed is returned, as is every packet that
        is signed or encrypted. Raises ProtocolError, offsets counted from the packet's start.
        """
        if (
            stop - start == self._size
            and block[start + _SHAPE_AT : start + self._repeated_end] == self._repeated
            and block[start : start + _BASE_END] == self._base
        ):
            return None  # the differing fields may have any value
        base_flags, flags, count = _GLANCE(block, start)
        if base_flags & ~FLAG_PR or flags & _RARE:
            return self._parse(block, start, stop)
        if flags & _DESTINATION == _DIRECT and not flags & _OTHER_NAMES:
            names_end = start + _NAMES_AT + (count + 5 & -4)  # aligned(2 + count)
        else:
            names_end = _names_end(block, start, stop, flags)
        shape = block[start + _SHAPE_AT : names_end]
        label_end = 0
        if shape in self._shapes:
            label_end = _label_end(block, names_end, stop, flags, self._senders)
        if not label_end:
            message = self._parse(block, start, stop)
            _remember(self._shapes, shape)
            if flags & FLAG_SH and _only_names_its_sender(message):
                at = names_end + (TRANSACTION_HEADER_MIN_BYTES if flags & FLAG_TH else 0)
                _remember(self._senders, block[at : at + security_header_size(block, at)])
            return message
        if not flags & FLAG_TH:
            self._size = stop - start
            self._base = block[start : start + _BASE_END]
            self._repeated = block[start + _SHAPE_AT : label_end]
            self._repeated_end = label_end - start
        return None

    def _parse(self, block: bytes, start: int, stop: int) -> UserMessage:
        return parse_user_message(memoryview(block)[start:stop], 0, stop - start)[0]


def _remember(known: set[bytes], part: bytes) -> None:
    if len(part) <= SHAPE_MAX_BYTES:
        if len(known) >= SHAPES_MAX:
            known.clear()
        known.add(part)


def _only_names_its_sender(message: UserMessage) -> bool:
    """Whether nothing in its SecurityHeader has to be verified or decrypted."""
    security, transaction = message.security, message.transaction
    if transaction is not None and transaction.connector_qm_guid is not None:
        return False  # the TransactionHeader is longer
    return security is not None and not (
        security.is_body_encrypted
        or security.encryption_key
        or security.signature
        or security.sender_cert
    )


def _names_end(block: bytes, start: int, stop: int, flags: int) -> int:
    position = start + _NAMES_AT
    for shift in (DQ_SHIFT, AQ_SHIFT, RQ_SHIFT):
        if position + WCHAR_SIZE_BYTES > stop:
            break
        position += queue_name_size(block, position, flags >> shift & QUEUE_TYPE_MASK)
    return position


def _label_end(block: bytes, at: int, stop: int, flags: int, senders: set[bytes]) -> int:
    """Return where the label ends if everything after the names is valid and ends where the
    packet does, else 0.
    """
    if flags & FLAG_TH:
        if at + TRANSACTION_HEADER_MIN_BYTES > stop:
            return 0
        tx_flags, number, previous = _TRANSACTION(block, at)
        if not number or previous > PREVIOUS_TX_SEQUENCE_NUMBER_MAX or tx_flags & FLAG_CG:
            return 0
        at += TRANSACTION_HEADER_MIN_BYTES
    if flags & FLAG_SH:
        if at + SECURITY_HEADER_MIN_BYTES > stop:
            return 0
        end = at + security_header_size(block, at)
        if block[at:end] not in senders:
            return 0
        at = end
    label_at = at + MESSAGE_PROPERTIES_MIN_BYTES
    if label_at > stop:
        return 0
    label_length, size, allocation, extension_size = _PROPERTIES(block, at)
    label_end = label_at + label_length * WCHAR_SIZE_BYTES
    if label_length and (
        label_length > LABEL_LENGTH_MAX_CHARS or not _is_wide_text(block[label_at:label_end])
    ):
        return 0
    end = at + aligned(label_end - at + extension_size + size)
    is_right = size <= allocation <= PACKET_SIZE_MAX_BYTES and end == stop
    return label_end if is_right else 0


def _is_wide_text(data: bytes) -> bool:
    """Whether the only NUL is the last WCHAR. A text may have any other 16-bit unit."""
    at = data.find(_NUL)
    while at % WCHAR_SIZE_BYTES:  # a NUL across two WCHARs, or none: -1 is odd
        if at < 0:
            return False
        at = data.find(_NUL, at + 1)
    return at == len(data) - len(_NUL)


assert _NAMES_AT + WCHAR_SIZE_BYTES <= USER_PACKET_SIZE_MIN_BYTES
