"""MSMQQueue [MC-MQAC 3.11]: an open queue, read from its head, by cursor or by LookupId."""

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from typing_extensions import override

from qm.client.blocking import BlockingQueue
from qm.client.errors import ClientError, MqError
from qm.client.message import ReceivedMessage
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    INFINITE,
    MQACCESS,
    MQMSGCURSOR,
    MQSHARE,
    MQTRANSACTION,
    OLE_E_BLANK,
)
from qm.client.mqac.cursor import Cursor
from qm.client.mqac.faces import EventSink, OpenQueue
from qm.client.mqac.local_manager import hresult_of
from qm.client.mqac.message import MSMQMessage
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.client.mqac.transaction import MSMQTransaction
from qm.client.queue import exactly
from qm.client.reading import FIRST, FOREVER_S, Selection
from qm.pb import control_pb2, data_pb2
from qm.wire.codes import ErrorCode

_MTS: Final = MQTRANSACTION.MQ_MTS_TRANSACTION
_RECEIVES: Final = MQACCESS.MQ_RECEIVE_ACCESS
_PEEKS: Final = MQACCESS.MQ_RECEIVE_ACCESS | MQACCESS.MQ_PEEK_ACCESS

_NOTHING: Final = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_IO_TIMEOUT)
"""Statuses of a read that found nothing: of a poll, and of one that waited."""

Transaction_ = MSMQTransaction | int
_T = TypeVar("_T")


