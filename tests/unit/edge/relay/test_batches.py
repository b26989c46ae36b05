"""What is relayed together: bounded in every way."""

from collections import deque
from typing import cast

from qm.edge.batches import Intake, Item, PacketRun, cut
from qm.edge.limits import BATCH_FACTS_MAX_COUNT
from qm.model.values.commands import Facts
from tests.unit.model.world import PEER, PEER_ADDRESS

INTAKE = cast(Intake, object())


def run_of(facts_count: int) -> PacketRun:
    """Packets of which each but the first has facts of its own."""
    other = {k: Facts(1, PEER, PEER_ADDRESS, (b"%d" % k,)) for k in range(1, facts_count)}
    offsets = [*range(facts_count + 1)]
    return PacketRun(INTAKE, facts_count, bytes(facts_count), offsets, [0] * facts_count, other)


def test_a_batch_has_a_bounded_number_of_different_facts() -> None:
    half = BATCH_FACTS_MAX_COUNT // 2
    waiting = deque[Item](run_of(half) for _ in range(5))
    assert [len(cut(waiting)) for _ in range(3)] == [2, 2, 1]
    alike = deque[Item](run_of(1) for _ in range(5))
    assert len(cut(alike)) == 5
