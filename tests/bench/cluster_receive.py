"""A receiver by the streaming call, as bare as the peers' consumers: it looks into no packet."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from qm.pb import data_pb2, data_pb2_grpc

CREDIT = 512
MESSAGE_MAX_BYTES = 64 << 20


class Receiving(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """One stream that takes messages from one queue until it has enough."""

    endpoint: str
    authority: str
    certificate: str
    key: str
    """PEM files."""
    client_id: str
    target: str
    messages: int
    commits_confirms: bool = False
    """Each confirmation is committed before more is asked for."""


@asynccontextmanager
async def receiver(work: Receiving) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Open the queue; yield what takes the messages."""
    options = (("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),)
    async with grpc.aio.secure_channel(work.endpoint, _credentials(work), options) as channel:
        data: Any = data_pb2_grpc.DataStub(channel)
        await data.OpenSession(data_pb2.OpenSessionRequest(client_id=work.client_id))
        number = data_pb2.RequestNumber(client_id=work.client_id, number=1)
        queue = await data.OpenQueue(
            data_pb2.OpenQueueRequest(
                request=number, queue=work.target, access=data_pb2.RECEIVE_ACCESS
            )
        )
        yield lambda: _drain(work, data.StreamReceive(), queue.handle)
        await data.CloseSession(data_pb2.CloseSessionRequest(client_id=work.client_id))


async def _drain(work: Receiving, call: Any, handle: int) -> None:
    opening = data_pb2.StreamOpen(
        client_id=work.client_id, handle=handle, commit_confirms=work.commits_confirms
    )
    await call.write(data_pb2.StreamRequest(open=opening))
    last = 1 + work.messages  # number 1 opened the queue
    granted = min(1 + CREDIT, last)
    await call.write(_credit(2, granted - 1))
    received = owed = 0
    async for reply in call:
        numbers = reply.messages.numbers
        if numbers:
            received += len(numbers)
            owed += len(numbers)
            confirm = data_pb2.StreamConfirm(confirmed_upto=numbers[-1])
            await call.write(data_pb2.StreamRequest(confirm=confirm))
        is_confirmed = bool(reply.confirmed_upto if work.commits_confirms else numbers)
        if not is_confirmed:
            continue
        if received == work.messages:
            break
        if wanted := min(owed, last - granted):
            await call.write(_credit(granted + 1, wanted))
            granted += wanted
        owed = 0
    await call.done_writing()
    async for _ in call:
        pass


def _credit(first: int, count: int) -> data_pb2.StreamRequest:
    return data_pb2.StreamRequest(credit=data_pb2.StreamCredit(first_number=first, count=count))


def _credentials(work: Receiving) -> grpc.ChannelCredentials:
    authority, key, certificate = (
        Path(name).read_bytes() for name in (work.authority, work.key, work.certificate)
    )
    return grpc.ssl_channel_credentials(authority, key, certificate)
