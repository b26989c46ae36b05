"""Scenarios of clients: what they do to each other while the cluster fails."""

from collections import Counter
from typing import Final

from qm.client.client import Client
from qm.client.errors import ClientFenced
from qm.client.message import Message
from qm.drill.scenarios.scenario import Scenario, Stage
from qm.pb import control_pb2

SENDS: Final = 20
"""Messages that each of two clients sends at a time."""
EMPTY_S: Final = 1.0
"""A queue that gives nothing for so long is empty."""


async def _one_id(stage: Stage) -> None:
    """Two processes of one id: the second takes over, and the first is told, also while the leader
    changes.
    """
    endpoints = [node.api for node in stage.target.nodes]
    name = f"drill.twins.{stage.chance.randrange(1 << 32):08x}"
    first, second = (Client(endpoints, tls=stage.target.tls, client_id=name) for _ in range(2))
    await first.open()
    path = f"{first.computer_name}\\private$\\{name}"
    create = control_pb2.CreateQueueRequest(path_name=path, if_not_exists=True)
    await first.wire.call(lambda stubs: stubs.queues.CreateQueue, create)
    sent: Counter[bytes] = Counter()

    async def send(client: Client, text: str) -> None:
        bodies = [f"{text} {number}".encode() for number in range(SENDS)]
        for body in bodies:
            await client.send(path, Message(body=body))
            sent[body] += 1

    await send(first, "the first")
    await second.open()
    await _is_fenced(stage, first, path)
    leader = await stage.leader()
    stage.fault(f"SIGKILL of {leader}, the leader, while two clients share an id", leader)
    await stage.target.kill(leader)
    await send(second, "the second")
    await _is_fenced(stage, first, path)
    await stage.heal()
    received: Counter[bytes] = Counter()
    queue = await second.open_queue(path)
    while (message := await queue.receive(timeout_s=EMPTY_S)) is not None:
        received[message.body] += 1
    if received != sent:
        lost, doubled = sent - received, received - sent
        stage.wrong(f"of two clients with one id {lost.total()} lost, {doubled.total()} doubled")
    await queue.close()
    delete = control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=path))
    await second.wire.call(lambda stubs: stubs.queues.DeleteQueue, delete)
    await second.close()
    await first.wire.close()


async def _is_fenced(stage: Stage, client: Client, path: str) -> None:
    try:
        await client.send(path, Message(body=b"the first, which was taken over"))
    except ClientFenced:
        return
    stage.wrong("a client goes on whose id another one has taken over")


CLIENTS: Final = (Scenario("one-id", "Two clients have one id, and the leader dies", _one_id),)
