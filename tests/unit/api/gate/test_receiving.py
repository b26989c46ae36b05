"""What a caller may send before it has said what it wants: little, and not for long."""

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio
import pytest

from qm.api.convert.definitions import DOCUMENT_MAX_BYTES
from qm.api.gate import calls, receiving, turns
from qm.api.gate.identity import Role
from qm.client import sending
from qm.pb import control_pb2, control_pb2_grpc, data_pb2, data_pb2_grpc
from qm.wire.limits import PACKET_SIZE_MAX_BYTES
from tests.cluster.harness import run
from tests.unit.api.gate.half_sent import HalfSent
from tests.unit.api.world import eventually, refused, world

STREAM = f"/{data_pb2.DESCRIPTOR.package}.Data/StreamReceive"
SEND = f"/{data_pb2.DESCRIPTOR.package}.Data/Send"
MIB = 1 << 20
CALLS = 60
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def test_half_sent_requests_take_a_bounded_amount_of_memory() -> None:
    """gRPC would take whatever comes, of as many calls as there are."""

    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with HalfSent.to(leader.address) as attacker:
                for _ in range(CALLS):
                    attacker.begin(SEND, receiving.REQUEST_MAX_BYTES)

                async def whole() -> int:
                    await attacker.pour(MIB)
                    return sum(sent == MIB for sent in attacker.sent.values())

                await eventually(whole, lambda count: count >= receiving.REQUESTS_PER_CALLER_MAX)
                assert await attacker.pour(MIB) <= (
                    receiving.REQUESTS_PER_CALLER_MAX * MIB
                    + CALLS * (receiving.WINDOW_BYTES + 65_535)
                )

    run(scenario())


def test_a_request_that_does_not_arrive_ends_and_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "REQUEST_MAX_S", 0.05)
    monkeypatch.setattr(receiving, "REQUESTS_PER_CALLER_MAX", 1)

    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with HalfSent.to(leader.address) as attacker, made.channel(leader) as channel:
                for _ in range(4):
                    attacker.begin(SEND, MIB)
                await attacker.pour(100)
                queues = control_pb2_grpc.QueueControlStub(channel)
                answer = await queues.GetQueueManager(control_pb2.GetQueueManagerRequest())
                assert answer.computer_name

                async def ended() -> int:
                    await attacker.pour(100)
                    return len(attacker.ended)

                await eventually(ended, lambda count: count == 4)
            slow = leader.metrics.counter("quorate_api_calls_total")
            assert slow.labels(SEND, "DEADLINE_EXCEEDED")._value.get() == 4

    run(scenario())


def test_what_may_be_sent_fits_into_a_request() -> None:
    more = 1 << 20  # what describes it
    assert DOCUMENT_MAX_BYTES + (64 << 10) <= receiving.REQUEST_MAX_BYTES
    assert sending.BATCH_MAX_BYTES + more <= receiving.REQUEST_MAX_BYTES
    assert PACKET_SIZE_MAX_BYTES + more <= receiving.REQUEST_MAX_BYTES


def test_a_call_without_a_request_is_refused() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            stub: Any = channel.stream_unary(SEND, None, None)
            call = stub()
            await call.done_writing()
            with refused(grpc.StatusCode.INVALID_ARGUMENT):
                await call

    run(scenario())


def test_a_principal_has_a_limited_number_of_calls_and_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {False: (("calls", 2),), True: (("streams", 2),)}
    monkeypatch.setattr(
        calls, "_LIMITS", {False: limits[False], True: (*limits[False], *limits[True])}
    )
    everybody = control_pb2.ListQueuesRequest()

    async def scenario() -> None:
        async with world(is_secure=True) as made:
            leader = await made.leader()

            def refusals(quota: str) -> float:
                counter = leader.metrics.counter("quorate_quota_refused_total")
                value: float = counter.labels(quota)._value.get()
                return value

            async with (
                made.channel(leader, "carol", Role.CLIENT) as channel,
                made.channel(leader, "dave", Role.CLIENT) as other,
            ):
                queues = control_pb2_grpc.QueueControlStub(channel)
                data: Any = data_pb2_grpc.DataStub(channel)
                open_calls = [data.StreamReceive() for _ in range(3)]
                codes = [asyncio.ensure_future(call.code()) for call in open_calls]
                done, _ = await asyncio.wait(codes, return_when=asyncio.FIRST_COMPLETED)
                assert [code.result() for code in done] == [EXHAUSTED]
                with refused(EXHAUSTED):
                    await queues.ListQueues(everybody)
                await control_pb2_grpc.QueueControlStub(other).ListQueues(everybody)
                assert refusals("calls") == 2
                for call in open_calls:
                    call.cancel()

                async def answered() -> bool:
                    try:
                        await queues.ListQueues(everybody)
                    except grpc.aio.AioRpcError:
                        return False
                    return True

                await eventually(answered, bool)
                monkeypatch.setattr(calls, "_LIMITS", limits)
                open_calls = [data.StreamReceive() for _ in range(3)]
                codes = [asyncio.ensure_future(call.code()) for call in open_calls]
                done, _ = await asyncio.wait(codes, return_when=asyncio.FIRST_COMPLETED)
                assert [code.result() for code in done] == [EXHAUSTED]
                assert refusals("streams") == 1
                for call in open_calls:
                    call.cancel()

    run(scenario())


