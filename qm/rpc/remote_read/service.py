"""The methods of [MS-MQRR]: what is checked in which order, and what they answer.

HRESULTs are results, except where a method has none: R_OpenQueue and R_OpenQueueForMove throw them
as faults (RP-A58).
"""

import contextlib
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from qm.api.convert.outcomes import numbers_of
from qm.api.gate.errors import ApiError, LimitReached, MsmqError, QuotaReached, check
from qm.api.propose.control_once import UNNUMBERED
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.messages.cursors import START, Cursor, CursorAnswer
from qm.model.queries import PositionInfo, last_key, peek
from qm.model.values.commands import CloseQueue, Move, OpenQueue, PurgeQueue, Selector, SelectorKind
from qm.model.values.elements import QueueAccessType, QueueKind, QueueShareMode
from qm.model.values.results import MessageColumns, RequestResult
from qm.names.format_name import FormatName, format_name_text
from qm.observe.metrics import Metrics
from qm.rpc.association.groups import Association
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.pdu.codes import FaultStatus
from qm.rpc.queue_formats import NotAName, WireFormat, name_of, settled_name
from qm.rpc.remote_read.actions import (
    ACCESS_DENIED_NT,
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    ACK,
    ACK_CLASSES,
    INVALID_HANDLE_NT,
    INVALID_PARAMETER_NT,
    LOOKUP_PEEK,
    LOOKUP_RECEIVE,
    MESSAGE_LOCKED,
    NO_DTC,
    NO_TRANSACTION,
    NOT_FOUND_NT,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    UNKNOWN_TRANSACTION,
    failed,
    refusal,
    selector_of,
)
from qm.rpc.remote_read.callers import CallerSessions
from qm.rpc.remote_read.interface import (
    REMOTE_READ,
    AcknowledgeIn,
    CursorIn,
    CursorOut,
    EndIn,
    EnlistIn,
    Handle,
    HandleResult,
    MoveHandle,
    MoveIn,
    OpenIn,
    Port,
    RequestIn,
    Result,
    StartIn,
    StartOut,
)
from qm.rpc.remote_read.messages import (
    ReaderMessages,
    ReadPorts,
    ReadSettings,
    columns_of_found,
)
from qm.rpc.remote_read.opened import READS_PER_QUEUE_MAX, BegunPeek, OpenedQueue
from qm.rpc.remote_read.reading import (
    Found,
    Look,
    PendingRead,
    no_cursor,
    time_when_current,
)
from qm.rpc.server.call import Call
from qm.store.bodies.body_places import BodyDamaged
from qm.wire.codes import MQ_OK, ErrorCode

FINISH_MAX_S: Final = 5.0
"""For sessions to end when the node stops."""

_CURSOR_STATUS: Final = {
    CursorAnswer.ALREADY_RECEIVED: ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    CursorAnswer.NOT_FOUND: ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
    CursorAnswer.ILLEGAL: ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION,
}
_MISSING: Final = (
    ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
    ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    ErrorCode.MQ_ERROR_IO_TIMEOUT,
)
"""What a lookup of a message that is not there ends with."""
_CANCELLED: Final = ErrorCode.MQ_ERROR_OPERATION_CANCELLED
_NO_SERVICE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
_RESULTS: Final = ("received", "peeked", "none")


Started = StartOut | Coroutine[Any, Any, StartOut | None] | None
"""What a call that starts a read returns; None: the read answers it."""


