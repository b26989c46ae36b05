"""Three nodes: any of them answers, and a leader that dies costs a client nothing but time."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run, until
from tests.unit.api.data.test_stream_receive import opened
from tests.unit.api.test_control import Operator
from tests.unit.api.test_data import ORDERS, PATH, create
from tests.unit.api.world import Client, bodies, eventually, refused, world

T = TypeVar("T")
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


async def repeated(call: Callable[[], Awaitable[T]]) -> T:
    """Call until it is answered, as a client does, with the same numbers."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in AGAIN:
                raise
        await asyncio.sleep(0.02)


def send_request(client: Client, *contents: bytes, **more: Any) -> data_pb2.SendRequest:
    return data_pb2.SendRequest(
        request=client.next(len(contents)),
        messages=[
            data_pb2.OutgoingMessage(targets=[ORDERS], properties=data_pb2.Properties(body=body))
            for body in contents
        ],
        **more,
    )


async def everything(client: Client) -> list[bytes]:
    """Receive until the queue is empty."""
    queue = await client.open(ORDERS)
    found: list[bytes] = []
    while taken := bodies(await client.receive(queue, 100)):
        found += taken
    return found


def test_any_node_serves_any_call() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as sender, made.client(other) as receiver:
                await create(sender)
                queue = await receiver.open(ORDERS)
                waiting = asyncio.ensure_future(receiver.receive(queue, timeout_ms=20_000))
                await until(lambda: other.waiting_readers == 1)
                (sent,) = await sender.send(ORDERS, b"hello")
                reply = await waiting
                assert bodies(reply) == [b"hello"]
                assert reply.messages.properties[0].message_id == sent.message_id
                stream = await opened(receiver)
                await stream.grant(receiver.next(500).number, 500)
                await sender.send(ORDERS, *(b"%d" % k for k in range(500)))
                await stream.got(500)
                await stream.end()
                assert len(set(stream.keys)) == 500

    run(scenario())


def test_what_was_sent_through_one_node_is_received_at_once_through_another() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as sender, made.client(other) as receiver:
                await create(sender)
                queue = await receiver.open(ORDERS)
                for k in range(30):
                    await sender.send(ORDERS, b"%d" % k)
                    assert bodies(await receiver.peek(queue)) == [b"%d" % k]
                    assert bodies(await receiver.receive(queue)) == [b"%d" % k]

    run(scenario())


def test_readers_that_wait_at_all_nodes_share_a_queue() -> None:
    async def scenario() -> None:
        async with world(3) as made, contextlib.AsyncExitStack() as stack:
            nodes = [await made.leader(), *await made.followers()]
            clients = [await stack.enter_async_context(made.client(node)) for node in nodes]
            await create(clients[0])
            found: list[bytes] = []

            async def read(client: Client) -> None:
                queue = await client.open(ORDERS)
                while len(found) < 180:
                    found.extend(bodies(await client.receive(queue, 3, timeout_ms=300)))
                    client.confirmed_upto = client.number

            reading = [asyncio.ensure_future(read(client)) for client in clients]
            sender = await stack.enter_async_context(made.client(nodes[1]))
            for k in range(60):
                await sender.send(ORDERS, *(b"%d" % (3 * k + j) for j in range(3)))
            await asyncio.gather(*reading)
            assert sorted(found, key=int) == [b"%d" % k for k in range(180)]

    run(scenario())


def test_a_client_goes_on_at_another_node_with_its_handle_and_numbers() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as client, made.channel(other) as channel:
                await create(client)
                await client.send(ORDERS, b"a", b"b")
                queue = await client.open(ORDERS)
                number = client.next()
                first = await client.receive(queue, request=number)
                moved = client.moved_to(channel)
                assert await moved.receive(queue, request=number) == first
                assert bodies(await moved.receive(queue)) == [b"b"]

    run(scenario())


def test_a_wait_is_cancelled_through_another_node() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as client, made.channel(other) as channel:
                await create(client)
                queue = await client.open(ORDERS)
                number = client.next()
                waiting = asyncio.ensure_future(
                    client.receive(queue, request=number, timeout_ms=0xFFFF_FFFF)
                )
                await until(lambda: one.waiting_readers == 1)
                await client.moved_to(channel).data.Cancel(
                    data_pb2.CancelRequest(client_id=client.client_id, first_number=number.number)
                )
                assert (await waiting).status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED

    run(scenario())


