"""An accepted RPC connection: a transport on one side, a sans-IO `Connection` on the other.

Everything happens in callbacks. A call that waits is held by its implementation; the connection
only knows that it is in progress.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from typing_extensions import override

from qm.edge.tcp.admission import place_of
from qm.edge.tcp.incomplete import Incomplete
from qm.rpc.association.calls import IncomingCall
from qm.rpc.association.connection import Cancelled, Connection, Event, Served
from qm.rpc.limits import (
    BIND_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    STUBS_MAX_BYTES,
    UNSENT_ALL_MAX_BYTES,
    UNSENT_MAX_BYTES,
)
from qm.rpc.server.call import Call, Dispatcher
from qm.rpc.server.pace import SLICE_BYTES, Pace, Paced
from qm.rpc.server.rpc_metrics import RpcMetrics

KEEPALIVE_AFTER_S: Final = 120
"""Silence after which TCP asks whether a peer is there: else what it holds would stay held."""
KEEPALIVE_EVERY_S: Final = 10
"""Between its questions while there is no answer."""
UNTAKEN_MAX_S: Final = 30
"""How long a peer may leave unacknowledged what it is sent. Linux would try for a quarter of an
hour, while a message lent to a machine without power is hidden; Windows gives up after five
retransmissions, some twenty seconds."""
_MS_PER_S: Final = 1_000


class Held:
    """What all connections hold: of calls that are not whole, and of answers that nobody reads."""

    def __init__(self) -> None:
        self.stubs: Final = Incomplete["RpcConnection"](
            STUBS_MAX_BYTES, lambda one: one.give_way("stub")
        )
        self.unsent: Final = Incomplete["RpcConnection"](
            UNSENT_ALL_MAX_BYTES, lambda one: one.give_way("unread")
        )


class RpcConnection(asyncio.Protocol, Paced):
    """An accepted connection."""

    __slots__ = (
        "_accepted",
        "_admit",
        "_calls",
        "_dispatcher",
        "_held",
        "_is_over",
        "_is_paused",
        "_is_unread",
        "_left",
        "_loop",
        "_metrics",
        "_pace",
        "_receiving",
        "_rest",
        "_served",
        "_since",
        "_state",
        "_transport",
        "address",
        "local",
        "place",
    )

    _transport: asyncio.Transport
    _state: Connection

    def __init__(
        self,
        served: Served,
        dispatcher: Dispatcher,
        metrics: RpcMetrics,
        admit: Callable[["RpcConnection"], str],
        left: Callable[["RpcConnection"], None],
        held: "Held",
        pace: Pace,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`admit`: returns why a connection is refused, or "". `left`: told of its end; `held`,
        `pace`: what all connections hold, and how they share the event loop.
        """
        self._served = served
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._admit = admit
        self._left = left
        self._held = held
        self._pace = pace
        self._rest = b""
        """Of what was received, the part that has not had its turn."""
        self._is_over = False
        self._receiving: int | None = None
        self._is_unread = False
        self._loop = loop
        self._calls: dict[int, Call] = {}
        self._accepted = self._since = loop.time()
        self._is_paused = False
        self.address = self.place = ""
        self.local = ("", 0)

    # From the transport ------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self.place = place_of(self.address)
        name = transport.get_extra_info("sockname") or ("", 0)
        self.local = (str(name[0]), int(name[1]))
        raw = transport.get_extra_info("socket")
        if raw is not None:
            _watch(raw)
        self._state = Connection(self._served, self.address, self.local[1])
        self._metrics.opened()
        reason = self._admit(self)
        if reason:
            self._metrics.refused(reason, self.address, "too many connections")
            self._transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        self._since = self._loop.time()
        if self._rest:  # it was read before reading stopped
            self._rest += data
            return
        self._rest = data
        self._pace.offer(self)
        if self._rest and not self._transport.is_closing():
            self._transport.pause_reading()

    @override
    def take_slice(self) -> bool:
        if self._is_over or self._is_paused:
            return False
        data, self._rest = self._rest[:SLICE_BYTES], self._rest[SLICE_BYTES:]
        self._receive(data)
        if not self._rest and not self._is_paused and not self._transport.is_closing():
            self._transport.resume_reading()
        return bool(self._rest)

    def _receive(self, data: bytes) -> None:
        for event in self._state.receive(data):
            self._on_event(event)
        for text in self._state.refusals:
            self._metrics.refused("security", self.address, text)
        self._state.refusals.clear()
        self._flush()
        receiving, before = self._state.receiving, self._receiving
        if receiving is not None or before is not None:
            self._receiving = receiving
            is_new = receiving != before
            self._held.stubs.hold(self, self._state.received_bytes, is_new=is_new)
        if self._state.is_closing:
            self._rest = b""
            if self._state.closing_reason:
                self._metrics.refused("protocol", self.address, self._state.closing_reason)
            self._transport.close()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, IncomingCall):
            call = Call(event, self._state, self._done, self.address, self.local)
            self._calls[event.call_id] = call
            self._dispatcher.run(call)
            return
        call_or_none = self._calls.get(event.call_id)
        if call_or_none is not None:
            is_awaited = isinstance(event, Cancelled)
            if not is_awaited:
                self._state.forget(call_or_none.request)
            call_or_none.end(is_awaited=is_awaited)

    def _done(self, call: Call, result: str) -> None:
        if self._calls.get(call.request.call_id) is call:
            del self._calls[call.request.call_id]
        self._metrics.called(call, result)
        self._since = self._loop.time()
        self._flush()

    def _flush(self) -> None:
        output = self._state.take_output()
        if not output or self._transport.is_closing():
            return
        self._transport.write(output)
        self._note_unsent()

    def _note_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if unsent > UNSENT_MAX_BYTES:
            self.give_way("unread")
        elif unsent or self._is_unread:
            is_new, self._is_unread = not self._is_unread, unsent > 0
            self._held.unsent.hold(self, unsent, is_new=is_new)

    def give_way(self, reason: str) -> None:
        """End it because of what it holds: `stub`, of a call that is not whole, or `unread`."""
        texts = {
            "stub": "too much waits for the rest of its call",
            "unread": "the client does not read its answers",
        }
        self._metrics.refused(reason, self.address, texts[reason])
        self._transport.abort()

    @override
    def pause_writing(self) -> None:
        # Whoever does not read its answers makes no more calls meanwhile.
        self._is_paused = True
        self._transport.pause_reading()

    @override
    def resume_writing(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self._rest:
                self._pace.offer(self)
            else:
                self._transport.resume_reading()
        self._note_unsent()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over, self._rest = True, b""
        self._metrics.closed()
        self._left(self)
        self._held.stubs.hold(self, 0, is_new=True)
        self._held.unsent.hold(self, 0, is_new=True)
        for call in list(self._calls.values()):
            call.end(is_awaited=False)
        self._state.close()

    # From the server ---------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Close it if it has been idle for too long, or was never bound."""
        association = self._state.association
        if association is None:
            if now - self._accepted > BIND_TIMEOUT_S:
                self._metrics.refused("unbound", self.address, "no bind in time")
                self._transport.abort()
        elif (
            now - self._since > IDLE_TIMEOUT_S
            and not self._state.calls_in_progress
            and not association.has_handles
        ):
            self._transport.close()

    def close(self) -> None:
        """Close it: this node stops."""
        for call in list(self._calls.values()):
            call.end(is_awaited=True)
        self._flush()
        self._transport.close()


def _watch(raw: socket.socket) -> None:
    """Have TCP notice a peer that is gone without a word."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S),
        (socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S),
        (socket.TCP_USER_TIMEOUT, UNTAKEN_MAX_S * _MS_PER_S),
    ):
        raw.setsockopt(socket.IPPROTO_TCP, option, value)
