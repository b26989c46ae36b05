"""The crash points of guide section 6.4 as far as they concern a session.

In each the leader behind one side dies at a named moment; the sessions of its outgoing queues end
with it, those of arriving messages need not (DESIGN section 7), and nothing may be lost or doubled.
"""

from __future__ import annotations

import pytest

from qm.session import KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL, SessionState
from qm.wire.packets.ack import OrderAck
from tests.unit.session.world import World

KINDS = (KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL)


def sent(*kinds: int) -> World:
    """A world in which `a` has sent these and `b` has received the bytes."""
    world = World()
    world.connect()
    for kind in kinds:
        world.a.send(kind)
    world.a.flush()
    world.carry(world.a, len(world.a.to_wire))
    assert len(world.b.arrived) == len(kinds)
    return world


def finish(world: World) -> None:
    world.settle()
    world.check_delivery()


def test_bytes_read_before_propose() -> None:
    world = sent(*KINDS)
    world.b.arrived.clear()
    assert world.b.have == []
    world.connect()
    finish(world)


@pytest.mark.parametrize("is_committed", [False, True])
def test_proposed_before_the_commit_is_known(is_committed: bool) -> None:
    world = sent(*KINDS)
    if is_committed:
        world.b.commit(3)
    # Whichever way the entry went, no acknowledgement was written.
    world.connect()
    finish(world)


def test_the_entry_of_the_old_term_commits_after_the_resend_arrived() -> None:
    world = sent(*KINDS)
    in_doubt = list(world.b.arrived)
    world.connect()
    world.a.flush()
    world.carry(world.a, len(world.a.to_wire))
    resent = list(world.b.arrived)
    assert len(resent) == 3
    world.b.arrived = in_doubt
    for position, arrival in in_doubt:
        world.b._apply(arrival)
        assert position <= 3
    world.b.arrived = resent
    finish(world)


def test_committed_before_session_ack_is_written() -> None:
    world = sent(*KINDS)
    world.b.commit(3)
    assert len(world.b.have) == 3
    world.connect()
    finish(world)


def test_session_ack_sent_before_order_ack() -> None:
    world = sent(KIND_TRANSACTIONAL, KIND_TRANSACTIONAL)
    world.b.commit(2)
    world.b.order_ack_due = False
    world.b.flush()
    world.carry(world.b, len(world.b.to_wire))
    assert not world.a.is_settled
    # Nothing but the resend interval makes the peer ask again; it does so with the same numbers.
    world.wait(29.0)
    world.a.flush()
    assert not world.a.to_wire
    world.wait(1.0)
    world.a.flush()
    assert world.a.to_wire
    finish(world)


def test_order_ack_in_flight_is_lost() -> None:
    world = sent(KIND_TRANSACTIONAL)
    world.b.commit(1)
    world.b.flush()
    assert not world.b.order_ack_due
    world.connect()
    finish(world)


def test_order_ack_received_before_commit() -> None:
    world = sent(KIND_TRANSACTIONAL)
    world.b.commit(1)
    world.b.flush()
    world.carry(world.b, len(world.b.to_wire))
    assert any(isinstance(arrival, OrderAck) for _, arrival in world.a.arrived)
    session = world.b.session
    assert session is not None
    # It was not committed, so it was not session-acked: it is still the peer's to send.
    world.a.flush()
    world.carry(world.a, len(world.a.to_wire))
    assert session.in_flight == 1
    world.a.arrived.clear()
    world.connect()
    finish(world)


def test_numbered_and_committed_before_the_first_byte() -> None:
    world = World()
    world.connect()
    for _ in range(3):
        world.a.send(KIND_TRANSACTIONAL)
    numbers = dict(world.a.numbers)
    world.disconnect()
    world.a.start_leading()
    finish(world)
    assert world.a.numbers == numbers
    assert world.b.last_number == 3


def test_sent_before_order_ack_by_a_leader_that_died() -> None:
    world = sent(KIND_TRANSACTIONAL, KIND_TRANSACTIONAL)
    world.b.commit(1)
    world.disconnect()
    world.a.start_leading()
    world.a.send(KIND_TRANSACTIONAL)
    finish(world)
    assert world.b.last_number == 3


def test_a_peer_of_a_surviving_edge_sees_late_acknowledgements_and_nothing_else() -> None:
    world = sent(*KINDS)
    session = world.b.session
    assert session is not None
    # The leader behind `b` is gone; its edge keeps the arrivals and waits for another one.
    for _ in range(4):
        world.wait(1.0)
        for node in world.nodes:
            node.flush()
            world.carry(node, len(node.to_wire))
    assert session.state is SessionState.OPEN
    assert session.uncommitted == 3
    world.a.send(KIND_RECOVERABLE)
    world.a.flush()
    world.carry(world.a, len(world.a.to_wire))
    # The new leader takes the batch: same session, same counters.
    world.b.commit(4)
    world.b.flush()
    world.carry(world.b, len(world.b.to_wire))
    assert world.b.session is session
    assert world.a.session is not None
    assert world.a.session.in_flight == 0
    finish(world)
