"""Destructive reads of one open queue, so that none is lost and none is done twice.

A read has a number, and its result is kept by the cluster until the client confirms it. This
client confirms a message when the application asks for the next one, closes the queue, or says so
with `confirm`: until then the same message comes again after a restart, under the same number.
A read that was interrupted, by a cancelled task or by a cluster that did not answer, is asked for
again first.
"""

from typing import Final

import msgspec

from qm.client.errors import ClientError, Unavailable
from qm.client.memory import Opened
from qm.client.message import ReceivedMessage, messages_of
from qm.client.session import Session
from qm.pb import data_pb2
from qm.wire.codes import MQ_OK, ErrorCode

WAIT_SLICE_S: Final = 10.0
"""Longer waits are several requests, so that a node that hangs is noticed."""
RECOVERED_AT_ONCE_MAX: Final = 256
NOTHING_THERE: Final = frozenset(
    {
        MQ_OK,
        ErrorCode.MQ_ERROR_IO_TIMEOUT,
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
        ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
    }
)
"""Statuses of a read that say no more than that there was no message."""


class Selection(msgspec.Struct, frozen=True):
    """Which message is meant."""

    kind: data_pb2.SelectorKind.ValueType = data_pb2.FIRST
    lookup_identifier: int = 0
    cursor: int = 0

    def selector(self) -> data_pb2.Selector:
        """Return it as the data plane carries it."""
        return data_pb2.Selector(kind=self.kind, lookup_identifier=self.lookup_identifier)


class _Unfinished(msgspec.Struct, frozen=True):
    request: data_pb2.ReceiveRequest
    count: int


class Reader:
    """The numbered reads of one open."""

    def __init__(self, session: Session, opened: Opened) -> None:
        self._session = session
        self.opened = opened
        self._unfinished: list[_Unfinished] = []
        # Numbers whose messages the application has, and may still be working on.
        self._held: list[tuple[int, int]] = []

    def confirm(self) -> None:
        """The application needs nothing that it received so far again."""
        for first, count in self._held:
            self._session.numbers.finish(first, count)
        self._held.clear()

    async def read(
        self,
        selection: Selection,
        count: int,
        timeout_s: float,
        *,
        transaction: bytes = b"",
        is_two_phase: bool = False,
    ) -> tuple[list[ReceivedMessage], int]:
        """Return at most `count` messages, and why there are not more.

        It waits `timeout_s` for the first one. What an interrupted read found comes first.
        """
        self._adopt()
        while self._unfinished:
            messages, _ = await self._ask(self._unfinished.pop(0), 0.0)
            if messages:
                return messages, MQ_OK
        self.confirm()
        left = timeout_s
        while True:
            wait_s = min(left, WAIT_SLICE_S)
            request = data_pb2.ReceiveRequest(
                handle=self.opened.handle,
                selector=selection.selector(),
                cursor=selection.cursor,
                timeout_ms=round(wait_s * 1000),
                count=count,
                transaction=transaction,
                is_two_phase=is_two_phase,
                view=data_pb2.PACKETS,
            )
            first = self._session.numbers.take(count)
            request.request.CopyFrom(self._session.request(first))
            messages, status = await self._ask(_Unfinished(request, count), wait_s)
            left -= wait_s
            if messages or status != ErrorCode.MQ_ERROR_IO_TIMEOUT or left <= 0:
                return messages, status

    async def _ask(self, read: _Unfinished, wait_s: float) -> tuple[list[ReceivedMessage], int]:
        try:
            reply = await self._session.wire.call(
                lambda stubs: stubs.data.Receive, read.request, wait_s=wait_s
            )
        except Exception as error:
            if _is_refusal(error):
                self._session.numbers.finish(read.request.request.number, read.count)
            else:
                self._unfinished.append(read)
            raise
        except BaseException:
            # The task was cancelled: the cluster may have given a message to this number.
            self._unfinished.append(_without_wait(read))
            raise
        messages = messages_of(reply.messages)
        first = read.request.request.number
        if messages:
            self._held.append((first, read.count))
        else:
            self._session.numbers.finish(first, read.count)
        return messages, reply.status

    def _adopt(self) -> None:
        """Ask again for what an earlier process, or a stream, may have received."""
        for first, count in self._session.take_unread():
            while count > 0:
                part = min(count, RECOVERED_AT_ONCE_MAX)
                request = data_pb2.ReceiveRequest(
                    handle=self.opened.handle, count=part, view=data_pb2.PACKETS
                )
                request.request.CopyFrom(self._session.request(first))
                self._unfinished.append(_Unfinished(request, part))
                first, count = first + part, count - part


def _without_wait(read: _Unfinished) -> _Unfinished:
    request = data_pb2.ReceiveRequest()
    request.CopyFrom(read.request)
    request.timeout_ms = 0
    return _Unfinished(request, read.count)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, ClientError) and not isinstance(error, Unavailable)
