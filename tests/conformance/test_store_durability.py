"""What survives a restart of a node."""

from pathlib import Path

import pytest

from qm.model.values import commands
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, received, setup_commands


@pytest.mark.spec("MQ-2.2.19.2-12", "MQ-2.2.19.2-13")
def test_recoverable_messages_survive_a_restart_and_express_ones_do_too(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    recoverable, express = packet(1, is_recoverable=True), packet(2)
    node.put([arrivals(recoverable, express)])
    node = node.reopen()
    (applied,) = node.put([receive(2, 2)])
    assert [result.message_ordinal for result in received(applied)] == [1, 2]
    node.put([commands.Confirm("c", 3)])
    node.close()
