"""A packet as readable text: every field with its place, its meaning and its section.

`describe_packet` and `describe_ping` never raise. The codec decides what is an error; what is legal
but unusual (reserved bits that are set, an acknowledgment requested without a queue to send it to)
is a note. If a packet has an error, everything before it is described, including the fixed part of
the broken header.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES, guid_text
from qm.wire.bounds import aligned
from qm.wire.enums import VarType
from qm.wire.errors import ProtocolError
from qm.wire.guid import GUID_NULL
from qm.wire.headers.base_header import parse_base_header
from qm.wire.headers.debug_header import parse_debug_header
from qm.wire.headers.message_properties import parse_message_properties_header
from qm.wire.headers.multi_queue_format import (
    DistributionQueueFormatName,
    FormatNameElement,
    parse_multi_queue_format_header,
)
from qm.wire.headers.security_header import parse_provider_info, parse_security_header
from qm.wire.headers.soap_header import BODY_SECTION_ID, parse_soap_header
from qm.wire.headers.transaction_header import parse_transaction_header
from qm.wire.headers.user_header import parse_user_header
from qm.wire.limits import HOPS_MAX, PACKET_SIZE_MIN_BYTES, TIME_INFINITE_S
from qm.wire.message_class import MessageClassRole, message_class_role
from qm.wire.packets import layouts
from qm.wire.packets.internal import PacketType
from qm.wire.packets.layouts import Field, Layout
from qm.wire.packets.packet import parse_packet
from qm.wire.packets.ping import parse_ping
from qm.wire.structures import queue_name
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
    parse_queue_name,
)
from qm.wire.structures.wide_text import WCHAR_SIZE_BYTES

UNKNOWN_KIND: Final = "unknown"


class Node(msgspec.Struct, frozen=True):
    """A header, one of its fields, or bits of a field."""

    name: str
    """The specification's name, without that of the enclosing node."""
    offset: int
    """Bytes from the packet's start; bits have the offset of their field."""
    size: int
    """Bytes; 0 for bits of a field."""
    value: int | str | bytes | None = None
    """The field as on the wire, a GUID as raw bytes; None for a structure."""
    text: str = ""
    """What the value means, where that is not obvious."""
    section: str = ""
    """Document and section, for headers and named structures."""
    children: tuple["Node", ...] = ()


class Description(msgspec.Struct, frozen=True):
    """Everything known about the bytes of one packet."""

    kind: str
    """EstablishConnection, ConnectionParameters, SessionAck, UserMessage, OrderAck, FinalAck, Ping;
    `UNKNOWN_KIND` when the error comes before the kind is known."""
    size: int
    """Bytes passed in."""
    nodes: tuple[Node, ...]
    """Headers in wire order."""
    notes: tuple[str, ...]
    """Oddities that are not errors."""
    error: ProtocolError | None
    """Why the codec refuses the packet."""


def describe_packet(packet: bytes) -> Description:
    """Describe the bytes of one packet of a session, a UserMessage's SessionHeader included."""
    scribe = _Scribe(packet)
    kind = UNKNOWN_KIND
    error = None
    try:
        kind = scribe.base_header()
        scribe.rest(kind)
    except ProtocolError as broken:
        error = broken
    try:
        parsed, after = parse_packet(packet, 0, len(packet))
    except ProtocolError as broken:
        error = broken
    else:
        kind = type(parsed).__name__
        scribe.acknowledgment_body(kind)
        if after < len(packet):
            scribe.notes.append(f"{len(packet) - after} bytes follow the packet")
        _note_oddities(scribe, kind)
    return Description(kind, len(packet), tuple(scribe.nodes), tuple(scribe.notes), error)


def describe_ping(datagram: bytes) -> Description:
    """Describe one datagram of UDP port 3527."""
    scribe = _Scribe(datagram)
    error = None
    with scribe.structure(layouts.PING.name, layouts.PING.section):
        scribe.fixed(layouts.PING)
    try:
        _, after = parse_ping(datagram, 0, len(datagram))
    except ProtocolError as broken:
        error = broken
    else:
        if after < len(datagram):
            scribe.notes.append(f"{len(datagram) - after} bytes follow the ping")
    return Description("Ping", len(datagram), tuple(scribe.nodes), tuple(scribe.notes), error)


