"""UserMessage: the packet that carries one whole message [MS-MQMQ 2.2.20].

Headers are in document order, each on a 4-byte boundary of the packet.
"""

from typing import Final

import msgspec

from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    BaseHeader,
    parse_base_header,
    write_base_header,
)
from qm.wire.headers.debug_header import DebugHeader, parse_debug_header, write_debug_header
from qm.wire.headers.message_properties import (
    MessagePropertiesHeader,
    message_properties_parts,
    parse_message_properties_header,
)
from qm.wire.headers.multi_queue_format import (
    MultiQueueFormatHeader,
    parse_multi_queue_format_header,
    write_multi_queue_format_header,
)
from qm.wire.headers.security_header import (
    SecurityHeader,
    parse_security_header,
    write_security_header,
)
from qm.wire.headers.session_header import SessionHeader, parse_session_header, write_session_header
from qm.wire.headers.soap_header import SoapHeader, parse_soap_header, write_soap_header
from qm.wire.headers.transaction_header import (
    TransactionHeader,
    parse_transaction_header,
    write_transaction_header,
)
from qm.wire.headers.user_header import (
    FLAG_HH,
    FLAG_MQ,
    FLAG_SH,
    FLAG_TH,
    UserHeader,
    parse_user_header,
    peek_user_flags,
    write_user_header,
)
from qm.wire.limits import (
    PACKET_SIZE_MAX_BYTES,
    PRIORITY_DEFAULT,
    SESSION_HEADER_SIZE_BYTES,
    TIME_INFINITE_S,
)

SECTION: Final = "MS-MQMQ 2.2.20"


class UserMessage(msgspec.Struct, frozen=True, gc=False):
    """One message: an application's, an acknowledgment or a report.

    The presence flags of BaseHeader and UserHeader follow from the headers that are not None.
    """

    user_header: UserHeader
    properties: MessagePropertiesHeader
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    debug: DebugHeader | None = None
    soap: SoapHeader | None = None
    multi_queue_format: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None
    """Follows the packet's PacketSize bytes (QB-A17)."""
    priority: int = PRIORITY_DEFAULT
    """0..7; always 0 in a transactional message (MQ-A27)."""
    time_to_reach_queue: int = TIME_INFINITE_S
    """Seconds to reach the destination queue manager; 0xFFFFFFFF is infinite."""
    is_traced: bool = False
    """Whether report messages are wanted; needs `debug`."""
    base_reserved: int = 0
    """BaseHeader.Reserved, any byte."""


_Tail = tuple[
    MessagePropertiesHeader, DebugHeader | None, SoapHeader | None, MultiQueueFormatHeader | None
]


def parse_user_message(buffer: Buffer, offset: int, end: int) -> tuple[UserMessage, int]:
    """Read and check the whole packet; errors count their offset from the packet's start."""
    try:
        return _parse(buffer, offset, end)
    except ProtocolError as error:
        if not offset:
            raise
        raise error.counted_from(offset) from None


def _parse(buffer: Buffer, offset: int, end: int) -> tuple[UserMessage, int]:
    base, position = parse_base_header(buffer, offset, end)
    if base.is_internal:
        raise ProtocolError(offset + 2, "BaseHeader.Flags.IN", SECTION, "set in a UserMessage")
    stop = offset + base.packet_size
    after = stop + SESSION_HEADER_SIZE_BYTES if base.has_session_header else stop
    if after > end:
        raise truncated(offset, after - offset, end, "BaseHeader.PacketSize", SECTION)
    flags = peek_user_flags(buffer, position, stop)
    user_header, position = parse_user_header(buffer, position, stop)
    transaction = security = session = None
    if flags & FLAG_TH:
        transaction, position = parse_transaction_header(buffer, position, stop)
    if flags & FLAG_SH:
        security, position = parse_security_header(buffer, position, stop)
    properties, debug, soap, multi_queue_format = _parse_tail(buffer, position, stop, base, flags)
    if base.has_session_header:
        # MQ-A5: the header follows the packet's PacketSize bytes.
        session, _ = parse_session_header(buffer, stop, after)
    message = UserMessage(
        user_header,
        properties,
        transaction,
        security,
        debug,
        soap,
        multi_queue_format,
        session,
        # MQ-A27: the priority that a sender gives a transactional message is ignored.
        0 if transaction is not None else base.priority,
        base.time_to_reach_queue,
        base.is_traced,
        base.reserved,
    )
    return message, after


