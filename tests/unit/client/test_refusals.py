"""What an application is told when it is refused: who, what for, and which queue."""

import pytest

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.errors import AccessDenied, MqError, NotOpen, QueueNotFound, QuotaExceeded
from qm.client.message import Message
from qm.client.sending import SendRefused
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.world import OTHER, PLAIN, TRANSACTIONAL, Clients, scenario, until

MINE, MISSING = "QUORATE\\PRIVATE$\\mine", "QUORATE\\PRIVATE$\\missing"


@scenario()
async def test_who_may_not_is_told_the_right_that_is_missing(made: Clients) -> None:
    async with made.client() as admin:
        request = control_pb2.CreateQueueRequest(path_name=MINE)
        await admin.wire.call(lambda stubs: stubs.queues.CreateQueue, request)
    files = made.harness.certificate("alice", Role.CLIENT)
    tls = Tls(files.authority, files.certificate, files.key)
    async with Client(made.endpoints, tls=tls) as client:
        with pytest.raises(AccessDenied) as denied:
            await client.open_queue(MINE)
        error = denied.value
        assert (error.principal, error.right) == ("alice", "RECEIVE_MESSAGE")
        assert error.queue.lower().endswith(MINE.lower())
        assert "alice" in str(error)
        assert "RECEIVE_MESSAGE" in str(error)
        with pytest.raises(AccessDenied) as denied:
            await client.wire.call(
                lambda stubs: stubs.queues.DeleteQueue,
                control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=MINE)),
            )
        assert (denied.value.right, denied.value.queue) == ("DELETE_QUEUE", MINE)


@scenario()
async def test_a_queue_that_is_missing_is_named(made: Clients) -> None:
    async with made.client() as client:
        with pytest.raises(QueueNotFound) as missing:
            await client.open_queue(MISSING)
        assert missing.value.queue.endswith(MISSING)
        with pytest.raises(QueueNotFound) as refused:
            await client.send([OTHER, MISSING], Message(body=b"x"))
        assert isinstance(refused.value, SendRefused)
        assert refused.value.queue.endswith(MISSING)
        assert refused.value.code == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        assert MISSING in str(refused.value)
        async with client.transaction() as transaction:
            with pytest.raises(QueueNotFound):
                await transaction.receive(MISSING, 0)


@scenario()
async def test_the_quota_that_is_reached_is_named(made: Clients) -> None:
    await made.limit(PLAIN, quota=2)
    async with made.client() as client:
        with pytest.raises(QuotaExceeded) as full:
            await client.send(PLAIN, *[Message(body=bytes(700))] * 4)
        assert full.value.which == "queue"
        assert full.value.queue.endswith("plain")
        assert isinstance(full.value, SendRefused)
        assert len(full.value.sent) == 2
        await client.wire.call(
            lambda stubs: stubs.queues.SetQueueManager,
            control_pb2.SetQueueManagerRequest(
                changes={"queue_manager_quota": control_pb2.Value(number=2)}
            ),
        )
        with pytest.raises(QuotaExceeded) as full:
            await client.send(OTHER, Message(body=bytes(4_000)))
        assert full.value.which == "computer"


@scenario()
async def test_a_client_whose_lease_ended_sends_again(made: Clients) -> None:
    async with Client(made.endpoints, tls=made.tls, client_id="me", lease_s=3.0) as client:
        with pytest.raises(NotOpen):
            _ = Client(made.endpoints, tls=made.tls).computer_name
        lent = await client.lend()
        client.give_back(lent)
        async with made.client() as operator:
            for client_id in (lent.client_id, "me"):
                request = control_pb2.CloseClientRequest(client_id=client_id)
                await operator.wire.call(lambda stubs: stubs.clients.CloseClient, request)
        await until(lambda: lent not in client._idle, lambda: client._idle)
        assert client.computer_name == "QUORATE"
        assert client.is_open
        await client.send(PLAIN, Message(body=b"x"))
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"x"))
    with pytest.raises(NotOpen, match="open"):
        await client.send(PLAIN, Message(body=b"y"))


def test_every_kind_of_refusal_is_an_mq_error() -> None:
    assert all(issubclass(kind, MqError) for kind in (AccessDenied, QueueNotFound, QuotaExceeded))
