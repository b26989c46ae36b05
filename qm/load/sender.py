"""An MSMQ queue manager that only sends: real packets over TCP, with a history of what it saw.

It has its own GUID, one session at a time for all of its targets, and follows the rules of
[MS-MQQB] for numbering, resending and reconnecting. It accepts OrderAcks and FinalAcks and answers
nothing else.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import override

from qm.load.connection import Connection, ConnectionEvents
from qm.load.history import EventKind, HistoryEvent
from qm.load.outgoing import Entry, RecordedStream, Stream
from qm.load.packets import message_packet
from qm.load.workload import Planned, Target
from qm.session import CloseReason, SessionConfig, resend_timer_table
from qm.session.limits import RETRY_CONNECT_TIMEOUT_MS
from qm.wire.guid import Guid
from qm.wire.packets.ack import FinalAck, OrderAck
from qm.wire.structures.identifiers import TxSequenceId

Address = tuple[str, int]
Record = Callable[[HistoryEvent], None]

_U32_MAX: Final = 0xFFFF_FFFF


class Link(ConnectionEvents):
    """Streams that share one session to a list of addresses and always reconnect.

    After a session that ended, or a connection that was refused, the next address of the list is
    tried, as MSMQ tries its next hops [MS-MQQB 3.1.6.1].
    """

    def __init__(
        self,
        guid: Guid,
        addresses: Sequence[Address],
        streams: Sequence[Stream],
        *,
        config: SessionConfig | None = None,
        reconnect_s: float = RETRY_CONNECT_TIMEOUT_MS / 1000,
        on_advance: Callable[[int], None] = lambda in_flight: None,
        on_final_ack: Callable[[FinalAck], None] = lambda ack: None,
        on_session: Callable[[str], None] = lambda detail: None,
    ) -> None:
        """Token t belongs to `streams[t % len(streams)]`.

        `on_advance` gets the number of sent and unacknowledged messages after AckSequenceNumber
        advanced; `on_session` is called for each session after the first, with the reason why the
        previous one ended.
        """
        self.guid = guid
        self._addresses = tuple(addresses)
        self._streams = tuple(streams)
        self._config = (config or SessionConfig()).check()
        self._reconnect_s = reconnect_s
        self._on_advance, self._on_final_ack = on_advance, on_final_ack
        self._on_session = on_session
        self._connection: Connection | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._hop = 0
        self._ended = CloseReason.STOPPED
        self._why = ""
        self.sessions = 0
        """Sessions that reached OPEN."""
        self.is_open = False
        """Whether a session is open now."""
        self.local_ports: list[int] = []
        """Our port as the peer saw it, per session."""

    @property
    def address(self) -> Address:
        """Address of the session, or the one tried next."""
        return self._addresses[self._hop]

    def start(self) -> None:
        """Connect, and keep connecting."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="msmq-sender")

    async def stop(self) -> None:
        """Close the session and end."""
        self._stopping.set()
        if self._connection is not None:
            self._connection.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task

    def pump(self) -> None:
        """Send messages that were added to the streams."""
        if self._connection is not None:
            self._connection.pump()

    # ConnectionEvents ----------------------------------------------------------------------

    @override
    def on_established(self, peer: Guid) -> None:
        del peer
        self.sessions += 1
        self.is_open = True
        if self._connection is not None:
            self.local_ports.append(self._connection.local_port)
        if self.sessions > 1:
            self._on_session(self._why)

    @override
    def fill(self, room: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        """Fill from the streams in turn, so that none waits behind another."""
        streams = self._streams
        for _ in streams:
            self._turn = (self._turn + 1) % len(streams)
            tokens, packets = streams[self._turn].dispatch(room, now)
            if tokens:
                self._arm(now)
                return tokens, packets
        return (), ()

    @override
    def on_acks(self, released: list[int], retained: list[int], in_flight: int) -> None:
        count = len(self._streams)
        for index, stream in enumerate(self._streams) if count > 1 else ():
            stream.session_acked(
                [token for token in released if token % count == index],
                [token for token in retained if token % count == index],
            )
        if count == 1:
            self._streams[0].session_acked(released, retained)
        self._on_advance(in_flight)

    @override
    def on_order_ack(self, ack: OrderAck) -> None:
        sequence, now = ack.tx_sequence_id.to_int(), asyncio.get_running_loop().time()
        for stream in self._streams:
            stream.order_acked(sequence, ack.tx_sequence_number, now)

    @override
    def on_final_ack(self, ack: FinalAck) -> None:
        self._on_final_ack(ack)

    @override
    def on_closed(self, reason: CloseReason, detail: str) -> None:
        self.is_open = False
        self._ended, self._why = reason, f"{reason.value}: {detail}" if detail else reason.value
        for stream in self._streams:
            stream.session_ended()

    # ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping.is_set():
            if await self._session(self.address):
                # The counters are used up: the peer is fine, so reconnect without waiting.
                continue
            self._hop = (self._hop + 1) % len(self._addresses)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._reconnect_s)

    async def _session(self, address: Address) -> bool:
        """Run one session; return whether the next one may follow at once."""
        loop = asyncio.get_running_loop()
        connection = Connection(self._config, self.guid, self)
        self._connection = connection
        try:
            await asyncio.wait_for(
                loop.create_connection(lambda: connection, *address), self._reconnect_s
            )
        except OSError as error:
            self._why = f"connect to {address[0]}:{address[1]}: {error}"
            return False
        await connection.ended.wait()
        return self._ended is CloseReason.RECYCLED

    def _arm(self, now: float) -> None:
        due = min((t for s in self._streams if (t := s.next_timer()) is not None), default=None)
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(due, now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for stream in self._streams:
            stream.handle_timer(now)
        self.pump()
        self._arm(now)


class RecordingSender:
    """Sends planned messages over a `Link` and records what it sees of each."""

    def __init__(
        self,
        client: str,
        guid: Guid,
        addresses: Sequence[Address],
        targets: Sequence[Target],
        record: Record,
        *,
        config: SessionConfig | None = None,
        reconnect_s: float = RETRY_CONNECT_TIMEOUT_MS / 1000,
        resend_s: Sequence[int] = resend_timer_table(),
        wants_final_acks: bool = False,
    ) -> None:
        """`guid` must not have been used with these targets before."""
        self.client = client
        self._guid = guid
        self._targets = tuple(targets)
        self._record = record
        self._wants_final_acks = wants_final_acks
        now = asyncio.get_running_loop().time()
        started_s = int(time.time())
        self._streams = [
            RecordedStream(
                TxSequenceId(time_stamp=started_s, ordinal=index + 1),
                self._sent,
                self._acknowledged,
                now=now,
                resend_s=resend_s,
            )
            for index in range(len(targets))
        ]
        self.link = Link(
            guid,
            addresses,
            self._streams,
            config=config,
            reconnect_s=reconnect_s,
            on_advance=self._advanced,
            on_final_ack=self._final,
            on_session=self._reconnected,
        )
        self._message_id = 0
        self._final_acks: dict[int, Planned] = {}
        self.sent = 0
        """Messages that were sent at least once."""
        self.acknowledged = 0
        """Messages that are fully acknowledged."""

    @property
    def unacknowledged(self) -> int:
        """Messages added that are not fully acknowledged."""
        return sum(stream.unacknowledged for stream in self._streams)

    def add(self, planned: Sequence[Planned]) -> None:
        """Send messages, in this order per target."""
        for message in planned:
            self._message_id += 1
            assert self._message_id <= _U32_MAX
            wants_final_ack = self._wants_final_acks and bool(message.transaction)
            packet = message_packet(
                self._guid,
                self._targets[message.target],
                message,
                wants_final_ack=wants_final_ack,
            )
            token = self._message_id * len(self._streams) + message.target
            self._streams[message.target].add(token, message, packet, self._message_id)
            if wants_final_ack:
                self._final_acks[self._message_id] = message
        self.link.pump()

    def _sent(self, entries: Sequence[Entry]) -> None:
        self.sent += len(entries)
        self._write(EventKind.SENT, entries)

    def _acknowledged(self, entries: Sequence[Entry]) -> None:
        self.acknowledged += len(entries)
        self._write(EventKind.ACKNOWLEDGED, entries)

    def _write(self, kind: EventKind, entries: Sequence[Entry]) -> None:
        now = time.monotonic_ns()
        for entry in entries:
            self._record(self._event(kind, entry.planned, now))

    def _event(self, kind: EventKind, planned: Planned, now: int, detail: str = "") -> HistoryEvent:
        return HistoryEvent(
            now,
            self.client,
            kind,
            queue=self._targets[planned.target].format_name,
            message=planned.name,
            delivery=planned.delivery.value,
            priority=planned.priority,
            number=planned.number,
            detail=detail,
        )

    def _advanced(self, in_flight: int) -> None:
        now = time.monotonic_ns()
        self._record(HistoryEvent(now, self.client, EventKind.ADVANCED, number=in_flight))

    def _final(self, ack: FinalAck) -> None:
        planned = self._final_acks.pop(ack.acknowledged_message_id, None)
        if planned is not None and ack.acknowledged_source == self._guid:
            detail = f"{ack.message_class:04x}"
            self._record(self._event(EventKind.FINAL, planned, time.monotonic_ns(), detail))

    def _reconnected(self, why: str) -> None:
        host, _ = self.link.address
        self._record(
            HistoryEvent(
                time.monotonic_ns(), self.client, EventKind.RECONNECTED, detail=why, address=host
            )
        )