class _Scribe:
    """Walks through a packet and records its fields; `at` is the next byte."""

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.end = len(packet)
        self.at = 0
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self.values: dict[str, int] = {}
        """Numbers by full name ("UserHeader.Flags.DQ")."""
        self.raw: dict[str, bytes] = {}

    @contextmanager
    def structure(self, name: str, section: str, text: str = "") -> Iterator[None]:
        """Make everything recorded inside a child of one node, even if an error ends it."""
        around, start = self.nodes, self.at
        self.nodes = []
        try:
            yield
        finally:
            children = tuple(self.nodes)
            around.append(Node(name, start, self.at - start, None, text, section, children))
            self.nodes = around

    def item(self, name: str, size: int, value: str | bytes, text: str = "") -> None:
        """Record one field of variable size."""
        if size:
            self.nodes.append(Node(name, self.at, size, value, text))
            self.at += size

    def padding_to(self, after: int) -> None:
        """Record the bytes between the last field and `after`."""
        self.item("padding", after - self.at, self.packet[self.at : after])

    def fixed(self, layout: Layout) -> None:
        """Record the fields of a layout, as many as are present."""
        for field in layout.fields:
            if self.at + field.size > self.end:
                return
            self._field(layout.name, field)
            self.at += field.size

    def _field(self, header: str, field: Field) -> None:
        raw = self.packet[self.at : self.at + field.size]
        name = f"{header}.{field.name}"
        if field.is_raw:
            self.raw[name] = raw
            text = guid_text(raw) if field.size == GUID_SIZE_BYTES else ""
            self.nodes.append(Node(field.name, self.at, field.size, raw, text))
            return
        value = self.values[name] = int.from_bytes(raw, "little")
        bits = []
        reserved = value if field.is_reserved else value if field.bits else 0
        for part in field.bits:
            cut = self.values[f"{name}.{part.name}"] = value >> part.low & (1 << part.count) - 1
            reserved &= ~(((1 << part.count) - 1) << part.low)
            said = part.say(cut) if part.say else ""
            bits.append(Node(part.name, self.at, 0, cut, said))
        if reserved:
            what = "reserved bits" if field.bits else "reserved, but"
            self.notes.append(f"{name}: {what} 0x{reserved:0{2 * field.size}X} set")
        said = field.say(value) if field.say else ""
        self.nodes.append(Node(field.name, self.at, field.size, value, said, "", tuple(bits)))

    def base_header(self) -> str:
        """Record BaseHeader and InternalHeader; return the kind as far as they determine it."""
        with self.structure(layouts.BASE.name, layouts.BASE.section):
            self.fixed(layouts.BASE)
            parse_base_header(self.packet, 0, self.end)
        if not self.values["BaseHeader.Flags.IN"]:
            return "UserMessage"
        with self.structure(layouts.INTERNAL.name, layouts.INTERNAL.section):
            self.fixed(layouts.INTERNAL)
        return _INTERNAL_KINDS.get(self.values.get("InternalHeader.Flags.PT", 0), UNKNOWN_KIND)

    def rest(self, kind: str) -> None:
        """Record the headers after the first."""
        if kind == "UserMessage":
            self._message()
        elif kind in _INTERNAL_LAYOUTS:
            layout = _INTERNAL_LAYOUTS[kind]
            with self.structure(layout.name, layout.section):
                self.fixed(layout)

    def _message(self) -> None:
        stop = min(self.values["BaseHeader.PacketSize"], len(self.packet))
        self.end = stop
        self._user_header()
        flags = self.values
        if flags["UserHeader.Flags.TH"]:
            with self.structure(layouts.TRANSACTION.name, layouts.TRANSACTION.section):
                start = self.at
                self.fixed(layouts.TRANSACTION)
                header, _ = parse_transaction_header(self.packet, start, stop)
                connector = header.connector_qm_guid
                self._optional_guid("ConnectorQMGuid", connector)
        if flags["UserHeader.Flags.SH"]:
            self._security_header()
        self._properties_and_tail()
        self.end = len(self.packet)
        if flags["BaseHeader.Flags.SH"]:
            with self.structure(layouts.SESSION.name, layouts.SESSION.section):
                self.fixed(layouts.SESSION)

    def _optional_guid(self, name: str, guid: bytes | None) -> None:
        if guid is not None:
            self.item(name, GUID_SIZE_BYTES, guid, guid_text(guid))

    def _user_header(self) -> None:
        with self.structure(layouts.USER.name, layouts.USER.section):
            start = self.at
            self.fixed(layouts.USER)
            header, after = parse_user_header(self.packet, start, self.end)
            for name, key in (
                ("DestinationQueue", "DQ"),
                ("AdminQueue", "AQ"),
                ("ResponseQueue", "RQ"),
            ):
                kind = self.values[f"UserHeader.Flags.{key}"]
                queue, behind = parse_queue_name(self.packet, self.at, self.end, kind, name)
                if behind > self.at and queue is not None:
                    self._queue_name(name, queue, behind)
            self._optional_guid("ConnectorType", header.connector_type)
            self.padding_to(after)

    def _queue_name(self, name: str, queue: QueueName, after: int) -> None:
        text, section = _queue_text(queue)
        with self.structure(name, section, text):
            match queue:
                case DirectQueueFormatName():
                    self.fixed(layouts.DIRECT_NAME)
                    size = self.values["DirectQueueFormatName.Count"]
                    self.item("DirectFormatName", size, queue.direct_format_name)
                case PrivateQueueFormatNameId():
                    self.fixed(layouts.PRIVATE_NAME_ID)
                case PrivateQueueFormatName():
                    self.fixed(layouts.PRIVATE_NAME)
                case PublicQueueFormatName():
                    self.fixed(layouts.PUBLIC_NAME)
            self.padding_to(after)

    def _security_header(self) -> None:
        with self.structure(layouts.SECURITY.name, layouts.SECURITY.section):
            start = self.at
            self.fixed(layouts.SECURITY)
            header, after = parse_security_header(self.packet, start, self.end)
            for name, data in (
                ("SecurityID", header.security_id),
                ("EncryptionKey", header.encryption_key),
                ("Signature", header.signature),
                ("SenderCert", header.sender_cert),
                ("ProviderInfo", header.provider_info),
            ):
                text = _provider_text(data) if name == "ProviderInfo" and data else ""
                self.item(name, len(data), data, text)
                self.padding_to(aligned(self.at))
            self.at = after

    def _properties_and_tail(self) -> None:
        """Record MessagePropertiesHeader and what follows, in the layout that the codec finds."""
        has_debug = bool(self.values["BaseHeader.Flags.DH"])
        has_soap = bool(self.values["UserHeader.Flags.HH"])
        has_lists = bool(self.values["UserHeader.Flags.MQ"])
        by_allocation, are_swapped = _tail_layout(
            self.packet, self.at, self.end, has_debug, has_soap, has_lists
        )
        with self.structure(layouts.PROPERTIES.name, layouts.PROPERTIES.section):
            start = self.at
            self.fixed(layouts.PROPERTIES)
            header, after = parse_message_properties_header(
                self.packet, start, self.end, is_laid_out_by_allocation=by_allocation
            )
            self.item("Label", self._label_size(), header.label or "")
            self.item("ExtensionData", len(header.extension_data), header.extension_data)
            self.item("MessageBody", len(header.message_body), header.message_body)
            self.padding_to(after)
        if has_debug:
            with self.structure(layouts.DEBUG.name, layouts.DEBUG.section):
                start = self.at
                self.fixed(layouts.DEBUG)
                debug, _ = parse_debug_header(self.packet, start, self.end)
                self._optional_guid("QueueIdentifier", debug.queue_identifier)
        if has_lists and are_swapped:
            self._lists()
        if has_soap:
            self._soap_header()
        if has_lists and not are_swapped:
            self._lists()

    def _label_size(self) -> int:
        return self.values["MessagePropertiesHeader.LabelLength"] * WCHAR_SIZE_BYTES

    def _soap_header(self) -> None:
        with self.structure(layouts.SOAP_HEADER.name, layouts.SOAP_HEADER.section):
            start = self.at
            self.fixed(layouts.SOAP_HEADER)
            header, after = parse_soap_header(self.packet, start, self.end)
            self.item("Header", _wide_size(header.header), header.header or "")
            # MQ-A13: the padding is between the halves, or only after both.
            if not _starts_soap_body(self.packet, self.at):
                self.padding_to(aligned(self.at))
            self.fixed(layouts.SOAP_BODY)
            self.item("Body", _wide_size(header.body), header.body or "")
            self.padding_to(after)

    def _lists(self) -> None:
        with self.structure("MultiQueueFormatHeader", "MS-MQMQ 2.2.20.1"):
            header, after = parse_multi_queue_format_header(self.packet, self.at, self.end)
            self._list("Destination", header.destination)
            self._list("Administration", header.administration)
            self._list("Response", header.response)
            with self.structure("Signature", layouts.MQF_SIGNATURE.section):
                self.fixed(layouts.MQF_SIGNATURE)
                self.item("Signature", len(header.signature), header.signature)
                self.padding_to(after)

    def _list(self, name: str, elements: tuple[FormatNameElement, ...]) -> None:
        with self.structure(name, layouts.MQF_ADDRESS.section, f"{len(elements)} queues"):
            start = self.at
            self.fixed(layouts.MQF_ADDRESS)
            for element in elements:
                self._element(element)
            self.padding_to(start + aligned(self.values["MQFAddressHeader.HeaderSize"]))

    def _element(self, element: FormatNameElement) -> None:
        text, _ = _queue_text(element)
        with self.structure("FormatName", layouts.MQF_ELEMENT.section, text):
            self.fixed(layouts.MQF_ELEMENT)
            if isinstance(element, DirectQueueFormatName):
                size = _wide_size(element.direct_format_name)
                self.item("DirectFormatName", size, element.direct_format_name)
                return
            self.padding_to(aligned(self.at))
            self.fixed(_FIXED_NAMES[type(element)])

    def acknowledgment_body(self, kind: str) -> None:
        """Record the fields of an acknowledgment's body under MessageBody."""
        layout = _ACK_BODIES.get(kind)
        if layout is None:
            return
        properties = self.nodes[-1]
        body = next(node for node in properties.children if node.name == "MessageBody")
        self.at, self.end, around, self.nodes = body.offset, body.offset + body.size, self.nodes, []
        self.fixed(layout)
        described = msgspec.structs.replace(
            body, section=layout.section, text=layout.name, children=tuple(self.nodes)
        )
        children = tuple(described if node is body else node for node in properties.children)
        self.nodes = [*around[:-1], msgspec.structs.replace(properties, children=children)]


