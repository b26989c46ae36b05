"""The codec and its descriptions against the second decoder: on vectors, generated and damaged
packets.

`spoken` says what a value of qm.wire states about its packet, in the documents' names. It must be
what the other decoder reads in the same bytes, and all of it: only reserved fields, sizes that
follow from contents, and presence flags are left unsaid.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qm.wire import (
    ConnectionParameters,
    DirectQueueFormatName,
    DistributionQueueFormatName,
    EstablishConnection,
    FinalAck,
    OrderAck,
    Packet,
    Ping,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    ProtocolError,
    PublicQueueFormatName,
    SameAsAdminQueue,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    UserHeader,
    UserMessage,
    parse_packet,
    parse_ping,
    parse_user_message,
    write_packet,
    write_ping,
)
from qm.wire.describe import Description, Node, describe_packet, describe_ping
from qm.wire.multi_queue_format import write_multi_queue_format_header
from qm.wire.soap_header import write_soap_header
from tests.decoder.decode import BadBytesError, decode
from tests.decoder.test_vectors import COMPLETE, PACKETS, VECTORS
from tests.unit.wire import strategies

Flat = dict[str, Any]
TIME_TO_REACH = "BaseHeader.TimeToReachQueue"

# What a value leaves unsaid: it is reserved, follows from the rest, or only announces a header.
UNSAID = re.compile(
    r"""(
      .*\.(Reserved1?|Flags|OperatingSystem|OperatingSystem\.RE|Count|LabelLength|Signature\.(ID|Size)
      |HeaderSize|HeaderID|ElementCount|HeaderSectionID|BodySectionID|HeaderDataLength
      |BodyDataLength|FormatType)
    | BaseHeader\.(VersionNumber|Signature|PacketSize|Flags\.(IN|SH|DH))
    | UserHeader\.Flags\.(DQ|AQ|SH|TH|MP|CQ|MQ|HH|AH)
    | TransactionHeader\.Flags\.CG
    | SecurityHeader\.(Flags\.(AU|AI|AS)|\w+Size)
    | MessagePropertiesHeader\.(MessageSize|ExtensionSize)
    | InternalHeader\.Flags\.PT
    | DebugHeader\.Flags\.QT
    | Ping\.Signature
    )""",
    re.VERBOSE,
)


def flat(value: Any, name: str = "") -> Flat:
    """Nested dictionaries and lists as one dictionary of dotted names."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {name: value}
    found: Flat = {}
    for key, part in value.items():
        found |= flat(part, f"{name}.{key}" if name else str(key))
    return found


def spoken(packet: Packet | Ping) -> Flat:
    """What the value says, in the decoder's names."""
    match packet:
        case Ping():
            said: Flat = {
                "Flags.RC": packet.is_client_class,
                "Flags.RF": packet.is_refused,
                "Cookie": packet.cookie,
                "QMGuid": packet.qm_guid.hex(),
            }
            return flat({"Ping": said})
        case UserMessage():
            return spoken_message(packet)
        case OrderAck() | FinalAck():
            return spoken_acknowledgment(packet)
        case _:
            base = {
                "Reserved": packet.base_reserved,
                "Flags.PR": packet.priority,
                "Flags.TR": 0,
            }
            return flat({"BaseHeader": base, **spoken_internal(packet)})


def spoken_internal(packet: EstablishConnection | ConnectionParameters | SessionAck) -> Flat:
    match packet:
        case EstablishConnection():
            return {
                "InternalHeader": {"Flags.CS": packet.is_refused},
                "EstablishConnectionHeader": {
                    "ClientGuid": packet.client_guid.hex(),
                    "ServerGuid": packet.server_guid.hex(),
                    "TimeStamp": packet.time_stamp,
                    "OperatingSystem.SE": packet.is_ping_skipped,
                    "OperatingSystem.OS": packet.is_server_class,
                    "OperatingSystem.QS": packet.has_quality_of_service,
                    "Padding": packet.padding.hex(),
                },
            }
        case ConnectionParameters():
            return {
                "InternalHeader": {"Flags.CS": packet.is_refused},
                "ConnectionParametersHeader": {
                    "RecoverableAckTimeout": packet.recoverable_ack_timeout,
                    "AckTimeout": packet.ack_timeout,
                    "WindowSize": packet.window_size,
                },
            }
        case SessionAck():
            internal = {"Flags.CS": 0}
            return {"InternalHeader": internal, "SessionHeader": spoken_session(packet.session)}


