"""MSMQMessage [MC-MQAC 3.17]: a message to send, or one that was read.

Properties that only connector applications may set, and those that only the queue manager fills in,
are kept here until Send, which checks them. The same object may be sent again and gets a new Id.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from qm.client.errors import MqError
from qm.client.message import INFINITE_S, Message, PacketSigner, ReceivedMessage, Sent
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQCALG,
    MQMSGAUTHENTICATION,
    MQMSGAUTHLEVEL,
    MQMSGCLASS,
    MQMSGDELIVERY,
    MQMSGJOURNAL,
    MQMSGPRIVLEVEL,
    MQMSGSENDERIDTYPE,
    MQMSGTRACE,
    MQTRANSACTION,
)
from qm.client.mqac.destination import MSMQDestination
from qm.client.mqac.faces import SendTarget
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.client.mqac.transaction import TransactionArgument, unit_of
from qm.client.mqac.variant import VT_EMPTY, date_of, from_body, to_body
from qm.names.guid import guid_from_text, guid_text
from qm.wire.codes import ErrorCode
from qm.wire.guid import GUID_NULL
from qm.wire.headers.security_header import SENDER_ID_SID
from qm.wire.packets.user_message import UserMessage

SENDER_VERSION: Final = 0x10
"""AC-A35: regardless of the packet's own version."""
_LABEL_MAX_CHARS: Final = 249
_ID_BYTES: Final = 20
_PROVIDER_TYPE: Final = 1
_PROVIDER_NAME: Final = "Microsoft Base Cryptographic Provider, v1.0"
_ACK_FLAGS: Final = range(16)
"""AC-A42: any combination."""
_CONNECTOR_ONLY: Final = frozenset(
    {
        "Class",
        "SenderId",
        "DestinationSymmetricKey",
        "Signature",
        "AuthenticationProviderName",
    }
)
_AUTHENTICATION: Final = {
    MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_ALWAYS: MQMSGAUTHENTICATION.MQMSG_AUTHENTICATED_SIG30,
    MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG10: MQMSGAUTHENTICATION.MQMSG_AUTHENTICATED_SIG10,
    MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20: MQMSGAUTHENTICATION.MQMSG_AUTHENTICATED_SIG20,
    MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG30: MQMSGAUTHENTICATION.MQMSG_AUTHENTICATED_SIG30,
}
"""What a send that signs says of its message."""
_NOT_SENT: Final = frozenset({"SenderId", "DestinationSymmetricKey", "Signature"})
"""What the data plane does not carry yet."""
_DEFAULTS: Final[dict[str, Any]] = {
    "Class": MQMSGCLASS.MQMSG_CLASS_NORMAL,
    "PrivLevel": MQMSGPRIVLEVEL.MQMSG_PRIV_LEVEL_NONE,
    "AuthLevel": MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_NONE,
    "Delivery": MQMSGDELIVERY.MQMSG_DELIVERY_EXPRESS,
    "Trace": MQMSGTRACE.MQMSG_TRACE_NONE,
    "Priority": 3,
    "Journal": MQMSGJOURNAL.MQMSG_JOURNAL_NONE,
    "Ack": 0,
    "AppSpecific": 0,
    "SenderIdType": MQMSGSENDERIDTYPE.MQMSG_SENDERID_TYPE_SID,
    "HashAlgorithm": MQCALG.MQMSG_CALG_SHA,
    # AC-A24: shown only; what was not put is the queue manager's choice.
    "EncryptAlgorithm": MQCALG.MQMSG_CALG_RC4,
    "MaxTimeToReachQueue": -1,
    "MaxTimeToReceive": -1,
    "LookupId": 0,
    "Label": "",
    "Id": b"",
    "CorrelationId": bytes(_ID_BYTES),
    "Extension": b"",
    "SenderCertificate": b"",
    "SenderId": b"",
    "Signature": b"",
    "DestinationSymmetricKey": b"",
    "AuthenticationProviderType": _PROVIDER_TYPE,
    "AuthenticationProviderName": _PROVIDER_NAME,
    "ConnectorTypeGuid": GUID_NULL,
    "ResponseQueue": "",
    "ResponseQueues": [],
    "AdminQueue": "",
    "TransactionId": bytes(_ID_BYTES),
    "IsFirstInTransaction": False,
    "IsLastInTransaction": False,
    "ReceivedAuthenticationLevel": MQMSGAUTHENTICATION.MQMSG_AUTHENTICATION_NOT_REQUESTED,
    "SourceMachineGuid": GUID_NULL,
    # AC-A55: not sent, not received.
    "SentTime": None,
    "ArrivedTime": None,
    "DestinationQueue": "",
    "Destinations": [],
    "SoapHeader": "",
    "SoapBody": "",
}