def test_a_node_has_a_limited_number_of_streams_and_keeps_some_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC may hold a whole request of each: half-sent ones of one client took 8 GiB."""
    monkeypatch.setattr(calls, "STREAMS_MAX", 8)
    monkeypatch.setattr(calls, "STREAMS_FEW", 1)

    async def scenario() -> None:
        async with world(is_secure=True) as made:
            leader = await made.leader()
            async with contextlib.AsyncExitStack() as stack:
                names = ("carol", "dave", "erin")
                carol, dave, erin = [
                    data_pb2_grpc.DataStub(
                        await stack.enter_async_context(made.channel(leader, name, Role.CLIENT))
                    )
                    for name in names
                ]

                async def opened(stub: Any, count: int) -> tuple[list[Any], int]:
                    """Open so many streams; return them with the number of refused ones."""
                    some = [stub.StreamReceive() for _ in range(count)]
                    codes = [asyncio.ensure_future(call.code()) for call in some]
                    await asyncio.wait(codes, timeout=1)
                    found = [code.result() for code in codes if code.done()]
                    for code in codes:
                        code.cancel()
                    return some, found.count(EXHAUSTED)

                some, refused_count = await opened(carol, 9)
                assert refused_count == 3  # a quarter of eight is for others
                for stub in (dave, erin):
                    more, refused_count = await opened(stub, 2)
                    some += more
                    assert refused_count == 1
                for call in some:
                    call.cancel()

    run(scenario())


def test_calls_of_the_control_plane_have_their_turns_and_give_them_back() -> None:
    everybody = control_pb2.ListQueuesRequest()

    async def scenario() -> None:
        async with world(is_secure=True) as made:
            leader = await made.leader()
            async with made.channel(leader, "carol", Role.CLIENT) as channel:
                queues = control_pb2_grpc.QueueControlStub(channel)
                for _ in range(2):
                    calls_at_once = 3 * turns.TURNS_PER_PRINCIPAL_MAX
                    asked = (queues.ListQueues(everybody) for _ in range(calls_at_once))
                    await asyncio.wait_for(asyncio.gather(*asked), 60)

    run(scenario())


def test_half_sent_streams_of_one_client_hold_a_bounded_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 4
    streams = (("streams", limit),)
    monkeypatch.setattr(calls, "_LIMITS", {False: (), True: streams})

    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with HalfSent.to(leader.address) as attacker:
                for _ in range(CALLS):
                    attacker.begin(STREAM, receiving.REQUEST_MAX_BYTES)

                async def whole() -> int:
                    await attacker.pour(2 * MIB)
                    return sum(sent == 2 * MIB for sent in attacker.sent.values())

                await eventually(whole, lambda count: count >= limit)
                taken = await attacker.pour(2 * MIB)
                assert taken <= limit * 2 * MIB + CALLS * (receiving.WINDOW_BYTES + 65_535)

    run(scenario())


class Gone:
    """The context of a call whose caller leaves while its request is late."""

    def __init__(self) -> None:
        self._is_over = asyncio.Event()

    async def read(self) -> object:
        await self._is_over.wait()
        return None

    async def abort(self, *_: object) -> None:
        self._is_over.set()
        raise RuntimeError('Failed "execute_batch"')


def test_a_late_request_whose_caller_is_gone_counts_as_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "REQUEST_MAX_S", 0.01)

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await receiving.Receiving().request("carol", Gone())

    asyncio.run(scenario())