def spoken_session(header: SessionHeader) -> Flat:
    return {
        "AckSequenceNumber": header.ack_sequence_number,
        "RecoverableMsgAckSeqNumber": header.recoverable_msg_ack_seq_number,
        "RecoverableMsgAckFlags": header.recoverable_msg_ack_flags,
        "UserMsgSequenceNumber": header.user_msg_sequence_number,
        "RecoverableMsgSeqNumber": header.recoverable_msg_seq_number,
        "WindowSize": header.window_size,
        "Reserved": header.reserved,
    }


def spoken_message(message: UserMessage) -> Flat:
    properties = message.properties
    body_size = len(properties.message_body)
    said: Flat = {
        "BaseHeader": {
            "Reserved": message.base_reserved,
            "Flags.PR": message.priority,
            "Flags.TR": message.is_traced,
            "TimeToReachQueue": message.time_to_reach_queue,
        },
        "UserHeader": spoken_user(message.user_header),
        "MessagePropertiesHeader": {
            **{
                f"Flags.{n}": properties.flags >> b & 1
                for b, n in enumerate(("PA", "PR", "NA", "NR"))
            },
            "MessageClass": properties.message_class,
            "CorrelationID": properties.correlation_id.hex(),
            "BodyType": properties.body_type,
            "ApplicationTag": properties.application_tag,
            "AllocationBodySize": body_size + properties.allocation_surplus_bytes,
            "PrivacyLevel": properties.privacy_level,
            "HashAlgorithm": properties.hash_algorithm,
            "EncryptionAlgorithm": properties.encryption_algorithm,
            "Label": properties.label or "",
            "ExtensionData": properties.extension_data.hex(),
            "MessageBody": properties.message_body.hex(),
        },
    }
    if message.transaction is not None:
        said["TransactionHeader"] = spoken_transaction(message.transaction)
    if message.security is not None:
        said["SecurityHeader"] = spoken_security(message.security)
    if message.debug is not None and message.debug.queue_identifier is not None:
        said["DebugHeader"] = {"QueueIdentifier": message.debug.queue_identifier.hex()}
    if message.soap is not None:
        header, body = message.soap.header, message.soap.body
        said["SoapHeader"] = {"Header": header or "", "Body": body or ""}
    if message.multi_queue_format is not None:
        lists = message.multi_queue_format
        said["MultiQueueFormatHeader"] = {
            "Destination": {"FormatNameList": [queue(name) for name in lists.destination]},
            "Administration": {"FormatNameList": [queue(name) for name in lists.administration]},
            "Response": {"FormatNameList": [queue(name) for name in lists.response]},
            "Signature": {"Signature": lists.signature.hex()},
        }
    if message.session is not None:
        said["SessionHeader"] = spoken_session(message.session)
    return flat(said)


def spoken_user(header: UserHeader) -> Flat:
    said: Flat = {
        "SourceQueueManager": header.source_queue_manager.hex(),
        "QueueManagerAddress": header.queue_manager_address.hex(),
        "TimeToBeReceived": header.time_to_be_received,
        "SentTime": header.sent_time,
        "MessageID": header.message_id,
        "Flags.RC": header.hop_count,
        "Flags.DM": header.is_recoverable,
        "Flags.JN": header.has_negative_journaling,
        "Flags.JP": header.has_positive_journaling,
        "Flags.RQ": queue_type(header.response_queue),
        "DestinationQueue": queue(header.destination_queue),
        "AdminQueue": queue(header.admin_queue),
        "ResponseQueue": queue(header.response_queue),
    }
    if header.connector_type is not None:
        said["ConnectorType"] = header.connector_type.hex()
    return said


def queue_type(name: object) -> int:
    """The number in UserHeader.Flags that the kind of name stands for."""
    match name:
        case None:
            return 0
        case SameAsAdminQueue():
            return 1
        case PrivateQueueFormatNameId():
            return {"SOURCE": 2, "DESTINATION": 3, "ADMIN": 4}[name.host.name]
        case PublicQueueFormatName():
            return 5
        case PrivateQueueFormatName():
            return 6
    return 7


def queue(name: object) -> Flat:
    match name:
        case PrivateQueueFormatNameId():
            return {"PrivateQueueIdentifier": name.private_queue_identifier}
        case PublicQueueFormatName():
            return {"PublicQueueIdentifier": name.public_queue_identifier.hex()}
        case PrivateQueueFormatName():
            host, number = name.source_queue_manager.hex(), name.private_queue_identifier
            return {"SourceQueueManager": host, "PrivateQueueIdentifier": number}
        case DirectQueueFormatName():
            return {"DirectFormatName": name.direct_format_name}
        case DistributionQueueFormatName():
            return {"DistributionListGuid": name.distribution_list_identifier.hex()}
    return {}


