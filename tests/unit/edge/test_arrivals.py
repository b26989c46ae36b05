"""Messages of peers, from the socket to the queue and back as acknowledgements."""

from __future__ import annotations

from tests.unit.edge.world import packet, run, world


def test_messages_are_stored_in_order_and_acknowledged() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(*[packet(number, is_recoverable=True) for number in range(1, 101)])
            await peer.acknowledged(*range(1, 101))
            assert w.consensus.ids(queue) == list(range(1, 101))
            assert w.metric("quorate_messages_arrived_total", verdict="accepted") == 100
            assert w.metric("quorate_sessions", role="acceptor") == 1

    run(scenario())
