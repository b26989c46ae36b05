"""The leader goes, another comes; peers notice nothing but delay (DESIGN 1.4 and section 7)."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from qm.edge.edge import NO_LEADER
from qm.session import CloseReason
from tests.unit.edge.world import (
    OTHER,
    Consensus,
    World,
    make_edge,
    packet,
    run,
    until,
    world,
)


async def unanswered(w: World, *, batches: int) -> None:
    """Wait until this many batches are on their way."""
    streams = w.consensus.streams
    await until(lambda: sum(len(s.sent) for s in streams) == batches, lambda: w.consensus.batches)


@pytest.mark.spec("QB-3.1.5.8.8-03")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_what_cannot_be_stored_ends_its_session_and_is_taken_from_the_next(
    is_transactional: bool,
) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders", transactional=is_transactional)
            messages = [
                packet(n, sequence=(1, n, n - 1) if is_transactional else None) for n in (1, 2)
            ]
            w.consensus.set_manager(queue_manager_quota=0)
            peer = await w.peer()
            peer.send(*messages)
            await w.closed("queue_manager_quota")
            await until(lambda: peer.is_gone)
            assert w.consensus.ids(queue) == []
            w.consensus.set_manager(queue_manager_quota=1000)
            again = await w.peer()
            again.send(*messages)
            await again.acknowledged(1, 2)
            assert w.consensus.ids(queue) == [1, 2]

    run(scenario())


@pytest.mark.parametrize("applied", [0, 1, 2], ids="{} applied".format)
def test_what_has_no_outcome_goes_to_the_next_leader(applied: int) -> None:
    async def scenario() -> None:
        async with world() as w:
            orders, tx = w.consensus.create("orders"), w.consensus.create("tx", transactional=True)
            peer = await w.peer()
            port = peer.transport.get_extra_info("sockname")
            peer.send(packet(1))
            await peer.acknowledged(1)
            w.consensus.is_working = False
            peer.send(packet(2), packet(3, to="tx", sequence=(1, 1, 0)))
            await unanswered(w, batches=1)
            peer.send(packet(4, to="tx", sequence=(1, 2, 1)), packet(5))
            await unanswered(w, batches=2)
            w.consensus.apply_unanswered(applied)
            w.consensus.lose_leader()
            peer.send(packet(6))
            w.consensus.elect("n2")
            w.consensus.is_working = True
            w.consensus.work()
            await peer.acknowledged(1, 2, 3, 4, 5, 6)
            assert w.consensus.ids(orders) == [1, 2, 5, 6]
            assert w.consensus.ids(tx) == [3, 4]
            assert peer.closed is None
            assert peer.transport.get_extra_info("sockname") == port
            duplicates = w.metric("quorate_messages_arrived_total", verdict="duplicate")
            assert duplicates == 2 * applied

    run(scenario())


def test_a_new_term_of_the_same_leader_ends_the_stream() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            w.consensus.is_working = False
            peer.send(packet(1))
            await unanswered(w, batches=1)
            (stale,) = w.consensus.streams
            w.consensus.elect("n1")
            (fresh,) = w.consensus.streams
            assert fresh is not stale
            w.consensus.is_working = True
            w.consensus.work()
            await peer.acknowledged(1)
            assert w.consensus.ids(queue) == [1]
            assert w.metric("quorate_relay_streams_ended_total", reason="new_term") == 1

    run(scenario())


def test_batches_of_closed_sessions_are_left_out() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer, other = await w.peer(), await w.peer(OTHER)
            w.consensus.is_working = False
            peer.send(packet(1))
            other.send(packet(2, source_queue_manager=OTHER))
            await until(lambda: w.edge.held_bytes == 2 * len(packet(1)))
            other.transport.abort()
            await w.closed("disconnected")
            w.consensus.lose_leader()
            w.consensus.is_working = True
            w.consensus.elect("n2")
            await peer.acknowledged(1)
            assert w.consensus.ids(queue) == [1]
            assert w.edge.held_bytes == 0

    run(scenario())


def test_without_a_leader_sessions_end_and_nobody_is_accepted() -> None:
    async def scenario() -> None:
        async with world(no_leader_max_s=0.1) as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            w.consensus.lose_leader()
            peer.send(packet(1))
            assert w.edge.not_ready_reason(0.0) == NO_LEADER
            await w.closed("no_leader")
            assert w.edge.not_ready_reason() == NO_LEADER
            await until(lambda: peer.is_gone)
            host, port = w.edge.endpoints[0]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, port)
            assert w.edge.held_bytes == 0
            w.consensus.elect("n2")
            await until(lambda: w.edge.is_ready, w.edge.not_ready_reason)
            assert w.edge.endpoints == [(host, port)]
            await w.is_unharmed(queue)

    run(scenario())


def test_an_edge_says_why_from_the_moment_on_at_which_it_gives_up() -> None:
    """A loop's clock counts milliseconds: their difference may be a hair less than the time set."""

    async def scenario() -> None:
        async with world(no_leader_max_s=0.01) as w:
            for cycle in range(1, 31):
                await w.peer()
                w.consensus.lose_leader()
                await w.closed("no_leader", cycle, pause_s=0.0)
                assert w.edge.not_ready_reason() == NO_LEADER
                w.consensus.elect("n2")
                await until(lambda: w.edge.is_ready, w.edge.not_ready_reason)

    run(scenario())


