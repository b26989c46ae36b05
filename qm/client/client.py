"""The asyncio client: one application's sessions, queues and transactions at a cluster."""

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Collection, Sequence
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from qm.client import names
from qm.client.calls import Calls, Tls
from qm.client.errors import ClientError, MqError, NotOpen, Unavailable, has_ended
from qm.client.memory import Memory
from qm.client.message import Message, Sent
from qm.client.queue import Queue
from qm.client.sending import ask, send
from qm.client.session import LEASE_MS, Session
from qm.client.transaction import Transaction
from qm.pb import data_pb2

CLIENT_ID_MAX_BYTES: Final = 100
"""Sessions of one client add a suffix to its id."""
TRANSACTION_TIMEOUT_S: Final = 60.0
GOODBYE_DEADLINE_S: Final = 2.0
"""How long a client that ends because of an error tries to close its sessions."""


class Access(IntEnum):
    """What a queue is opened for ([MS-MQDMPR] 3.1.1.17.3); sending needs no open queue."""

    RECEIVE = data_pb2.RECEIVE_ACCESS
    SEND = data_pb2.SEND_ACCESS
    PEEK = data_pb2.PEEK_ACCESS
    MOVE = data_pb2.MOVE_ACCESS
    RECEIVE_ADMIN = data_pb2.RECEIVE_ADMIN_ACCESS
    PEEK_ADMIN = data_pb2.PEEK_ADMIN_ACCESS


class RecoveredSend(msgspec.Struct, frozen=True):
    """A send that an earlier process began: it took effect once, or failed with `error`."""

    number: int
    targets: tuple[str, ...]
    labels: tuple[str, ...]
    sent: tuple[Sent, ...]
    error: ClientError | None = None


