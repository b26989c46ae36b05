"""A bit that flips on one node's disk is found at the next audit mark [DESIGN sections 4 and 6]."""

import asyncio

import pytest

from qm.model.state.tables import Table
from qm.model.values.commands import AuditMark
from qm.model.values.rows import POSITION_ROW
from qm.node.replica.quarantine import Quarantine
from raft.replica import StartRefused
from tests.cluster.harness import HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue, propose

BODY_CRC_AT = POSITION_ROW.size - 40


def flip_a_bit(node: HarnessNode) -> None:
    """In the checksum of a body: nothing that is served shows it before that body is read."""
    state = node.cluster.machine.store.state
    full, row = next((key, row) for key, row in state.rows() if key[0] == Table.POSITION)
    changed = bytearray(row)
    changed[BODY_CRC_AT] ^= 1
    state._database._rocks.put(full, bytes(changed))


def test_one_flipped_bit_on_one_node_ends_it_at_the_next_mark() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            await create_queue(leader, "orders")
            await propose(leader, batch("orders", range(1, 51)))
            await propose(leader, AuditMark(1))
            assert leader.node is not None
            registry = leader.node.metrics.registry
            await until(
                lambda: registry.get_sample_value("quorate_audits_total", {"result": "agreed"})
            )
            (follower, other) = await nodes.followers()
            flip_a_bit(follower)
            await propose(leader, AuditMark(2))
            await until(lambda: nodes.deaths, lambda: nodes.deaths)
            (text,) = nodes.deaths
            assert "audit mark 2: the rows do not give the digest" in text
            nodes.deaths.clear()
            with pytest.raises(StartRefused, match="audit mark 2"):
                Quarantine(follower.config.data).check()
            for node in (leader, other):
                Quarantine(node.config.data).check()
            await asyncio.wait_for(propose(leader, batch("orders", range(51, 61))), 30)

    run(scenario())
