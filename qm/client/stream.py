"""Continuous receiving by credit, through any node that answers.

Each credit is a request number; a number is answered once. When a node is lost the stream opens at
another one and grants again every number without a message, so nothing is lost and nothing arrives
twice.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

from grpc import aio

from qm.client.calls import ATTEMPT_S, DEADLINE_S, Stubs
from qm.client.errors import ClientFenced, NotAllowed, Unavailable, error_of
from qm.client.message import ReceivedMessage, messages_of
from qm.client.numbers import in_parts, runs
from qm.client.reading import RECEIVE_MAX_COUNT, receive
from qm.client.session import Session
from qm.pb import data_pb2

_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
PROBE_AFTER_S: Final = 5.0
"""After this time without data a stream checks whether its node is alive."""
CREDIT_MAX: Final = 2_048
"""Half of the results that a session may have unconfirmed."""

_Call: TypeAlias = "aio.StreamStreamCall[data_pb2.StreamRequest, data_pb2.StreamReply]"


class Stream:
    """Messages of one queue as they arrive; made by `Queue.stream`. For one task."""

    def __init__(
        self,
        session: Session,
        handle: int,
        credit: int,
        *,
        is_two_phase: bool,
        commit_confirms: bool,
    ) -> None:
        if not 1 <= credit <= CREDIT_MAX:
            raise ValueError(f"a credit of {credit} is not 1 to {CREDIT_MAX}")
        self._session = session
        self._open_frame = data_pb2.StreamRequest(
            open=data_pb2.StreamOpen(
                client_id=session.client_id,
                handle=handle,
                is_two_phase=is_two_phase,
                commit_confirms=commit_confirms,
                view=data_pb2.PACKETS,
            )
        )
        self._credit = credit
        self._commits_confirms = commit_confirms
        # Granted but not answered yet.
        self._open: dict[int, None] = {}
        self._ready: deque[ReceivedMessage] = deque()
        # Returned to the application, which has not asked for more yet.
        self._held: list[tuple[int, int]] = []
        self._confirmed_sent = self._confirmed_known = session.numbers.confirmed_upto
        self._call: _Call | None = None
        self._stubs: Stubs | None = None
        self.opened_count = 0
        """How often the stream was opened at a node."""
        for first, count in session.take_unread():
            self._open.update(dict.fromkeys(range(first, first + count)))

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; the one before counts as done. Raises ClientError."""
        while not self._ready:
            self._ready.extend(await self.batch())
        return self._ready.popleft()

    async def batch(self) -> list[ReceivedMessage]:
        """Return the next messages, at least one; earlier ones count as done.

        Do not mix it with iteration over single messages.
        """
        while True:
            messages = await self._read()
            if messages:
                return messages

    async def stop(self) -> list[ReceivedMessage]:
        """Request nothing more, and return the messages that were in flight.

        If you leave a stream early, handle these, too: they are already taken from the queue.
        """
        await self.close()
        messages: list[ReceivedMessage] = []
        for first, count in in_parts(self._session.take_unread(), RECEIVE_MAX_COUNT):
            request = data_pb2.ReceiveRequest(
                request=self._session.request(first),
                handle=self._open_frame.open.handle,
                count=count,
                view=data_pb2.PACKETS,
            )
            found, _ = await receive(self._session, request)
            messages += found
            self._held.append((first, count))
        return messages

    async def close(self) -> None:
        """Return the unused credit; messages returned so far count as done.

        Messages that were in flight are delivered when the queue is read again; if it is closed
        instead, the cluster dead-letters them.
        """
        self._leave_call()
        self._finish_held()
        self._session.unread += runs(sorted(message.number for message in self._ready))
        self._ready.clear()
        with contextlib.suppress(ClientFenced):  # another client's then, as is what it reads
            await self._give_back()
        self._open.clear()

    async def _give_back(self) -> None:
        for first, count in runs(sorted(self._open)):
            reply = await self._session.wire.call(
                lambda stubs: stubs.data.Cancel,
                data_pb2.CancelRequest(
                    client_id=self._session.client_id, first_number=first, count=count
                ),
            )
            self._session.unread += runs(sorted(reply.received_numbers))
            found = set(reply.received_numbers)
            for number in range(first, first + count):
                if number not in found:
                    self._session.numbers.finish(number)

    # ---------------------------------------------------------------------------------------

    async def _read(self) -> list[ReceivedMessage]:
        self._finish_held()
        loop = asyncio.get_running_loop()
        end, pause = 0.0, _PAUSE_FIRST_S
        while True:
            try:
                call = await self._connected()
                await self._grant(call)
                reply = await self._next_frame(call)
                if isinstance(reply, data_pb2.StreamReply):
                    return self._take(reply)
                failure = await _failure(call)
            except aio.AioRpcError as raised:
                failure = raised
            except asyncio.InvalidStateError:
                # The call ended during a write.
                assert self._call is not None
                failure = await _failure(self._call)
            except BaseException:
                self._leave_call()
                raise
            self._leave_call()
            if self._stubs is not None:
                self._session.wire.leave(self._stubs)
            error = error_of(failure)
            if error is not None and not (isinstance(error, NotAllowed) and self._is_outdated()):
                raise error
            end = end or loop.time() + DEADLINE_S
            if loop.time() >= end:
                raise Unavailable(f"no node continues the stream: {failure.details()}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    def _is_outdated(self) -> bool:
        """Whether the stream was opened with a certificate that has been replaced since."""
        wire = self._session.wire
        wire.stubs()  # looks at the files
        return self._stubs is not None and not wire.is_current(self._stubs)

    async def _next_frame(self, call: _Call) -> object:
        """Return the next frame, or the marker of the stream's end.

        While none arrives, check now and then that the node is alive: otherwise a node that hangs
        or vanished would be waited for without end. Raises AioRpcError.
        """
        reading = asyncio.ensure_future(call.read())
        try:
            while not (await asyncio.wait((reading,), timeout=PROBE_AFTER_S))[0]:
                await self._probe()
            return reading.result()
        finally:
            reading.cancel()
            # The call that is being left has met any error that this read met.
            reading.add_done_callback(lambda read: read.cancelled() or read.exception())

    async def _probe(self) -> None:
        """Send confirmations that no credit has carried, or just renew. Raises AioRpcError."""
        session, stubs = self._session, self._stubs
        assert stubs is not None
        confirmed_upto = session.numbers.confirmed_upto
        if confirmed_upto > self._confirmed_known:
            confirm = data_pb2.ConfirmRequest(
                client_id=session.client_id, confirmed_upto=confirmed_upto
            )
            await stubs.data.Confirm(confirm, timeout=ATTEMPT_S, metadata=session.wire.metadata)
            self._confirmed_sent = self._confirmed_known = confirmed_upto
        else:
            renew = data_pb2.RenewSessionRequest(
                client_id=session.client_id, lease_ms=session.lease_ms
            )
            await stubs.data.RenewSession(renew, timeout=ATTEMPT_S, metadata=session.wire.metadata)

    async def _connected(self) -> _Call:
        if self._call is None:
            self._stubs = self._session.wire.stubs()
            # The stubs' type knows iterators of requests only.
            metadata = self._session.wire.metadata
            self._call = self._stubs.data.StreamReceive(metadata=metadata)  # type: ignore[call-arg]
            assert self._call is not None
            self.opened_count += 1
            self._confirmed_sent = self._confirmed_known
            await self._call.write(self._open_frame)
            for first, count in runs(sorted(self._open)):
                await self._call.write(_credit(first, count))
        return self._call

    async def _grant(self, call: _Call) -> None:
        """Confirm finished messages and request more, once half of the credit is used."""
        numbers = self._session.numbers
        spare = self._credit - len(self._open)
        if spare < max(1, self._credit // 2):
            return
        if numbers.confirmed_upto > self._confirmed_sent:
            self._confirmed_sent = numbers.confirmed_upto
            confirm = data_pb2.StreamConfirm(confirmed_upto=numbers.confirmed_upto)
            await call.write(data_pb2.StreamRequest(confirm=confirm))
        if self._commits_confirms and self._confirmed_known < self._confirmed_sent:
            return  # until a frame says that it is committed
        first = numbers.take(spare)
        self._open.update(dict.fromkeys(range(first, first + spare)))
        await call.write(_credit(first, spare))

    def _take(self, reply: data_pb2.StreamReply) -> list[ReceivedMessage]:
        """Return the messages of a frame that were not received before."""
        messages = []
        for message in messages_of(reply.messages):
            if message.number in self._open:
                del self._open[message.number]
                messages.append(message)
        self._held += runs([message.number for message in messages])
        self._confirmed_known = max(self._confirmed_known, reply.confirmed_upto)
        for run in reply.cancelled:
            for number in range(run.first_number, run.first_number + run.count):
                self._open.pop(number, None)
            self._held.append((run.first_number, run.count))
        return messages

    def _finish_held(self) -> None:
        ready = {message.number for message in self._ready}
        for first, count in self._held:
            for number in range(first, first + count) if ready else ():
                if number not in ready:
                    self._session.numbers.finish(number)
            if not ready:
                self._session.numbers.finish(first, count)
        self._held.clear()

    def _leave_call(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None


def _credit(first: int, count: int) -> data_pb2.StreamRequest:
    return data_pb2.StreamRequest(credit=data_pb2.StreamCredit(first_number=first, count=count))


async def _failure(call: _Call) -> aio.AioRpcError:
    """Return how a call ended; it tells only when asked."""
    return aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details(),
        None,
    )
