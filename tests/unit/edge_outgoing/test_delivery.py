"""Messages leave, arrive once and in order, and are gone when their peer has them."""

from __future__ import annotations

from tests.unit.edge_outgoing.world import Peer, SendingCluster, free_port, run, until

HOST = "127.0.0.41"


def test_express_recoverable_and_transactional_messages_arrive() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            queue = cluster.send(peer.address, 40)
            cluster.send(peer.address, 40, is_recoverable=True)
            cluster.send(peer.address, 40, is_transactional=True)
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert sorted(peer.bodies) == list(range(120))
            assert len(peer.raw) == 120
            assert peer.established == 1
            transactional = [m for m in peer.taken if m.transaction is not None]
            assert [m.transaction.tx_sequence_number for m in transactional if m.transaction] == (
                list(range(1, 41))
            )

    run(scenario())
