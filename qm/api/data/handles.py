"""Open queues as this node serves them: the replicated open, and its local cursors."""

import secrets
from typing import Final

from qm.api.convert.names import absolute_text, settled
from qm.api.convert.outcomes import numbers_of
from qm.api.data.sessions import Sessions
from qm.api.data.waits import Waits
from qm.api.gate.errors import InvalidArgument, LimitReached, MsmqError, check
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.clients.opens import OPEN_RECORD, OPEN_RECORD_KEY
from qm.model.messages.cursors import Cursor
from qm.model.state.tables import Table
from qm.model.values.commands import CloseQueue, OpenQueue
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import CURSORS_PER_CLIENT_MAX
from qm.model.values.records import OpenQueueRow, decode
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

RECEIVING: Final = frozenset({QueueAccessType.RECEIVE_ACCESS, QueueAccessType.RECEIVE_ADMIN_ACCESS})
PEEKING: Final = RECEIVING | {QueueAccessType.PEEK_ACCESS, QueueAccessType.PEEK_ADMIN_ACCESS}
"""Rights to receive include peeking."""
CURSORS_MAX: Final = 16_384
"""For all clients of one node."""


class OpenCursor:
    """A cursor of this node, and the handle to which it belongs."""

    __slots__ = ("client_id", "cursor", "handle")

    def __init__(self, client_id: str, handle: int, cursor: Cursor) -> None:
        self.client_id = client_id
        self.handle = handle
        self.cursor = cursor


class Handles:
    """The queue handles that this node serves."""

    def __init__(
        self, cluster: Cluster, proposer: Proposer, sessions: Sessions, waits: Waits
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._sessions = sessions
        self._waits = waits
        self._cursors: dict[int, OpenCursor] = {}
        # Cursors of different nodes, or of one node before and after a restart, never share a name.
        self._next_cursor = secrets.randbits(32) << 31 | 1

    async def open(
        self, request: data_pb2.OpenQueueRequest, who: Principal
    ) -> data_pb2.OpenQueueReply:
        """Open a queue."""
        numbered = await self._sessions.numbered(request.request, who)
        if not request.queue:
            raise InvalidArgument("queue", "give a format name or a path name")
        format_name = await settled(
            self._cluster, lambda: absolute_text(self._cluster.view, request.queue, "queue")
        )
        command = OpenQueue(
            numbered, format_name, int(request.access), int(request.share_mode), who.sids
        )
        (outcome,) = await self._proposer.repeat(command)
        check(outcome.status)
        handle, queue_id = numbers_of(outcome)
        queue = self._cluster.view.ledger.queue(queue_id)
        return data_pb2.OpenQueueReply(
            handle=handle,
            queue_id=queue_id,
            format_name=format_name,
            is_transactional=queue is not None and queue.record.transactional,
        )

    async def close(self, request: data_pb2.CloseQueueRequest, who: Principal) -> None:
        """Close a handle; its waits end and its cursors are dropped."""
        numbered = await self._sessions.numbered(request.request, who)
        (outcome,) = await self._proposer.repeat(CloseQueue(numbered, request.handle))
        check(outcome.status)
        self._waits.close_handle(numbered.client_id, request.handle)
        self._drop_cursors(numbered.client_id, request.handle)

    async def find(self, client_id: str, handle: int) -> OpenQueueRow:
        """Return what a client opened. Raises MsmqError INVALID_HANDLE."""
        row = self._row(client_id, handle)
        if row is None:
            # It may just have been opened through another node.
            await self._cluster.read_barrier()
            row = self._row(client_id, handle)
        if row is None:
            raise MsmqError(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        return row

    def _row(self, client_id: str, handle: int) -> OpenQueueRow | None:
        if not 0 < handle < 1 << 64:
            return None
        raw = self._cluster.state.get(Table.OPEN, OPEN_RECORD_KEY.pack(OPEN_RECORD, handle))
        row = None if raw is None else decode(OpenQueueRow, raw)
        return row if row is not None and row.client_id == client_id else None

    # Cursors -----------------------------------------------------------------------------

    async def create_cursor(self, client_id: str, handle: int, who: Principal) -> int:
        """Create a cursor before the first message; return its name.

        Raises MsmqError QUEUE_NOT_AVAILABLE if the queue was deleted.
        """
        await self._sessions.admit(client_id, who)
        row = await self.find(client_id, handle)
        if row.access not in PEEKING:
            raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the queue is open for sending only")
        queue = self._cluster.view.ledger.queue(row.queue_id)
        if queue is None or queue.record.is_deleting:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE)
        self._forget_dead_cursors()
        held = sum(one.client_id == client_id for one in self._cursors.values())
        if held >= CURSORS_PER_CLIENT_MAX or len(self._cursors) >= CURSORS_MAX:
            raise LimitReached(
                f"{held} cursors of this client and {len(self._cursors)} in all are open here;"
                f" {CURSORS_PER_CLIENT_MAX} and {CURSORS_MAX} are allowed: close some"
            )
        self._next_cursor += 1
        cursor = Cursor(self._next_cursor)
        self._cursors[cursor.handle] = OpenCursor(client_id, handle, cursor)
        return cursor.handle

    async def close_cursor(self, client_id: str, cursor: int, who: Principal) -> None:
        """Close a cursor; a wait at it ends as cancelled."""
        await self._sessions.admit(client_id, who)
        self.cursor(client_id, cursor)
        del self._cursors[cursor]
        self._waits.close_cursor(cursor)

    def cursor(self, client_id: str, cursor: int) -> OpenCursor:
        """Return a client's cursor at this node. Raises MsmqError INVALID_HANDLE."""
        found = self._cursors.get(cursor)
        if found is None or found.client_id != client_id:
            raise MsmqError(
                ErrorCode.MQ_ERROR_INVALID_HANDLE,
                "this node has no such cursor; create one and position it by lookup identifier",
            )
        return found

    def _drop_cursors(self, client_id: str, handle: int) -> None:
        gone = [
            name
            for name, one in self._cursors.items()
            if one.client_id == client_id and one.handle == handle
        ]
        for name in gone:
            del self._cursors[name]

    def _forget_dead_cursors(self) -> None:
        """Drop cursors whose handle is gone, when there are many."""
        if len(self._cursors) < CURSORS_MAX // 2:
            return
        gone = [
            name
            for name, one in self._cursors.items()
            if self._row(one.client_id, one.handle) is None
        ]
        for name in gone:
            del self._cursors[name]
