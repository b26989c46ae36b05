"""The fields in the fixed part of each header, and the meaning of their values, for `describe`.

The tables follow the documents' field lists. They decide nothing: only the codec knows whether a
value is legal, and the tests check both against a separate decoder.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel, VarType
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.message_class import message_class_text
from qm.wire.packets.internal import PacketType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bits(msgspec.Struct, frozen=True):
    """Some bits of a field; `low` is the first, 0 the least significant."""

    name: str
    low: int
    count: int
    say: Callable[[int], str] | None = None


class Field(msgspec.Struct, frozen=True):
    """A field of fixed size."""

    name: str
    size: int
    """Bytes."""
    say: Callable[[int], str] | None = None
    bits: tuple[Bits, ...] = ()
    """If there are any, all other bits of the field are reserved."""
    is_raw: bool = False
    """Bytes rather than a number."""
    is_reserved: bool = False


class Layout(msgspec.Struct, frozen=True):
    """The fixed part of a header."""

    name: str
    section: str
    """Document and section."""
    fields: tuple[Field, ...]


def _choice(*words: str) -> Callable[[int], str]:
    return lambda value: words[value] if value < len(words) else "not defined"


def _member(enumeration: type[IntEnum]) -> Callable[[int], str]:
    names = {member.value: member.name for member in enumeration}
    return lambda value: names.get(value, "not in the table")


def _hex(digits: int) -> Callable[[int], str]:
    return lambda value: f"0x{value:0{digits}X}"


def _seconds(value: int) -> str:
    if value == TIME_INFINITE_S:
        return "infinite"
    return f"{value} s" if value < 86_400 else f"{value / 86_400:.3g} days"


def _milliseconds(value: int) -> str:
    return f"{value} ms"


def _instant(value: int) -> str:
    return f"{_EPOCH + timedelta(seconds=value):%Y-%m-%d %H:%M:%S} UTC"


def _body_type(value: int) -> str:
    return _member(VarType)(value)


_YES_NO: Final = _choice("no", "yes")
_QUEUE_TYPE: Final = _choice(
    "none",
    "same as the administration queue",
    "private, of the source host",
    "private, of the destination host",
    "private, of the administration queue's host",
    "public",
    "private, of another host",
    "direct",
)


def _guid(name: str) -> Field:
    return Field(name, GUID_SIZE_BYTES, is_raw=True)


def _reserved(name: str, size: int) -> Field:
    return Field(name, size, is_reserved=True)


BASE: Final = Layout(
    "BaseHeader",
    "MS-MQMQ 2.2.19.1",
    (
        Field("VersionNumber", 1, _hex(2)),
        Field("Reserved", 1),
        Field(
            "Flags",
            2,
            _hex(4),
            (
                Bits("PR", 0, 3),
                Bits("IN", 3, 1, _choice("a message", "internal to the session")),
                Bits("SH", 4, 1, _choice("no SessionHeader", "SessionHeader present")),
                Bits("DH", 5, 1, _choice("no DebugHeader", "DebugHeader present")),
                Bits("TR", 8, 1, _choice("not traced", "traced")),
            ),
        ),
        Field("Signature", 4, _hex(8)),
        Field("PacketSize", 4, lambda value: f"{value} bytes"),
        Field("TimeToReachQueue", 4, _seconds),
    ),
)
INTERNAL: Final = Layout(
    "InternalHeader",
    "MS-MQQB 2.2.1",
    (
        _reserved("Reserved", 2),
        Field(
            "Flags",
            2,
            _hex(4),
            (
                Bits("PT", 0, 4, _choice("0", *(kind.name for kind in PacketType))),
                Bits("CS", 4, 1, _choice("accepted", "refused")),
            ),
        ),
    ),
)
ESTABLISH: Final = Layout(
    "EstablishConnectionHeader",
    "MS-MQQB 2.2.3.1",
    (
        _guid("ClientGuid"),
        _guid("ServerGuid"),
        Field("TimeStamp", 4, _milliseconds),
        Field(
            "OperatingSystem",
            2,
            _hex(4),
            (
                Bits("RE", 0, 8, _hex(2)),
                Bits("SE", 8, 1, _choice("a ping came before", "no ping came before")),
                Bits("OS", 9, 1, _choice("not server class", "server class")),
                Bits("QS", 10, 1, _YES_NO),
            ),
        ),
        _reserved("Reserved", 2),
        Field("Padding", 512, is_raw=True),
    ),
)
PARAMETERS: Final = Layout(
    "ConnectionParametersHeader",
    "MS-MQQB 2.2.2.1",
    (
        Field("RecoverableAckTimeout", 4, _milliseconds),
        Field("AckTimeout", 4, _milliseconds),
        _reserved("Reserved", 2),
        Field("WindowSize", 2),
    ),
)
SESSION: Final = Layout(
    "SessionHeader",
    "MS-MQMQ 2.2.20.4",
    (
        Field("AckSequenceNumber", 2),
        Field("RecoverableMsgAckSeqNumber", 2),
        Field("RecoverableMsgAckFlags", 4, _hex(8)),
        Field("UserMsgSequenceNumber", 2),
        Field("RecoverableMsgSeqNumber", 2),
        Field("WindowSize", 2),
        _reserved("Reserved", 2),
    ),
)
USER: Final = Layout(
    "UserHeader",
    "MS-MQMQ 2.2.19.2",
    (
        _guid("SourceQueueManager"),
        _guid("QueueManagerAddress"),
        Field("TimeToBeReceived", 4, _seconds),
        Field("SentTime", 4, _instant),
        Field("MessageID", 4),
        Field(
            "Flags",
            4,
            _hex(8),
            (
                Bits("RC", 0, 5),
                Bits("DM", 5, 2, _choice("express", "recoverable")),
                Bits("JN", 8, 1, _choice("no", "negative source journaling")),
                Bits("JP", 9, 1, _choice("no", "positive source journaling")),
                Bits("DQ", 10, 3, _QUEUE_TYPE),
                Bits("AQ", 13, 3, _QUEUE_TYPE),
                Bits("RQ", 16, 3, _QUEUE_TYPE),
                Bits("SH", 19, 1, _choice("no SecurityHeader", "SecurityHeader present")),
                Bits("TH", 20, 1, _choice("not transactional", "TransactionHeader present")),
                Bits("MP", 21, 1, _choice("missing", "MessagePropertiesHeader present")),
                Bits("CQ", 22, 1, _choice("no ConnectorType", "ConnectorType present")),
                Bits("MQ", 23, 1, _choice("no lists", "MultiQueueFormatHeader present")),
                Bits("AH", 25, 1, _choice("no", "arrived over HTTP")),
                Bits("HH", 28, 1, _choice("no SoapHeader", "SoapHeader present")),
            ),
        ),
    ),
)
TRANSACTION: Final = Layout(
    "TransactionHeader",
    "MS-MQMQ 2.2.20.5",
    (
        Field(
            "Flags",
            4,
            _hex(8),
            (
                Bits("CG", 0, 1, _choice("no ConnectorQMGuid", "ConnectorQMGuid present")),
                Bits("FA", 1, 1, _choice("no FinalAck wanted", "FinalAck wanted")),
                Bits("FM", 2, 1, _choice("not first", "first of its transaction")),
                Bits("LM", 3, 1, _choice("not last", "last of its transaction")),
                Bits("ID", 4, 20),
            ),
        ),
        Field("TxSequenceID.Ordinal", 4),
        Field("TxSequenceID.TimeStamp", 4, _instant),
        Field("TxSequenceNumber", 4),
        Field("PreviousTxSequenceNumber", 4),
    ),
)
SECURITY: Final = Layout(
    "SecurityHeader",
    "MS-MQMQ 2.2.20.6",
    (
        Field(
            "Flags",
            2,
            _hex(4),
            (
                Bits("ST", 0, 4, _choice("no sender id", "a SID", "a queue manager's GUID")),
                Bits("AU", 4, 1, _YES_NO),
                Bits("EB", 5, 1, _choice("clear body", "encrypted body")),
                Bits("DE", 6, 1, _choice("named provider", "default provider")),
                Bits("AI", 7, 1, _choice("no SecurityData", "SecurityData present")),
                Bits("AS", 8, 4),
            ),
        ),
        Field("SenderIdSize", 2),
        Field("EncryptionKeySize", 2),
        Field("SignatureSize", 2),
        Field("SenderCertSize", 4),
        Field("ProviderInfoSize", 4),
    ),
)
PROPERTIES: Final = Layout(
    "MessagePropertiesHeader",
    "MS-MQMQ 2.2.19.3",
    (
        Field(
            "Flags",
            1,
            _hex(2),
            (
                Bits("PA", 0, 1, _choice("no", "positive arrival ack")),
                Bits("PR", 1, 1, _choice("no", "positive receive ack")),
                Bits("NA", 2, 1, _choice("no", "negative arrival ack")),
                Bits("NR", 3, 1, _choice("no", "negative receive ack")),
            ),
        ),
        Field("LabelLength", 1, lambda value: f"{value} WCHARs"),
        Field("MessageClass", 2, message_class_text),
        Field("CorrelationID", 20, is_raw=True),
        Field("BodyType", 4, _body_type),
        Field("ApplicationTag", 4, _hex(8)),
        Field("MessageSize", 4, lambda value: f"{value} bytes"),
        Field("AllocationBodySize", 4, lambda value: f"{value} bytes"),
        Field("PrivacyLevel", 4, _member(PrivacyLevel)),
        Field("HashAlgorithm", 4, _member(HashAlgorithm)),
        Field("EncryptionAlgorithm", 4, _member(EncryptionAlgorithm)),
        Field("ExtensionSize", 4, lambda value: f"{value} bytes"),
    ),
)
DEBUG: Final = Layout(
    "DebugHeader",
    "MS-MQMQ 2.2.20.8",
    (
        Field("Flags", 2, _hex(4), (Bits("QT", 0, 2, _choice("no queue", "public queue")),)),
        _reserved("Reserved", 2),
    ),
)
PING: Final = Layout(
    "Ping",
    "MS-MQQB 2.2.7",
    (
        Field(
            "Flags",
            2,
            _hex(4),
            (
                Bits("RC", 0, 1, _choice("server class", "not server class")),
                Bits("RF", 1, 1, _choice("would be accepted", "would be refused")),
            ),
        ),
        Field("Signature", 2, _hex(4)),
        Field("Cookie", 4, _hex(8)),
        _guid("QMGuid"),
    ),
)
_ACK_BODY: Final = (
    Field("TxSequenceID.Ordinal", 4),
    Field("TxSequenceID.TimeStamp", 4, _instant),
    Field("TxSequenceNumber", 4),
    Field("TxPreviousSequenceNumber", 4),
)
ORDER_ACK_BODY: Final = Layout(
    "OrderAckBody",
    "MS-MQQB 2.2.4.1",
    (*_ACK_BODY, Field("Reserved", 20, is_raw=True)),
)
FINAL_ACK_BODY: Final = Layout(
    "FinalAckBody",
    "MS-MQQB 2.2.5.1",
    (*_ACK_BODY, _guid("SourceGUID"), Field("MessageID", 4)),
)
SOAP_HEADER: Final = Layout(
    "SoapHeader",
    "MS-MQMQ 2.2.20.7",
    (
        Field("HeaderSectionID", 2, _hex(4)),
        _reserved("Reserved", 2),
        Field("HeaderDataLength", 4, lambda value: f"{value} WCHARs"),
    ),
)
SOAP_BODY: Final = Layout(
    "SoapHeader",
    "MS-MQMQ 2.2.20.7",
    (
        Field("BodySectionID", 2, _hex(4)),
        _reserved("Reserved1", 2),
        Field("BodyDataLength", 4, lambda value: f"{value} WCHARs"),
    ),
)
MQF_ADDRESS: Final = Layout(
    "MQFAddressHeader",
    "MS-MQMQ 2.2.20.2",
    (
        Field("HeaderSize", 4, lambda value: f"{value} bytes"),
        Field("HeaderID", 2, _hex(4)),
        _reserved("Reserved", 2),
        Field("ElementCount", 4),
    ),
)
MQF_SIGNATURE: Final = Layout(
    "MQFSignatureHeader",
    "MS-MQMQ 2.2.20.3",
    (
        Field("ID", 2, _hex(4)),
        _reserved("Reserved", 2),
        Field("Size", 4, lambda value: f"{value} bytes"),
    ),
)
MQF_ELEMENT: Final = Layout(
    "MQFFormatNameElement", "MS-MQMQ 2.2.18.1.4", (Field("FormatType", 2, _hex(4)),)
)
DIRECT_NAME: Final = Layout(
    "DirectQueueFormatName",
    "MS-MQMQ 2.2.18.1.5.2",
    (Field("Count", 2, lambda value: f"{value} bytes"),),
)
PRIVATE_NAME_ID: Final = Layout(
    "PrivateQueueFormatNameId", "MS-MQMQ 2.2.18.1.5.1", (Field("PrivateQueueIdentifier", 4),)
)
PRIVATE_NAME: Final = Layout(
    "PrivateQueueFormatName",
    "MS-MQMQ 2.2.18.1.7.2",
    (_guid("SourceQueueManager"), Field("PrivateQueueIdentifier", 4)),
)
PUBLIC_NAME: Final = Layout(
    "PublicQueueFormatName", "MS-MQMQ 2.2.18.1.7.1", (_guid("PublicQueueIdentifier"),)
)
DISTRIBUTION_NAME: Final = Layout(
    "MQFDistributionQueueFormatName", "MS-MQMQ 2.2.18.1.4.2", (_guid("DistributionListGuid"),)
)
