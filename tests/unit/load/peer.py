"""A receiving queue manager on loopback: sessions, a table of what it has, and faults on demand."""

from __future__ import annotations

import asyncio

from qm.session import (
    KIND_TRANSACTIONAL,
    Closed,
    CloseReason,
    Established,
    PacketsArrived,
    Role,
    Session,
    SessionConfig,
    SessionState,
)
from qm.wire.message_class import MessageClass
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId

GUID = bytes(range(1, 17))


class Peer:
    """What all connections share."""

    def __init__(self, window: int = 64) -> None:
        self.config = SessionConfig(window_size=window).check()
        self.messages: list[UserMessage] = []
        self.duplicates = 0
        self.out_of_order = 0
        self.connections: list[_Connection] = []
        self.closed: list[CloseReason] = []
        self.is_answering = True
        """Whether arrivals are committed, and so acknowledged."""
        self.sends_order_acks = True
        self._seen: set[tuple[bytes, int, int]] = set()
        self._last: dict[TxSequenceId, int] = {}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        ends = [connection.ended.wait() for connection in self.connections]
        self.drop()
        await asyncio.gather(*ends)
        await self._server.wait_closed()

    def drop(self) -> None:
        """Reset every connection."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    def take(self, message: UserMessage) -> None:
        header = message.user_header
        key = (header.source_queue_manager, header.sent_time, header.message_id)
        if (tx := message.transaction) is not None:
            last = self._last.get(tx.tx_sequence_id, 0)
            if tx.tx_sequence_number <= last:
                self.duplicates += 1
                return
            if tx.previous_tx_sequence_number > last:
                self.out_of_order += 1
                return
            self._last[tx.tx_sequence_id] = tx.tx_sequence_number
        elif key in self._seen:
            self.duplicates += 1
            return
        self._seen.add(key)
        self.messages.append(message)

    def order_acks(self) -> list[tuple[TxSequenceId, int]]:
        return list(self._last.items())


class _Connection(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._session = Session(peer.config, Role.ACCEPTOR, GUID, self._loop.time())
        self._transport: asyncio.Transport | None = None
        self._sender = b""
        self._acks = 0
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._session.receive(data, self._loop.time())
        self._events()
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.close(CloseReason.DISCONNECTED)
        self._events()
        self.ended.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def final_ack(self, message: UserMessage, message_class: MessageClass) -> None:
        """Tell the sender what became of a transactional message."""
        assert message.transaction is not None
        ack = FinalAck(
            GUID,
            self._sender,
            ORDER_QUEUE,
            1,
            9_000,
            message.transaction.tx_sequence_id,
            message.transaction.tx_sequence_number,
            message.transaction.previous_tx_sequence_number,
            message_class,
            self._sender,
            message.user_header.message_id,
        )
        self._session.offer([-9_000], [write_packet(ack)])
        self._write()

    def _events(self) -> None:
        while (event := self._session.next_event()) is not None:
            match event:
                case Established():
                    self._sender = event.remote_guid
                case PacketsArrived():
                    if not self._peer.is_answering:
                        continue
                    for start, stop in zip(event.offsets, event.offsets[1:], strict=False):
                        message, _ = parse_user_message(event.block, start, stop)
                        self._peer.take(message)
                    self._session.commit(event.first_position + len(event.kinds) - 1)
                    if KIND_TRANSACTIONAL in event.kinds and self._peer.sends_order_acks:
                        self._order_acks()
                case Closed():
                    self._peer.closed.append(event.reason)
                    if self._transport is not None:
                        self._transport.close()
                case _:
                    pass

    def _order_acks(self) -> None:
        for sequence, number in self._peer.order_acks():
            if self._session.state is SessionState.OPEN and self._session.room:
                self._acks += 1
                ack = OrderAck(
                    GUID, self._sender, ORDER_QUEUE, 1, self._acks, sequence, number, number - 1
                )
                self._session.offer([-self._acks], [write_packet(ack)])

    def _write(self) -> None:
        while data := self._session.take_outgoing(self._loop.time()):
            if self._transport is not None:
                self._transport.write(data)
