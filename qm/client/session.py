"""A session at the cluster: it has a lease, and numbered requests that are answered once."""

from collections.abc import Callable
from typing import Final, TypeVar
from uuid import uuid4

from qm.client.calls import DEADLINE_S, Calls, Method, Stubs, session_metadata
from qm.client.errors import ClientFenced, MqError, has_ended
from qm.client.memory import Memory, Opened
from qm.client.numbers import Numbers
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

LEASE_MS: Final = 60_000

_Q = TypeVar("_Q")
_R = TypeVar("_R")


class SessionWire:
    """The wire as one session uses it: each call says as which opener it is made."""

    def __init__(self, wire: Calls) -> None:
        self._wire = wire
        self.session_epoch = 0
        """As of the last opening; 0 before it, and where the cluster does not tell."""
        self.stubs = wire.stubs
        self.leave = wire.leave
        self.is_current = wire.is_current

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """For calls that are not made by `call`."""
        return session_metadata(self.session_epoch)

    async def call(
        self,
        method: Callable[[Stubs], Method[_Q, _R]],
        request: _Q,
        *,
        wait_s: float = 0.0,
        deadline_s: float = DEADLINE_S,
    ) -> _R:
        """As Calls.call. Raises ClientFenced when another client has opened the session since."""
        return await self._wire.call(
            method,
            request,
            wait_s=wait_s,
            deadline_s=deadline_s,
            session_epoch=self.session_epoch,
        )


