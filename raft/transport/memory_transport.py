"""The transport within one process: the same streams, queues and frames, without sockets.

For tests of what uses a transport, and for a cluster in one process. The network object decides
which connections may exist, and breaks them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from typing_extensions import override

from raft.pb.peer_pb2 import SnapshotPart, SnapshotProgress
from raft.transport.peer import Stream
from raft.transport.snapshot_stream import SnapshotCall, SnapshotService, receive_snapshot
from raft.transport.stream_transport import StreamTransport
from raft.transport.transport import TransportEvents
from raft.types import NodeId

PIPE_MESSAGES_MAX = 16
"""Messages written and not yet read, per direction; then a writer waits, as on a socket."""

MessageT = TypeVar("MessageT")


class _Pipe(Generic[MessageT]):
    """One direction of a connection: one writer, one reader."""

    def __init__(self) -> None:
        self._messages: deque[MessageT] = deque()
        self._changed = asyncio.Event()
        self._is_broken = False

    async def write(self, message: MessageT) -> None:
        while len(self._messages) >= PIPE_MESSAGES_MAX and not self._is_broken:
            self._changed.clear()
            await self._changed.wait()
        if self._is_broken:
            raise ConnectionResetError("the connection was broken")
        self._messages.append(message)
        self._changed.set()

    async def read(self) -> MessageT | None:
        while not self._messages and not self._is_broken:
            self._changed.clear()
            await self._changed.wait()
        if self._is_broken:
            raise ConnectionResetError("the connection was broken")
        self._changed.set()
        return self._messages.popleft()

    def cut(self) -> None:
        self._is_broken = True
        self._changed.set()


class _Connection:
    """A pipe in each direction, broken together."""

    def __init__(self, caller: "MemoryTransport", called: "MemoryTransport") -> None:
        self.ends = frozenset((caller.node, called.node))
        self.there: _Pipe[Any] = _Pipe()
        self.back: _Pipe[Any] = _Pipe()

    def cut(self) -> None:
        self.there.cut()
        self.back.cut()


class MemoryNetwork:
    """The listening transports, and the connections that are blocked."""

    def __init__(self) -> None:
        self._listening: dict[str, MemoryTransport] = {}
        self._connections: set[_Connection] = set()
        self._blocked: set[frozenset[NodeId]] = set()

    def reset(self, one: NodeId, other: NodeId) -> None:
        """Break every connection between two nodes; they may connect again at once."""
        for connection in list(self._connections):
            if connection.ends == {one, other}:
                self._end(connection)

    def block(self, one: NodeId, other: NodeId) -> None:
        """Break every connection between two nodes and allow no new one."""
        self._blocked.add(frozenset((one, other)))
        self.reset(one, other)

    def unblock(self, one: NodeId, other: NodeId) -> None:
        """Let the two nodes connect again."""
        self._blocked.discard(frozenset((one, other)))

    def _at(self, address: str, caller: NodeId) -> "MemoryTransport":
        transport = self._listening.get(address)
        if transport is not None and frozenset((caller, transport.node)) in self._blocked:
            raise TimeoutError(f"the network blocks {caller} from {address}")
        if transport is None:
            raise ConnectionRefusedError(f"no transport listens at {address}")
        return transport

    def _end(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        connection.cut()


class MemoryTransport(StreamTransport):
    """Implements `raft.transport.transport.Transport` among the transports of one
    `MemoryNetwork`.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        cluster: bytes,
        node: NodeId,
        address: str,
        events: TransportEvents,
        random: Callable[[int], int],
    ) -> None:
        """`address` is any text; peers dial it."""
        super().__init__(cluster, node, events, random)
        self._network = network
        self._address = address
        self._serving: set[asyncio.Task[None]] = set()

    @override
    async def _listen(self) -> None:
        if self._address in self._network._listening:
            raise OSError(f"{self._address} is in use")
        self._network._listening[self._address] = self

    @override
    async def _stop_listening(self) -> None:
        del self._network._listening[self._address]
        for connection in list(self._network._connections):
            if self.node in connection.ends:
                self._network._end(connection)
        await asyncio.gather(*self._serving, return_exceptions=True)

    @override
    @asynccontextmanager
    async def open_stream(self, peer: NodeId, address: str) -> AsyncIterator[Stream]:
        """Dial for ordinary traffic."""
        async with self._connect(peer, address) as (connection, called):

            def end() -> None:
                self._network._end(connection)

            called._begin(
                called._serve(
                    self.node,
                    Stream(connection.there.read, connection.back.write, end, is_dialed=False),
                )
            )
            yield Stream(connection.back.read, connection.there.write, end, is_dialed=True)

    @override
    @asynccontextmanager
    async def open_snapshot(self, peer: NodeId, address: str) -> AsyncIterator[SnapshotCall]:
        """Dial for a snapshot."""
        async with self._connect(peer, address) as (connection, called):
            called._begin(called._receive_snapshot(self.node, connection))
            yield SnapshotCall(connection.back.read, connection.there.write)

    @override
    async def resolve(self, address: str) -> object:
        """Return the address."""
        return address

    @override
    async def is_refused(self, place: object) -> bool:
        """Return whether no transport listens there."""
        try:
            self._network._at(str(place), self.node)
        except ConnectionRefusedError:
            return True
        return False

    @asynccontextmanager
    async def _connect(
        self, peer: NodeId, address: str
    ) -> AsyncIterator[tuple[_Connection, "MemoryTransport"]]:
        called = self._network._at(address, self.node)
        called._check(self, peer)
        connection = _Connection(self, called)
        self._network._connections.add(connection)
        try:
            yield connection, called
        finally:
            self._network._end(connection)

    def _check(self, caller: "MemoryTransport", meant: NodeId) -> None:
        if caller.cluster != self.cluster:
            self.metrics.foreign_cluster_total += 1
            raise PermissionError("this is another cluster")
        if meant != self.node:
            self.metrics.misdirected_total += 1
            raise PermissionError(f"this node is {self.node}")

    def _begin(self, serving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(serving)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _receive_snapshot(self, sender: NodeId, connection: _Connection) -> None:
        read: Callable[[], Coroutine[Any, Any, SnapshotPart | None]] = connection.there.read
        write: Callable[[SnapshotProgress], Coroutine[Any, Any, None]] = connection.back.write
        try:
            await receive_snapshot(
                SnapshotService(read, write), sender, self._events, self.metrics.peer(sender)
            )
        except ConnectionResetError:
            pass  # the caller resumes
        finally:
            self._network._end(connection)