class _Values(dict[str, Any]):
    """What was put or read; a server holds many messages, so defaults are not kept in each."""

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        return _DEFAULTS[name]


def _checked(name: str, text: str, check: Callable[[Any], bool], code: int) -> Any:
    """Return a property that refuses what `check` does not accept, with `code`."""

    def read(self: "MSMQMessage") -> Any:
        return self._values[name]

    def write(self: "MSMQMessage", value: Any) -> None:
        if not check(value):
            raise MqError(code, f"{name}: {value!r}")
        self._values[name] = value
        self._put.add(name)

    return property(read, write, doc=text)


def _plain(name: str, text: str) -> Any:
    return _checked(name, text, lambda value: True, 0)


def _among(name: str, text: str, allowed: object) -> Any:
    return _checked(
        name,
        text,
        lambda value: value in allowed,  # type: ignore[operator]
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    )


def _read_only(name: str, text: str) -> Any:
    return property(lambda self: self._values[name], doc=text)


class MSMQMessage:
    """A message to send, or one that was read. Errors are MqError with the HRESULT as `code`; a
    name that is not a property's raises AttributeError.
    """

    __slots__ = ("_body", "_certificate_cache", "_put", "_service", "_values")

    def __init__(self, service: ObjectFactory) -> None:
        """An application's new message."""
        self._service = service
        self._values: dict[str, Any] = _Values()
        self._put: set[str] = set()
        self._body: tuple[bytes, int] = (b"", VT_EMPTY)
        self._certificate_cache = b""

    # Plain properties [MC-MQAC 3.17.4.1] ---------------------------------------------------

    Class = _read_only("Class", "MQMSGCLASS.")
    MsgClass = _plain("Class", "MQMSGCLASS; only connector applications may set it.")
    PrivLevel = _among("PrivLevel", "MQMSGPRIVLEVEL: how the body is encrypted on its way.",
                       tuple(MQMSGPRIVLEVEL))  # fmt: skip
    AuthLevel = _among("AuthLevel", "MQMSGAUTHLEVEL: how Send signs the message.",
                       tuple(MQMSGAUTHLEVEL))  # fmt: skip
    Delivery = _among("Delivery", "MQMSGDELIVERY.", (0, 1))
    Trace = _among("Trace", "MQMSGTRACE.", (0, 1))
    Priority = _among("Priority", "0 to 7; 0 in a transaction.", range(8))
    Journal = _among("Journal", "MQMSGJOURNAL.", range(4))
    Ack = _among("Ack", "MQMSGACKNOWLEDGEMENT.", _ACK_FLAGS)
    AppSpecific = _among("AppSpecific", "Any 32 bits.", range(-(1 << 31), 1 << 32))
    HashAlgorithm = _plain("HashAlgorithm", "MQCALG.")
    EncryptAlgorithm = _plain("EncryptAlgorithm", "MQCALG.")
    MaxTimeToReachQueue = _plain("MaxTimeToReachQueue", "Seconds, -1 infinite.")
    MaxTimeToReceive = _plain("MaxTimeToReceive", "Seconds, -1 infinite.")
    SenderCertificate = _plain("SenderCertificate", "X.509, DER.")
    SenderId = _plain("SenderId", "SID; only connector applications may set it.")
    SenderIdType = _plain("SenderIdType", "MQMSGSENDERIDTYPE (AC-A47).")
    Extension = _plain("Extension", "Bytes for the application's own use.")
    DestinationSymmetricKey = _plain("DestinationSymmetricKey", "For connector applications.")
    Signature = _plain("Signature", "For connector applications.")
    AuthenticationProviderType = _plain("AuthenticationProviderType", "A number, None for none.")
    Label = _checked(
        "Label",
        "At most 249 UTF-16 code units.",
        lambda value: len(value.encode("utf-16-le")) <= 2 * _LABEL_MAX_CHARS,
        ErrorCode.MQ_ERROR_LABEL_TOO_LONG,
    )
    CorrelationId = _plain("CorrelationId", "20 bytes; another length is refused by Send.")
    Id = _read_only("Id", "20 bytes, b'' before Send.")
    TransactionId = _read_only("TransactionId", "20 bytes: GUID of the sender, and its number.")
    SentTime = _read_only("SentTime", "UTC, by the sender's clock; None before Send.")
    ArrivedTime = _read_only("ArrivedTime", "UTC, by the queue manager's clock; None if not read.")
    ReceivedAuthenticationLevel = _read_only("ReceivedAuthenticationLevel", "MQMSGAUTHENTICATION.")
    IsFirstInTransaction2 = _read_only("IsFirstInTransaction", "Whether it began a transaction.")
    IsLastInTransaction2 = _read_only("IsLastInTransaction", "Whether it ended a transaction.")

    @property
    def Body(self) -> Any:
        """The body as a value of its type (`qm.client.mqac.variant`), None for none."""
        return from_body(*self._body)

    @Body.setter
    def Body(self, value: Any) -> None:
        self._body = to_body(value)

    @property
    def typed_body(self) -> tuple[bytes, int]:
        """The body as bytes, and their VARTYPE."""
        return self._body

    @property
    def BodyLength(self) -> int:
        """Size of the body, in bytes."""
        return len(self._body[0])

    @property
    def IsAuthenticated(self) -> int:
        """1 or 0."""
        return int(self.IsAuthenticated2)

    @property
    def IsAuthenticated2(self) -> bool:
        """Whether a signature was found valid."""
        level = self._values["ReceivedAuthenticationLevel"]
        return bool(level != MQMSGAUTHENTICATION.MQMSG_AUTHENTICATION_NOT_REQUESTED)

    @property
    def IsFirstInTransaction(self) -> int:
        """1 or 0."""
        return int(self._values["IsFirstInTransaction"])

    @property
    def IsLastInTransaction(self) -> int:
        """1 or 0."""
        return int(self._values["IsLastInTransaction"])

    @property
    def SenderVersion(self) -> int:
        """Always the same value."""
        return SENDER_VERSION

    @property
    def LookupId(self) -> str:
        """Decimal digits of the LookupIdentifier."""
        return str(self._values["LookupId"])

    @property
    def SourceMachineGuid(self) -> str:
        """GUID of the sending queue manager, without braces."""
        return guid_text(self._values["SourceMachineGuid"])

    @property
    def AuthenticationProviderName(self) -> str:
        """Name of the provider, "" for none."""
        return self._values["AuthenticationProviderName"] or ""

    @AuthenticationProviderName.setter
    def AuthenticationProviderName(self, value: str | None) -> None:
        """None and "" mean that there is none; only connector applications may set it."""
        self._values["AuthenticationProviderName"] = value or None
        self._put.add("AuthenticationProviderName")

    @property
    def ConnectorTypeGuid(self) -> str:
        """GUID in braces, zeros for none."""
        return _braced(self._values["ConnectorTypeGuid"])

    @ConnectorTypeGuid.setter
    def ConnectorTypeGuid(self, value: str) -> None:
        raw = guid_from_text(value[1:-1])
        if raw is None or value.upper() != _braced(raw):
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        self._values["ConnectorTypeGuid"] = raw

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.17.4.1.67]."""
        raise MqError(E_NOTIMPL)

    @property
    def SoapEnvelope(self) -> str:
        """Only for messages received by SRMP; there are none."""
        return ""

    @property
    def CompoundMessage(self) -> bytes:
        """Only for messages received by SRMP; there are none."""
        return b""

    def _set_soap(self, name: str, value: str) -> None:
        self._values[name] = value

    SoapHeader = property(None, lambda self, value: self._set_soap("SoapHeader", value))
    SoapBody = property(None, lambda self, value: self._set_soap("SoapBody", value))

    # Queues --------------------------------------------------------------------------------

    @property
    def ResponseQueueInfo(self) -> QueueAttributes | None:
        """Queue for responses, refreshed if it can be; None for none (AC-A41)."""
        return self._queue_info(self._values["ResponseQueue"])

    @ResponseQueueInfo.setter
    def ResponseQueueInfo(self, value: QueueAttributes | None) -> None:
        self._values["ResponseQueue"] = _name_of(value)

    @property
    def AdminQueueInfo(self) -> QueueAttributes | None:
        """Queue for acknowledgments, refreshed if it can be; None for none (AC-A41)."""
        return self._queue_info(self._values["AdminQueue"])

    @AdminQueueInfo.setter
    def AdminQueueInfo(self, value: QueueAttributes | None) -> None:
        self._values["AdminQueue"] = _name_of(value)

    @property
    def ResponseDestination(self) -> MSMQDestination | None:
        """Queues for responses, if there are several (AC-A46)."""
        return self._several(self._values["ResponseQueues"])

    @ResponseDestination.setter
    def ResponseDestination(self, value: MSMQDestination | None) -> None:
        if not isinstance(value, MSMQDestination | None):
            raise MqError(E_INVALIDARG)
        names = value.FormatName if value is not None else ""
        self._values["ResponseQueues"] = names.split(",") if names else []

    @property
    def Destination(self) -> MSMQDestination | None:
        """Every queue that the message was sent to, if there were several."""
        return self._several(self._values["Destinations"])

    ResponseQueueInfo_v1 = ResponseQueueInfo
    ResponseQueueInfo_v2 = ResponseQueueInfo
    AdminQueueInfo_v1 = AdminQueueInfo
    AdminQueueInfo_v2 = AdminQueueInfo

    @property
    def DestinationQueueInfo(self) -> QueueAttributes | None:
        """Queue that it was sent to; of a message that was read, only if the read asked for it."""
        return self._queue_info(self._values["DestinationQueue"])

    @property
    def TransactionStatusQueueInfo(self) -> QueueAttributes | None:
        """For connector applications; nothing here sets it."""
        return None

    # Methods -------------------------------------------------------------------------------

    def Send(
        self,
        DestinationQueue: SendTarget,
        Transaction: TransactionArgument = MQTRANSACTION.MQ_MTS_TRANSACTION,
    ) -> None:
        """Send the message [MC-MQAC 3.17.4.1.48]; Id is the new one afterwards, outside
        transactions. AC-A49: Transaction is as omitted in the receives.
        """
        if not isinstance(DestinationQueue, SendTarget):
            raise MqError(E_INVALIDARG)
        self._check_connector()
        unit = unit_of(Transaction)
        self._check_supported()
        targets = DestinationQueue.opened_names()
        message, manager = self._message(), self._service.manager
        if Transaction == MQTRANSACTION.MQ_SINGLE_MESSAGE:
            sent = manager.send_single(targets, message)
        else:
            sent = manager.send(targets, message, unit)
        self._sent(sent, targets)

    def AttachCurrentSecurityContext(self) -> None:
        """Keep the certificate with which later sends sign; the caller is who holds the client's
        certificate.
        """
        certificate = self._values["SenderCertificate"]
        signer = self._service.manager.signer(certificate)
        self._certificate_cache = signer.certificate if signer is not None else certificate

    def AttachCurrentSecurityContext2(self) -> None:
        """The same."""
        self.AttachCurrentSecurityContext()

    # ---------------------------------------------------------------------------------------

    @staticmethod
    def received(
        service: ObjectFactory,
        message: ReceivedMessage,
        *,
        wants_destination: bool,
        wants_body: bool,
        wants_connector: bool,
    ) -> "MSMQMessage":
        """Return the object of a message that was read."""
        self = MSMQMessage(service)
        wire, header, properties = message.wire, message.wire.user_header, message.wire.properties
        values = self._values
        values["Class"] = message.message_class
        values["PrivLevel"] = properties.privacy_level
        values["Delivery"] = int(message.is_recoverable)
        values["Trace"] = int(wire.is_traced)
        values["Priority"] = message.priority
        values["Journal"] = (
            MQMSGJOURNAL.MQMSG_DEADLETTER * header.has_negative_journaling
            | MQMSGJOURNAL.MQMSG_JOURNAL * header.has_positive_journaling
        )
        values["Ack"] = properties.flags
        values["AppSpecific"] = properties.application_tag
        values["HashAlgorithm"] = properties.hash_algorithm
        values["EncryptAlgorithm"] = properties.encryption_algorithm
        values["MaxTimeToReachQueue"] = _seconds(wire.time_to_reach_queue)
        values["MaxTimeToReceive"] = _seconds(header.time_to_be_received)
        values["LookupId"] = message.lookup_identifier
        values["Label"] = message.label
        values["Id"] = message.message_id
        values["CorrelationId"] = message.correlation_id
        values["Extension"] = message.extension
        values["SourceMachineGuid"] = message.source_machine
        values["SentTime"] = date_of(message.sent_time_s)
        values["ArrivedTime"] = date_of(message.arrived_time_s)
        values["ResponseQueue"] = message.response_queue
        values["ResponseQueues"] = message.response_queues
        values["AdminQueue"] = message.administration_queue
        values["Destinations"] = message.destination_queues
        if wants_destination:
            values["DestinationQueue"] = message.destination_queue
        if wants_connector and header.connector_type is not None:
            values["ConnectorTypeGuid"] = header.connector_type
        if wants_body:
            self._body = (message.body, message.body_type)
        self._take_transaction(wire)
        self._take_security(message, wire)
        return self

    def _take_transaction(self, wire: UserMessage) -> None:
        header, transaction, values = wire.user_header, wire.transaction, self._values
        if transaction is not None:
            values["IsFirstInTransaction"] = transaction.is_first
            values["IsLastInTransaction"] = transaction.is_last
            number = transaction.transaction_id.to_bytes(4, "little")
            values["TransactionId"] = header.source_queue_manager + number

    def _take_security(self, message: ReceivedMessage, wire: UserMessage) -> None:
        security, values = wire.security, self._values
        if security is None or security.sender_id_type != SENDER_ID_SID:
            values["SenderIdType"] = MQMSGSENDERIDTYPE.MQMSG_SENDERID_TYPE_NONE
        if security is not None:
            values["SenderId"] = security.security_id
            values["SenderCertificate"] = security.sender_cert
            values["Signature"] = security.signature
            values["ReceivedAuthenticationLevel"] = message.authentication_level

    def _several(self, names: list[str]) -> MSMQDestination | None:
        if not names:
            return None
        destination = MSMQDestination(self._service)
        destination.FormatName = ",".join(names)
        return destination

    def _queue_info(self, format_name: str) -> QueueAttributes | None:
        if not format_name:
            return None
        info = self._service.queue_info(format_name)
        with suppress(MqError):
            info.Refresh()
        return info

    def _check_connector(self) -> None:
        """What connector applications alone may put, and what goes together."""
        if self._values["ConnectorTypeGuid"] == GUID_NULL and self._put & _CONNECTOR_ONLY:
            raise MqError(ErrorCode.MQ_ERROR_MISSING_CONNECTOR_TYPE)
        has_name = self._values["AuthenticationProviderName"] is not None
        if has_name != (self._values["AuthenticationProviderType"] is not None):
            raise MqError(ErrorCode.MQ_ERROR_INSUFFICIENT_PROPERTIES)

    def _check_supported(self) -> None:
        """Refuse what would not be done: SRMP has no transport, a certificate without signature
        proves nothing, and signatures are those of one provider.
        """
        values = self._values
        wanted = [name for name in ("SoapHeader", "SoapBody") if values[name]]
        if values["SenderCertificate"] and not values["AuthLevel"]:
            wanted.append("SenderCertificate without AuthLevel")
        if values["AuthLevel"] and values["AuthenticationProviderType"] not in (
            None,
            _PROVIDER_TYPE,
        ):
            wanted.append("AuthLevel with another AuthenticationProviderType")
        wanted += sorted(self._put & _NOT_SENT)
        if wanted:
            text = f"Send does not support {', '.join(wanted)} yet: leave them as they were"
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION, text)

    def _message(self) -> Message:
        values = self._values
        is_connector = values["ConnectorTypeGuid"] != GUID_NULL
        body, body_type = self._body
        reach = values["MaxTimeToReachQueue"] % (1 << 32)
        receive = values["MaxTimeToReceive"] % (1 << 32)
        return Message(
            body=body,
            body_type=body_type,
            label=values["Label"],
            priority=values["Priority"],
            recoverable=values["Delivery"] == MQMSGDELIVERY.MQMSG_DELIVERY_RECOVERABLE,
            time_to_reach_queue_s=reach,
            # AC-A23: neither is raised to the other; whichever is over first ends the message.
            time_to_be_received_s=receive if receive != INFINITE_S else None,
            correlation_id=values["CorrelationId"],
            application_tag=values["AppSpecific"] % (1 << 32),
            response_queue=values["ResponseQueue"],
            response_queues=tuple(values["ResponseQueues"]),
            message_class=int(values["Class"]) if is_connector else 0,
            connector_type=values["ConnectorTypeGuid"] if is_connector else b"",
            administration_queue=values["AdminQueue"],
            acknowledgements=int(values["Ack"]),
            dead_letter=bool(values["Journal"] & MQMSGJOURNAL.MQMSG_DEADLETTER),
            journal=bool(values["Journal"] & MQMSGJOURNAL.MQMSG_JOURNAL),
            extension=values["Extension"],
            trace=bool(values["Trace"]),
            hash_algorithm=values["HashAlgorithm"] if "HashAlgorithm" in self._put else 0,
            encryption_algorithm=(
                values["EncryptAlgorithm"] if "EncryptAlgorithm" in self._put else 0
            ),
            authentication_level=int(values["AuthLevel"]),
            signer=self._signer(),
            names_sender=values["SenderIdType"] == MQMSGSENDERIDTYPE.MQMSG_SENDERID_TYPE_SID,
            privacy_level=int(values["PrivLevel"]),
        )

    def _signer(self) -> PacketSigner | None:
        """Return who signs: with the certificate put, else attached, else the internal one."""
        if not self._values["AuthLevel"]:
            return None
        certificate = self._values["SenderCertificate"] or self._certificate_cache
        signer = self._service.manager.signer(certificate)
        if signer is None:
            text = "the private key of the certificate is not here: give connect() its signer"
            raise MqError(ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED, text)
        return signer

    def _sent(self, sent: Sent, targets: list[str]) -> None:
        values, manager = self._values, self._service.manager
        values["Id"] = sent.message_id
        values["LookupId"] = sent.places[0][1] if len(sent.places) == 1 else 0
        values["SourceMachineGuid"] = manager.identifier
        values["SentTime"] = manager.now()
        if values["AuthLevel"]:
            values["ReceivedAuthenticationLevel"] = _AUTHENTICATION[values["AuthLevel"]]
        if values["ConnectorTypeGuid"] == GUID_NULL:
            values["Class"] = MQMSGCLASS.MQMSG_CLASS_NORMAL
        is_one = len(targets) == 1
        values["DestinationQueue"] = targets[0] if is_one else ""
        values["Destinations"] = [] if is_one else targets


def _seconds(value: int) -> int:
    return -1 if value == INFINITE_S else value


def _braced(raw: bytes) -> str:
    return f"{{{guid_text(raw)}}}"


def _name_of(info: QueueAttributes | None) -> str:
    """Return the format name as it was put, or the one that a path name leads to (AC-A12)."""
    return (info.FormatName or "") if info is not None else ""