class RemoteRead:
    """Implements the interface."""

    def __init__(
        self,
        ports: ReadPorts,
        metrics: Metrics,
        port: Callable[[], int],
        settings: ReadSettings,
    ) -> None:
        """`port`: the TCP port that serves the interface, 0 while none does."""
        self._ports = ports
        self._settings = settings
        self._messages = ReaderMessages(ports, settings)
        self._port = port
        reads = metrics.counter("quorate_remote_reads_total")
        self._received, self._peeked, self._missed = map(reads.labels, _RESULTS)
        self._returned = metrics.counter("quorate_remote_reads_returned_total")
        self._callers = CallerSessions(ports)

    def get_server_port(self, call: Call, given: Nothing) -> Port:
        """R_GetServerPort."""
        return Port(self._port())

    # Opening and closing -----------------------------------------------------------------

    async def open_queue(self, call: Call, given: OpenIn) -> Handle:
        """R_OpenQueue."""
        accesses = {
            ACCESS_RECEIVE: QueueAccessType.RECEIVE_ACCESS,
            ACCESS_PEEK: QueueAccessType.PEEK_ACCESS,
        }
        opened = await self._open(call, given, accesses.get(given.access))
        return Handle(self._admit(call.association, opened))

    async def open_queue_for_move(self, call: Call, given: OpenIn) -> MoveHandle:
        """R_OpenQueueForMove: a subqueue that is not there yet is created."""
        is_move = given.access == ACCESS_MOVE
        opened = await self._open(call, given, QueueAccessType.MOVE_ACCESS if is_move else None)
        handle = self._admit(call.association, opened)
        opened.move_context = int.from_bytes(secrets.token_bytes(8), "little") or 1
        return MoveHandle(opened.move_context, handle)

    async def _open(self, call: Call, given: OpenIn, access: QueueAccessType | None) -> OpenedQueue:
        if access is None or given.share_mode not in (0, 1):
            raise Fault(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        name = self._name(call, given.queue)
        share = QueueShareMode.DENY_RECEIVE if given.share_mode else QueueShareMode.DENY_NONE
        text = format_name_text(name)
        sids = call.identity.sids
        session, outcome = await self._callers.propose(
            call, lambda request: OpenQueue(request, text, int(access), int(share), sids)
        )
        if outcome.status:
            raise Fault(_open_status(outcome.status))
        handle, queue_id = numbers_of(outcome)
        return OpenedQueue(
            session,
            handle,
            queue_id,
            may_receive=access is QueueAccessType.RECEIVE_ACCESS,
            is_for_moving=access is QueueAccessType.MOVE_ACCESS,
            closed=self._on_run_down,
            returned=self._count_returned,
            cleanup_after_s=self._settings.cleanup_after_s,
        )

    def _admit(self, association: Association, opened: OpenedQueue) -> bytes:
        try:
            return association.open(REMOTE_READ, opened)
        except Fault:
            opened.session.close_queue(opened.handle)
            raise

    def _name(self, call: Call, wire: WireFormat) -> FormatName:
        """Return the name to open: an address at which this node was called is the cluster's."""
        if wire.kind not in (1, 2, 3, 4, 8):
            raise Fault(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        try:
            name = name_of(wire)
        except NotAName as error:
            raise Fault(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error)) from None
        manager = self._ports.cluster.view.ledger.manager
        if manager is not None:
            name = settled_name(name, call.local[0], manager.computer_name)
        return name

    def _on_run_down(self, opened: OpenedQueue) -> None:
        """Nothing to propose: the association's session ends after its handles."""

    async def close_queue(self, call: Call, given: Handle) -> HandleResult:
        """R_CloseQueue: reads end, what was lent goes back, then the queue is closed."""
        opened = self._opened(call, given.handle)
        call.association.close(REMOTE_READ, given.handle)
        session = opened.session
        keys = opened.end("close")
        try:
            while keys:
                await session.end_read(opened.queue_id, keys.pop(0), is_accepted=False)
            await session.numbered(lambda request: CloseQueue(request, opened.handle))
        except (Unavailable, OutcomeUnknown):
            for key in keys:
                session.give_back(opened.queue_id, key)
            session.close_queue(opened.handle)
            return HandleResult(NIL, ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return HandleResult(NIL, MQ_OK)

    def _opened(self, call: Call, handle: bytes) -> OpenedQueue:
        held = call.association.find(REMOTE_READ, handle)
        assert isinstance(held, OpenedQueue)
        return held

    def _readable(self, call: Call, handle: bytes) -> OpenedQueue:
        opened = self._opened(call, handle)
        if opened.is_for_moving:
            raise Fault(FaultStatus.CONTEXT_MISMATCH)
        return opened

    # Cursors and purging -----------------------------------------------------------------

    def create_cursor(self, call: Call, given: Handle) -> CursorOut:
        """R_CreateCursor."""
        number = self._readable(call, given.handle).create_cursor()
        status = MQ_OK if number else ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        return CursorOut(number, status)

    def close_cursor(self, call: Call, given: CursorIn) -> Result:
        """R_CloseCursor."""
        found = self._readable(call, given.handle).close_cursor(given.cursor)
        return Result(MQ_OK if found else INVALID_HANDLE_NT)

    async def purge_queue(self, call: Call, given: Handle) -> Result:
        """R_PurgeQueue."""
        opened = self._readable(call, given.handle)
        if not opened.may_receive:
            return Result(ACCESS_DENIED_NT)
        command = PurgeQueue(UNNUMBERED, opened.queue_id, call.identity.sids)
        try:
            (outcome,) = await self._ports.proposer.repeat(command)
        except (Unavailable, OutcomeUnknown):
            return Result(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return Result(outcome.status)

    # Reading -----------------------------------------------------------------------------

    def start_receive(self, call: Call, given: StartIn) -> Started:
        """R_StartReceive."""
        return self._start(call, given, is_transactional=False)

    def start_transactional_receive(self, call: Call, given: StartIn) -> Started:
        """R_StartTransactionalReceive: without a transaction as the other (RP-A28)."""
        opened = self._readable(call, given.handle)
        if given.transaction != NO_TRANSACTION:
            if given.action not in (RECEIVE, *LOOKUP_RECEIVE):
                return failed(ErrorCode.MQ_ERROR_TRANSACTION_USAGE)
            return failed(UNKNOWN_TRANSACTION)  # RP-A29
        del opened
        return self._start(call, given, is_transactional=True)

    def _start(self, call: Call, given: StartIn, *, is_transactional: bool) -> Started:
        opened = self._readable(call, given.handle)
        status = refusal(opened, given)
        if status:
            return failed(status)
        cursor = opened.cursor(given.cursor) if given.cursor else None
        if given.cursor and cursor is None:
            return failed(INVALID_HANDLE_NT)
        if given.request in opened.reads or given.request in opened.lent:
            return failed(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        if len(opened.reads) + len(opened.lent) >= READS_PER_QUEUE_MAX:
            return failed(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        if given.action in (RECEIVE, *LOOKUP_RECEIVE):
            self._begin(call, given, opened, cursor, None, is_transactional)
            return None
        begun = BegunPeek(given.cursor)
        opened.reads[given.request] = begun
        call.on_end = lambda is_awaited: begun.cancel()
        return self._peek(call, given, opened, begun, is_transactional)

    async def _peek(
        self,
        call: Call,
        given: StartIn,
        opened: OpenedQueue,
        begun: BegunPeek,
        is_transactional: bool,
    ) -> StartOut | None:
        cluster, waits = self._ports.cluster, self._ports.waits
        try:
            left_ms = await time_when_current(
                cluster, given.timeout_ms, lambda: begun.is_cancelled or waits.is_stopped
            )
        except Unavailable:
            return failed(_CANCELLED if begun.is_cancelled else _NO_SERVICE)
        finally:
            call.on_end = None
            opened.reads.pop(given.request, None)
        given = replace(given, timeout_ms=left_ms)
        cursor = opened.cursor(given.cursor) if given.cursor else None
        if begun.is_cancelled or (given.cursor and cursor is None):
            return failed(_CANCELLED)
        try:
            look = self._look(opened, given, cursor, selector_of(given))
        except Unavailable:
            return failed(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        except MsmqError as error:
            return failed(error.hresult)
        self._begin(call, given, opened, cursor, look, is_transactional)
        return None

    def _begin(
        self,
        call: Call,
        given: StartIn,
        opened: OpenedQueue,
        cursor: Cursor | None,
        look: Look | None,
        is_transactional: bool,
    ) -> None:
        read = PendingRead(
            opened,
            given.request,
            self._ports.waits,
            no_cursor(selector_of(given)) if cursor is None else cursor.selector_for_dequeue,
            given.timeout_ms,
            partial(self._finish, call, given, cursor),
            look=look,
            cursor=given.cursor,
            is_transactional=is_transactional,
        )
        opened.reads[given.request] = read
        call.on_end = lambda is_awaited: read.cancel() if is_awaited else read.abandon()
        with contextlib.suppress(LimitReached, QuotaReached):
            read.begin()  # which tells its end itself

    def _look(
        self, opened: OpenedQueue, given: StartIn, cursor: Cursor | None, selector: Selector
    ) -> Look:
        """Return what a peek looks at. Raises MsmqError."""
        queue_id = opened.queue_id
        if cursor is None:
            return lambda: self._select(queue_id, selector)

        def behind(key: int) -> tuple[int, PositionInfo | None]:
            kind = SelectorKind.FIRST if key < 0 else SelectorKind.AFTER
            return self._select(queue_id, Selector(kind, max(key, 0)))

        def seek(after: int) -> int | None:
            status, found = behind(after)
            check(status)
            return None if found is None else found.lookup_identifier

        def is_available(key: int) -> bool:
            status, found = self._current(queue_id, key)
            if status == ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE:
                raise MsmqError(status)
            return found is not None

        if given.action == PEEK_NEXT:
            answer = cursor.get_next_message_for_peek(seek)
        else:
            answer = cursor.get_message_for_peek(seek, is_available)
        if answer in _CURSOR_STATUS:
            raise MsmqError(_CURSOR_STATUS[answer])
        if answer is CursorAnswer.SUCCEEDED:
            return lambda: self._current(queue_id, cursor.key)
        return lambda: behind(cursor.key)

    def _current(self, queue_id: int, key: int) -> tuple[int, PositionInfo | None]:
        """Return what a peek sees at a cursor's key; whatever it cannot see is received already."""
        status, found = self._select(queue_id, Selector(SelectorKind.EXACT, key))
        if status and status != ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE:
            status = ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        return status, found

    def _select(self, queue_id: int, selector: Selector) -> tuple[int, PositionInfo | None]:
        return peek(self._ports.cluster.view, queue_id, selector)

    def _finish(
        self,
        call: Call,
        given: StartIn,
        cursor: Cursor | None,
        read: PendingRead,
        status: int,
        found: Found | None,
    ) -> None:
        """Answer a read that has ended; what it was lent is the client's to end."""
        opened = read.opened
        opened.reads.pop(read.request, None)
        call.on_end = None
        if cursor is not None:
            read.tell(cursor, status, found, partial(self._last_key, opened))
            if given.action == RECEIVE and status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
                status = ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        if given.action >= LOOKUP_PEEK[0] and given.action < PEEK_CURRENT and status:
            status = ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND if status in _MISSING else status
        if found is None:
            self._missed.inc()
            if call.is_open:
                call.answer(failed(status))
            return
        if isinstance(found, RequestResult):
            opened.lend(
                read.request, found.lookup_identifier, is_transactional=read.is_transactional
            )
        columns = columns_of_found(found)
        if not self._messages.is_here(columns) or not self._answer(
            call, given, read, found, columns
        ):
            opened.session.run(self._answer_later(call, given, read, found, columns))

    def _last_key(self, opened: OpenedQueue) -> int:
        """Return the highest key at present; START while a snapshot replaces the state, so that a
        cursor stays where it is.
        """
        try:
            return last_key(self._ports.cluster.view, opened.queue_id)
        except Unavailable:
            return START

    async def _answer_later(
        self, call: Call, given: StartIn, read: PendingRead, found: Found, columns: MessageColumns
    ) -> None:
        """Answer once this node has the message: what the leader applied, or a damaged body."""
        told = (call.local[0], read.opened.queue_id, found, columns, given.body_max)
        try:
            answer = await self._messages.told_later(*told)
        except (ApiError, Unavailable, KeyError, BodyDamaged):
            answer = failed(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        self._deliver(call, read, found, answer)

    def _answer(
        self, call: Call, given: StartIn, read: PendingRead, found: Found, columns: MessageColumns
    ) -> bool:
        """Answer; False: the body is damaged here."""
        told = (call.local[0], read.opened.queue_id, found, columns, given.body_max)
        try:
            answer = self._messages.told(*told)
        except BodyDamaged:
            return False
        except (Unavailable, KeyError):
            answer = failed(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        self._deliver(call, read, found, answer)
        return True

    def _deliver(self, call: Call, read: PendingRead, found: Found, answer: StartOut) -> None:
        """Answer with the message; nobody there any more, or no body: what was lent goes back."""
        opened, is_lent = read.opened, isinstance(found, RequestResult)
        if call.is_open and (answer.status == MQ_OK or not is_lent):
            (self._received if is_lent else self._peeked).inc()
            call.answer(answer)
            return
        if is_lent and opened.take_lent(read.request) is not None:
            opened.session.give_back(opened.queue_id, found.lookup_identifier)
            self._count_returned("undelivered", 1)
        if call.is_open:
            call.answer(answer)

    def cancel_receive(self, call: Call, given: RequestIn) -> Result:
        """R_CancelReceive: the call of this handle alone; one that was lent is not cancelled."""
        read = self._opened(call, given.handle).reads.get(given.request)
        if read is None:
            return Result(NOT_FOUND_NT)
        read.cancel()
        return Result(MQ_OK)

    async def end_receive(self, call: Call, given: EndIn) -> Result:
        """R_EndReceive."""
        return await self._end(call, given, is_transactional=False)

    async def end_transactional_receive(self, call: Call, given: EndIn) -> Result:
        """R_EndTransactionalReceive, for reads without a transaction."""
        return await self._end(call, given, is_transactional=True)

    async def _end(self, call: Call, given: EndIn, *, is_transactional: bool) -> Result:
        opened = self._opened(call, given.handle)
        if not opened.lent and not opened.reads:
            return Result(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        known = opened.lent.get(given.request)
        if known is None or known.is_transactional is not is_transactional:
            return Result(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        lent = opened.take_lent(given.request)  # before anything can fail (RP-A38)
        assert lent is not None
        is_accepted = given.ack == ACK
        if not is_accepted:
            self._count_returned("refused", 1)
        try:
            status = await opened.session.end_read(
                opened.queue_id, lent.key, is_accepted=is_accepted
            )
        except (Unavailable, OutcomeUnknown):
            return Result(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return Result(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND if status else MQ_OK)

    def _count_returned(self, cause: str, count: int) -> None:
        self._returned.labels(cause).inc(count)

    # Moving ------------------------------------------------------------------------------

    async def move_message(self, call: Call, given: MoveIn) -> Result:
        """R_MoveMessage."""
        source = self._opened(call, given.handle)
        target = next(
            (
                one
                for one in call.association.held(REMOTE_READ)
                if isinstance(one, OpenedQueue) and one.move_context == given.move_context
            ),
            None,
        )
        if target is None or not given.move_context or not source.may_receive:
            return Result(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        try:
            # A subqueue that was made for the move is known here only then.
            await self._ports.cluster.read_barrier()
        except Unavailable:
            return Result(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        if not self._are_related(source.queue_id, target.queue_id):
            return Result(INVALID_PARAMETER_NT)
        if given.transaction != NO_TRANSACTION:
            queue = self._ports.cluster.view.ledger.queue(target.queue_id)
            is_transactional = queue is not None and queue.record.transactional
            usage = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
            return Result(UNKNOWN_TRANSACTION if is_transactional else usage)
        sids = call.identity.sids
        try:
            outcome = await source.session.numbered(
                lambda request: Move(request, source.queue_id, given.lookup, target.queue_id, sids)
            )
        except (Unavailable, OutcomeUnknown):
            return Result(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        if outcome.status not in _MISSING:
            return Result(outcome.status)
        is_there = self._is_there(source.queue_id, given.lookup)
        return Result(MESSAGE_LOCKED if is_there else ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)

    def _are_related(self, source_id: int, target_id: int) -> bool:
        """Whether one is a subqueue of the other, or both are of one queue."""
        ledger = self._ports.cluster.view.ledger
        source, target = ledger.queue(source_id), ledger.queue(target_id)
        if source is None or target is None or source_id == target_id:
            return False
        owners = [
            one.record.parent_queue if one.record.kind is QueueKind.SUBQUEUE else queue_id
            for one, queue_id in ((source, source_id), (target, target_id))
        ]
        return owners[0] == owners[1]

    def _is_there(self, queue_id: int, key: int) -> bool:
        return self._ports.cluster.view.ledger.position(queue_id, key) is not None

    # Transactions ------------------------------------------------------------------------

    def enlist(self, call: Call, given: EnlistIn) -> Result:
        """R_QMEnlistRemoteTransaction: there is no coordinator to enlist with."""
        return Result(NO_DTC)

    async def set_user_acknowledgement_class(self, call: Call, given: AcknowledgeIn) -> Result:
        """R_SetUserAcknowledgementClass: only for messages of a transaction; there are none."""
        opened = self._readable(call, given.handle)
        if given.message_class not in ACK_CLASSES:
            return Result(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        try:
            await self._ports.cluster.read_barrier()
        except Unavailable:
            return Result(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        if not self._is_there(opened.queue_id, given.lookup):
            return Result(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        return Result(ErrorCode.MQ_ERROR_TRANSACTION_USAGE)

    def leave(self) -> None:
        """Leave what is lent to the leases of its sessions, as this node goes at once."""
        self._callers.leave()

    async def stop(self, within_s: float = FINISH_MAX_S) -> None:
        """Return all that is lent, as this node stops; wait so long for it at most."""
        await self._callers.stop(within_s)


def _open_status(status: int) -> int:
    """Return what a reader is told: a queue that is not here is not found."""
    if status == ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION:
        return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    return status
