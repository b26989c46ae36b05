"""Destructive reads of one open queue, so that no message is lost or handled twice.

A read has a number, and the cluster keeps its result until the client confirms it. This client
confirms a message when the application asks for the next one, closes the queue, or calls `confirm`:
until then the same message is delivered again after a restart, with the same number. A read that
was interrupted, by a cancelled task or by a cluster that did not answer, is repeated first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from qm.client.errors import ClientError, InvalidArgument, Unavailable
from qm.client.memory import Opened
from qm.client.message import ReceivedMessage, messages_of
from qm.client.numbers import in_parts
from qm.client.session import Session
from qm.pb import data_pb2
from qm.wire.codes import MQ_OK, ErrorCode

WAIT_SLICE_S: Final = 10.0
"""Longer waits are split into several requests, so that a node that hangs is noticed."""
RECEIVE_MAX_COUNT: Final = 1_024
"""Messages of one read; a larger count is reduced to this."""
RECOVERED_AT_ONCE_MAX: Final = 256
NOTHING_THERE: Final = frozenset(
    {
        MQ_OK,
        ErrorCode.MQ_ERROR_IO_TIMEOUT,
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
        ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
        ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
    }
)
"""Statuses of a read that only mean that there was no message."""
_WAITED_IN_VAIN: Final = (
    ErrorCode.MQ_ERROR_IO_TIMEOUT,
    # The node is stopping, or the wait was cancelled: another node continues it.
    ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
)
_MS: Final = 1_000

Found = tuple[list[ReceivedMessage], int]
"""Messages, and the status that says why there are no more."""


class Selection(msgspec.Struct, frozen=True):
    """Which message to read."""

    kind: data_pb2.SelectorKind.ValueType = data_pb2.FIRST
    lookup_identifier: int = 0

    def selector(self) -> data_pb2.Selector:
        """Return the selection as the data plane carries it."""
        return data_pb2.Selector(kind=self.kind, lookup_identifier=self.lookup_identifier)


FOREVER_S: Final = float("inf")
FIRST: Final = Selection()


async def wait_in_slices(timeout_s: float, ask: Callable[[float], Awaitable[Found]]) -> Found:
    """Ask with waits of at most WAIT_SLICE_S until a message is found or the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    left = timeout_s
    while True:
        messages, status = await ask(max(0.0, min(left, WAIT_SLICE_S)))
        left = end - loop.time()
        if messages or status not in _WAITED_IN_VAIN or left <= 1 / _MS:
            return messages, status


async def receive(session: Session, request: data_pb2.ReceiveRequest) -> Found:
    """Make a read, and continue where its response was full."""
    messages: list[ReceivedMessage] = []
    wait_s = request.timeout_ms / _MS
    while True:
        reply = await session.wire.call(lambda stubs: stubs.data.Receive, request, wait_s=wait_s)
        messages += messages_of(reply.messages)
        if not reply.ask_again_from:
            return messages, reply.status
        rest = data_pb2.ReceiveRequest()
        rest.CopyFrom(request)
        rest.count = request.request.number + request.count - reply.ask_again_from
        rest.request.number = reply.ask_again_from
        request, wait_s = rest, 0.0


class Reader:
    """The numbered reads of one open queue."""

    def __init__(self, session: Session, opened: Opened) -> None:
        self._session = session
        self.opened = opened
        self._unfinished: list[data_pb2.ReceiveRequest] = []
        # Numbers whose messages the application has and may still be processing.
        self._held: list[tuple[int, int]] = []
        # What an interrupted read took beyond what was asked for since.
        self._kept: deque[ReceivedMessage] = deque()

    def confirm(self) -> None:
        """Confirm everything that the application has received so far."""
        kept = sorted(message.number for message in self._kept)
        for first, count in self._held:
            begin = first
            for number in kept:
                if begin <= number < first + count:
                    self._session.numbers.finish(begin, number - begin)
                    begin = number + 1
            self._session.numbers.finish(begin, first + count - begin)
        self._held = [(number, 1) for number in kept]

    async def read(
        self, selection: Selection, count: int, timeout_s: float, *, is_two_phase: bool = False
    ) -> Found:
        """Return at most `count` messages, and the status that says why there are no more.

        Waits `timeout_s` for the first one. Messages of an interrupted read come first.
        """
        count = min(count, RECEIVE_MAX_COUNT)
        self._adopt()
        while self._unfinished and not self._kept:
            messages, _ = await self._ask(self._unfinished.pop(0), is_recovering=True)
            if messages:
                return self._some_of(messages, count), MQ_OK
        self.confirm()
        if self._kept:
            return self._some_of((), count), MQ_OK

        async def ask(wait_s: float) -> Found:
            first = self._session.numbers.take(count)
            request = data_pb2.ReceiveRequest(
                request=self._session.request(first),
                handle=self.opened.handle,
                selector=selection.selector(),
                timeout_ms=round(wait_s * _MS),
                count=count,
                is_two_phase=is_two_phase,
                view=data_pb2.PACKETS,
            )
            return await self._ask(request)

        return await wait_in_slices(timeout_s, ask)

    async def _ask(self, request: data_pb2.ReceiveRequest, *, is_recovering: bool = False) -> Found:
        first, count = request.request.number, request.count
        try:
            messages, status = await receive(self._session, request)
        except InvalidArgument:
            # The numbers that an earlier process left include those of other calls.
            if count > 1 and is_recovering:
                self._unfinished[:0] = _halves(request)
                return [], MQ_OK
            self._session.numbers.finish(first, count)
            if is_recovering:
                return [], MQ_OK
            raise
        except ClientError as error:
            if isinstance(error, Unavailable):
                self._unfinished.append(request)
            else:
                self._session.numbers.finish(first, count)
            raise
        except BaseException:
            # The task was cancelled: the cluster may have assigned a message to this number.
            request.timeout_ms = 0
            self._unfinished.append(request)
            raise
        if messages:
            self._held.append((first, count))
        else:
            self._session.numbers.finish(first, count)
        return messages, status

    def _some_of(self, messages: Iterable[ReceivedMessage], count: int) -> list[ReceivedMessage]:
        """Return `count` messages, and keep the others for the next reads."""
        self._kept.extend(messages)
        return [self._kept.popleft() for _ in range(min(count, len(self._kept)))]

    def _adopt(self) -> None:
        """Request again what an earlier process, or a stream, may have received."""
        for first, count in in_parts(self._session.take_unread(), RECOVERED_AT_ONCE_MAX):
            request = data_pb2.ReceiveRequest(
                request=self._session.request(first),
                handle=self.opened.handle,
                count=count,
                view=data_pb2.PACKETS,
            )
            self._unfinished.append(request)


def _halves(request: data_pb2.ReceiveRequest) -> list[data_pb2.ReceiveRequest]:
    first, second = data_pb2.ReceiveRequest(), data_pb2.ReceiveRequest()
    first.CopyFrom(request)
    second.CopyFrom(request)
    first.count = request.count // 2
    second.count = request.count - first.count
    second.request.number = request.request.number + first.count
    return [first, second]
