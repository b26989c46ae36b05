"""What is sent next, where a peer sees it [MS-MQDMPR 3.1.1.18, 3.1.7.1.28 to .34, 3.1.7.3.9]."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from qm.edge.outgoing.link.send_order import SendOrder
from qm.edge.outgoing.link.user import User
from qm.model import queries
from qm.model.queries import View
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import OutgoingAdminState
from qm.wire.codes import ErrorCode
from tests.unit.edge.outgoing.world import (
    TRANSACTIONAL,
    Peer,
    SendingCluster,
    free_port,
    run,
    settled,
    until,
)
from tests.unit.model.world import packet, request

HOST = "127.0.0.50"


def name(queue: str) -> str:
    return f"DIRECT=TCP:{HOST}\\{queue}"


def set_base_priority(cluster: SendingCluster, queue: int, priority: int) -> int:
    changes = {"base_priority": encode_attribute(priority)}
    return cluster.world.one(commands.SetQueue(request(), queue, changes, ())).status


def set_state(cluster: SendingCluster, queue: int, state: OutgoingAdminState) -> None:
    cluster.world.one(commands.SetOutgoingAdminState(request(), queue, state, ()))


@pytest.mark.spec("DM-3.1.1.18-01")
def test_whose_next_message_changes_has_the_turn_of_its_priority() -> None:
    one, two, three = users = [SimpleNamespace(number=n, priority=3) for n in range(3)]
    order = SendOrder()

    def add(*some: SimpleNamespace) -> None:
        for user in some:
            order.add(cast("User", user))

    add(*users)
    three.priority, one.priority = 7, 0
    add(three, one, two)
    assert [order.take().number for _ in users] == [2, 1, 0]
    assert not order, "each once"


@pytest.mark.spec(
    "DM-3.1.1.18-01", "DM-3.1.7.1.28-01", "DM-3.1.1.2-13", "DM-3.1.7.3.9-01", "DM-3.1.7.3.9-02"
)
def test_the_highest_priority_leaves_first_whatever_its_queue() -> None:
    """Priority is Queue.BasePriority + Message.Priority; oldest first among equals (DM-A35)."""

    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.lead(None)
            one, two = name("one"), name("two")
            sent = [
                (one, 0, 3), (one, 0, 7), (one, 0, 3), (two, 5, 0), (one, 0, 0), (two, 5, 6),
                (two, 5, 2), (one, 0, 7),
            ]  # fmt: skip
            for number, (destination, base, priority) in enumerate(sent):
                queue = cluster.send(destination, priority=priority)
                assert len(cluster.world.bodies) == number + 1
                assert set_base_priority(cluster, queue, base) == 0
            cluster.lead("n1")
            await until(lambda: len(peer.taken) == len(sent), lambda: peer.bodies)
            # 11 = 5 + 6; then 7 three times, queue by queue; then 5, 3, 3 and 0.
            assert peer.bodies == [5, 1, 7, 6, 3, 0, 2, 4]
            assert len(peer.raw) == len(sent), "one at a time, each once"
            assert cluster.metric("quorate_sessions", role="initiator") == 1
            # One that is set while a session has no room counts for what waits already.
            peer.is_acknowledging = False
            cluster.send(name("three"), 64)
            await until(lambda: len(peer.raw) == len(sent) + 64)
            cluster.send(two)
            queue = cluster.send(one)
            assert set_base_priority(cluster, queue, 7) == 0
            await settled()
            peer.is_acknowledging = True
            peer.acknowledge()
            await until(lambda: len(peer.taken) == len(sent) + 66, lambda: peer.bodies)
            assert peer.bodies[-2:] == [73, 72]

    run(scenario())


@pytest.mark.spec("QB-3.1.7.13-01")
def test_a_peer_sees_a_window_of_one_when_all_that_is_for_it_is_held() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            queues = [cluster.send(name(one)) for one in ("one", "two")]
            await until(lambda: not any(map(cluster.waiting, queues)))
            (connection,) = peer.connections
            assert connection.session.room > 1
            set_state(cluster, queues[0], OutgoingAdminState.ON_HOLD)
            await settled()
            assert connection.session.room > 1
            set_state(cluster, queues[1], OutgoingAdminState.ON_HOLD)
            await until(lambda: connection.session.room == 1)
            assert peer.connections == [connection]

    run(scenario())


@pytest.mark.spec("DM-3.1.7.3.9-02", "DM-3.1.7.3.9-03", "DM-3.1.7.1.28-02", "DM-3.1.7.1.29-01")
def test_what_is_deleted_or_held_is_passed_over() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.lead(None)
            gone = cluster.send(name("gone"), 2, priority=7)
            held = cluster.send(name("held"), 2, priority=6)
            ready = cluster.send(name("ready"), 2, priority=1)
            cluster.world.one(commands.PurgeQueue(request(), gone, ()))
            set_state(cluster, held, OutgoingAdminState.ON_HOLD)
            cluster.lead("n1")
            await until(lambda: not cluster.waiting(ready))
            await settled()
            assert peer.bodies == [4, 5]
            assert cluster.waiting(held) == 2
            # What is added is sent without being asked for, after others were taken out.
            cluster.send(name("ready"))
            await until(lambda: not cluster.waiting(ready))
            set_state(cluster, held, OutgoingAdminState.NORMAL)
            await until(lambda: not cluster.waiting(held))
            assert peer.bodies == [4, 5, 6, 2, 3]

    run(scenario())


@pytest.mark.spec("DM-3.1.7.3.9-02")
def test_what_was_purged_or_is_not_committed_is_passed_over() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.lead(None)
            gone = cluster.send(name("gone"), 2, priority=7)
            cluster.world.one(commands.PurgeQueue(request(), gone, ()))
            assert cluster.waiting(gone) == 2, "its positions are still to be removed"
            cluster.send(name("gone"), priority=7)
            transaction = cluster.client.begin("open")
            raw = packet(0, body=b"3", sequence=TRANSACTIONAL)
            cluster.client.send(name("open"), raw=raw, transaction=transaction)
            ready = cluster.send(name("open"))
            cluster.lead("n1")
            await until(lambda: len(peer.taken) == 2, lambda: peer.bodies)
            await settled()
            assert peer.bodies == [2, 4]
            assert cluster.client.commit(transaction) == 0
            await until(lambda: not cluster.waiting(ready))
            assert peer.bodies == [2, 4, 3]

    run(scenario())


@pytest.mark.spec("DM-3.1.7.1.29-01")
def test_who_has_nothing_left_to_send_holds_nobody_up() -> None:
    """The messages of the first queue are taken out, since their time is over."""

    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.lead(None)
            late = cluster.send(name("late"), 2, priority=7, time_to_reach_queue=1)
            cluster.send(name("ready"), 2, priority=1)
            cluster.world.now_ms += 2_000
            cluster.lead("n1")
            # Nothing else moves: that they have ended is not committed yet.
            cluster.world.is_committing.clear()
            await until(lambda: len(peer.taken) == 2, lambda: peer.bodies)
            await settled()
            assert peer.bodies == [2, 3]
            assert cluster.waiting(late) == 2
            cluster.world.is_committing.set()
            await until(lambda: not cluster.waiting(late))

    run(scenario())


@pytest.mark.spec("DM-3.1.1.3-04", "DM-3.1.3-18", "DM-3.1.3-19", "QB-3.1.7.12-01")
def test_a_locked_queue_transfers_nothing_until_it_is_unlocked() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.lead(None)
            queue = cluster.send(name("here"), 2)
            harden(cluster, is_hardened=True)
            cluster.lead("n1")
            await settled()
            assert (peer.raw, cluster.waiting(queue)) == ([], 2)
            assert state(cluster, queue) is OutgoingAdminState.LOCKED
            # A leader that begins finds it locked, and unlocks it if it need not be.
            harden(cluster, is_hardened=False)
            cluster.lead("n2")
            await until(lambda: not cluster.waiting(queue), lambda: cluster.waiting(queue))
            assert peer.bodies == [0, 1]

    run(scenario())


def harden(cluster: SendingCluster, *, is_hardened: bool) -> None:
    changes = {"hardened_security": encode_attribute(is_hardened)}
    assert cluster.world.one(commands.SetQueueManager(request(), changes, ())).status == 0


def state(cluster: SendingCluster, queue: int) -> OutgoingAdminState:
    found = queries.outgoing_queue(View.of(cluster.world.state), queue)
    assert found is not None
    return found.admin_state


@pytest.mark.spec("DM-3.1.7.1.34-01")
def test_holding_a_queue_takes_all_of_it_out_and_nothing_of_others() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            peer.is_acknowledging = False
            first = cluster.send(name("first"), 100, priority=5)
            await until(lambda: len(peer.raw) == 64, lambda: len(peer.raw))
            second = cluster.send(name("second"), 10)
            set_state(cluster, first, OutgoingAdminState.ON_HOLD)
            peer.acknowledge()
            await until(lambda: not cluster.waiting(second), lambda: cluster.waiting(second))
            await settled()
            assert cluster.waiting(first) == 36
            assert peer.bodies == [*range(64), *range(100, 110)]
            set_state(cluster, first, OutgoingAdminState.NORMAL)
            await until(lambda: not cluster.waiting(first))
            assert sorted(peer.bodies) == list(range(110))

    run(scenario())


def test_nothing_else_of_an_outgoing_queue_can_be_set() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with SendingCluster(port) as cluster:
            queue = cluster.send(name("q"))
            changes = {"label": encode_attribute("x")}
            refused = cluster.world.one(commands.SetQueue(request(), queue, changes, ()))
            assert refused.status == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
            too_high = set_base_priority(cluster, queue, 1 << 15)
            assert too_high == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE

    run(scenario())
