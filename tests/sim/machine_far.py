"""Where the simulated queue manager's messages go: another queue manager, and the leader's sending
side between both, which a change of leader restarts.

The far side judges transactional messages as the specification says ([MS-MQQB] 3.1.5.8.6), so that
a number that is used twice, or out of its order, is refused permanently and found.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from qm.model.queries import (
    OutgoingMessage,
    OutgoingQueueInfo,
    list_outgoing_queues,
    outgoing_messages,
)
from qm.model.values import commands
from qm.model.values.rows import PositionFlag
from qm.wire.message_class import MessageClass
from tests.sim.checkers import Violation

if TYPE_CHECKING:
    from tests.sim.machine_clients import Asking, QueueClients, Script

_ENDS = (MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_PURGED, MessageClass.NACK_RECEIVE_TIMEOUT)
_AWAITED = (
    PositionFlag.FINAL_ACK_WANTED
    | PositionFlag.NEGATIVE_JOURNALING
    | PositionFlag.POSITIVE_JOURNALING
)


class Far:
    """The far queue manager, and what it was sent."""

    def __init__(self) -> None:
        self.sequence = 0
        self.number = 0
        self.accepted: dict[int, tuple[int, int]] = {}
        """MessageID of a transactional message -> sequence and number under which it came."""
        self.seen: set[int] = set()
        """MessageIDs of the others."""

    def take(self, sequence: int, number: int, previous: int, message_id: int) -> bool:
        """Judge a transactional message; True: it is here now, or was before."""
        is_next = sequence == self.sequence and previous <= self.number < number
        if is_next or (sequence > self.sequence and previous == 0):
            if message_id in self.accepted:
                raise Violation(f"{message_id} is sent as {sequence}/{number} and was accepted")
            self.sequence, self.number = sequence, number
            self.accepted[message_id] = (sequence, number)
        return self.accepted.get(message_id) == (sequence, number)


class Sending:
    """Sends what outgoing queues hold, and tells apply what became of it."""

    def __init__(self, users: QueueClients) -> None:
        self._users = users
        self._chance = users.chance
        self.far = Far()

    def run(self) -> Script:
        """Send forever."""
        while True:
            machine = self._users.some_machine()
            queues = [] if machine is None else list_outgoing_queues(machine.machine.view).items
            if not queues:
                yield []
                continue
            yield from self._serve(self._chance.choice(queues))

    def _messages(self, queue_id: int) -> list[OutgoingMessage]:
        machine = self._users.some_machine()
        if machine is None:
            return []
        count = self._chance.choice((1, 5, 50))
        return outgoing_messages(machine.machine.view, queue_id, limit=count).items

    def _serve(self, queue: OutgoingQueueInfo) -> Asking:
        keys = [one.position.lookup_identifier for one in self._messages(queue.queue_id)]
        if not keys:
            yield [commands.RemoveOutgoingQueue(queue.queue_id)]
            return
        if self._chance.random() < 0.1:
            failed = array("Q", self._chance.sample(keys, 1))
            reason = MessageClass.NACK_REACH_QUEUE_TIMEOUT
            yield [commands.TransferFailed(queue.queue_id, failed, reason)]
        (answer,) = yield [commands.AssignTransfer(queue.queue_id, array("Q", keys))]
        numbered = {row[0]: row[1:] for row in answer.value or ()}
        arrived = self._send(queue.queue_id, numbered)
        if self._chance.random() < 0.2:
            return  # the connection broke: nothing of it is known
        yield [commands.TransferAcked(queue.queue_id, array("Q", arrived))]
        if self._chance.random() < 0.7:
            yield [
                commands.OrderAcked(array("Q", [self.far.sequence]), array("Q", [self.far.number]))
            ]
        yield from self._final_acks()

    def _send(self, queue_id: int, numbered: dict[int, tuple[int, int, int]]) -> list[int]:
        """Offer messages in their order; return the keys of those that the far side has."""
        arrived = []
        previous = 0
        for one in self._messages(queue_id):
            position = one.position
            key, message_id = position.lookup_identifier, position.message_ordinal
            if not position.flags & PositionFlag.TRANSACTIONAL:
                self.far.seen.add(message_id)
                arrived.append(key)
            elif key in numbered:
                sequence, number, _ = numbered[key]
                is_running = sequence == self.far.sequence
                previous = max(previous, self.far.number) if is_running else previous
                if number <= previous and is_running:
                    previous = 0
                if self.far.take(sequence, number, min(previous, number - 1), message_id):
                    arrived.append(key)
                previous = number
        return arrived

    def _final_acks(self) -> Asking:
        for message_id in self._chance.sample(
            sorted(self.far.accepted), min(2, len(self.far.accepted))
        ):
            end = _ENDS[message_id % len(_ENDS)]
            yield [commands.FinalAcked(array("Q", [message_id]), array("Q", [end]))]

    def check(self, delivered: set[int]) -> None:
        """What apply calls delivered did arrive."""
        missing = delivered - self.far.seen - set(self.far.accepted)
        if missing:
            raise Violation(f"{sorted(missing)[:4]} are called delivered and never arrived")
