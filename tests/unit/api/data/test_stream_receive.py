"""Streams by credit, on one node."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from qm.model.clients import clients
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run, until
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import Client, bodies, eventually, refused, world

NO_ROOM = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


class Stream:
    """The client's side of one stream."""

    def __init__(self, client: Client, handle: int, **options: Any) -> None:
        self._call = client.data.StreamReceive()
        self._open = data_pb2.StreamOpen(client_id=client.client_id, handle=handle, **options)
        self.numbers: list[int] = []
        self.batches: list[int] = []
        """Messages of each reply."""
        self.keys: list[int] = []
        self.confirmed = 0
        self.cancelled: list[int] = []
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self._call.write(data_pb2.StreamRequest(open=self._open))
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        replies: AsyncIterator[data_pb2.StreamReply] = self._call
        async for reply in replies:
            self.numbers += reply.messages.numbers
            self.batches.append(len(reply.messages.numbers))
            self.keys += reply.messages.lookup_identifiers
            self.confirmed = max(self.confirmed, reply.confirmed_upto)
            self.cancelled += [one.first_number for one in reply.cancelled]

    async def grant(self, first: int, count: int) -> None:
        credit = data_pb2.StreamCredit(first_number=first, count=count)
        await self._call.write(data_pb2.StreamRequest(credit=credit))

    async def confirm(self, upto: int) -> None:
        confirm = data_pb2.StreamConfirm(confirmed_upto=upto)
        await self._call.write(data_pb2.StreamRequest(confirm=confirm))

    async def got(self, count: int) -> None:
        await until(lambda: len(self.numbers) >= count or self._is_over, lambda: self.numbers)
        if len(self.numbers) < count:
            await self.end()

    @property
    def _is_over(self) -> bool:
        return self._reading is not None and self._reading.done()

    async def end(self) -> None:
        """Close this side and wait for the other's end."""
        await self._call.done_writing()
        await self.over()

    async def over(self) -> None:
        """Wait for the other side's end."""
        assert self._reading is not None
        await self._reading

    def drop(self) -> None:
        """Break the call as a lost connection would."""
        self._call.cancel()


async def opened(client: Client, **options: Any) -> Stream:
    queue = await client.open(ORDERS)
    stream = Stream(client, queue.handle, **options)
    await stream.begin()
    return stream


def test_credit_k_is_request_number_k() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, *(b"%d" % k for k in range(5)))
            stream = await opened(client)
            first = client.next(8).number
            await stream.grant(first, 8)
            await stream.got(5)
            assert stream.numbers == list(range(first, first + 5))
            await client.send(ORDERS, b"5", b"6")
            await stream.got(7)
            await stream.end()
            assert stream.numbers == list(range(first, first + 7))
            assert stream.cancelled == [first + 7]
            assert stream.keys == sorted(stream.keys)

    run(scenario())


def test_numbers_granted_again_yield_the_same_messages() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, *(b"%d" % k for k in range(20)))
            stream = await opened(client)
            first = client.next(20).number
            await stream.grant(first, 10)
            await stream.got(10)
            stream.drop()
            again = await opened(client)
            await again.grant(first, 20)
            await again.got(20)
            assert again.keys[:10] == stream.keys
            await again.end()
            assert len(set(again.keys)) == 20

    run(scenario())


def test_half_of_the_credit_is_one_run_whatever_is_left_of_it() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, *(b"%d" % k for k in range(256)))
            stream = await opened(client)
            await stream.grant(client.next(256).number, 256)
            await stream.got(256)
            await stream.end()
            assert stream.batches == [128, 128]

    run(scenario())


def test_a_committed_confirm_is_told_before_more_credit_is_given() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, *(b"%d" % k for k in range(30)))
            stream = await opened(client, commit_confirms=True)
            for round_ in range(3):
                first = client.next(10).number
                await stream.grant(first, 10)
                await stream.got(10 * (round_ + 1))
                await stream.confirm(first + 9)
                await until(lambda: stream.confirmed == client.number, lambda: stream.confirmed)
            state = await client.open_session()
            assert state.confirmed_upto == client.number
            await stream.end()

    run(scenario())


