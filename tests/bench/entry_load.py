"""The load process of `tests.bench.entry`: `python -m tests.bench.entry_load SPEC`.

A fixed number of messages outstanding on each session, of one kind. It writes a line when it is
connected, waits for a line, and works; what it saw is the JSON of its last line.
"""

import asyncio
import os
import sys
import time
from array import array
from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b

import msgspec
import uvloop
from typing_extensions import override

from qm.load.outgoing import Stream
from qm.load.packets import direct_text
from qm.load.sender import Link
from qm.node.config.schema import MSMQ_PORT
from qm.session import SessionConfig
from qm.session.outgoing import Numbers, own_packet
from qm.wire.guid import Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.bench.cluster_load import Clock, Seen, begun, opened, percentile_ms

TICK_S = 0.001
SID = bytes.fromhex("010500000000000515000000") + bytes(range(16))
LIFETIME_S = 3600


class Kind(StrEnum):
    """What messages are like."""

    RECOVERABLE = "recoverable"
    TRANSACTIONAL = "transactional"
    SENDER_SID = "sender_sid"
    """With the sender's SID and without a signature."""
    LIFETIME = "lifetime"
    """With a finite TimeToReachQueue."""


class Outstanding(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to queues; a session has at most `window` without a SessionAck."""

    host: str
    targets: tuple[str, ...]
    kind: Kind = Kind.RECOVERABLE
    sessions: int = 1
    window: int = 1
    messages: int = 1000
    """Of all sessions."""
    rate_per_s: float = 0.0
    """Of all sessions together; 0: as fast as the windows allow."""
    body_bytes: int = 1024
    is_spread: bool = False
    """Each session sends to one of the queues, instead of to all in turn; it is the same source in
    each run, since a queue manager takes only so many from one address."""


class EntrySeen(Seen, kw_only=True):
    """What the load process reports; OrderAcks are measured like SessionAcks."""

    order_ack_p50_ms: float = 0.0
    order_ack_p99_ms: float = 0.0


class WindowStream(Stream):
    """Packets that are ready, sent within a window, or when each is due; the last OrderAck counts
    for all numbers below it.
    """

    def __init__(
        self, packets: Sequence[bytes], queues: int, window: int, rate_per_s: float
    ) -> None:
        """`packets` go to `queues` queues in turn."""
        self._packets = packets
        self._queues = queues
        self._told = [0] * queues
        """The last number that an OrderAck named, of each queue's sequence."""
        self._window = window
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._began: float | None = None
        self._sent_at = array("d")
        self.waits_s = array("d")
        self.order_waits_s = array("d")

    def begin(self) -> None:
        self._began = time.monotonic()

    @property
    @override
    def unacknowledged(self) -> int:
        return len(self._packets) - len(self.waits_s)

    @override
    def dispatch(self, limit: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        if self._began is None:
            return (), ()
        now = time.monotonic()  # the loop's clock counts milliseconds
        sent = len(self._sent_at)
        limit = min(limit, self._window - (sent - len(self.waits_s)))
        if self._interval_s:
            limit = min(limit, int((now - self._began) / self._interval_s) + 1 - sent)
        tokens = range(sent, min(sent + max(limit, 0), len(self._packets)))
        if self._interval_s:
            self._sent_at.extend([self._began + token * self._interval_s for token in tokens])
        else:
            self._sent_at.extend([now] * len(tokens))
        return tokens, [self._packets[token] for token in tokens]

    @override
    def session_acked(self, released: list[int], retained: list[int]) -> None:
        now = time.monotonic()
        first = len(self.waits_s)
        until = first + len(released) + len(retained)
        self.waits_s.extend([now - at for at in self._sent_at[first:until]])

    @override
    def session_ended(self) -> None:
        """Nothing is sent again: the run fails instead."""

    @override
    def order_acked(self, sequence: int, number: int, now: float) -> None:
        now, queue = time.monotonic(), (sequence & 0xFFFF_FFFF) - 1
        tokens = range(self._told[queue] * self._queues + queue, len(self._sent_at), self._queues)
        count = max(number - self._told[queue], 0)
        self._told[queue] += count
        self.order_waits_s.extend([now - self._sent_at[token] for token in tokens[:count]])

    @override
    def next_timer(self) -> float | None:
        return None

    @override
    def handle_timer(self, now: float) -> None:
        """There is none."""


def packets_of(work: Outstanding, guid: Guid, count: int) -> list[bytes]:
    """Return a session's packets, numbered."""
    is_transactional = work.kind is Kind.TRANSACTIONAL
    security = (
        SecurityHeader(sender_id_type=1, security_id=SID) if work.kind is Kind.SENDER_SID else None
    )
    sequences = [TxSequenceId(time_stamp=int(time.time()), ordinal=k + 1) for k in work_range(work)]
    blanks = []
    for target in work.targets:
        transaction = TransactionHeader(sequences[0], 1, 0, 1, False, True, True)
        header = UserHeader(guid, DirectQueueFormatName(direct_text(target)), is_recoverable=True)
        message = UserMessage(
            header,
            MessagePropertiesHeader(os.urandom(work.body_bytes), "bench"),
            transaction if is_transactional else None,
            security,
            priority=0 if is_transactional else 3,
            time_to_reach_queue=LIFETIME_S if work.kind is Kind.LIFETIME else 0xFFFF_FFFF,
        )
        blanks.append(write_packet(message))
    now_s = int(time.time())
    packets = []
    for k in range(count):
        at, number = k % len(blanks), k // len(blanks) + 1
        numbers = (
            Numbers(sequences[at], number, number - 1, number % (1 << 20), True, True)
            if is_transactional
            else None
        )
        packets.append(own_packet(blanks[at], k + 1, now_s, numbers))
    return packets


def work_range(work: Outstanding) -> range:
    """Return an ordinal for each target."""
    return range(len(work.targets))


async def send(work: Outstanding) -> EntrySeen:
    share = work.messages // work.sessions
    streams: list[WindowStream] = []
    links = []
    done = asyncio.Event()
    is_transactional = work.kind is Kind.TRANSACTIONAL

    def look(_: int) -> None:
        if not any(stream.unacknowledged for stream in streams):
            done.set()

    for session in range(work.sessions):
        name = b"session %d" % session
        guid = blake2b(name, digest_size=16).digest() if work.is_spread else os.urandom(16)
        target = work.targets[session % len(work.targets)]
        own = msgspec.structs.replace(work, targets=(target,)) if work.is_spread else work
        packets = packets_of(own, guid, share)
        rate_per_s = work.rate_per_s / work.sessions
        streams.append(WindowStream(packets, len(own.targets), work.window, rate_per_s))
        config = SessionConfig(window_size=max(64, work.window))
        links.append(
            Link(guid, [(work.host, MSMQ_PORT)], streams[-1:], config=config, on_advance=look)
        )
    await opened(links)
    seen = EntrySeen(messages=share * work.sessions)
    await begun()
    with Clock(seen):
        for stream, link in zip(streams, links, strict=True):
            stream.begin()
            link.pump()
        while work.rate_per_s and not done.is_set():
            await asyncio.sleep(TICK_S)
            for link in links:
                link.pump()
        await done.wait()
    while is_transactional and any(len(one.order_waits_s) < share for one in streams):
        await asyncio.sleep(TICK_S)
    waits_s = sorted(wait for stream in streams for wait in stream.waits_s)
    seen.p50_ms, seen.p99_ms = percentile_ms(waits_s, 0.5), percentile_ms(waits_s, 0.99)
    waits_s = sorted(wait for stream in streams for wait in stream.order_waits_s)
    seen.order_ack_p50_ms = percentile_ms(waits_s, 0.5)
    seen.order_ack_p99_ms = percentile_ms(waits_s, 0.99)
    assert [link.sessions for link in links] == [1] * len(links)
    for link in links:
        await link.stop()
    return seen


if __name__ == "__main__":
    specified = msgspec.json.decode(sys.argv[1], type=Outstanding)
    sys.stdout.write(msgspec.json.encode(uvloop.run(send(specified))).decode() + "\n")
