"""Report messages: where a traced message was received or sent [MS-MQQB 3.1.5.8.9, 3.1.7.1.7].

The functions write label and body; the owner sends them as an express message of class REPORT to
the public queue that DebugHeader names, and drops them when that queue cannot be opened.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from qm.names.guid import guid_text
from qm.wire.guid import Guid
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.message_class import MessageClass
from qm.wire.structures.queue_name import PublicQueueFormatName

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_NOON_HOURS: Final = 12
_END_OF_LINE: Final = "\r\n"


class Traced(msgspec.Struct, frozen=True, gc=False):
    """What a report tells about a message."""

    source_queue_manager: Guid
    """UserHeader.SourceQueueManager, 16 raw bytes."""
    message_id: int
    """UserHeader.MessageID."""
    hop_count: int
    """UserHeader.Flags.RC."""
    target_queue: str
    """UserHeader.DestinationQueue as a format name."""


class Report(msgspec.Struct, frozen=True, gc=False):
    """A report message, express, without acknowledgements or journaling."""

    destination: PublicQueueFormatName
    """DebugHeader.QueueIdentifier."""
    label: str
    """Label without the NUL that the codec adds."""
    body: bytes
    """UTF-16LE text."""
    message_class: int = MessageClass.REPORT
    is_recoverable: bool = False


def report_queue(is_traced: bool, debug: DebugHeader | None) -> Guid | None:
    """Return the queue that wants reports: Flags.TR and a DebugHeader that names one."""
    return debug.queue_identifier if is_traced and debug is not None else None


def received_report(message: Traced, queue: Guid, now_utc_s: int) -> Report:
    """Return the report of a receipt; `now_utc_s` is in seconds since 1970."""
    return Report(PublicQueueFormatName(queue), _label(message, now_utc_s), _body(message, ()))


def sent_report(message: Traced, queue: Guid, now_utc_s: int, next_hop: str) -> Report:
    """Return the report of a sending to `next_hop`, an IP address without port."""
    lines = (
        f"<NEXT HOP>{next_hop}</NEXT HOP>",
        f"<HOP COUNT>{message.hop_count:02X} </HOP COUNT>",
    )
    return Report(PublicQueueFormatName(queue), _label(message, now_utc_s), _body(message, lines))


def _label(message: Traced, now_utc_s: int) -> str:
    """Both reports say "received by" and the source queue manager, as the grammar requires."""
    source = guid_text(message.source_queue_manager)
    at = datetime.fromtimestamp(now_utc_s, UTC)
    half = "AM" if at.hour < _NOON_HOURS else "PM"
    date = f"{_DAYS[at.weekday()]},{_MONTHS[at.month - 1]} {at.day:02} {at.year % 100:02}"
    return (
        f"{source[:4]}:{message.message_id:08X}:{message.hop_count:02X} received by {source}"
        f" at {at.hour % _NOON_HOURS or _NOON_HOURS:02}:{at.minute:02}:{at.second:02} {half} {date}"
    )


def _body(message: Traced, more: tuple[str, ...]) -> bytes:
    lines = (
        f"<MESSAGE ID>{message.message_id:08X}</MESSAGE ID>",
        f"<TARGET QUEUE>{message.target_queue}</TARGET QUEUE>",
        *more,
    )
    return "".join(line + _END_OF_LINE for line in lines).encode("utf-16-le")
