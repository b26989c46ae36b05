"""Open handles of one node and who waits behind them ([MS-MQDMPR] 3.1.1.10, 3.1.1.16).

The replicated half of an open (sharing, lease) is `qm.model.opens`; here is what dies with the node
that accepted the call: cursors, and reads that wait for a message.
"""

from typing import Final

import msgspec

from qm.model.cursors import Cursor
from qm.model.elements import QueueAccessType, QueueShareMode
from qm.model.limits import CURSORS_PER_CLIENT_MAX, WAITING_READERS_PER_CLIENT_MAX
from qm.wire.codes import ErrorCode

STATUS_NOT_FOUND: Final = 0xC000_0225
"""NTSTATUS that Cancel Waiting Message Read returns when nothing has the tag (3.1.7.1.17)."""


class WaitingMessageReadOperation(msgspec.Struct, frozen=True):
    """A read that found nothing (3.1.1.10)."""

    is_destructive: bool
    request: int
    """The client's number; the caller's future hangs on it."""
    tag: int | None = None
    cursor: Cursor | None = None


class OpenQueueDescriptor:
    """One open queue of one client (3.1.1.16)."""

    def __init__(
        self,
        handle: int,
        context_value: int,
        queue_id: int,
        format_name: str,
        access_type: QueueAccessType,
        share_mode: QueueShareMode,
    ) -> None:
        self.handle = handle
        self.context_value = context_value
        """Unique per queue manager, like the handle."""
        self.queue_id: int | None = queue_id
        """None once the queue is deleted."""
        self.format_name = format_name
        self.access_type = access_type
        self.share_mode = share_mode
        self.cursors: dict[int, Cursor] = {}
        self._waiting: list[WaitingMessageReadOperation] = []

    # Cursors -----------------------------------------------------------------------------

    def open_cursor(self, handle: int) -> Cursor | None:
        """3.1.7.1.1: a fresh cursor; None if the queue is gone or the limit is reached."""
        if self.queue_id is None or len(self.cursors) >= CURSORS_PER_CLIENT_MAX:
            return None
        cursor = self.cursors[handle] = Cursor(handle)
        return cursor

    def close_cursor(self, cursor: Cursor) -> list[WaitingMessageReadOperation]:
        """3.1.7.1.2: drop a cursor; return the waits that go with it."""
        gone = [waiting for waiting in self._waiting if waiting.cursor is cursor]
        self._waiting = [waiting for waiting in self._waiting if waiting.cursor is not cursor]
        self.cursors.pop(cursor.handle, None)
        return gone

    # Waits -------------------------------------------------------------------------------

    def wait(self, operation: WaitingMessageReadOperation) -> bool:
        """3.1.7.3.1: queue a read; False if the queue is gone or too many wait."""
        if self.queue_id is None or len(self._waiting) >= WAITING_READERS_PER_CLIENT_MAX:
            return False
        self._waiting.append(operation)
        return True

    def stop(self, request: int) -> WaitingMessageReadOperation | None:
        """3.1.7.3.5: a wait ended (timeout, cancel, answer); None if it already had."""
        for waiting in self._waiting:
            if waiting.request == request:
                self._waiting.remove(waiting)
                return waiting
        return None

    def cancel(self, tag: int) -> tuple[int, WaitingMessageReadOperation | None]:
        """3.1.7.1.17: (status, the cancelled wait)."""
        for waiting in self._waiting:
            if waiting.tag == tag:
                self._waiting.remove(waiting)
                return 0, waiting
        return STATUS_NOT_FOUND, None

    def message_available(self) -> tuple[list[WaitingMessageReadOperation], bool]:
        """3.1.7.2.2: who is woken by one Available position, first come first served.

        All peeks in front of the first destructive read get it and are removed. That read, named
        last, keeps its place until apply says that it got the message; True: there is one.
        """
        woken: list[WaitingMessageReadOperation] = []
        for waiting in list(self._waiting):
            woken.append(waiting)
            if waiting.is_destructive:
                return woken, True
            self._waiting.remove(waiting)
        return woken, False

    def close(
        self, status: int = ErrorCode.MQ_ERROR_OPERATION_CANCELLED
    ) -> list[tuple[WaitingMessageReadOperation, int]]:
        """3.1.7.1.6 Close Queue: every wait ends with `status`, every cursor is closed (DM-A19)."""
        ended = [(waiting, status) for waiting in self._waiting]
        self._waiting.clear()
        self.cursors.clear()
        return ended

    def queue_deleted(self) -> list[tuple[WaitingMessageReadOperation, int]]:
        """The queue is gone: waits end with MQ_ERROR_QUEUE_NOT_AVAILABLE (DM-A19)."""
        self.queue_id = None
        return self.close(ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE)
