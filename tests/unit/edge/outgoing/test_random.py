"""Random events in any order: each message arrives once, transactional ones in order."""

from __future__ import annotations

import random

import pytest

from qm.model.values import commands
from qm.model.values.elements import OutgoingAdminState
from tests.unit.edge.outgoing.world import Peer, SendingCluster, one_peer, run, settled, until
from tests.unit.model.world import request

HOST = "127.0.0.50"
STEPS = 40


class Chance:
    """What happens to one sending cluster and its peer."""

    def __init__(self, seed: int, cluster: SendingCluster, peer: Peer) -> None:
        self.random = random.Random(seed)
        self.cluster = cluster
        self.peer = peer
        self.queue = 0
        self.transactional: list[int] = []
        self.others: list[int] = []

    def send(self) -> None:
        count = self.random.choice((1, 5, 70))
        first = len(self.cluster.world.bodies)
        is_transactional = self.random.random() < 0.6
        numbers = range(first, first + count)
        if is_transactional:
            self.queue = self.cluster.send(self.peer.address, count, is_transactional=True)
            self.transactional += numbers
            return
        self.queue = self.cluster.send(
            self.peer.address,
            count,
            is_recoverable=self.random.random() < 0.5,
            priority=self.random.randrange(8),
        )
        self.others += numbers

    def set_admin_state(self, state: OutgoingAdminState) -> None:
        if self.queue:
            command = commands.SetOutgoingAdminState(request(), self.queue, state, ())
            self.cluster.world.one(command)

    def step(self) -> None:
        cluster, peer, world = self.cluster, self.peer, self.cluster.world
        match self.random.randrange(12):
            case 0 | 1 | 2:
                self.send()
            case 3:
                peer.cut()
            case 4:
                cluster.lead(self.random.choice(("n1", "n2", None)))
            case 5:
                world.is_available = not world.is_available
            case 6:
                if world.is_committing.is_set():
                    world.is_committing.clear()
                else:
                    world.is_committing.set()
            case 7:
                peer.is_order_acking = not peer.is_order_acking
            case 8:
                peer.is_acknowledging = not peer.is_acknowledging
            case 9:
                cluster.advance(self.random.choice((0.6, 5.1, 31)))
            case 10:
                self.set_admin_state(self.random.choice(list(OutgoingAdminState)[:2]))
            case 11:
                peer.send_order_ack()

    def heal(self) -> None:
        """From now on nothing bad happens."""
        self.cluster.world.is_available = True
        self.cluster.world.is_committing.set()
        self.peer.is_order_acking = True
        self.peer.acknowledge()
        self.set_admin_state(OutgoingAdminState.NORMAL)
        self.cluster.lead("n1")


@pytest.mark.parametrize("seed", range(25))
def test_each_message_arrives_once_and_transactional_ones_in_order(seed: int) -> None:
    async def scenario() -> None:
        async with one_peer(HOST) as (peer, cluster):
            chance = Chance(seed, cluster, peer)
            for _ in range(STEPS):
                chance.step()
                await settled(chance.random.choice((0, 4, 30)))
            chance.heal()
            for _ in range(12):
                await settled()
                cluster.advance(31)
            await until(
                lambda: not cluster.waiting(chance.queue),
                lambda: (cluster.waiting(chance.queue), cluster.manager.report(chance.queue)),
            )
            sequence = [
                int(one.properties.message_body)
                for one in peer.taken
                if one.transaction is not None
            ]
            assert sequence == chance.transactional
            others = set(chance.others)
            assert sorted(number for number in peer.bodies if number in others) == chance.others
            assert not cluster.dead_letters()
            assert not cluster.dead_letters(is_transactional=True)

    run(scenario())
