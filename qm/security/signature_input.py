"""What a signature covers: the fields of [MS-MQMQ] 2.5, in order.

The octets of strings and names are not defined there. QB-A51: names and texts count as the bytes
that the packet has, without padding; a label with its NUL; what is absent as nothing.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

from qm.wire.headers.multi_queue_format import write_format_name_list
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import (
    DIRECT_COUNT_SIZE_BYTES,
    DirectQueueFormatName,
    QueueName,
    write_queue_name,
)
from qm.wire.structures.wide_text import write_wide_text

_TAG: Final = Struct("<I")
_COUNT: Final = Struct("<H")
_OPTIONS: Final = Struct("<16sBBBBHI")


class SignatureVersion(IntEnum):
    """A list of signed fields; the value is what SecurityHeader.Flags.AS reports of it."""

    MSMQ_1 = 1
    """[MS-MQMQ] 2.5.1."""
    MSMQ_2 = 3
    """[MS-MQMQ] 2.5.2."""
    MSMQ_3 = 5
    """[MS-MQMQ] 2.5.3, for messages to several destinations (MQ-A18)."""


def signature_input(
    message: UserMessage, version: SignatureVersion, *, has_direct_counts: bool = False
) -> Iterator[bytes]:
    """Yield the signed bytes of a message whose body is in clear.

    `has_direct_counts`: direct names are covered with their Count, the other reading of the text.
    """
    header, properties = message.user_header, message.properties
    yield properties.correlation_id
    yield _TAG.pack(properties.application_tag)
    yield properties.message_body
    if properties.label is not None:
        yield write_wide_text(properties.label, "MessagePropertiesHeader.Label", "MS-MQMQ 2.5")
    yield _name(header.response_queue, has_direct_counts)
    yield _name(header.admin_queue, has_direct_counts)
    if version is SignatureVersion.MSMQ_1:
        return
    if version is SignatureVersion.MSMQ_3:
        yield properties.extension_data
        if message.multi_queue_format is not None:
            yield write_format_name_list(message.multi_queue_format.destination)
    yield _OPTIONS.pack(
        header.source_queue_manager,
        header.is_recoverable,
        message.priority,
        header.has_positive_journaling << 1 | header.has_negative_journaling,
        properties.flags,
        properties.message_class,
        properties.body_type,
    )
    yield header.connector_type or b""
    if version is SignatureVersion.MSMQ_2:
        yield _name(header.destination_queue, has_direct_counts)


def _name(name: QueueName | None, has_direct_counts: bool) -> bytes:
    _, encoded = write_queue_name(name, "UserHeader")
    if not isinstance(name, DirectQueueFormatName):
        return encoded
    (size,) = _COUNT.unpack_from(encoded)
    start = 0 if has_direct_counts else DIRECT_COUNT_SIZE_BYTES
    return encoded[start : DIRECT_COUNT_SIZE_BYTES + size]
