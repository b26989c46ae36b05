"""MSMQManagement and what it turns into [MC-MQAC 3.3 to 3.5]: a queue for administrators."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from qm.client.errors import MqError
from qm.client.mqac import naming
from qm.client.mqac.collection import MSMQCollection
from qm.client.mqac.constants import (
    E_NOINTERFACE,
    FOREIGN_STATUS,
    QUEUE_STATE,
    QUEUE_TYPE,
    XACT_STATUS,
)
from qm.client.mqac.manager import Management
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.variant import VT_I4, VT_UI4, VT_UI8, TypedInt
from qm.names.guid import guid_text
from qm.wire.codes import ErrorCode
from qm.wire.property_id import QueueManagementProperty as Property
from qm.wire.structures.identifiers import SEQUENCE_INFO

_REMOTE: Final = "REMOTE"
_LOCAL: Final = "LOCAL"
_FOREIGN: Final = {
    "YES": FOREIGN_STATUS.MQ_STATUS_FOREIGN,
    "NO": FOREIGN_STATUS.MQ_STATUS_NOT_FOREIGN,
    "UNKNOWN": FOREIGN_STATUS.MQ_STATUS_UNKNOWN,
}
_TYPES: Final = {
    "PUBLIC": QUEUE_TYPE.MQ_TYPE_PUBLIC,
    "PRIVATE": QUEUE_TYPE.MQ_TYPE_PRIVATE,
    "MACHINE": QUEUE_TYPE.MQ_TYPE_MACHINE,
    "CONNECTOR": QUEUE_TYPE.MQ_TYPE_CONNECTOR,
    "MULTICAST": QUEUE_TYPE.MQ_TYPE_MULTICAST,
}
_XACT: Final = {
    "YES": XACT_STATUS.MQ_XACT_STATUS_XACT,
    "NO": XACT_STATUS.MQ_XACT_STATUS_NOT_XACT,
    "UNKNOWN": XACT_STATUS.MQ_XACT_STATUS_UNKNOWN,
}
_STATES: Final = {
    "LOCAL CONNECTION": QUEUE_STATE.MQ_QUEUE_STATE_LOCAL_CONNECTION,
    "DISCONNECTED": QUEUE_STATE.MQ_QUEUE_STATE_DISCONNECTED,
    "WAITING": QUEUE_STATE.MQ_QUEUE_STATE_WAITING,
    "NEED VALIDATION": QUEUE_STATE.MQ_QUEUE_STATE_NEEDVALIDATE,
    "ONHOLD": QUEUE_STATE.MQ_QUEUE_STATE_ONHOLD,
    "INACTIVE": QUEUE_STATE.MQ_QUEUE_STATE_NONACTIVE,
    "CONNECTED": QUEUE_STATE.MQ_QUEUE_STATE_CONNECTED,
    "DISCONNECTING": QUEUE_STATE.MQ_QUEUE_STATE_DISCONNECTING,
    "LOCKED": QUEUE_STATE.MQ_QUEUE_STATE_LOCKED,
}
_SEND_INFO: Final[Mapping[str, tuple[Property, int | None]]] = {
    "EodLastAck": (Property.EOD_LAST_ACK, None),
    "EodLastAckTime": (Property.EOD_LAST_ACK_TIME, VT_I4),
    "EodLastAckCount": (Property.EOD_LAST_ACK_COUNT, VT_UI4),
    "EodFirstNonAck": (Property.EOD_FIRST_NON_ACK, None),
    "EodLastNonAck": (Property.EOD_LAST_NON_ACK, None),
    "EodNextSeq": (Property.EOD_NEXT_SEQ, None),
    "EodNoReadCount": (Property.EOD_NO_READ_COUNT, VT_UI4),
    "EodNoAckCount": (Property.EOD_NO_ACK_COUNT, VT_UI4),
    "EodResendTime": (Property.EOD_RESEND_TIME, VT_I4),
    "EodResendInterval": (Property.EOD_RESEND_INTERVAL, VT_UI4),
    "EodResendCount": (Property.EOD_RESEND_COUNT, VT_UI4),
}
"""In the order in which they are read; with the types of those that are no sequences [MC-MQAC
2.2.4.2, 3.5.4.1.3].
"""

_T = TypeVar("_T")


class MSMQManagement:
    """Init comes first; until then everything raises MQ_ERROR_UNINITIALIZED_OBJECT."""

    def __init__(self, service: ObjectFactory) -> None:
        self._service = service
        self._computer_name = ""
        self._format_name = ""
        self._management: Management | None = None
        self._is_outgoing = False

    def Init(
        self,
        Machine: str | None = None,
        Pathname: str | None = None,
        FormatName: str | None = None,
    ) -> None:
        """Stand for an active queue, named in one way or the other [MC-MQAC 3.3.4.1.1].

        Active is a queue that a client has open, or an outgoing one that holds messages. What
        fails here leaves the object as it was, but for its names.
        """
        if (Pathname is None) == (FormatName is None):
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        manager = self._service.manager
        if Machine is not None:
            self._computer_name = Machine
        if FormatName is not None:
            self._format_name = FormatName
        elif Pathname is not None:
            self._format_name = naming.format_name_of_path(manager, Pathname)
        management = manager.management(self._computer_name)
        location = management.queue_info(self._format_name, Property.LOCATION)
        self._is_outgoing = location.upper() == _REMOTE
        self._management = management

    def queue_management(self) -> "MSMQQueueManagement":
        """Return this as a local queue's. Raises E_NOINTERFACE for an outgoing queue's."""
        return MSMQQueueManagement(self._as(is_outgoing=False))

    def outgoing_queue_management(self) -> "MSMQOutgoingQueueManagement":
        """Return this as an outgoing queue's. Raises E_NOINTERFACE for a local queue's."""
        return MSMQOutgoingQueueManagement(self._as(is_outgoing=True))

    @property
    def FormatName(self) -> str:
        """Format name of the queue."""
        self.bound()
        return self._format_name

    @property
    def Machine(self) -> str:
        """Computer that was asked."""
        self.bound()
        return self._computer_name or self._service.manager.computer_name

    @property
    def MessageCount(self) -> int:
        """Number of messages."""
        return int(self.read(Property.MESSAGE_COUNT))

    @property
    def ForeignStatus(self) -> FOREIGN_STATUS:
        """Whether it is a foreign queue."""
        return _known(_FOREIGN, self.read(Property.FOREIGN))

    @property
    def QueueType(self) -> QUEUE_TYPE:
        """What kind of queue it is."""
        return _known(_TYPES, self.read(Property.TYPE))

    @property
    def IsLocal(self) -> bool:
        """Whether the queue is there, not only messages on their way to it."""
        return bool(self.read(Property.LOCATION).upper() == _LOCAL)

    @property
    def TransactionalStatus(self) -> XACT_STATUS:
        """Whether the queue is transactional."""
        return _known(_XACT, self.read(Property.XACT))

    @property
    def BytesInQueue(self) -> int:
        """Bytes of its messages."""
        return int(self.read(Property.BYTES_IN_QUEUE))

    # ---------------------------------------------------------------------------------------

    def bound(self) -> Management:
        """Return what Init bound. Raises MQ_ERROR_UNINITIALIZED_OBJECT."""
        if self._management is None:
            raise MqError(ErrorCode.MQ_ERROR_UNINITIALIZED_OBJECT)
        return self._management

    def read(self, property_id: Property) -> Any:
        """Return one property of the queue; a failing status is raised as it is."""
        return self.bound().queue_info(self._format_name, property_id)

    def act(self, action: str) -> None:
        """Act on the queue; a failing status is raised as it is."""
        self.bound().act_on_queue(self._format_name, action)

    def _as(self, *, is_outgoing: bool) -> "MSMQManagement":
        if self._management is None or self._is_outgoing != is_outgoing:
            raise MqError(E_NOINTERFACE)
        return self

    def _share(self, other: "MSMQManagement") -> None:
        """Have the state of another, as an object has in all of its interfaces."""
        self.__dict__ = other.__dict__


class MSMQQueueManagement(MSMQManagement):
    """A local queue [MC-MQAC 3.4]."""

    def __init__(self, management: MSMQManagement) -> None:
        self._share(management)

    @property
    def JournalMessageCount(self) -> int:
        """Number of messages in its journal."""
        return int(self.read(Property.JOURNAL_MESSAGE_COUNT))

    @property
    def BytesInJournal(self) -> int:
        """Bytes of the messages in its journal (AC-A8)."""
        return int(self.read(Property.BYTES_IN_JOURNAL))

    def EodGetReceiveInfo(self) -> list[MSMQCollection]:
        """Return what is known of each queue manager that sends to it in transactions (AC-A7)."""
        columns = self.read(Property.EOD_SOURCE_INFO)
        return [
            MSMQCollection(
                {
                    "QueueFormatName": name,
                    "SenderID": guid_text(sender),
                    "SeqID": TypedInt(sequence, VT_UI8),
                    "SeqNo": TypedInt(number, VT_I4),
                    "LastAccessTime": TypedInt(accessed, VT_I4),
                    "RejectCount": TypedInt(rejects, VT_I4),
                }
            )
            for name, sender, sequence, number, accessed, rejects in zip(*columns, strict=True)
        ]


class MSMQOutgoingQueueManagement(MSMQManagement):
    """An outgoing queue [MC-MQAC 3.5]."""

    def __init__(self, management: MSMQManagement) -> None:
        self._share(management)

    @property
    def State(self) -> QUEUE_STATE:
        """State of its connection."""
        return _known(_STATES, self.read(Property.STATE))

    @property
    def NextHops(self) -> list[str]:
        """Addresses that its messages go to next."""
        return list(self.read(Property.NEXTHOPS))

    def EodGetSendInfo(self) -> MSMQCollection:
        """Return what is known of its transactional messages; all of it, or the first error."""
        values: dict[str, Any] = {}
        for name, (property_id, vartype) in _SEND_INFO.items():
            found = self.read(property_id)
            values[name] = _sequence(found) if vartype is None else TypedInt(found, vartype)
        return MSMQCollection(values)

    def Resume(self) -> None:
        """Send again after Pause."""
        self.act("RESUME")

    def Pause(self) -> None:
        """Send nothing until Resume."""
        self.act("PAUSE")

    def EodResend(self) -> None:
        """Send again what was not acknowledged in order (AC-A5)."""
        self.act("EOD_RESEND")


def _known(table: Mapping[str, _T], text: str) -> _T:
    """Return what a string property means (AC-A6: in any case)."""
    found = table.get(text.upper())
    if found is None:
        raise MqError(ErrorCode.MQ_ERROR_PROPERTY, f"the queue manager answered {text!r}")
    return found


def _sequence(info: bytes) -> MSMQCollection:
    identifier, number, previous = SEQUENCE_INFO.unpack(info)
    return MSMQCollection(
        {
            "SeqID": TypedInt(identifier, VT_UI8),
            "SeqNo": TypedInt(number, VT_I4),
            "PrevNo": TypedInt(previous, VT_I4),
        }
    )