def test_an_edge_stays_ready_while_a_leaders_successor_is_awaited() -> None:
    async def scenario() -> None:
        async with world(no_leader_max_s=30.0) as w:
            assert w.edge.not_ready_reason(0.0) is None
            for leader in ("n2", "n3"):
                w.consensus.lose_leader()
                assert w.edge.not_ready_reason() is None
                # A front end that moves an address asks for less patience.
                assert w.edge.not_ready_reason(0.0) == NO_LEADER
                assert w.edge.not_ready_reason(29.0) is None
                w.consensus.elect(leader)
                await until(lambda: w.edge.not_ready_reason(0.0) is None)

    run(scenario())


def test_each_loss_of_a_leader_has_its_own_time() -> None:
    async def scenario() -> None:
        async with world(no_leader_max_s=0.2) as w:
            await w.peer()
            clock = asyncio.get_running_loop().time
            w.consensus.lose_leader()
            began = clock()
            w.consensus.elect("n2")
            await until(lambda: clock() > began + 0.1)
            w.consensus.lose_leader()
            again = clock()
            await w.closed("no_leader")
            assert round(clock() - again, 3) >= 0.2  # the clock counts milliseconds

    run(scenario())


def test_an_edge_that_never_had_a_leader_is_not_ready() -> None:
    async def scenario() -> None:
        consensus = Consensus()
        consensus.leader = None
        consensus.provision()
        edge = make_edge(consensus, CollectorRegistry())
        await edge.start()
        assert edge.not_ready_reason() == NO_LEADER
        await edge.stop()

    run(scenario())