def _tail_layout(
    packet: bytes, start: int, end: int, has_debug: bool, has_soap: bool, has_lists: bool
) -> tuple[bool, bool]:
    """Find the layout that ends where the packet does.

    Returns whether the space for the body is AllocationBodySize (MQ-A11), and whether
    MultiQueueFormatHeader comes before SoapHeader (MQ-A37). If none fits, MessageSize and document
    order are assumed.
    """
    for by_allocation in (False, True):
        for are_swapped in (False, True) if has_soap and has_lists else (False,):
            try:
                _, at = parse_message_properties_header(
                    packet, start, end, is_laid_out_by_allocation=by_allocation
                )
                if has_debug:
                    _, at = parse_debug_header(packet, at, end)
                if are_swapped:
                    _, at = parse_multi_queue_format_header(packet, at, end)
                if has_soap:
                    _, at = parse_soap_header(packet, at, end)
                if has_lists and not are_swapped:
                    _, at = parse_multi_queue_format_header(packet, at, end)
            except ProtocolError:
                continue
            if at == end:
                return by_allocation, are_swapped
    return False, False


def _wide_size(text: str | None) -> int:
    """Return the bytes of a text on the wire with its NUL; 0 for no text."""
    if text is None:
        return 0
    return len(text.encode("utf-16-le", "surrogatepass")) + WCHAR_SIZE_BYTES