def spoken_transaction(header: TransactionHeader) -> Flat:
    said: Flat = {
        "Flags.FA": header.is_final_ack_wanted,
        "Flags.FM": header.is_first,
        "Flags.LM": header.is_last,
        "Flags.ID": header.transaction_id,
        "TxSequenceID.Ordinal": header.tx_sequence_id.ordinal,
        "TxSequenceID.TimeStamp": header.tx_sequence_id.time_stamp,
        "TxSequenceNumber": header.tx_sequence_number,
        "PreviousTxSequenceNumber": header.previous_tx_sequence_number,
    }
    if header.connector_qm_guid is not None:
        said["ConnectorQMGuid"] = header.connector_qm_guid.hex()
    return said


def spoken_security(header: SecurityHeader) -> Flat:
    said: Flat = {
        "Flags.ST": header.sender_id_type,
        "Flags.EB": header.is_body_encrypted,
        "Flags.DE": header.is_default_provider,
    }
    items = {
        "SecurityID": header.security_id,
        "EncryptionKey": header.encryption_key,
        "Signature": header.signature,
        "SenderCert": header.sender_cert,
        "ProviderInfo": header.provider_info,
    }
    return said | {name: data.hex() for name, data in items.items() if data}


def spoken_acknowledgment(packet: OrderAck | FinalAck) -> Flat:
    body: Flat = {
        "TxSequenceID.Ordinal": packet.tx_sequence_id.ordinal,
        "TxSequenceID.TimeStamp": packet.tx_sequence_id.time_stamp,
        "TxSequenceNumber": packet.tx_sequence_number,
        "TxPreviousSequenceNumber": packet.tx_previous_sequence_number,
    }
    name = "OrderAckBody"
    message_class = 0xFF
    if isinstance(packet, FinalAck):
        name = "FinalAckBody"
        message_class = packet.message_class
        body["SourceGUID"] = packet.acknowledged_source.hex()
        body["MessageID"] = packet.acknowledged_message_id
    return flat(
        {
            "BaseHeader": {"Reserved": packet.base_reserved},
            "UserHeader": {
                "SourceQueueManager": packet.source_queue_manager.hex(),
                "QueueManagerAddress": packet.queue_manager_address.hex(),
                "TimeToBeReceived": packet.time_to_be_received,
                "SentTime": packet.sent_time,
                "MessageID": packet.message_id,
                "Flags.RC": packet.hop_count,
                "Flags.DM": packet.is_recoverable,
                "DestinationQueue": queue(packet.destination_queue),
            },
            "MessagePropertiesHeader": {"MessageClass": message_class},
            name: body,
        }
    )


def described(description: Description) -> Flat:
    """A description in the decoder's names; padding and bytes without a field are left out."""
    found: Flat = {}
    for node in description.nodes:
        collect(node, node.name, found)
    return found


def collect(node: Node, name: str, found: Flat) -> None:
    if node.value is not None:
        found[name] = node.value.hex() if isinstance(node.value, bytes) else node.value
    formats = 0
    for child in node.children:
        if child.name == "padding":
            continue
        if child.name == "FormatName":
            collect(child, f"{name}.FormatNameList.{formats}", found)
            formats += 1
        elif node.name == "MessageBody":
            collect(child, f"{node.text}.{child.name}", found)
        else:
            collect(child, f"{name}.{child.name}", found)


def check_agreement(raw: bytes, packet: Packet | Ping) -> None:
    decoded = flat(decode(raw))
    said = spoken(packet)
    if "TransactionHeader.TxSequenceNumber" in decoded:
        # Whatever a sender says about a transactional message's priority, the codec reads 0.
        decoded["BaseHeader.Flags.PR"] = 0
    assert {name: decoded.get(name) for name in said} == said
    if not isinstance(packet, (OrderAck, FinalAck)):
        unsaid = {name for name in decoded if name not in said and not UNSAID.fullmatch(name)}
        # Only a message has to reach a queue in time.
        is_timed = isinstance(packet, (UserMessage, Ping))
        assert unsaid == (set() if is_timed else {TIME_TO_REACH})
    check_description(raw, describe_ping(raw) if isinstance(packet, Ping) else describe_packet(raw))


def check_description(raw: bytes, description: Description) -> None:
    assert description.error is None
    # An item without bytes is no node, and a text decoded to nothing is none either.
    decoded = {name: value for name, value in flat(decode(raw)).items() if value != ""}
    wanted = {name: value for name, value in described(description).items() if value != ""}
    assert wanted == decoded
    covered = 0
    for node in description.nodes:
        assert node.offset == covered
        covered += node.size
    assert covered == len(raw)


