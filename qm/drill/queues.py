"""The queues of a round: created before its load and deleted after it."""

import contextlib
from collections.abc import Sequence
from typing import Final

from qm.client.calls import Calls
from qm.client.errors import ClientError
from qm.load.workload import Target as Queue
from qm.pb import control_pb2

KINDS: Final = (("plain", False), ("lent", False), ("transactional", True), ("watched", False))
"""Suffix of the name, and whether the queue is transactional, for each kind of queue."""


async def make_queues(wire: Calls, prefix: str, through: str) -> tuple[Queue, ...]:
    """Return fresh queues, one of each kind. Raises ClientError.

    `through`: the address that senders put into their messages; empty = the computer's name.
    """
    request = control_pb2.GetQueueManagerRequest()
    manager = await wire.call(lambda stubs: stubs.queues.GetQueueManager, request)
    host = f"TCP:{through}" if through else f"OS:{manager.computer_name}"
    queues = []
    for suffix, is_transactional in KINDS:
        path = f"private$\\{prefix}.{suffix}"
        create = control_pb2.CreateQueueRequest(
            path_name=f"{manager.computer_name}\\{path}",
            attributes={"transactional": control_pb2.Value(flag=is_transactional)},
            if_not_exists=True,
        )
        await wire.call(lambda stubs: stubs.queues.CreateQueue, create)
        queues.append(Queue(f"DIRECT={host}\\{path}", is_transactional=is_transactional))
    return tuple(queues)


async def remove_queues(wire: Calls, queues: Sequence[Queue]) -> None:
    """Delete queues with the messages left in them, which are in the history."""
    for queue in queues:
        name = control_pb2.QueueName(name=queue.format_name)
        delete = control_pb2.DeleteQueueRequest(queue=name)
        # The verdict does not depend on this.
        with contextlib.suppress(ClientError):
            await wire.call(lambda stubs: stubs.queues.DeleteQueue, delete)