async def accepts(host: str, port: int) -> bool:
    """Whether a connection can be made."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


@pytest.mark.spec("DM-3.1.1.1-19", "DM-3.1.4.12-01", "DM-3.1.4.13-01")
def test_a_queue_manager_that_is_taken_offline_receives_from_nobody() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            host, port = w.edge.endpoints[0]
            w.consensus.set_manager(connection_active=False)
            await w.closed("stopped")
            await until(lambda: peer.is_gone)
            while await accepts(host, port):
                pass
            assert w.edge.is_ready, w.edge.not_ready_reason()
            # A change of leader does not bring it back.
            w.consensus.elect("n2")
            await until(lambda: w.edge.relay.is_connected)
            assert not await accepts(host, port)
            w.consensus.set_manager(connection_active=True)
            while not await accepts(host, port):
                pass
            await w.is_unharmed(queue)

    run(scenario())


@pytest.mark.parametrize("is_long", [False, True], ids=["for a moment", "for long"])
def test_a_node_cut_off_from_the_leader(is_long: bool) -> None:
    """Its stream stays open; sessions do not stay forever."""

    async def scenario() -> None:
        async with world(no_leader_max_s=0.1 if is_long else 30.0) as w:
            queue = w.consensus.create("orders")
            w.consensus.elect("n2")
            peer = await w.peer()
            w.consensus.lose_contact()
            peer.send(packet(1))
            await unanswered(w, batches=1)
            assert w.edge.not_ready_reason(0.0) == NO_LEADER
            if is_long:
                await w.closed("no_leader")
                await until(lambda: peer.is_gone)
            w.consensus.regain_contact()
            await until(lambda: w.edge.is_ready, w.edge.not_ready_reason)
            if is_long:
                peer = await w.peer()
                peer.send(packet(1))
            await peer.acknowledged(1)
            assert w.consensus.ids(queue) == [1]

    run(scenario())


def test_a_leader_in_time_keeps_every_session() -> None:
    async def scenario() -> None:
        async with world(no_leader_max_s=0.5) as w:
            w.consensus.create("orders")
            peer = await w.peer()
            w.consensus.lose_leader()
            idle = await w.peer(OTHER)  # sessions open without a leader, too
            w.consensus.elect("n2")
            started = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() > started + 0.7)
            peer.send(packet(1))
            await peer.acknowledged(1)
            assert peer.closed is None
            assert idle.closed is None

    run(scenario())


def test_an_outcome_that_is_not_the_next_is_not_believed() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            w.consensus.is_working = False
            peer.send(packet(1))
            await unanswered(w, batches=1)
            (stream,) = w.consensus.streams
            number, payload = stream.sent.popleft()
            stream.sent.append((number + 1, payload))
            w.consensus.work()
            w.consensus.is_working = True
            await peer.acknowledged(1)
            assert w.consensus.ids(queue) == [1]
            assert w.metric("quorate_relay_streams_ended_total", reason="lost") == 1

    run(scenario())


def test_before_birth_nobody_is_served() -> None:
    async def scenario() -> None:
        async with world(is_provisioned=False) as w:
            host, port = w.edge.endpoints[0]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, port)
            assert "no identity" in str(w.edge.not_ready_reason())
            w.consensus.provision()
            await until(lambda: w.edge.is_ready, w.edge.not_ready_reason)
            await w.is_unharmed(w.consensus.create("orders"))

    run(scenario())


def test_draining_acknowledges_what_was_read() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            peer = await w.peer()
            w.consensus.is_working = False
            peer.send(*[packet(n) for n in range(1, 11)])
            await unanswered(w, batches=1)
            draining = asyncio.create_task(w.edge.drain(10.0))
            await until(lambda: not w.edge.is_ready)
            w.consensus.is_working = True
            w.consensus.work()
            await draining
            await w.edge.stop()
            await until(lambda: peer.is_gone)
            assert peer.acked == list(range(1, 11)) == w.consensus.ids(queue)
            assert peer.closed is not None
            assert peer.closed.reason is CloseReason.DISCONNECTED
            assert w.metric("quorate_sessions_closed_total", reason="stopped") == 1

    run(scenario())


def test_acknowledgements_leave_marks_for_the_audit() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            peer = await w.peer()
            peer.send(packet(1), packet(2))
            await peer.acknowledged(1, 2)
            first = len(w.consensus.entries)
            peer.send(packet(3))
            await peer.acknowledged(1, 2, 3)
            last = len(w.consensus.entries)
            marks = w.edge.drain_ack_marks()
            assert [mark.acknowledged for mark in marks] == [2, 3]
            assert [mark.depends_on for mark in marks] == [first, last]
            assert all(mark.depends_on <= mark.commit_index for mark in marks)
            assert w.edge.drain_ack_marks() == []

    run(scenario())
