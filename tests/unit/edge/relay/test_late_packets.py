"""Order and final acks that the leader sends over an edge's sessions."""

from __future__ import annotations

from unittest import mock

from qm.cluster.relay import LatePackets
from qm.session import SessionConfig
from qm.wire.packets.packet import write_packet
from tests.unit.edge.world import ADDRESS, PEER, packet, run, until, world
from tests.unit.session.builders import order_ack


def acks(count: int) -> list[bytes]:
    return [write_packet(order_ack(number, PEER)) for number in range(1, count + 1)]


def test_they_are_sent_and_reported_when_the_peer_has_them() -> None:
    async def scenario() -> None:
        async with world() as w:
            peer = await w.peer()
            (stream,) = w.consensus.streams
            (session,) = stream.sessions.values()
            assert (session.queue_manager, session.address) == (PEER, ADDRESS)
            w.consensus.send_late([71, 72, 73], acks(3))
            await until(lambda: len(w.consensus.late) == 3, lambda: w.consensus.late)
            assert w.consensus.late == [(71, True), (72, True), (73, True)]
            assert len(peer.order_acks) == 3
            assert w.metric("quorate_late_packets_total", result="delivered") == 3

    run(scenario())


def test_they_come_back_when_the_session_ends() -> None:
    async def scenario() -> None:
        async with world() as w:
            peer = await w.peer(config=SessionConfig(window_size=1))
            w.consensus.create("orders")
            peer.is_committing = False
            w.consensus.send_late([71, 72], acks(2))
            await until(lambda: len(peer.order_acks) == 1, lambda: peer.order_acks)
            peer.transport.abort()
            await until(lambda: len(w.consensus.late) == 2, lambda: w.consensus.late)
            assert w.consensus.late == [(71, False), (72, False)]
            (stream,) = w.consensus.streams
            assert stream.sessions == {}

    run(scenario())


def test_they_come_back_when_there_is_no_such_session_or_they_are_no_packets() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.peer()
            w.consensus.send_late([71], [b"nonsense"])
            (stream,) = w.consensus.streams
            stream.events.on_late_packets(LatePackets(99, (72,), (acks(1)[0],)))
            assert w.consensus.late == [(71, False), (72, False)]
            many = [write_packet(order_ack(1, PEER))] * 1025
            w.consensus.send_late(range(100, 1125), many)
            assert len(w.consensus.late) == 2 + 1025
            assert w.metric("quorate_late_packets_total", result="undelivered") == 2 + 1025

    run(scenario())


def test_a_new_leader_hears_nothing_of_the_old_ones() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            peer = await w.peer()
            peer.is_committing = False
            w.consensus.send_late([71], acks(1))
            await until(lambda: len(peer.order_acks) == 1)
            w.consensus.lose_leader()
            w.consensus.elect("n2")
            (stream,) = w.consensus.streams
            assert [s.queue_manager for s in stream.sessions.values()] == [PEER]
            w.consensus.send_late([71], acks(2)[1:])
            await until(lambda: len(peer.order_acks) == 2)
            peer.session.commit(1)  # the old leader's only
            peer.send(packet(1))
            await peer.acknowledged(1)
            assert w.consensus.late == []
            peer.session.commit(2)
            peer.send(packet(2))
            await peer.acknowledged(1, 2)
            await until(lambda: w.consensus.late == [(71, True)], lambda: w.consensus.late)

    run(scenario())


def test_a_new_leader_hears_of_the_newest_sessions_first() -> None:
    async def scenario() -> None:
        async with world() as w:
            began_ms = w.consensus.now_ms
            for second in range(3):
                w.consensus.now_ms = began_ms + 1_000 * second
                await w.peer()
            w.consensus.lose_leader()
            w.consensus.elect("n2")
            (stream,) = w.consensus.streams
            opened = [facts.opened_ms - began_ms for facts in stream.sessions.values()]
            assert opened == [2_000, 1_000, 0]

    run(scenario())


def test_a_session_that_opens_is_held_only_while_too_much_waits() -> None:
    async def scenario() -> None:
        async with world() as w:
            owner = mock.Mock()
            intake = w.edge.relay.open_intake(owner, PEER, ADDRESS)
            assert not owner.hold.called
            intake.close([])

    run(scenario())
