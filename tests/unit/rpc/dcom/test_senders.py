"""What a queue's management knows of a sender to it [MC-MQAC 2.2.4.1]."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from qm.names.guid import guid_text
from qm.rpc.dcom.automation.vartypes import ARRAY, VarType
from tests.cluster.messages import batch
from tests.unit.model.world import PEER
from tests.unit.rpc.dcom.scripts import RECEIVE, DcomWorld, Program, play_in_world, slot

SEQUENCE = 7 << 32


@pytest.mark.spec("AC-2.2.4.1-02")
def test_it_is_what_has_arrived_and_what_was_refused() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue(transactional=True)
        queue = await program.opened(RECEIVE)
        leader = await world.harness.leader()
        # Two in order, one after a gap, and one that has been there.
        for ordinal, (number, previous) in enumerate(((1, 0), (4, 1), (9, 8), (4, 1)), 1):
            sequence = (SEQUENCE, number, previous)
            await leader.cluster.propose(batch("orders", [ordinal], ordinal, sequence=sequence))
        management = await program.create("MSMQManagement")
        await management.call("Init", FormatName=r"DIRECT=OS:QUORATE\private$\orders")
        array = await slot(management, "IMSMQQueueManagement", "EodGetReceiveInfo", "method")
        assert array.vt == ARRAY | VarType.VARIANT
        (one,) = array.value.items
        sender = program.late(one)
        names = ("SenderID", "SeqID", "SeqNo", "RejectCount")
        found = [await sender.call("Item", name) for name in names]
        assert found == [guid_text(PEER), SEQUENCE, 4, 2]
        assert abs(await sender.call("Item", "LastAccessTime") - datetime.now(UTC).timestamp()) < 60
        name = await sender.call("Item", "QueueFormatName")
        assert name.upper() == r"DIRECT=OS:QUORATE\PRIVATE$\ORDERS"
        await queue.call("Close")

    play_in_world(scenario)