class Client:
    """Use it as a context manager, or call `open` and `close`.

    With a `client_id` and a `memory` file, a process that was killed resumes where it was: sends in
    progress are completed, and messages whose receipt was not confirmed are delivered again with
    the same numbers.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        client_id: str = "",
        memory: Path | None = None,
        lease_s: float = LEASE_MS / 1000,
        connect_s: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        wire: Calls | None = None,
    ) -> None:
        """`endpoints`: host:port of the nodes; the client stays with the first that answers. It
        gives up with the cause when it has reached none within `connect_s`.

        After `lease_s` without contact the cluster releases what this client holds. `metadata`
        goes with every call. `wire`: makes all calls instead.
        """
        if len(client_id.encode()) > CLIENT_ID_MAX_BYTES:
            raise ValueError(f"client id {client_id!r} has more than {CLIENT_ID_MAX_BYTES} bytes")
        self.wire: Final = wire or Calls(endpoints, tls, connect_s, metadata)
        self.client_id: Final = client_id or f"anonymous-{uuid.uuid4().hex}"
        self._memory = Memory(memory)
        self._lease_s = lease_s
        self._sessions: dict[str, Session] = {}
        self._queues: dict[Session, Queue] = {}
        self._opening: set[str] = set()
        self._idle: list[Session] = []
        self._lent: dict[Session, set[str]] = {}
        """With the queues that the application has closed since."""
        self._transactions = 0
        self._renewing: asyncio.Task[None] | None = None
        self.recovered: list[RecoveredSend] = []
        """Sends of an earlier process, completed by `open`, and ones of this process, with a
        memory, that were interrupted: they are completed within a third of `lease_s`."""

    @property
    def main(self) -> Session:
        """The session used for sends. Raises NotOpen."""
        session = self._sessions.get(self.client_id)
        if session is None:
            raise NotOpen("the client is not open: use `async with`, or call `open` first")
        return session

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self.client_id in self._sessions

    @property
    def computer_name(self) -> str:
        """The cluster's computer name, as in format names and path names."""
        return self.main.computer_name

    async def open(self) -> None:
        """Open the session, and complete what an earlier process of this client left unfinished."""
        try:
            session = await self._session(self.client_id)
            session.take_unread()
            for payload in self._memory.sends(self.client_id).values():
                await self._recover(session, data_pb2.SendRequest.FromString(payload))
        except BaseException:
            await self.wire.close()
            raise
        _finish_all(session)
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="qm-leases")

    async def close(self, *, confirm: bool = True) -> None:
        """End all sessions, and confirm the messages received.

        Without `confirm`, a client with an id leaves them to be resumed: what it received and did
        not confirm is delivered again.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None
        sessions, self._sessions = list(self._sessions.values()), {}
        queues, self._queues = list(self._queues.values()), {}
        self._idle.clear()
        is_anonymous = self.client_id.startswith("anonymous-")
        try:
            if confirm:
                for queue in queues:
                    queue.confirm()
                for session in sessions:
                    await session.close()
            elif is_anonymous:
                # They cannot be resumed; if the cluster is not told, their leases end them.
                with contextlib.suppress(ClientError):
                    for session in sessions:
                        await session.close(deadline_s=GOODBYE_DEADLINE_S)
        finally:
            await self.wire.close()

    async def end(self) -> None:
        """End all sessions for a program that may be gone: what each queue gave it last, outside
        of transactions, may not have been seen, and goes to the dead-letter queue.
        """
        self._queues.clear()
        await self.close()

    # Queues --------------------------------------------------------------------------------

    def format_name(self, queue: str) -> str:
        r"""Return a queue's format name; `.\private$\q` is the cluster's own.

        Raises QueueNameError.
        """
        if queue.startswith(".\\") and self._sessions:
            queue = self.computer_name + queue[1:]
        return names.format_name(queue)

    async def open_queue(
        self, queue: str, access: Access = Access.RECEIVE, *, exclusive: bool = False
    ) -> Queue:
        """Open a queue, by format name or path name, in a session of its own.

        The same queue opened again by the same client is one more reader of it. `exclusive`:
        no other client may read it meanwhile; to have its messages survive a restart of this
        client, read it either in transactions or outside of them. Raises ClientError.
        """
        name = self.format_name(queue)
        share_mode = data_pb2.DENY_RECEIVE if exclusive else data_pb2.DENY_NONE
        digest = hashlib.blake2b(f"{name.lower()} {access}".encode(), digest_size=6).hexdigest()
        session = await self._reader_session(digest)
        try:
            await self._settle_transaction(session)
            opened = await session.open_queue(name, access, share_mode)
        except BaseException as error:
            # The next try resumes it, with what this one may have opened.
            self._drop(session)
            if isinstance(error, ClientError):
                with contextlib.suppress(ClientError):
                    await session.close()
            raise
        self._queues[session] = Queue(session, opened)
        return self._queues[session]

    async def close_queue(self, queue: Queue, *, confirm: bool = True) -> None:
        """Close a queue and confirm the messages received from it; without `confirm`, those that
        are not confirmed yet are dead-lettered.
        """
        self._drop(queue.session)
        for names_closed in self._lent.values():
            names_closed.add(queue.name)
        await queue.close(confirm=confirm)
        for session in list(self._idle):
            # Its lease may have ended, or the queue was deleted.
            with contextlib.suppress(ClientError):
                await session.close_shared(queue.name)

    # Sending -------------------------------------------------------------------------------

    async def send(self, queue: str | Sequence[str], *messages: Message) -> list[Sent]:
        """Send messages in order to a queue, or each to several queues.

        When it returns, they are on the disks of a quorum. Raises ClientError; after Unavailable
        they may have been sent, and a client with a memory completes the send when it is opened
        again.
        """
        queues = [queue] if isinstance(queue, str) else queue
        return await send(self.main, [self.format_name(each) for each in queues], messages)

    def transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> Transaction:
        """Return a transaction: `async with client.transaction() as transaction`."""
        return Transaction(self, timeout_s=timeout_s)

    async def lend(self) -> Session:
        """Return a session that no other transaction uses."""
        session = self._idle.pop() if self._idle else await self._new_to_lend()
        self._lent[session] = set()
        return session

    async def _new_to_lend(self) -> Session:
        self._transactions += 1
        session = await self._session(f"{self.client_id}/t{self._transactions}")
        session.take_unread()
        _finish_all(session)
        return session

    def closed_queues(self, session: Session) -> Collection[str]:
        """Return the queues that the application has closed since the session was lent."""
        return self._lent.get(session, ())

    def give_back(self, session: Session) -> None:
        """Take back the session of a transaction that has ended; of no use if it has, too."""
        self._lent.pop(session, None)
        if self._sessions.get(session.client_id) is session:
            self._idle.append(session)

    def discard(self, session: Session) -> None:
        """Take back a session that has ended, or is to end: no other transaction gets it."""
        self._drop(session)

    # ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Client":
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(confirm=kind is None)

    async def _session(self, client_id: str) -> Session:
        session = Session(
            self.wire,
            client_id,
            self._memory,
            lease_ms=round(self._lease_s * 1000),
            main=self._sessions.get(self.client_id),
        )
        await session.open()
        self._sessions[client_id] = session
        return session

    async def _reader_session(self, digest: str) -> Session:
        """Return a session named after its queue: the first reader of a queue resumes the first."""
        ordinal = 1
        name = f"{self.client_id}/{digest}.{ordinal}"
        while name in self._sessions or name in self._opening:
            ordinal += 1
            name = f"{self.client_id}/{digest}.{ordinal}"
        self._opening.add(name)
        try:
            return await self._session(name)
        finally:
            self._opening.discard(name)

    async def _settle_transaction(self, session: Session) -> None:
        """Abort the transaction that an earlier process left open; its reads are returned."""
        transaction = self._memory.transaction(session.client_id)
        if not transaction:
            return
        session.take_unread()
        _finish_all(session)
        with contextlib.suppress(MqError):
            await session.once(
                lambda stubs: stubs.data.AbortTransaction,
                lambda request: data_pb2.EndTransactionRequest(
                    request=request, transaction=transaction
                ),
            )

    async def _recover(self, session: Session, request: data_pb2.SendRequest) -> None:
        number = request.request.number
        labels = tuple(message.properties.label for message in request.messages)
        targets = tuple(request.messages[0].targets)
        try:
            sent = await ask(session, request)
        except Unavailable:
            raise
        except ClientError as error:
            self.recovered.append(RecoveredSend(number, targets, labels, (), error))
        else:
            self.recovered.append(RecoveredSend(number, targets, labels, tuple(sent)))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            for client_id, session in list(self._sessions.items()):
                try:
                    await session.renew()
                except ClientError as error:
                    if has_ended(error):
                        await self._ended(client_id, session)
                else:
                    await self._complete(session)

    async def _complete(self, session: Session) -> None:
        """Repeat sends that were interrupted, as the next process of this client would: until then
        no later result is confirmed, and the cluster keeps so many at most.
        """
        for request in list(session.interrupted.values()):
            try:
                await self._recover(session, request)
            except Unavailable:
                return  # the next round tries it again

    async def _ended(self, client_id: str, session: Session) -> None:
        """A lease ended while no node was reached, or an operator closed the session."""
        if client_id == self.client_id:
            with contextlib.suppress(ClientError):  # the next round tries it again
                await session.resume()
            return
        # The next call on it fails and says so; a new transaction gets another one.
        self._drop(session)

    def _drop(self, session: Session) -> None:
        """Renew and lend a session no more. Its name may be another one's by now: of a queue that
        was opened again before the one that had ended was closed.
        """
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
        self._queues.pop(session, None)
        if session in self._idle:
            self._idle.remove(session)
        self._lent.pop(session, None)


def _finish_all(session: Session) -> None:
    """Confirm every number so far: earlier results are not requested again."""
    numbers = session.numbers
    if numbers.open_count:
        numbers.finish(numbers.confirmed_upto + 1, numbers.open_count)
