"""The crash points of guide 6.4 at the edge: the peer returns and sends again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.edge.test_arrivals import order_ack_of, sent_transactionally
from tests.unit.edge.world import Peer, World, packet, run, until, world


def messages() -> list[bytes]:
    """Express, recoverable and transactional ones."""
    return [
        packet(1),
        packet(2, is_recoverable=True),
        packet(3, to="tx", sequence=(1, 1, 0)),
        packet(4, to="tx", sequence=(1, 2, 1)),
    ]


async def send_into(w: World, peer: Peer) -> None:
    """Send, and wait until the edge has handed everything over."""
    peer.send(*messages())
    size = sum(map(len, messages()))
    await until(lambda: w.edge.held_bytes == size, lambda: w.edge.held_bytes)


Crash = Callable[[World], None]


def before_proposing(w: World) -> None:
    """The batch is read and nothing else."""


def before_committing(w: World) -> None:
    """Proposed; the entry is lost with the leader."""
    w.consensus.lose_leader()
    w.consensus.elect("n2")


def before_knowing(w: World) -> None:
    """Committed; the answer is lost with the leader."""
    w.consensus.apply_unanswered()
    w.consensus.lose_leader()
    w.consensus.elect("n2")


@pytest.mark.parametrize("crash", [before_proposing, before_committing, before_knowing])
@pytest.mark.parametrize("edge_dies", [True, False], ids=["edge dies too", "edge lives"])
def test_every_message_is_delivered_once(crash: Crash, edge_dies: bool) -> None:
    async def scenario() -> None:
        async with world() as w:
            orders = w.consensus.create("orders")
            tx = w.consensus.create("tx", transactional=True)
            w.consensus.is_working = False
            w.consensus.has_no_room = crash is before_proposing
            peer = await w.peer()
            await send_into(w, peer)
            w.consensus.is_working = not edge_dies
            crash(w)
            w.consensus.has_no_room = False
            if edge_dies:
                await w.restart_edge()
                await until(lambda: peer.is_gone)
                assert peer.acked == []
                w.consensus.is_working = True
                peer = await w.peer()
                peer.send(*messages())
            elif crash is before_proposing:
                w.consensus.elect("n2")
            await peer.acknowledged(1, 2, 3, 4)
            assert w.consensus.ids(orders) == [1, 2]
            assert w.consensus.ids(tx) == [3, 4]

    run(scenario())


def test_committed_before_the_session_ack_is_written() -> None:
    async def scenario() -> None:
        async with world() as w:
            orders = w.consensus.create("orders")
            tx = w.consensus.create("tx", transactional=True)
            w.consensus.is_working = False
            peer = await w.peer()
            await send_into(w, peer)
            peer.transport.abort()  # before the answer comes
            await w.closed("disconnected")
            w.consensus.is_working = True
            w.consensus.work()
            again = await w.peer()
            again.send(*messages())
            await again.acknowledged(1, 2, 3, 4)
            assert w.consensus.ids(orders) == [1, 2]
            assert w.consensus.ids(tx) == [3, 4]
            assert w.metric("quorate_messages_arrived_total", verdict="duplicate") == 4

    run(scenario())


def test_an_order_ack_that_is_not_committed_is_not_acknowledged() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue, sequence, _ = sent_transactionally(w.consensus)
            w.consensus.is_working = False
            peer = await w.peer()
            peer.send(order_ack_of(sequence, 1), first_token=1)
            await until(lambda: w.consensus.batches == 1)
            await w.restart_edge()
            await until(lambda: peer.is_gone)
            assert peer.acked == []
            assert len(w.consensus.positions(queue)) == 1
            w.consensus.is_working = True
            again = await w.peer()
            again.send(order_ack_of(sequence, 1), first_token=1)
            await again.acknowledged(1)
            assert w.consensus.positions(queue) == []

    run(scenario())