class Session:
    """One id at the cluster. Call `open` before any other method."""

    def __init__(
        self,
        wire: Calls,
        client_id: str,
        memory: Memory,
        *,
        lease_ms: int = LEASE_MS,
        main: "Session | None" = None,
    ) -> None:
        """`main`: the session of the same client to which this one belongs."""
        self.wire = SessionWire(wire)
        self._instance = uuid4().bytes
        self._main = main
        self.client_id = client_id
        self.memory = memory
        self.lease_ms = lease_ms
        self.numbers = Numbers(0, 0)
        self.computer_name = ""
        self.queue_manager = b""
        self.principal = ""
        """Whom this client's certificate identifies; "" if the node is too old to say."""
        self.unread: list[tuple[int, int]] = []
        """Runs (first, count) of numbers that may have messages which the application has not seen:
        from before this process, or from a stream that was left."""
        self.interrupted: dict[int, data_pb2.SendRequest] = {}
        """Sends, by number, that the memory holds and nobody waits for any more."""
        self._opened: dict[tuple[str, int, int], Opened] = {}
        self._resumed: set[tuple[str, int, int]] = set()

    async def open(self) -> None:
        """Begin the session, or resume one that an earlier process began with the same id."""
        reply = await self.resume()
        remembered = self.memory.opened(self.client_id)
        used = max((opened.number for opened in remembered), default=0)
        used = max(used, *self.memory.sends(self.client_id), reply.highest_number)
        self.numbers = Numbers(reply.confirmed_upto, used)
        if used > reply.confirmed_upto:
            self.unread = [(reply.confirmed_upto + 1, used - reply.confirmed_upto)]
        self.computer_name = reply.computer_name
        self.queue_manager = reply.queue_manager
        self.principal = reply.principal
        self._opened = {(o.queue, o.access, o.share_mode): o for o in remembered}
        self._resumed = set(self._opened)

    async def resume(self) -> data_pb2.OpenSessionReply:
        """Have the cluster know the session as open; its numbers and results go on."""
        request = data_pb2.OpenSessionRequest(
            client_id=self.client_id, lease_ms=self.lease_ms, instance=self._instance
        )
        if self._main is not None:
            request.main_client_id = self._main.client_id
            request.main_session_epoch = self._main.wire.session_epoch
        reply = await self.wire.call(lambda stubs: stubs.data.OpenSession, request)
        self.wire.session_epoch = reply.session_epoch
        return reply

    def take_unread(self) -> list[tuple[int, int]]:
        """Return `unread` and clear it: the caller requests them now."""
        unread, self.unread = self.unread, []
        return unread

    async def close(self, *, deadline_s: float = DEADLINE_S) -> None:
        """End the session: the cluster releases opens, locks and transactions, and dead-letters
        messages whose receipt is not confirmed.
        """
        try:
            await self.confirm(deadline_s=deadline_s)
            await self.wire.call(
                lambda stubs: stubs.data.CloseSession,
                data_pb2.CloseSessionRequest(client_id=self.client_id),
                deadline_s=deadline_s,
            )
        except ClientFenced:
            return  # it is another's, and so is what it holds
        except MqError as error:
            if not has_ended(error):
                raise
        self.memory.forget(self.client_id)

    async def renew(self) -> None:
        """Keep the lease alive. Raises MqError when it has ended."""
        await self.wire.call(
            lambda stubs: stubs.data.RenewSession,
            data_pb2.RenewSessionRequest(client_id=self.client_id, lease_ms=self.lease_ms),
        )

    async def confirm(self, *, deadline_s: float = DEADLINE_S) -> None:
        """Tell the cluster which results are held here; other calls carry this, too."""
        await self.wire.call(
            lambda stubs: stubs.data.Confirm,
            data_pb2.ConfirmRequest(
                client_id=self.client_id, confirmed_upto=self.numbers.confirmed_upto
            ),
            deadline_s=deadline_s,
        )

    def request(self, number: int) -> data_pb2.RequestNumber:
        """Return the header of a numbered request."""
        return data_pb2.RequestNumber(
            client_id=self.client_id,
            number=number,
            confirmed_upto=min(self.numbers.confirmed_upto, number - 1),
        )

    async def once(
        self,
        method: Callable[[Stubs], Method[_Q, _R]],
        make: Callable[[data_pb2.RequestNumber], _Q],
        *,
        deadline_s: float = DEADLINE_S,
    ) -> _R:
        """Make a request with one number whose result need not be kept."""
        number = self.numbers.take()
        try:
            return await self.wire.call(method, make(self.request(number)), deadline_s=deadline_s)
        finally:
            self.numbers.finish(number)

    # Opens ---------------------------------------------------------------------------------

    async def open_queue(self, queue: str, access: int, share_mode: int) -> Opened:
        """Return the session's handle of a queue, opening it if necessary."""
        key = (queue, access, share_mode)
        opened = self._opened.get(key)
        if opened is not None and opened.handle:
            if key not in self._resumed or await self._is_alive(opened):
                self._resumed.discard(key)
                return opened
            self._forget(key)
            opened = None
        if opened is None:
            opened = Opened(queue, access, share_mode, self.numbers.take())
            self._remember(key, opened)
        try:
            reply = await self.wire.call(
                lambda stubs: stubs.data.OpenQueue,
                data_pb2.OpenQueueRequest(
                    request=self.request(opened.number),
                    queue=queue,
                    access=data_pb2.QueueAccess.ValueType(access),
                    share_mode=data_pb2.QueueShareMode.ValueType(share_mode),
                ),
            )
        except MqError:
            self._forget(key)
            self.numbers.finish(opened.number)
            raise
        opened = Opened(
            queue,
            access,
            share_mode,
            opened.number,
            reply.handle,
            reply.queue_id,
            reply.is_transactional,
        )
        self._remember(key, opened)
        self.numbers.finish(opened.number)
        return opened

    def has_open(self, queue: str, access: int, share_mode: int) -> bool:
        """Whether the session has a queue open."""
        opened = self._opened.get((queue, access, share_mode))
        return opened is not None and opened.handle != 0

    @property
    def is_opening(self) -> bool:
        """Whether an opening is under way, or was interrupted."""
        return any(not opened.handle for opened in self._opened.values())

    async def close_shared(self, queue: str) -> None:
        """Close the handles that transactions left open of a queue that the application closes."""
        for opened in list(self._opened.values()):
            if opened.queue == queue and opened.handle:
                await self.close_queue(opened)

    async def _is_alive(self, opened: Opened) -> bool:
        """Whether the cluster still knows a handle of an earlier process."""
        try:
            await self.wire.call(
                lambda stubs: stubs.data.Peek,
                data_pb2.PeekRequest(
                    client_id=self.client_id,
                    handle=opened.handle,
                    view=data_pb2.PROPERTIES_WITHOUT_BODY,
                ),
            )
        except MqError as error:
            return error.code != ErrorCode.MQ_ERROR_INVALID_HANDLE
        return True

    async def close_queue(self, opened: Opened) -> None:
        """Close a handle of this session."""
        self._forget((opened.queue, opened.access, opened.share_mode))
        await self.once(
            lambda stubs: stubs.data.CloseQueue,
            lambda request: data_pb2.CloseQueueRequest(request=request, handle=opened.handle),
        )

    def _remember(self, key: tuple[str, int, int], opened: Opened) -> None:
        self._opened[key] = opened
        self.memory.set_opened(self.client_id, list(self._opened.values()))

    def _forget(self, key: tuple[str, int, int]) -> None:
        if self._opened.pop(key, None) is not None:
            self.memory.set_opened(self.client_id, list(self._opened.values()))