def test_confirms_are_committed_when_no_run_carries_them() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"only")
            stream = await opened(client)
            first = client.next().number
            await stream.grant(first, 1)
            await stream.got(1)
            await stream.confirm(first)

            await eventually(client.open_session, lambda state: state.confirmed_upto == first)
            await stream.end()

    run(scenario())


def test_two_streams_share_a_queue_without_loss_or_double() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.client(leader) as one, made.client(leader) as other:
                await create(one)
                streams = [await opened(client) for client in (one, other)]
                for stream, client in zip(streams, (one, other), strict=True):
                    await stream.grant(client.next(500).number, 500)
                for k in range(10):
                    await one.send(ORDERS, *(b"%d" % k for _ in range(60)))
                await until(
                    lambda: sum(len(stream.numbers) for stream in streams) == 600,
                    lambda: [len(stream.numbers) for stream in streams],
                )
                keys = [key for stream in streams for key in stream.keys]
                assert len(set(keys)) == 600
                for stream in streams:
                    await stream.end()

    run(scenario())


def test_a_two_phase_stream_lends() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"a", b"b")
            stream = await opened(client, is_two_phase=True)
            await stream.grant(client.next(2).number, 2)
            await stream.got(2)
            queue = await client.open(ORDERS)
            assert not (await client.peek(queue)).messages.lookup_identifiers
            for key in stream.keys:
                await client.data.Complete(
                    data_pb2.CompleteRequest(
                        request=client.next(), queue_id=queue.queue_id, lookup_identifier=key
                    )
                )
            await stream.end()

    run(scenario())


def test_bad_frames_end_a_stream_with_their_reason() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            stream = await opened(client)
            with refused(grpc.StatusCode.INVALID_ARGUMENT, field="credit"):
                await stream.grant(0, 1)
                await stream.end()
            stream = await opened(client)
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
                await stream.grant(client.next().number, 1_000_000)
                await stream.end()
            call = client.data.StreamReceive()
            with refused(grpc.StatusCode.INVALID_ARGUMENT, field="open"):
                await call.write(data_pb2.StreamRequest(credit=data_pb2.StreamCredit()))
                await call.read()
            sending = await client.open(ORDERS, data_pb2.SEND_ACCESS)
            stream = Stream(client, sending.handle)
            with refused(grpc.StatusCode.PERMISSION_DENIED, "MQ_ERROR_ACCESS_DENIED"):
                await stream.begin()
                await stream.end()

    run(scenario())


def test_a_client_that_confirms_nothing_is_bounded_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with (
            world() as made,
            made.client(await made.leader()) as client,
            made.client(await made.leader()) as other,
        ):
            await create(client)
            await other.send(ORDERS, *(b"%d" % k for k in range(6)))
            other.confirmed_upto = other.number
            stream, queue = await opened(client), await client.open(ORDERS)
            monkeypatch.setattr(clients, "UNCONFIRMED_RESULTS_PER_CLIENT_MAX", client.number + 3)
            first = client.next(8).number
            await stream.grant(first, 8)
            await stream.got(3)
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, NO_ROOM.name):
                await client.receive(queue, timeout_ms=60_000)
            (sent,) = await client.send(ORDERS, b"more")
            assert sent.status == NO_ROOM
            assert len(bodies(await other.receive(await other.open(ORDERS)))) == 1
            await stream.confirm(first)
            # That made room for what opening was answered with, and for the first message.
            await stream.got(5)
            assert stream.numbers == list(range(first, first + 5))
            await stream.confirm(first + 4)

    run(scenario())


def test_a_stopping_node_sends_its_streams_elsewhere() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.client(leader) as client:
                await create(client)
                stream = await opened(client)
                await stream.grant(client.next().number, 1)
                await until(lambda: leader.waiting_readers == 1)
                stopping = asyncio.ensure_future(leader.server.stop())
                with refused(grpc.StatusCode.UNAVAILABLE):
                    await stream.over()
                await stopping

    run(scenario())
