"""Two sessions back to back under delays, cuts, commit lag, closes and reconnects."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qm.session import KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL
from tests.unit.session.world import Node, World

SIDES = st.booleans()
KINDS = st.sampled_from([KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL])


class Pair(RuleBasedStateMachine):
    """Anything may happen between two honest queue managers; nothing may be lost or doubled."""

    world: World

    @initialize(window_a=st.integers(1, 40), window_b=st.integers(1, 40))
    def start(self, window_a: int, window_b: int) -> None:
        self.world = World(window_a, window_b)
        self.world.connect()

    def side(self, is_a: bool) -> Node:
        return self.world.a if is_a else self.world.b

    @rule(is_a=SIDES, kind=KINDS, count=st.integers(1, 20))
    def send(self, is_a: bool, kind: int, count: int) -> None:
        for _ in range(count):
            self.side(is_a).send(kind)

    @rule(is_a=SIDES)
    def flush(self, is_a: bool) -> None:
        self.side(is_a).flush()

    @rule(is_a=SIDES, count=st.integers(1, 4000))
    def carry(self, is_a: bool, count: int) -> None:
        node = self.side(is_a)
        node.flush()
        self.world.carry(node, count)

    @rule(is_a=SIDES, count=st.integers(1, 30))
    def commit(self, is_a: bool, count: int) -> None:
        node = self.side(is_a)
        node.commit(count)
        node.flush()

    @rule(seconds=st.sampled_from([0.1, 0.4, 1.0, 8.0, 21.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule(is_committed=st.booleans(), is_whole=st.booleans())
    def reconnect(self, is_committed: bool, is_whole: bool) -> None:
        """The connection breaks; what had arrived may still be committed, or never."""
        world = self.world
        for node in world.nodes:
            node.disconnect()
            if is_committed:
                node.commit(len(node.arrived))
        world.connect(is_whole=is_whole)

    @precondition(lambda self: self.world.is_connected)
    @rule(is_a=SIDES)
    def pause_and_resume(self, is_a: bool) -> None:
        node = self.side(is_a)
        assert node.session is not None
        node.table.withdrawn(token for token in node.session.pause() if token > 0)
        node.session.resume()

    @rule(is_a=SIDES)
    def change_leader(self, is_a: bool) -> None:
        """A new leader knows what is replicated; sessions of the old one end."""
        node = self.side(is_a)
        self.world.disconnect()
        node.start_leading()
        self.world.connect()

    @invariant()
    def nothing_is_doubled(self) -> None:
        for node in self.world.nodes:
            assert len(node.have) == len(set(node.have))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check_delivery()


Pair.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    derandomize=True,
)
TestPair = Pair.TestCase


@pytest.mark.parametrize("window", [1, 2, 64])
def test_a_long_exchange_without_faults(window: int) -> None:
    world = World(window, window)
    world.connect()
    for node in world.nodes:
        for n in range(300):
            node.send((KIND_EXPRESS, KIND_RECOVERABLE, KIND_TRANSACTIONAL)[n % 3])
    world.settle()
    world.check_delivery()
