"""Peek: reads that remove nothing ([MS-MQDMPR] 3.1.7.1.13 to .15, 3.2). They change no replicated
row, so they have no number; this node's state answers them behind a read barrier.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from qm.api.data.batches import BATCH_MAX_BYTES, Bodies, batch_of, columns_of_positions
from qm.api.data.handles import PEEKING, Handles
from qm.api.data.receive import TIMEOUT_INFINITE_MS, selector_of
from qm.api.data.sessions import Sessions
from qm.api.data.waits import Reader, Waits
from qm.api.gate.errors import InvalidArgument, MsmqError, check
from qm.api.gate.identity import Principal
from qm.cluster.cluster import Cluster
from qm.model.messages.cursors import Cursor, CursorAnswer
from qm.model.queries import PositionInfo, last_key, peek
from qm.model.values.commands import Selector, SelectorKind
from qm.pb import data_pb2
from qm.wire.codes import MQ_OK, ErrorCode

MESSAGES_PER_PEEK_MAX: Final = 1_024
_STATUS_OF_ANSWER: Final = {
    CursorAnswer.ALREADY_RECEIVED: ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    CursorAnswer.NOT_FOUND: ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
    CursorAnswer.ILLEGAL: ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION,
}

Look = Callable[[], tuple[int, Sequence[PositionInfo]]]
"""Returns (status, positions); MQ_OK without positions: the call may wait."""


class Peeking:
    """Answers Peek."""

    def __init__(
        self,
        cluster: Cluster,
        sessions: Sessions,
        handles: Handles,
        waits: Waits,
        bodies: Bodies,
    ) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._handles = handles
        self._waits = waits
        self._bodies = bodies

    async def peek(self, request: data_pb2.PeekRequest, who: Principal) -> data_pb2.PeekReply:
        """Return messages without removing them, waiting for the first one if requested."""
        count = request.count or 1
        if count > MESSAGES_PER_PEEK_MAX:
            raise InvalidArgument("count", f"{count}; at most {MESSAGES_PER_PEEK_MAX} per call")
        await self._sessions.admit(request.client_id, who)
        opened = await self._handles.find(request.client_id, request.handle)
        if opened.access not in PEEKING:
            raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the queue is open for sending only")
        await self._cluster.read_barrier()
        reader = Reader(
            request.client_id,
            request.handle,
            0,
            principal=who.name,
            is_destructive=False,
            cursor=request.cursor,
        )
        if request.cursor:
            found = self._handles.cursor(request.client_id, request.cursor)
            if found.handle != request.handle or count > 1:
                raise InvalidArgument("cursor", "it belongs to another handle, or count is above 1")
            status, positions = await self._at_cursor(
                found.cursor, request, opened.queue_id, reader
            )
        else:
            selector = selector_of(request.selector)
            status, positions = await self._look(
                lambda: self._select(opened.queue_id, selector, count),
                opened.queue_id,
                reader,
                request.timeout_ms,
            )
        return data_pb2.PeekReply(
            messages=await batch_of(self._bodies, columns_of_positions(positions), request.view),
            status=status,
        )

    def _select(
        self, queue_id: int, selector: Selector, count: int
    ) -> tuple[int, Sequence[PositionInfo]]:
        """Return what a selector finds, and what follows it."""
        positions: list[PositionInfo] = []
        size = 0
        while len(positions) < count:
            status, found = peek(self._cluster.view, queue_id, selector)
            if found is None:
                return (MQ_OK if positions else status), positions
            size += found.body_length
            if positions and size > BATCH_MAX_BYTES:
                break
            positions.append(found)
            if selector.kind not in (SelectorKind.FIRST, SelectorKind.AFTER):
                break
            selector = Selector(SelectorKind.AFTER, found.lookup_identifier)
        return MQ_OK, positions

    async def _look(
        self, look: Look, queue_id: int, reader: Reader, timeout_ms: int
    ) -> tuple[int, Sequence[PositionInfo]]:
        """Check until there is a position, a status, or no time left."""
        status, positions = look()
        if status or positions:
            return status, positions
        if timeout_ms == 0:
            return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ()
        until = None if timeout_ms == TIMEOUT_INFINITE_MS else monotonic() + timeout_ms / 1000
        self._waits.join(queue_id, reader)
        try:
            with self._sessions.hold(reader.client_id):
                while await reader.called(until):
                    if reader.is_closed:
                        return ErrorCode.MQ_ERROR_OPERATION_CANCELLED, ()
                    reader.begin()
                    status, positions = look()
                    if status or positions:
                        return status, positions
                    reader.missed()
        finally:
            self._waits.leave(queue_id, reader)
        return ErrorCode.MQ_ERROR_IO_TIMEOUT, ()

    # Cursors -----------------------------------------------------------------------------

    async def _at_cursor(
        self, cursor: Cursor, request: data_pb2.PeekRequest, queue_id: int, reader: Reader
    ) -> tuple[int, Sequence[PositionInfo]]:
        def seek(after: int) -> int | None:
            kind = SelectorKind.FIRST if after < 0 else SelectorKind.AFTER
            status, found = peek(self._cluster.view, queue_id, Selector(kind, max(after, 0)))
            check(status)
            return None if found is None else found.lookup_identifier

        def is_available(key: int) -> bool:
            return self._at(queue_id, key) is not None

        if request.action == data_pb2.PEEK_NEXT:
            answer = cursor.get_next_message_for_peek(seek)
        else:
            answer = cursor.get_message_for_peek(seek, is_available)
        if answer is CursorAnswer.WAITING:
            return await self._wait_at_cursor(cursor, request.timeout_ms, queue_id, reader, seek)
        if answer is not CursorAnswer.SUCCEEDED:
            return _STATUS_OF_ANSWER[answer], ()
        found = self._at(queue_id, cursor.key)
        return MQ_OK, () if found is None else (found,)

    async def _wait_at_cursor(
        self,
        cursor: Cursor,
        timeout_ms: int,
        queue_id: int,
        reader: Reader,
        seek: Callable[[int], int | None],
    ) -> tuple[int, Sequence[PositionInfo]]:
        """Wait for a message after the cursor; it moves there, or stays where it was."""

        def look() -> tuple[int, Sequence[PositionInfo]]:
            key = seek(cursor.key)
            found = None if key is None else self._at(queue_id, key)
            return MQ_OK, () if found is None else (found,)

        positions: Sequence[PositionInfo] = ()
        try:
            status, positions = await self._look(look, queue_id, reader, timeout_ms)
        finally:
            if positions:
                cursor.message_available(positions[0].lookup_identifier)
            else:
                cursor.wait_time_expired(last_key(self._cluster.view, queue_id))
        return status, positions

    def _at(self, queue_id: int, key: int) -> PositionInfo | None:
        """Return what is available at a key. Raises MsmqError QUEUE_NOT_AVAILABLE."""
        status, found = peek(self._cluster.view, queue_id, Selector(SelectorKind.EXACT, key))
        if status == ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE:
            raise MsmqError(status)
        return found