def _parse_tail(buffer: Buffer, offset: int, stop: int, base: BaseHeader, flags: int) -> _Tail:
    """Read MessagePropertiesHeader and everything after it, up to the packet's end."""
    properties, position = parse_message_properties_header(buffer, offset, stop)
    if position == stop and not base.has_debug_header and not flags & (FLAG_HH | FLAG_MQ):
        return properties, None, None, None
    try:
        return properties, *_parse_behind_body(buffer, position, stop, base, flags)
    except ProtocolError as error:
        # MQ-A11: the body takes AllocationBodySize only if nothing else makes the headers fit.
        if not properties.allocation_surplus_bytes:
            raise
        try:
            properties, position = parse_message_properties_header(
                buffer, offset, stop, is_laid_out_by_allocation=True
            )
            return properties, *_parse_behind_body(buffer, position, stop, base, flags)
        except ProtocolError:
            raise error from None


def _parse_behind_body(
    buffer: Buffer, position: int, stop: int, base: BaseHeader, flags: int
) -> tuple[DebugHeader | None, SoapHeader | None, MultiQueueFormatHeader | None]:
    debug = soap = multi_queue_format = None
    if base.has_debug_header:
        debug, position = parse_debug_header(buffer, position, stop)
    if flags & FLAG_HH and flags & FLAG_MQ:
        soap, multi_queue_format, position = _parse_soap_and_lists(buffer, position, stop)
    elif flags & FLAG_HH:
        soap, position = parse_soap_header(buffer, position, stop)
    elif flags & FLAG_MQ:
        multi_queue_format, position = parse_multi_queue_format_header(buffer, position, stop)
    if position != stop:
        raise ProtocolError(
            position,
            "BaseHeader.PacketSize",
            SECTION,
            f"{stop - position} bytes after the last header",
        )
    return debug, soap, multi_queue_format


def _parse_soap_and_lists(
    buffer: Buffer, offset: int, stop: int
) -> tuple[SoapHeader, MultiQueueFormatHeader, int]:
    """MQ-A37: document order first; the other order only when that one cannot be read."""
    try:
        soap, position = parse_soap_header(buffer, offset, stop)
        lists, position = parse_multi_queue_format_header(buffer, position, stop)
    except ProtocolError as error:
        try:
            lists, position = parse_multi_queue_format_header(buffer, offset, stop)
            soap, position = parse_soap_header(buffer, position, stop)
        except ProtocolError:
            raise error from None
    return soap, lists, position


def write_user_message(message: UserMessage) -> bytes:
    """Return the packet, followed by the SessionHeader if there is one."""
    if message.transaction is not None and message.priority:
        raise ValueOutOfRange(
            "BaseHeader.Flags.PR", SECTION, f"{message.priority} in a transactional message"
        )
    presence = 0
    parts: list[bytes] = []
    if message.transaction is not None:
        presence |= FLAG_TH
        parts.append(write_transaction_header(message.transaction))
    if message.security is not None:
        presence |= FLAG_SH
        parts.append(write_security_header(message.security))
    parts += message_properties_parts(message.properties)
    if message.debug is not None:
        parts.append(write_debug_header(message.debug))
    if message.soap is not None:
        presence |= FLAG_HH
        parts.append(write_soap_header(message.soap))
    if message.multi_queue_format is not None:
        presence |= FLAG_MQ
        parts.append(write_multi_queue_format_header(message.multi_queue_format))
    user_header = write_user_header(message.user_header, presence)
    packet_size = BASE_HEADER_SIZE_BYTES + len(user_header) + sum(map(len, parts))
    if packet_size > PACKET_SIZE_MAX_BYTES:
        raise ValueOutOfRange(
            "BaseHeader.PacketSize",
            SECTION,
            f"{packet_size} bytes, at most {PACKET_SIZE_MAX_BYTES}; shorten the body",
        )
    base = BaseHeader(
        packet_size,
        message.time_to_reach_queue,
        message.priority,
        has_session_header=message.session is not None,
        has_debug_header=message.debug is not None,
        is_traced=message.is_traced,
        reserved=message.base_reserved,
    )
    session = b"" if message.session is None else write_session_header(message.session)
    return b"".join((write_base_header(base), user_header, *parts, session))
