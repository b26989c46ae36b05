"""What a value of qm.wire states about its packet, in the documents' names.

It must be what the second decoder reads in the same bytes, and all of it: only reserved fields,
sizes that follow from contents, and presence flags are left unsaid.
"""

from __future__ import annotations

from typing import Any

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
    PublicQueueFormatName,
    SameAsAdminQueue,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    UserHeader,
    UserMessage,
)

Flat = dict[str, Any]


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
