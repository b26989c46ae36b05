"""The load process for readers that wait: `python -m tests.bench.waiting_load SPEC`.

One reader waits in a call at the leader; a sender gives it a message each time. Both are here, so
that one clock says how long after the sender's SessionAck, and after its sending, the message came.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import uvloop

from qm.load.packets import message_packet
from qm.load.sender import Link
from qm.load.workload import Delivery, Planned, Target
from qm.node.config.schema import MSMQ_PORT
from qm.pb import data_pb2, data_pb2_grpc
from qm.session import SessionConfig
from qm.session.outgoing import own_packet
from tests.bench.cluster_load import Clock, Seen, begun, opened, percentile_ms
from tests.bench.entry_load import WindowStream

WAIT_MS = 10_000
PAUSE_S = 0.005
"""Before each message, so that the reader waits already."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One reader that waits, and what it waits for."""

    host: str
    endpoint: str
    authority: str
    certificate: str
    key: str
    """PEM files."""
    client_id: str
    target: str
    messages: int = 200
    body_bytes: int = 1024


class WaitingSeen(Seen, kw_only=True):
    """The percentiles are from the sending to the reader."""

    after_ack_p50_ms: float = 0.0
    """From the sender's SessionAck to the reader; below 0 if that came later."""
    after_ack_p99_ms: float = 0.0


class OneByOne(WindowStream):
    """Sends when told, and tells when it was acknowledged."""

    def __init__(self, packets: list[bytes]) -> None:
        super().__init__(packets, 1, 1, 0.0)
        self.allowed = 0
        self.acked_at: list[float] = []

    def dispatch(self, limit: int, now: float) -> tuple[Any, Any]:
        return super().dispatch(min(limit, self.allowed - len(self._sent_at)), now)

    def session_acked(self, released: list[int], retained: list[int]) -> None:
        super().session_acked(released, retained)
        self.acked_at.append(time.monotonic())

    @property
    def sent_at(self) -> float:
        return self._sent_at[-1]


async def wait(work: Waiting) -> WaitingSeen:
    guid = os.urandom(16)
    planned = Planned("bench", 0, Delivery.RECOVERABLE, 3, 1, os.urandom(work.body_bytes))
    packet = message_packet(guid, Target(work.target), planned)
    stream = OneByOne([own_packet(packet, k + 1, int(time.time())) for k in range(work.messages)])
    link = Link(guid, [(work.host, MSMQ_PORT)], [stream], config=SessionConfig(window_size=64))
    await opened([link])
    stream.begin()
    authority, key, certificate = (
        Path(name).read_bytes() for name in (work.authority, work.key, work.certificate)
    )
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    seen = WaitingSeen(messages=work.messages)
    waits_s, after_s = [], []
    async with grpc.aio.secure_channel(work.endpoint, credentials) as channel:
        data: Any = data_pb2_grpc.DataStub(channel)
        await data.OpenSession(data_pb2.OpenSessionRequest(client_id=work.client_id))
        number = data_pb2.RequestNumber(client_id=work.client_id, number=1)
        queue = await data.OpenQueue(
            data_pb2.OpenQueueRequest(
                request=number, queue=work.target, access=data_pb2.RECEIVE_ACCESS
            )
        )
        await begun()
        with Clock(seen):
            for k in range(work.messages):
                request = data_pb2.ReceiveRequest(
                    request=data_pb2.RequestNumber(
                        client_id=work.client_id, number=k + 2, confirmed_upto=k + 1
                    ),
                    handle=queue.handle,
                    timeout_ms=WAIT_MS,
                    view=data_pb2.PACKETS,
                )
                call = data.Receive(request)
                await asyncio.sleep(PAUSE_S)
                stream.allowed = k + 1
                link.pump()
                reply = await call
                came = time.monotonic()
                assert len(reply.messages.numbers) == 1, "nothing came"
                while len(stream.acked_at) <= k:
                    await asyncio.sleep(0)
                waits_s.append(came - stream.sent_at)
                after_s.append(came - stream.acked_at[k])
        await data.CloseSession(data_pb2.CloseSessionRequest(client_id=work.client_id))
    waits_s.sort()
    after_s.sort()
    seen.p50_ms, seen.p99_ms = percentile_ms(waits_s, 0.5), percentile_ms(waits_s, 0.99)
    seen.after_ack_p50_ms = percentile_ms(after_s, 0.5)
    seen.after_ack_p99_ms = percentile_ms(after_s, 0.99)
    await link.stop()
    return seen


if __name__ == "__main__":
    specified = msgspec.json.decode(sys.argv[1], type=Waiting)
    sys.stdout.write(msgspec.json.encode(uvloop.run(wait(specified))).decode() + "\n")