class MSMQQueue(OpenQueue):
    """Created by MSMQQueueInfo.Open; one that an application creates itself is unusable.

    Reads return MSMQMessage. Errors are MqError with the HRESULT as `code`.
    """

    def __init__(
        self,
        service: ObjectFactory,
        info: QueueAttributes | None = None,
        opened: BlockingQueue | None = None,
        access: MQACCESS | None = None,
        share_mode: MQSHARE = MQSHARE.MQ_DENY_NONE,
    ) -> None:
        self._service = service
        self._info = info
        self._opened = opened
        self._access = access or MQACCESS(0)
        self._share_mode = share_mode
        self._is_closed = opened is None
        self._cursor = Cursor()

    # State ---------------------------------------------------------------------------------

    @property
    def Access(self) -> MQACCESS:
        """MQACCESS."""
        self._initialized()
        return self._access

    @property
    def ShareMode(self) -> MQSHARE:
        """MQSHARE."""
        self._initialized()
        return self._share_mode

    @property
    def QueueInfo(self) -> QueueAttributes | None:
        """The QueueInfo that opened it, even after it is closed (AC-A36)."""
        self._initialized()
        return self._info

    @property
    def Handle(self) -> int:
        """Low 32 bits of `Handle2`."""
        return self.Handle2 & 0xFFFF_FFFF

    @property
    def Handle2(self) -> int:
        """The cluster's handle."""
        return self._initialized().queue.opened.handle

    @property
    def IsOpen(self) -> int:
        """1 or 0."""
        return int(self.IsOpen2)

    @property
    def IsOpen2(self) -> bool:
        """Whether it is open."""
        self._initialized()
        return not self._is_closed

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.11.4.1.19]."""
        raise MqError(E_NOTIMPL)

    @override
    def Close(self) -> None:
        """Close it. Raises MQ_ERROR_INVALID_HANDLE if it is closed."""
        opened = self.require_open()
        self._is_closed = True
        _ask(opened.close)

    def Reset(self) -> None:
        """Put the cursor before the first message."""
        self.require_open()
        self._cursor = Cursor()

    def Purge(self) -> None:
        """Delete every message that is not locked."""
        opened = self.require_open()
        self._require(_RECEIVES)
        client = self._service.client
        name = control_pb2.QueueName(queue_id=opened.queue.queue_id)
        _ask(
            lambda: client.call(
                lambda stubs: stubs.queues.PurgeQueue, control_pb2.PurgeQueueRequest(queue=name)
            )
        )

    def EnableNotification(
        self,
        Event: "EventSink[MSMQQueue]",
        Cursor: int = MQMSGCURSOR.MQMSG_FIRST,
        ReceiveTimeout: int = INFINITE,
    ) -> None:
        """Notify `Event` once, when a message is at the place that `Cursor` names."""
        if Cursor not in tuple(MQMSGCURSOR):
            raise MqError(E_INVALIDARG)
        self.require_open()
        if not isinstance(Event, EventSink):
            raise MqError(E_INVALIDARG)
        # AC-A25: a queue opened for receiving may be peeked at.
        self._require(_PEEKS)
        selection = FIRST
        if Cursor == MQMSGCURSOR.MQMSG_CURRENT:
            selection = self._cursor.selection()
        elif Cursor == MQMSGCURSOR.MQMSG_NEXT:
            selection = self._cursor.next_selection()
            self._cursor.passed_to_next()
        timeout = ReceiveTimeout

        def look() -> None:
            if self._look(selection, timeout) is None:
                raise MqError(_NOTHING[timeout != 0])

        Event.watch(self, Cursor, look)

    # From the head -------------------------------------------------------------------------

    def Receive(
        self,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the first message that is not locked; timeouts are in milliseconds (AC-A26)."""
        self._guard(_RECEIVES)
        found = self._take(FIRST, Transaction, ReceiveTimeout)
        return self._shown(found, ReceiveTimeout, WantDestinationQueue, WantBody, WantConnectorType)

    def Peek(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the first message; the cursor stays."""
        self._guard(_PEEKS)
        found = self._look(FIRST, ReceiveTimeout)
        return self._shown(found, ReceiveTimeout, WantDestinationQueue, WantBody, WantConnectorType)

    # By cursor -----------------------------------------------------------------------------

    def ReceiveCurrent(
        self,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the message at the cursor, which then moves past it."""
        self._guard(_RECEIVES)
        timeout = 0 if self._cursor.is_at_message else ReceiveTimeout
        found = self._take(self._cursor.selection(), Transaction, timeout)
        self._require_current(found)
        if found is not None:
            self._cursor.taken(found.lookup_identifier)
        return self._shown(found, ReceiveTimeout, WantDestinationQueue, WantBody, WantConnectorType)

    def PeekCurrent(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the message at the cursor."""
        self._guard(_PEEKS)
        timeout = 0 if self._cursor.is_at_message else ReceiveTimeout
        found = self._look(self._cursor.selection(), timeout)
        self._require_current(found)
        if found is not None:
            self._cursor.seen(found.lookup_identifier)
        return self._shown(found, ReceiveTimeout, WantDestinationQueue, WantBody, WantConnectorType)

    def PeekNext(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Advance the cursor and peek at that message."""
        self._guard(_PEEKS)
        found = self._look(self._cursor.next_selection(), ReceiveTimeout)
        if found is None:
            self._cursor.passed_end()
        else:
            self._cursor.seen(found.lookup_identifier)
        return self._shown(found, ReceiveTimeout, WantDestinationQueue, WantBody, WantConnectorType)

    # By LookupId ---------------------------------------------------------------------------

    def ReceiveByLookupId(
        self,
        LookupId: int | str,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take exactly this message."""
        return self._receive_lookup(
            exactly(_lookup_id(LookupId)),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceiveByLookupIdAllowPeek(
        self,
        LookupId: int | str,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take exactly this message; in a transaction it stays visible to peeks meanwhile."""
        return self._receive_lookup(
            exactly(_lookup_id(LookupId)),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
            allow_peek=True,
        )

    def ReceiveNextByLookupId(
        self,
        LookupId: int | str,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the first message after this one."""
        return self._receive_lookup(
            Selection(data_pb2.SEEK_NEXT, _lookup_id(LookupId)),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceivePreviousByLookupId(
        self,
        LookupId: int | str,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the last message before this one."""
        return self._receive_lookup(
            Selection(data_pb2.SEEK_PREVIOUS, _lookup_id(LookupId)),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceiveFirstByLookupId(
        self,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the first message; never waits."""
        return self._receive_lookup(
            FIRST, Transaction, (WantDestinationQueue, WantBody, WantConnectorType)
        )

    def ReceiveLastByLookupId(
        self,
        Transaction: Transaction_ = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the last message."""
        return self._receive_lookup(
            Selection(data_pb2.SEEK_LAST),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def PeekByLookupId(
        self,
        LookupId: int | str,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at exactly this message."""
        return self._peek_lookup(
            exactly(_lookup_id(LookupId)), (WantDestinationQueue, WantBody, WantConnectorType)
        )

    def PeekNextByLookupId(
        self,
        LookupId: int | str,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the first message after this one."""
        return self._peek_lookup(
            Selection(data_pb2.SEEK_NEXT, _lookup_id(LookupId)),
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def PeekPreviousByLookupId(
        self,
        LookupId: int | str,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the last message before this one."""
        return self._peek_lookup(
            Selection(data_pb2.SEEK_PREVIOUS, _lookup_id(LookupId)),
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def PeekFirstByLookupId(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the first message; never waits."""
        return self._peek_lookup(FIRST, (WantDestinationQueue, WantBody, WantConnectorType))

    def PeekLastByLookupId(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Peek at the last message."""
        return self._peek_lookup(
            Selection(data_pb2.SEEK_LAST), (WantDestinationQueue, WantBody, WantConnectorType)
        )

    # Earlier revisions' names for the same.
    Receive_v1 = Receive
    Peek_v1 = Peek
    ReceiveCurrent_v1 = ReceiveCurrent
    PeekNext_v1 = PeekNext
    PeekCurrent_v1 = PeekCurrent

    # ---------------------------------------------------------------------------------------

    def require_open(self) -> BlockingQueue:
        """Return the open queue. Raises OLE_E_BLANK, MQ_ERROR_INVALID_HANDLE."""
        opened = self._initialized()
        if self._is_closed:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return opened

    @override
    def opened_names(self) -> list[str]:
        """Return its name for Send. Raises MQ_ERROR_ACCESS_DENIED and what `require_open` does."""
        if self.Access != MQACCESS.MQ_SEND_ACCESS:
            raise MqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        return [self.require_open().name]

    def _initialized(self) -> BlockingQueue:
        if self._opened is None:
            raise MqError(OLE_E_BLANK)
        return self._opened

    def _guard(self, needed: MQACCESS) -> None:
        """The common order of checks [MC-MQAC 3.11.4]."""
        self.require_open()
        self._require(needed)

    def _require(self, needed: MQACCESS) -> None:
        if not self._access & needed:
            raise MqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)

    def _receive_lookup(
        self,
        selection: Selection,
        transaction: Transaction_,
        wants: tuple[bool, bool, bool],
        *,
        allow_peek: bool = False,
    ) -> MSMQMessage | None:
        self._guard(_RECEIVES)
        found = self._take(selection, transaction, 0, allow_peek=allow_peek)
        return self._shown(found, 0, *wants)

    def _peek_lookup(
        self, selection: Selection, wants: tuple[bool, bool, bool]
    ) -> MSMQMessage | None:
        self._guard(_PEEKS)
        return self._shown(self._look(selection, 0), 0, *wants)

    def _take(
        self,
        selection: Selection,
        transaction: Transaction_,
        timeout_ms: int,
        *,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        opened, timeout_s = self.require_open(), _timeout_s(timeout_ms)
        if isinstance(transaction, MSMQTransaction):
            inner = transaction.attached().transaction
            return _ask(
                lambda: inner.receive(opened, timeout_s, selection=selection, allow_peek=allow_peek)
            )
        if not isinstance(transaction, int):
            raise MqError(E_INVALIDARG)
        # A single message taken is its own transaction; there are no ambient ones (AC-A21).
        return _ask(lambda: opened.receive(timeout_s, selection=selection))

    def _look(self, selection: Selection, timeout_ms: int) -> ReceivedMessage | None:
        opened = self.require_open()
        return _ask(lambda: opened.peek(_timeout_s(timeout_ms), selection=selection))

    def _require_current(self, found: ReceivedMessage | None) -> None:
        if found is None and self._cursor.is_at_message:
            raise MqError(ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)

    def _shown(
        self,
        found: ReceivedMessage | None,
        timeout_ms: int,
        wants_destination: bool,
        wants_body: bool,
        wants_connector: bool,
    ) -> MSMQMessage | None:
        if found is not None:
            return MSMQMessage.received(
                self._service,
                found,
                wants_destination=wants_destination,
                wants_body=wants_body,
                wants_connector=wants_connector,
            )
        if self._service.null_on_empty:
            return None
        raise MqError(_NOTHING[timeout_ms != 0])


def _ask(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except ClientError as error:
        raise hresult_of(error) from error


def _timeout_s(timeout_ms: int) -> float:
    return FOREVER_S if timeout_ms == INFINITE else timeout_ms / 1000


def _lookup_id(value: int | str) -> int:
    """Return a LookupId given as number or decimal digits; 0 means none."""
    try:
        number = int(value)
    except ValueError:
        raise MqError(E_INVALIDARG) from None
    if number <= 0:
        raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
    return number
