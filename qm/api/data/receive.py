"""Receive, Cancel, Complete, Move: reads that remove a message, and calls that end them.

Every number of a call gets a committed result before the call returns: a message, or the status
why there is none. So a call may be repeated, and its numbers can never be used for another.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Final

import msgspec

from qm.api.convert.outcomes import has_message, number_of, results_of
from qm.api.data.batches import BATCH_MAX_BYTES, Bodies, batch_of, parts_of
from qm.api.data.handles import Handles, OpenCursor
from qm.api.data.send import checked_transaction
from qm.api.data.sessions import Sessions
from qm.api.data.waits import Reader, Waits
from qm.api.gate.calls import session_epoch
from qm.api.gate.errors import InvalidArgument, MsmqError, check
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.messages.cursors import Cursor, CursorAnswer, CursorState
from qm.model.queries import last_key
from qm.model.values.commands import (
    CancelRequests,
    Command,
    Move,
    ReadEnd,
    ReceiveRun,
    Request,
    Selector,
    SelectorKind,
)
from qm.model.values.effects import Outcome
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX
from qm.model.values.results import RequestResult, columns_of
from qm.pb import data_pb2
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.message_class import MessageClass

MESSAGES_PER_RECEIVE_MAX: Final = 1_024
TIMEOUT_INFINITE_MS: Final = 0xFFFF_FFFF
CANCELS_PER_CALL_MAX: Final = POSITIONS_PER_ENTRY_MAX
_WAITING_KINDS: Final = (SelectorKind.FIRST, SelectorKind.AFTER)
_U64_MAX: Final = (1 << 64) - 1

_Decision: Final = data_pb2.CompleteRequest


class Receiving:
    """Answers Receive, Cancel, Complete and Move."""

    def __init__(
        self,
        cluster: Cluster,
        proposer: Proposer,
        sessions: Sessions,
        handles: Handles,
        waits: Waits,
        bodies: Bodies,
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._sessions = sessions
        self._handles = handles
        self._waits = waits
        self._bodies = bodies

    async def receive(
        self, request: data_pb2.ReceiveRequest, who: Principal
    ) -> data_pb2.ReceiveReply:
        """Take messages, waiting for the first one if requested."""
        count = request.count or 1
        if count > MESSAGES_PER_RECEIVE_MAX:
            raise InvalidArgument("count", f"{count}; at most {MESSAGES_PER_RECEIVE_MAX} per call")
        number = await self._sessions.numbered(request.request, who, count)
        cursor = None
        if request.cursor:
            cursor = self._handles.cursor(number.client_id, request.cursor)
        selector = _selector(request, cursor, count)
        opened = await self._handles.find(number.client_id, request.handle)
        run = ReceiveRun(
            number.client_id,
            request.handle,
            opened.queue_id,
            number.number,
            count,
            number.confirmed_upto,
            selector,
            checked_transaction(request.transaction),
            request.is_two_phase,
            request.allow_peek_when_locked,
            session_epoch=number.session_epoch,
        )
        may_wait = request.timeout_ms != 0 and selector.kind in _WAITING_KINDS
        if may_wait:
            results = await self._waiting(run, request.timeout_ms, request.cursor, who)
        else:
            results = await self._at_once(run)
        if cursor is not None:
            self._advance(cursor.cursor, results, opened.queue_id, has_waited=may_wait)
        reply = await self._reply(results, count, request.view)
        is_current = cursor is not None and selector.kind is SelectorKind.EXACT
        if is_current and reply.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND:
            # Locked or gone is one to a cursor (3.2.7.4).
            reply.status = ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        return reply

    async def _at_once(self, run: ReceiveRun) -> Sequence[RequestResult]:
        """Take the messages that are there; the other numbers are closed without one."""
        if run.selector.kind not in _WAITING_KINDS:
            (outcome,) = await self._proposer.repeat(run)
            return _answered(outcome)
        closing = _cancel(run, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        took, closed = await self._proposer.repeat(run, closing)
        _answered(took)
        return _answered(closed)

    async def _waiting(
        self, run: ReceiveRun, timeout_ms: int, cursor: int, who: Principal
    ) -> Sequence[RequestResult]:
        until = None if timeout_ms == TIMEOUT_INFINITE_MS else monotonic() + timeout_ms / 1000
        reader = Reader(
            run.client_id,
            run.handle,
            run.first_request,
            principal=who.name,
            is_destructive=True,
            cursor=cursor,
        )
        self._waits.join(run.queue_id, reader)
        try:
            with self._sessions.hold(run.client_id):
                reader.call()
                results = await self._tries(run, reader, until)
        finally:
            self._waits.leave(run.queue_id, reader)
        return results

    async def _tries(
        self,
        run: ReceiveRun,
        reader: Reader,
        until: float | None,
    ) -> Sequence[RequestResult]:
        """Try whenever the reader is called; numbers after the first one never wait."""
        rest: tuple[Command, ...] = ()
        if run.count > 1:
            rest = (
                CancelRequests(
                    run.client_id,
                    run.first_request + 1,
                    run.count - 1,
                    ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
                    run.session_epoch,
                ),
            )
        others: Sequence[RequestResult] = ()
        while await reader.called(until):
            if reader.is_closed:
                return await self._close(run, ErrorCode.MQ_ERROR_OPERATION_CANCELLED)
            reader.begin()
            took, *closed = await self._proposer.repeat(run, *rest)
            found = [one for one in _answered(took) if one.number == run.first_request]
            if closed:
                others, rest = _answered(closed[0]), ()
                run = _first_of(run)
            if found:
                return [*found, *others]
            reader.missed()
        timed_out = await self._close(run, ErrorCode.MQ_ERROR_IO_TIMEOUT)
        return [*timed_out, *others]

    async def _close(self, run: ReceiveRun, status: int) -> Sequence[RequestResult]:
        """Commit that numbers without a message get none."""
        (outcome,) = await self._proposer.repeat(_cancel(run, status))
        return _answered(outcome)

    async def _reply(
        self, results: Sequence[RequestResult], count: int, view: int
    ) -> data_pb2.ReceiveReply:
        taken = [result for result in results if has_message(result)]
        missed = [result.status for result in results if not has_message(result)]
        if any(status == MQ_OK for status in missed):
            raise InvalidArgument("request.number", "the number was used by another kind of call")
        reply = data_pb2.ReceiveReply(status=missed[0] if missed and len(taken) < count else MQ_OK)
        if taken:
            messages = columns_of(taken)
            await self._bodies.ready(messages)
            part = next(parts_of(messages, BATCH_MAX_BYTES))
            reply.messages.CopyFrom(await batch_of(self._bodies, part, view))
            if part.count < len(taken):
                reply.ask_again_from = taken[part.count].number
        return reply

    def _advance(
        self, cursor: Cursor, results: Sequence[RequestResult], queue_id: int, *, has_waited: bool
    ) -> None:
        """Tell a cursor the result of its dequeue (3.2.7.4), and that its wait failed (3.2.7.6).

        Waits belong to the call, so the cursor hears of one when it is over.
        """
        found = next((one.lookup_identifier for one in results if has_message(one)), None)
        is_wait = has_waited and cursor.state is CursorState.UNREAD
        if cursor.dequeued(found, no_wait=not is_wait) is CursorAnswer.WAITING:
            cursor.wait_time_expired(last_key(self._cluster.view, queue_id))

    # Ends of reads -----------------------------------------------------------------------

    async def cancel(self, request: data_pb2.CancelRequest, who: Principal) -> data_pb2.CancelReply:
        """Cancel numbers that wait, at any node."""
        count = request.count or 1
        if count > CANCELS_PER_CALL_MAX:
            raise InvalidArgument("count", f"{count}; at most {CANCELS_PER_CALL_MAX} per call")
        if not 1 <= request.first_number <= _U64_MAX - count:
            raise InvalidArgument("first_number", "numbers start at 1")
        await self._sessions.admit(request.client_id, who)
        command = CancelRequests(
            request.client_id,
            request.first_number,
            count,
            ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
            session_epoch(),
        )
        (outcome,) = await self._proposer.repeat(command)
        results = _answered(outcome)
        self._waits.poke(request.client_id, request.first_number, count)
        return data_pb2.CancelReply(
            received_numbers=[result.number for result in results if has_message(result)]
        )

    async def complete(self, request: data_pb2.CompleteRequest, who: Principal) -> None:
        """Do the second phase of a two-phase receive."""
        number = await self._sessions.numbered(request.request, who)
        reasons = {
            _Decision.ACCEPT: (True, MessageClass.ACK_RECEIVE),
            _Decision.RETURN: (False, MessageClass.ACK_RECEIVE),
            _Decision.REJECT: (True, MessageClass.NACK_RECEIVE_REJECTED),
        }
        if request.decision not in reasons:
            raise InvalidArgument("decision", f"{request.decision}; ACCEPT, RETURN or REJECT")
        is_deleted, reason = reasons[request.decision]
        command = ReadEnd(
            number, request.queue_id, request.lookup_identifier, is_deleted, int(reason)
        )
        (outcome,) = await self._proposer.repeat(command)
        check(outcome.status)

    async def move(self, request: data_pb2.MoveRequest, who: Principal) -> data_pb2.MoveReply:
        """Move a message to another queue or subqueue."""
        transaction = checked_transaction(request.transaction)
        number: Request = await self._sessions.numbered(request.request, who)
        command = Move(
            number,
            request.source_queue_id,
            request.lookup_identifier,
            request.target_queue_id,
            who.sids,
            transaction,
        )
        (outcome,) = await self._proposer.repeat(command)
        check(outcome.status)
        return data_pb2.MoveReply(lookup_identifier=number_of(outcome))


def selector_of(given: data_pb2.Selector) -> Selector:
    """Return a selector of the request. Raises InvalidArgument."""
    try:
        return Selector(SelectorKind(given.kind), given.lookup_identifier)
    except ValueError:
        raise InvalidArgument("selector.kind", f"{given.kind} is not a kind of selector") from None


def _selector(request: data_pb2.ReceiveRequest, cursor: OpenCursor | None, count: int) -> Selector:
    if cursor is None:
        selector = selector_of(request.selector)
    else:
        if cursor.handle != request.handle:
            raise InvalidArgument("cursor", "the cursor belongs to another handle")
        at_cursor = cursor.cursor.selector_for_dequeue()
        if at_cursor is None:
            raise MsmqError(ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION)
        selector = at_cursor
    is_single = cursor is not None or selector.kind not in _WAITING_KINDS
    if is_single and count > 1:
        raise InvalidArgument(
            "count", "a cursor or a lookup identifier selects one message: count must be 1"
        )
    return selector


def _first_of(run: ReceiveRun) -> ReceiveRun:
    return msgspec.structs.replace(run, count=1)


def _cancel(run: ReceiveRun, status: int) -> CancelRequests:
    return CancelRequests(run.client_id, run.first_request, run.count, status, run.session_epoch)


def _answered(outcome: Outcome) -> Sequence[RequestResult]:
    """Return results; raise an error for a refusal that committed none."""
    results = results_of(outcome)
    if not results:
        check(outcome.status)
    return results