def read_vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


def test_both_read_the_same_in_every_vector() -> None:
    for name in COMPLETE:
        raw = read_vector(name)
        if VECTORS[name]["transport"] == "udp/3527":
            packet: Packet | Ping = parse_ping(raw, 0, len(raw))[0]
        else:
            packet, after = parse_packet(raw, 0, len(raw))
            assert after == len(raw)
        check_agreement(raw, packet)


def test_both_refuse_the_truncated_vector() -> None:
    (name,) = set(PACKETS) - set(COMPLETE)
    assert not accepts_codec(read_vector(name))
    assert not accepts_decoder(read_vector(name))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(packet=strategies.packets)
def test_both_read_the_same_in_generated_packets(packet: Packet) -> None:
    raw = write_packet(packet)
    check_agreement(raw, parse_packet(raw, 0, len(raw))[0])


@given(ping=strategies.pings)
def test_both_read_the_same_in_generated_pings(ping: Ping) -> None:
    check_agreement(write_ping(ping), ping)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A packet with some bytes changed, or cut, or longer than it says."""
    raw = bytearray(write_packet(draw(strategies.packets)))
    for _ in range(draw(st.integers(0, 3))):
        # The front of a packet holds what everything else depends on.
        at = draw(st.integers(0, min(len(raw), 160) - 1) | st.integers(0, len(raw) - 1))
        raw[at] = draw(st.sampled_from([0, 1, 4, 0x10, 0x7F, 0x80, 0xFF]) | strategies.u8)
    cut = draw(st.just(0) | st.integers(-20, 20))
    return bytes(raw[:cut] if cut < 0 else raw + bytes(cut))


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(raw=damaged())
def test_both_refuse_the_same_damage(raw: bytes) -> None:
    assert accepts_codec(raw) == accepts_decoder(raw)
    description = describe_packet(raw)
    try:
        packet, after = parse_packet(raw, 0, len(raw))
    except ProtocolError as error:
        assert str(description.error) == str(error)
        return
    assert description.error is None
    if after == len(raw):
        check_agreement(raw, packet)
        if isinstance(packet, (OrderAck, FinalAck)):
            parse_user_message(raw, 0, len(raw))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(message=strategies.user_messages, soap=strategies.soap_headers, data=st.data())
def test_both_read_soap_and_lists_in_either_order(
    message: UserMessage, soap: SoapHeader, data: st.DataObject
) -> None:
    lists = data.draw(strategies.multi_queue_format_headers)
    message = msgspec.structs.replace(message, soap=soap, multi_queue_format=lists, session=None)
    raw = write_packet(message)
    size = len(write_soap_header(soap)) + len(write_multi_queue_format_header(lists))
    swapped = raw[:-size] + write_multi_queue_format_header(lists) + write_soap_header(soap)
    check_agreement(swapped, parse_packet(swapped, 0, len(swapped))[0])


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(message=strategies.user_messages, surplus=st.integers(4, 40))
def test_both_read_a_body_with_room_to_grow(message: UserMessage, surplus: int) -> None:
    properties = msgspec.structs.replace(message.properties, allocation_surplus_bytes=surplus)
    message = msgspec.structs.replace(
        message,
        properties=properties,
        debug=None,
        soap=None,
        multi_queue_format=None,
        session=None,
        is_traced=False,
    )
    raw = write_packet(message)
    label = (properties.label or "").encode("utf-16-le", "surrogatepass")
    nul = 0 if properties.label is None else 2
    used = 56 + len(label) + nul + len(properties.extension_data) + len(properties.message_body)
    grown = bytearray(raw[: len(raw) - -used % 4] + bytes(surplus))
    grown += bytes(-len(grown) % 4)
    grown[8:12] = len(grown).to_bytes(4, "little")
    packet, _ = parse_packet(grown, 0, len(grown))
    assert packet == message
    check_agreement(bytes(grown), packet)


@given(raw=st.binary(max_size=200))
def test_noise_is_described_without_an_exception(raw: bytes) -> None:
    assert describe_packet(raw).error is not None or accepts_codec(raw)
    assert describe_ping(raw).error is not None or len(raw) >= 24


def accepts_codec(raw: bytes) -> bool:
    try:
        return parse_packet(raw, 0, len(raw))[1] == len(raw)
    except ProtocolError:
        return False


def accepts_decoder(raw: bytes) -> bool:
    try:
        return "Ping" not in decode(raw)
    except BadBytesError:
        return False
