"""What a handle of each access lets its holder do [MS-MQDMPR 3.1.1.17]."""

from __future__ import annotations

import grpc
import pytest

from qm.client.mqac import MSMQMessage
from qm.client.mqac.constants import MQACCESS
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.conformance.mqac_world import fails, info_of, made, opened, serving
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import bodies, refused, world

ELSEWHERE = "DIRECT=TCP:127.255.255.254\\private$\\far"
RECEIVE, SEND, PEEK, ADMIN = (
    MQACCESS.MQ_RECEIVE_ACCESS,
    MQACCESS.MQ_SEND_ACCESS,
    MQACCESS.MQ_PEEK_ACCESS,
    MQACCESS.MQ_ADMIN_ACCESS,
)


@pytest.mark.spec("DM-3.1.1.17-03")
@pytest.mark.parametrize(
    ("access", "may_peek", "may_receive"),
    [
        (data_pb2.RECEIVE_ACCESS, True, True),
        (data_pb2.SEND_ACCESS, False, False),
        (data_pb2.PEEK_ACCESS, True, False),
        (data_pb2.MOVE_ACCESS, False, False),
        (data_pb2.RECEIVE_ADMIN_ACCESS, True, True),
        (data_pb2.PEEK_ADMIN_ACCESS, True, False),
    ],
)
def test_who_may_peek_and_receive(access: int, may_peek: bool, may_receive: bool) -> None:
    """Admin access is to outgoing queues, the others to queues that are here."""

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            names = {True: ELSEWHERE, False: ORDERS}
            for name in names.values():
                await client.send(name, b"a")
            is_admin = access in (data_pb2.RECEIVE_ADMIN_ACCESS, data_pb2.PEEK_ADMIN_ACCESS)
            if access != data_pb2.SEND_ACCESS:
                with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_FOUND"):
                    await client.open(names[not is_admin], access)
            queue = await client.open(names[is_admin], access)
            for read, is_permitted in ((client.peek, may_peek), (client.receive, may_receive)):
                if is_permitted:
                    assert bodies(await read(queue)) == [b"a"]
                else:
                    with refused(grpc.StatusCode.PERMISSION_DENIED, "MQ_ERROR_ACCESS_DENIED"):
                        await read(queue)

    run(scenario())


@pytest.mark.spec("DM-3.1.1.17-03")
def test_who_may_send_and_purge() -> None:
    with serving() as service:
        far = info_of(service, name=ELSEWHERE)
        for access in (RECEIVE, SEND, PEEK, RECEIVE | ADMIN, PEEK | ADMIN):
            info = far if access & ADMIN else made(service)
            sender = opened(info, SEND)
            MSMQMessage(service).Send(sender)
            queue = opened(info, access)
            if access == SEND:
                MSMQMessage(service).Send(queue)
            else:
                with fails(ErrorCode.MQ_ERROR_ACCESS_DENIED):
                    MSMQMessage(service).Send(queue)
            looker = opened(info, PEEK | access & ADMIN)
            if access & RECEIVE:
                queue.Purge()
                with fails(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND):
                    looker.Peek(ReceiveTimeout=0)
            else:
                with fails(ErrorCode.MQ_ERROR_ACCESS_DENIED):
                    queue.Purge()
                assert looker.Peek(ReceiveTimeout=0) is not None


@pytest.mark.spec("DM-3.1.1.17-03")
def test_move_access_opens_what_messages_are_moved_to() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            (sent,) = await client.send(ORDERS, b"a")
            (place,) = sent.places
            target = await client.open(f"{ORDERS};later", data_pb2.MOVE_ACCESS)
            move = data_pb2.MoveRequest(
                request=client.next(),
                source_queue_id=place.queue_id,
                lookup_identifier=place.lookup_identifier,
                target_queue_id=target.queue_id,
            )
            await client.data.Move(move)
            moved = await client.open(f"{ORDERS};later")
            assert bodies(await client.peek(moved)) == [b"a"]

    run(scenario())
