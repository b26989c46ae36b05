"""A poison message leaves its queue for programs of the MSMQ objects without code of theirs."""

from __future__ import annotations

import pytest

from qm.api.gate.identity import LOOPBACK
from qm.api.propose.control_once import UNNUMBERED
from qm.client.errors import MqError
from qm.client.mqac import MSMQMessage, MSMQTransactionDispenser
from qm.model.queries import find_by_path
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import SetQueue
from qm.model.values.limits import APPLY_VERSION
from qm.pb import control_pb2
from qm.rpc.dcom.hresults import ComError
from tests.cluster.harness import run, until
from tests.conformance.mqac_world import RECEIVE, SEND, ask, info_of, made, opened, serving
from tests.unit.rpc.dcom.scripts import PRIVATE, DcomWorld, dcom_world
from tests.unit.rpc.dcom.scripts import RECEIVE as RECEIVE_ACCESS

DELIVERIES = 2


async def limited(world: DcomWorld) -> None:
    cluster = (await world.harness.leader()).cluster
    await until(lambda: cluster.view.counters().apply_version == APPLY_VERSION)
    queue_id = find_by_path(cluster.view, f"QUORATE{PRIVATE[1:]}").queue_id
    changes = {"max_deliveries": encode_attribute(DELIVERIES)}
    (outcome,) = await cluster.propose(SetQueue(UNNUMBERED, queue_id, changes, LOOPBACK.sids))
    assert outcome.status == 0, hex(outcome.status)


def body_of(message: MSMQMessage | None) -> object:
    assert message is not None
    return message.Body


def test_over_dcom_it_is_set_aside_after_so_many_aborts() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.queue_info()
            await info.call("Create", True)
            await limited(world)
            dispenser = await program.create("MSMQTransactionDispenser")
            sending = await dispenser.call("BeginTransaction")
            await program.send("poison", "", PRIVATE, sending)
            await program.send("good", "", PRIVATE, sending)
            await sending.call("Commit")
            queue = await program.opened(RECEIVE_ACCESS)
            for _ in range(DELIVERIES):
                reading = await dispenser.call("BeginTransaction")
                taken = await queue.call("Receive", reading, ReceiveTimeout=1000)
                assert await taken.get("Body") == "poison"
                await reading.call("Abort")
            left = await queue.call("Receive", ReceiveTimeout=1000)
            assert await left.get("Body") == "good"
            with pytest.raises(ComError):
                await queue.call("Peek", ReceiveTimeout=0)
            aside = await program.opened(RECEIVE_ACCESS, PRIVATE + ";poison")
            found = await aside.call("Receive", ReceiveTimeout=1000)
            assert await found.get("Body") == "poison"
            program.close()

    run(scenario())


def test_by_the_objects_in_python_it_is_set_aside_too() -> None:
    with serving() as service:
        info = made(service, is_transactional=True)
        ask(
            service,
            lambda stubs: stubs.queues.SetQueue,
            control_pb2.SetQueueRequest(
                queue=control_pb2.QueueName(name=str(info.PathName)),
                changes={"max_deliveries": control_pb2.Value(number=DELIVERIES)},
            ),
        )
        dispenser = MSMQTransactionDispenser(service)
        sending = dispenser.BeginTransaction()
        queue = info.Open(SEND, 0)
        for body in ("poison", "good"):
            message = MSMQMessage(service)
            message.Body = body
            message.Send(queue, sending)
        sending.Commit()
        reader = info.Open(RECEIVE, 0)
        for _ in range(DELIVERIES):
            reading = dispenser.BeginTransaction()
            assert body_of(reader.Receive(reading, ReceiveTimeout=1000)) == "poison"
            reading.Abort()
        assert body_of(reader.Receive(ReceiveTimeout=1000)) == "good"
        with pytest.raises(MqError):
            reader.Peek(ReceiveTimeout=0)
        aside = opened(info_of(service, name=f"DIRECT=OS:{info.PathName};poison"))
        assert body_of(aside.Receive(ReceiveTimeout=1000)) == "poison"
