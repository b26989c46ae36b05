"""Identifiers of fixed size: messages, queues and sequences.

Sections: MessageIdentifier [MS-MQMQ 2.2.18.1.3], OBJECTID [2.2.8], TxSequenceID [2.2.18.1.2],
SEQUENCE_INFO [2.2.5]. All little-endian; GUIDs are raw packet bytes.

`parse_*` take a buffer, an offset and the end that bounds it (at most `len(buffer)`), and return
the value and the offset after it; too few bytes are a `ProtocolError`. `write_*` return bytes.
"""

from struct import Struct, error
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ValueOutOfRange
from qm.wire.guid import Guid

_GUID_U32: Final = Struct("<16sI")
SEQUENCE_INFO: Final = Struct("<QII")
"""A message's place in the stream to one queue: the sequence (the eight bytes of a TxSequenceID),
the message's number there, and that of the message before it."""

MESSAGE_IDENTIFIER_SIZE_BYTES: Final = _GUID_U32.size


class MessageIdentifier(msgspec.Struct, frozen=True, gc=False):
    """Identifies one message of one queue manager permanently [MS-MQMQ 2.2.18.1.3]."""

    queue_manager_guid: Guid
    """The sender's queue manager, 16 raw bytes."""
    ordinal: int
    """Unique within that queue manager, u32."""


class ObjectId(msgspec.Struct, frozen=True, gc=False):
    """OBJECTID: an object within a group, such as a private queue of a computer [MS-MQMQ 2.2.8]."""

    lineage: Guid
    """The group, 16 raw bytes; the queue manager for a private queue."""
    uniquifier: int
    """The object within the group, u32."""


class TxSequenceId(msgspec.Struct, frozen=True, gc=False, order=True, kw_only=True):
    """Identifies a sequence of transactional messages of a queue manager [MS-MQMQ 2.2.18.1.2].

    Sequences compare as unsigned 64-bit integers with `time_stamp` as the high half: it is declared
    first, and keyword arguments keep callers from relying on that order.
    """

    time_stamp: int
    """High half, u32; the second field on the wire."""
    ordinal: int
    """Low half, u32; the first field on the wire."""

    def to_int(self) -> int:
        """Return the unsigned 64-bit integer that the section compares."""
        return self.time_stamp << 32 | self.ordinal

    @staticmethod
    def from_int(value: int) -> "TxSequenceId":
        """Return the identifier whose 64-bit integer is `value`."""
        return TxSequenceId(time_stamp=value >> 32, ordinal=value & 0xFFFF_FFFF)


def parse_message_identifier(
    buffer: Buffer, offset: int, end: int
) -> tuple[MessageIdentifier, int]:
    """Read the 20 bytes of a MessageIdentifier."""
    after = _after(offset, end, _GUID_U32.size, "MessageIdentifier", "MS-MQMQ 2.2.18.1.3")
    return MessageIdentifier(*_GUID_U32.unpack_from(buffer, offset)), after


def write_message_identifier(identifier: MessageIdentifier) -> bytes:
    """Return the 20 bytes of a MessageIdentifier."""
    guid = _guid_bytes(
        identifier.queue_manager_guid, "MessageIdentifier.QueueManagerGuid", "MS-MQMQ 2.2.18.1.3"
    )
    return _pack(_GUID_U32, "MessageIdentifier", "MS-MQMQ 2.2.18.1.3", guid, identifier.ordinal)


def parse_object_id(buffer: Buffer, offset: int, end: int) -> tuple[ObjectId, int]:
    """Read the 20 bytes of an OBJECTID."""
    after = _after(offset, end, _GUID_U32.size, "OBJECTID", "MS-MQMQ 2.2.8")
    return ObjectId(*_GUID_U32.unpack_from(buffer, offset)), after


def write_object_id(object_id: ObjectId) -> bytes:
    """Return the 20 bytes of an OBJECTID."""
    lineage = _guid_bytes(object_id.lineage, "OBJECTID.Lineage", "MS-MQMQ 2.2.8")
    return _pack(_GUID_U32, "OBJECTID", "MS-MQMQ 2.2.8", lineage, object_id.uniquifier)


def _after(offset: int, end: int, size: int, field: str, section: str) -> int:
    """Return the offset after `size` bytes, or raise when some are missing."""
    after = offset + size
    if after > end:
        raise truncated(offset, size, end, field, section)
    return after


def _guid_bytes(raw: Guid, field: str, section: str) -> bytes:
    if len(raw) != GUID_SIZE_BYTES:
        raise ValueOutOfRange(field, section, f"{len(raw)} bytes; a GUID has {GUID_SIZE_BYTES}")
    return bytes(raw)


def _pack(layout: Struct, field: str, section: str, *values: bytes | int) -> bytes:
    try:
        return layout.pack(*values)
    except error as overflow:
        raise ValueOutOfRange(field, section, str(overflow)) from None