def test_sends_survive_their_leader_exactly_once() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.client(follower) as client:
                await create(client)
                wanted = [b"%d" % k for k in range(300)]
                killing: asyncio.Task[None] | None = None
                for k, body in enumerate(wanted):
                    if k == 100:
                        killing = asyncio.ensure_future(made.harness.kill(leader.name))
                    request = send_request(client, body)
                    reply = await repeated(partial(client.data.Send, request))
                    assert [result.status for result in reply.results] == [0]
                    client.confirmed_upto = client.number
                assert killing is not None
                await killing
                assert await everything(client) == wanted

    run(scenario())


def test_a_send_through_a_node_that_dies_is_repeated_elsewhere() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.client(leader) as client, made.channel(follower) as channel:
                await create(client)
                request = send_request(client, *(b"%d" % k for k in range(50)))
                sending = asyncio.ensure_future(client.data.Send(request))
                await asyncio.sleep(0)
                await made.harness.kill(leader.name)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await sending
                moved = client.moved_to(channel)
                first = await repeated(partial(moved.data.Send, request))
                assert [result.status for result in first.results] == [0] * 50
                assert await moved.data.Send(request) == first
                assert await everything(moved) == [b"%d" % k for k in range(50)]

    run(scenario())


def test_a_waiting_receive_outlives_the_leader() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            one, other = await made.followers()
            async with made.client(one) as receiver, made.client(other) as sender:
                await create(sender)
                queue = await receiver.open(ORDERS)
                waiting = asyncio.ensure_future(receiver.receive(queue, timeout_ms=60_000))
                await until(lambda: one.waiting_readers == 1)
                await made.harness.kill(leader.name)
                request = send_request(sender, b"late")
                await repeated(partial(sender.data.Send, request))
                assert bodies(await waiting) == [b"late"]

    run(scenario())


def test_a_timeout_is_committed_although_the_leader_died_meanwhile() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            one, other = await made.followers()
            async with made.client(one) as client, made.channel(other) as channel:
                await create(client)
                queue = await client.open(ORDERS)
                number = client.next()
                waiting = asyncio.ensure_future(
                    client.receive(queue, request=number, timeout_ms=1_000)
                )
                await until(lambda: one.waiting_readers == 1)
                await made.harness.kill(leader.name)
                assert (await waiting).status == ErrorCode.MQ_ERROR_IO_TIMEOUT
                moved = client.moved_to(channel)
                again = await moved.receive(queue, request=number, timeout_ms=60_000)
                assert again.status == ErrorCode.MQ_ERROR_IO_TIMEOUT

    run(scenario())


def test_a_stream_survives_the_leader_without_loss_or_double() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            one, other = await made.followers()
            async with made.client(one) as receiver, made.client(other) as sender:
                await create(sender)
                stream = await opened(receiver)
                await stream.grant(receiver.next(2_000).number, 2_000)
                killing: asyncio.Task[None] | None = None
                for k in range(40):
                    if k == 15:
                        killing = asyncio.ensure_future(made.harness.kill(leader.name))
                    request = send_request(sender, *(b"%d" % (50 * k + j) for j in range(50)))
                    await repeated(partial(sender.data.Send, request))
                assert killing is not None
                await killing
                await stream.got(2_000)
                assert stream.numbers == sorted(set(stream.numbers))
                assert stream.keys == sorted(set(stream.keys))
                assert len(stream.keys) == 2_000
                await stream.end()

    run(scenario())


def test_a_stream_whose_node_died_goes_on_elsewhere_with_the_same_messages() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.client(leader) as client, made.channel(follower) as channel:
                await create(client)
                await client.send(ORDERS, *(b"%d" % k for k in range(900)))
                stream = await opened(client)
                first = client.next(900).number
                await stream.grant(first, 900)
                await stream.got(300)
                await made.harness.kill(leader.name)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stream.over()
                moved = client.moved_to(channel)
                again = await repeated(partial(opened, moved))
                await again.grant(first, 900)
                await again.got(900)
                assert again.keys[: len(stream.keys)] == stream.keys
                assert len(set(again.keys)) == 900
                await again.end()

    run(scenario())


def test_a_commit_whose_leader_died_is_committed_once_or_repeated() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.client(follower) as client:
                await create(client, transactional=True)
                committed: list[bytes] = []
                for k in range(20):
                    transaction = secrets.token_bytes(16)
                    begin = data_pb2.BeginTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    await repeated(partial(client.data.BeginTransaction, begin))
                    pair = [b"%d-a" % k, b"%d-b" % k]
                    request = send_request(client, *pair, transaction=transaction)
                    await repeated(partial(client.data.Send, request))
                    end = data_pb2.EndTransactionRequest(
                        request=client.next(), transaction=transaction
                    )
                    killing = None
                    if k == 8:
                        killing = asyncio.ensure_future(made.harness.kill(leader.name))
                    await repeated(partial(client.data.CommitTransaction, end))
                    committed += pair
                    if killing is not None:
                        await killing
                assert await everything(client) == committed

    run(scenario())