def _starts_soap_body(packet: bytes, at: int) -> bool:
    return int.from_bytes(packet[at : at + 2], "little") == BODY_SECTION_ID


def _queue_text(queue: QueueName | FormatNameElement) -> tuple[str, str]:
    """Return a queue name as a format name, as far as it is one by itself, and its section."""
    match queue:
        case DirectQueueFormatName():
            return f"DIRECT={queue.direct_format_name}", "MS-MQMQ 2.2.18.1.5.2"
        case PublicQueueFormatName():
            return f"PUBLIC={guid_text(queue.public_queue_identifier)}", "MS-MQMQ 2.2.18.1.7.1"
        case PrivateQueueFormatName():
            host = guid_text(queue.source_queue_manager)
            number = queue.private_queue_identifier
            return f"PRIVATE={host}\\{number:08X}", "MS-MQMQ 2.2.18.1.7.2"
        case PrivateQueueFormatNameId():
            host = queue.host.name.lower()
            number = queue.private_queue_identifier
            return f"private queue {number:08X} of the {host} host", "MS-MQMQ 2.2.18.1.5.1"
        case DistributionQueueFormatName():
            return f"DL={guid_text(queue.distribution_list_identifier)}", "MS-MQMQ 2.2.18.1.4.2"
        case SameAsAdminQueue():
            return "the administration queue", "MS-MQMQ 2.2.19.2"


def _provider_text(data: bytes) -> str:
    try:
        info, _ = parse_provider_info(data, 0, len(data))
    except ProtocolError as error:
        return str(error)
    return f"{info.provider_name} (type {info.provider_type})"


