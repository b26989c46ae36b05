"""MSMQQueue [MC-MQAC 3.11]: an open queue, read from its head, by cursor or by LookupId."""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from typing_extensions import override

from qm.client.errors import MqError
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
from qm.client.mqac.manager import FIRST, OpenedQueue, Seek, Selection
from qm.client.mqac.message import MSMQMessage
from qm.client.mqac.naming import element_names
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.client.mqac.transaction import TransactionArgument, unit_of
from qm.wire.codes import ErrorCode

_MTS: Final = MQTRANSACTION.MQ_MTS_TRANSACTION
_RECEIVES: Final = MQACCESS.MQ_RECEIVE_ACCESS
_PEEKS: Final = MQACCESS.MQ_RECEIVE_ACCESS | MQACCESS.MQ_PEEK_ACCESS

LOOKUP_ID_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
_NOTHING: Final = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_IO_TIMEOUT)
"""Statuses of a read that found nothing: of a poll, and of one that waited."""


class MSMQQueue(OpenQueue):
    """An open queue [MC-MQAC 3.11], created by MSMQQueueInfo.Open; one that an application creates
    itself is unusable.

    Reads return MSMQMessage. Errors are MqError with the HRESULT as `code`.
    """

    def __init__(
        self,
        service: ObjectFactory,
        info: QueueAttributes | None = None,
        opened: OpenedQueue | None = None,
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
        self.require_open()
        return self._access

    @property
    def ShareMode(self) -> MQSHARE:
        """MQSHARE."""
        self.require_open()
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
        """The queue manager's handle, 64 bits."""
        return self.require_open().handle

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
        opened.close()

    def abandon(self) -> None:
        """Close it for an application that is lost: what that took last, and is not known to have
        got, is dead-lettered. Raises as Close.
        """
        opened = self.require_open()
        self._is_closed = True
        opened.abandon()

    def Reset(self) -> None:
        """Put the cursor before the first message."""
        self.require_open()
        self._cursor = Cursor()

    def Purge(self) -> None:
        """Delete every message that is not locked."""
        opened = self.require_open()
        self._require(_RECEIVES)
        opened.purge()

    def EnableNotification(
        self,
        Event: "EventSink[MSMQQueue]",
        Cursor: int = MQMSGCURSOR.MQMSG_FIRST,
        ReceiveTimeout: int = INFINITE,
    ) -> None:
        """Notify `Event` once, when a message is at the place that `Cursor` names, or there is none
        within the time. The message stays; the cursor moves to it (AC-A40: not from the head).
        """
        if Cursor not in tuple(MQMSGCURSOR):
            raise MqError(E_INVALIDARG)
        opened = self.require_open()
        if not isinstance(Event, EventSink):
            raise MqError(E_INVALIDARG)
        # AC-A25: a queue opened for receiving may be peeked at.
        self._require(_PEEKS)
        cursor, timeout = self._cursor, ReceiveTimeout
        is_illegal = Cursor == MQMSGCURSOR.MQMSG_NEXT and not cursor.advanced()
        selections = (FIRST,) if Cursor == MQMSGCURSOR.MQMSG_FIRST else cursor.from_here()
        place = cursor.place

        def look() -> None:
            if is_illegal and timeout:
                # AC-A43: the call itself succeeds, and no message can come.
                raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION)
            found = None if is_illegal else _first(opened, selections, timeout)
            if found is None:
                raise MqError(_NOTHING[timeout != 0])
            if Cursor != MQMSGCURSOR.MQMSG_FIRST and cursor.place == place:
                cursor.seen(found.lookup_identifier)

        Event.watch(self, Cursor, look)

    # From the head -------------------------------------------------------------------------

    def Receive(
        self,
        Transaction: TransactionArgument = _MTS,
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
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the message at the cursor, or the next one that is not locked; the cursor then
        moves past it.
        """
        self._guard(_RECEIVES)
        unit, opened = unit_of(Transaction), self.require_open()
        found = self._at_cursor(
            lambda selection, wait: opened.take(selection, wait, unit), ReceiveTimeout
        )
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
        """Peek at the message at the cursor, or the next one that is not locked."""
        self._guard(_PEEKS)
        found = self._at_cursor(self.require_open().look, ReceiveTimeout)
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
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take exactly this message."""
        return self._receive_lookup(
            _at(Seek.EXACT, LookupId),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceiveByLookupIdAllowPeek(
        self,
        LookupId: int | str,
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take exactly this message; in a transaction it stays visible to peeks meanwhile."""
        return self._receive_lookup(
            _at(Seek.EXACT, LookupId),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
            allow_peek=True,
        )

    def ReceiveNextByLookupId(
        self,
        LookupId: int | str,
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the first message after this one."""
        return self._receive_lookup(
            _at(Seek.NEXT, LookupId),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceivePreviousByLookupId(
        self,
        LookupId: int | str,
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the last message before this one."""
        return self._receive_lookup(
            _at(Seek.PREVIOUS, LookupId),
            Transaction,
            (WantDestinationQueue, WantBody, WantConnectorType),
        )

    def ReceiveFirstByLookupId(
        self,
        Transaction: TransactionArgument = _MTS,
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
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        WantConnectorType: bool = False,
    ) -> MSMQMessage | None:
        """Take the last message."""
        return self._receive_lookup(
            Selection(Seek.LAST),
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
            _at(Seek.EXACT, LookupId), (WantDestinationQueue, WantBody, WantConnectorType)
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
            _at(Seek.NEXT, LookupId),
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
            _at(Seek.PREVIOUS, LookupId),
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
            Selection(Seek.LAST), (WantDestinationQueue, WantBody, WantConnectorType)
        )

    # Of the first revision, which knows no connector types --------------------------------

    def Receive_v1(
        self,
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
    ) -> MSMQMessage | None:
        return self.Receive(Transaction, WantDestinationQueue, WantBody, ReceiveTimeout)

    def Peek_v1(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
    ) -> MSMQMessage | None:
        return self.Peek(WantDestinationQueue, WantBody, ReceiveTimeout)

    def ReceiveCurrent_v1(
        self,
        Transaction: TransactionArgument = _MTS,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
    ) -> MSMQMessage | None:
        return self.ReceiveCurrent(Transaction, WantDestinationQueue, WantBody, ReceiveTimeout)

    def PeekNext_v1(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
    ) -> MSMQMessage | None:
        return self.PeekNext(WantDestinationQueue, WantBody, ReceiveTimeout)

    def PeekCurrent_v1(
        self,
        WantDestinationQueue: bool = False,
        WantBody: bool = True,
        ReceiveTimeout: int = INFINITE,
    ) -> MSMQMessage | None:
        return self.PeekCurrent(WantDestinationQueue, WantBody, ReceiveTimeout)

    # ---------------------------------------------------------------------------------------

    def require_open(self) -> OpenedQueue:
        """Return the open queue. Raises OLE_E_BLANK, MQ_ERROR_INVALID_HANDLE."""
        opened = self._initialized()
        if self._is_closed:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return opened

    @override
    def opened_names(self) -> list[str]:
        """Return its names for Send. Raises MQ_ERROR_ACCESS_DENIED and what `require_open` does."""
        opened = self.require_open()
        if self._access != MQACCESS.MQ_SEND_ACCESS:
            raise MqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        return element_names(opened.format_name)

    def _initialized(self) -> OpenedQueue:
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
        transaction: TransactionArgument,
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
        transaction: TransactionArgument,
        timeout_ms: int,
        *,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        unit = unit_of(transaction)
        return self.require_open().take(selection, timeout_ms, unit, allow_peek=allow_peek)

    def _look(self, selection: Selection, timeout_ms: int) -> ReceivedMessage | None:
        return self.require_open().look(selection, timeout_ms)

    def _at_cursor(
        self, read: Callable[[Selection, int], ReceivedMessage | None], timeout_ms: int
    ) -> ReceivedMessage | None:
        """Read the first message from the cursor on. Raises MQ_ERROR_MESSAGE_ALREADY_RECEIVED if
        the cursor's own is gone.
        """
        *at, onwards = self._cursor.from_here()
        for selection in at:
            found = read(selection, 0)
            if found is not None:
                return found
            if not self.require_open().holds(selection.lookup_identifier):
                raise MqError(ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)
        return read(onwards, timeout_ms)

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


def _first(
    opened: OpenedQueue, selections: Sequence[Selection], timeout_ms: int
) -> ReceivedMessage | None:
    """Return the first message that one of these finds; the last one waits."""
    found = None
    for place, selection in enumerate(selections, start=1):
        found = opened.look(selection, timeout_ms if place == len(selections) else 0)
        if found is not None:
            break
    return found


def _at(seek: Seek, lookup_id: int | str) -> Selection:
    return Selection(seek, _lookup_id(lookup_id))


def _lookup_id(value: int | str) -> int:
    """Return a LookupId given as number or decimal digits; 0 means none."""
    try:
        number = int(value)
    except ValueError:
        raise MqError(E_INVALIDARG) from None
    if number <= 0:
        raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
    if number > LOOKUP_ID_MAX:
        raise MqError(E_INVALIDARG)
    return number