def test_control_calls_are_done_once_although_their_leader_dies() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.channel(follower) as channel:
                operator = Operator(channel)
                killing: asyncio.Task[None] | None = None
                for k in range(20):
                    if k == 8:
                        killing = asyncio.ensure_future(made.harness.kill(leader.name))
                    await operator.create(rf".\private$\q{k}")
                assert killing is not None
                await killing
                listed = await operator.queues.ListQueues(pb.ListQueuesRequest())
                assert len(listed.queues) == 20
                for k in range(20):
                    name = pb.QueueName(name=rf".\private$\q{k}")
                    await operator.queues.DeleteQueue(pb.DeleteQueueRequest(queue=name))
                with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_FOUND"):
                    await operator.queues.DeleteQueue(pb.DeleteQueueRequest(queue=name))

    run(scenario())


def test_a_control_call_that_is_repeated_at_another_node_is_done_once() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as client, made.channel(other) as channel:
                queues = [Operator(each).queues for each in (client.channel, channel)]
                await create(client)
                await client.send(ORDERS, b"a", b"b")
                purge = pb.PurgeQueueRequest(queue=pb.QueueName(name=ORDERS))
                new = pb.CreateQueueRequest(path_name=r".\private$\new")
                named = (("quorate-call-id", "one purge"),)
                first = await queues[0].PurgeQueue(purge, metadata=named)
                made_there = await queues[0].CreateQueue(new, metadata=(("quorate-call-id", "c"),))
                await client.send(ORDERS, b"c")
                again = await queues[1].PurgeQueue(purge, metadata=named)
                made_here = await queues[1].CreateQueue(new, metadata=(("quorate-call-id", "c"),))
                assert again.message_count == first.message_count == 2
                assert made_here.identifier == made_there.identifier
                with refused(grpc.StatusCode.ALREADY_EXISTS, "MQ_ERROR_QUEUE_EXISTS"):
                    await queues[1].CreateQueue(new, metadata=(("quorate-call-id", "d"),))
                queue = await client.open(ORDERS)
                assert bodies(await client.receive(queue)) == [b"c"]

    run(scenario())


def test_members_leadership_and_what_may_stop() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            follower = (await made.followers())[0]
            async with made.channel(follower) as channel:
                operator = Operator(channel)
                listed = await operator.cluster.ListMembers(pb.ListMembersRequest())
                assert {one.name: one.is_leader for one in listed.members} == {
                    name: name == leader.name for name in made.harness.nodes
                }
                assert all(one.is_reachable and one.role == pb.VOTER for one in listed.members)
                stop = await operator.cluster.CanStop(pb.CanStopRequest(node=leader.name))
                assert stop.can_stop, stop.reason
                moved = await operator.cluster.TransferLeadership(
                    pb.TransferLeadershipRequest(to=follower.name)
                )
                assert moved.leader == follower.name
                third = next(
                    name for name in made.harness.nodes if name not in (leader.name, follower.name)
                )
                await made.harness.kill(third)

                async def look() -> pb.CanStopReply:
                    reply: pb.CanStopReply = await operator.cluster.CanStop(pb.CanStopRequest())
                    return reply

                await eventually(look, lambda reply: not reply.can_stop)

    run(scenario())


def test_a_follower_that_is_alone_says_so() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            follower = (await made.followers())[0]
            async with made.client(follower) as client:
                await create(client, PATH)
                for name in made.harness.nodes:
                    if name != follower.name:
                        await made.harness.kill(name)
                request = send_request(client, b"x")
                with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
                    await client.data.Send(request, timeout=2)
                # What an operator asked for and did not wait for is an event, too.
                operator = Operator(client.channel)
                with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
                    new = pb.CreateQueueRequest(path_name=r".\private$\new")
                    await operator.queues.CreateQueue(new, timeout=1)

                async def look() -> list[tuple[str, str]]:
                    wanted = pb.StreamEventsRequest(kinds=["control"])
                    told = [event async for event in operator.node.StreamEvents(wanted)]
                    return [(one.details["path_name"], one.details["code"]) for one in told]

                left = (r".\private$\new", "CANCELLED")
                await eventually(look, lambda told: left in told)

    run(scenario())