def _note_oddities(scribe: _Scribe, kind: str) -> None:
    """Note what the codec accepts, but a reader should see."""
    values, note = scribe.values, scribe.notes.append
    size = values["BaseHeader.PacketSize"]
    if kind == "SessionAck":
        counted = "leaves out" if size == PACKET_SIZE_MIN_BYTES else "counts"
        note(f"BaseHeader.PacketSize {counted} the SessionHeader (QB-A17)")
    elif values["BaseHeader.Flags.SH"]:
        note("the SessionHeader follows the PacketSize bytes (QB-A17)")
    if kind != "UserMessage" and values["BaseHeader.TimeToReachQueue"] != TIME_INFINITE_S:
        note("BaseHeader.TimeToReachQueue is finite in a packet that is not a UserMessage")
    if kind == "EstablishConnection":
        padding = scribe.raw["EstablishConnectionHeader.Padding"]
        if padding.strip(b"\x5a"):
            note("EstablishConnectionHeader.Padding is not 0x5A throughout, as a response has it")
    if kind in ("UserMessage", "OrderAck", "FinalAck"):
        _note_message(scribe, kind)


def _note_message(scribe: _Scribe, kind: str) -> None:
    values, note = scribe.values, scribe.notes.append
    user, properties, security = "UserHeader.Flags", "MessagePropertiesHeader", "SecurityHeader"
    wanted = values[f"{properties}.Flags"] & 0x0F
    if wanted and not values[f"{user}.AQ"]:
        note("acknowledgments are asked for, but there is no AdminQueue: none is sent (MQ-A6)")
    if values[f"{user}.AQ"] and not wanted:
        note("there is an AdminQueue, but no acknowledgment is asked for (MQ-A6)")
    if values[f"{user}.RC"] > HOPS_MAX:
        note(f"{values[f'{user}.RC']} hops, at most {HOPS_MAX}: refused with a nack (MQ-A32)")
    if values[f"{user}.AH"]:
        note("UserHeader.Flags.AH is set, which no sender does")
    if values[f"{user}.TH"] and values["BaseHeader.Flags.PR"]:
        note("the priority of a transactional message is ignored (MQ-A27)")
    has_address = scribe.raw["UserHeader.QueueManagerAddress"] != GUID_NULL
    if values[f"{user}.DQ"] == queue_name.QUEUE_TYPE_DIRECT and has_address:
        note("UserHeader.QueueManagerAddress is set beside a direct destination")
    needs_address = values[f"{user}.DQ"] in (QueueHost.DESTINATION, queue_name.QUEUE_TYPE_PUBLIC)
    if needs_address and not has_address:
        note("UserHeader.QueueManagerAddress is zero beside a destination that needs it")
    if values[f"{user}.SH"]:
        sizes = ("EncryptionKeySize", "SignatureSize", "SenderCertSize")
        has_data = any(values[f"{security}.{name}"] for name in ("SenderIdSize", *sizes))
        if has_data and not values[f"{security}.Flags.AI"]:
            note("SecurityHeader.Flags.AI is clear beside SecurityData; the sizes count (MQ-A8)")
    if values[f"{properties}.AllocationBodySize"] != values[f"{properties}.MessageSize"]:
        note("AllocationBodySize is larger than MessageSize (MQ-A11)")
    if values[f"{properties}.BodyType"] not in _BODY_TYPES:
        note(f"BodyType {values[f'{properties}.BodyType']} is in no table; it is kept (MQ-A10)")
    role = message_class_role(values[f"{properties}.MessageClass"])
    if role is MessageClassRole.UNDEFINED and kind == "UserMessage":
        note("MessageClass is neither in the table nor an application's own")


_INTERNAL_LAYOUTS: Final = {
    "SessionAck": layouts.SESSION,
    "EstablishConnection": layouts.ESTABLISH,
    "ConnectionParameters": layouts.PARAMETERS,
}
_INTERNAL_KINDS: Final = {
    PacketType.SESSION_ACK.value: "SessionAck",
    PacketType.ESTABLISH_CONNECTION.value: "EstablishConnection",
    PacketType.CONNECTION_PARAMETERS.value: "ConnectionParameters",
}
_ACK_BODIES: Final = {"OrderAck": layouts.ORDER_ACK_BODY, "FinalAck": layouts.FINAL_ACK_BODY}
_FIXED_NAMES: Final[dict[type, Layout]] = {
    PublicQueueFormatName: layouts.PUBLIC_NAME,
    PrivateQueueFormatName: layouts.PRIVATE_NAME,
    DistributionQueueFormatName: layouts.DISTRIBUTION_NAME,
}
_BODY_TYPES: Final = frozenset(member.value for member in VarType)
