"""MSMQ packets: bytes to values and back (MS-MQMQ 2.2, MS-MQQB 2.2). Pure; may import
`qm.names`.

Three interfaces:

- **Values.** `parse_packet` and `write_packet`, and one `parse_*`/`write_*` pair per structure in
  its own module. `parse_x(buffer, offset, end)` returns the value and the next offset; `end` is at
  most `len(buffer)`. Values are frozen. What a packet states twice (a flag and the header that it
  announces) a value states once.
- **Streams.** `Framer.feed` splits a TCP stream into runs of whole packets, with the fixed fields
  of each.
- **Raw packets.** `qm.wire.packets.peek` reads and `qm.wire.packets.patch` writes single fields in
  place.

Rules for all of them:

- Any bytes give a value, "more is needed" (None), or one `ProtocolError`; errors of our own callers
  are `ValueOutOfRange`.
- `write` accepts exactly the values that `parse` can return. Rules that bind senders only are kept
  by who makes messages: `qm.api.convert.packets` and `qm.edge.outgoing.packets`.
- A reserved field that may hold anything is kept; a bit that should be sent clear is not kept.
"""

from qm.wire.bounds import Buffer
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import GUID_NULL, Guid
from qm.wire.headers.base_header import BaseHeader, parse_base_header
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import DistributionQueueFormatName, MultiQueueFormatHeader
from qm.wire.headers.security_header import ProviderInfo, SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck, is_order_queue, order_queue_at
from qm.wire.packets.framer import Framer, Frames, frame_packet
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet, PacketKind, packet_kind, parse_packet, write_packet
from qm.wire.packets.peek import Head
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import MessageIdentifier, TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
)

__all__ = [
    "GUID_NULL",
    "ORDER_QUEUE",
    "AcknowledgeFlags",
    "BaseHeader",
    "Buffer",
    "ConnectionParameters",
    "DebugHeader",
    "DirectQueueFormatName",
    "DistributionQueueFormatName",
    "EstablishConnection",
    "FinalAck",
    "Framer",
    "Frames",
    "Guid",
    "Head",
    "MessageClass",
    "MessageIdentifier",
    "MessagePropertiesHeader",
    "MultiQueueFormatHeader",
    "OrderAck",
    "Packet",
    "PacketKind",
    "Ping",
    "PrivateQueueFormatName",
    "PrivateQueueFormatNameId",
    "ProtocolError",
    "ProviderInfo",
    "PublicQueueFormatName",
    "QueueHost",
    "QueueName",
    "SameAsAdminQueue",
    "SecurityHeader",
    "SessionAck",
    "SessionHeader",
    "SoapHeader",
    "TransactionHeader",
    "TxSequenceId",
    "UserHeader",
    "UserMessage",
    "ValueOutOfRange",
    "frame_packet",
    "is_order_queue",
    "order_queue_at",
    "packet_kind",
    "parse_base_header",
    "parse_packet",
    "parse_ping",
    "parse_user_message",
    "write_packet",
    "write_ping",
    "write_user_message",
]
