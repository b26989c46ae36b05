"""What survives a restart of a node."""

import shutil
from pathlib import Path

import pytest

from qm.model import queries
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from tests.unit.model.world import HOST, OWN, packet, request
from tests.unit.store.test_store import Node, arrivals, receive, received, setup_commands


@pytest.mark.spec("MQ-2.2.19.2-12", "MQ-2.2.19.2-13", "QB-3.1.3.2-11")
def test_recoverable_messages_survive_a_restart_and_express_ones_do_too(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    exact = {"transactional": encode_attribute(True)}
    node.put(
        [commands.CreateQueue(request(), b"e" * 16, b"f" * 16, ".\\exact", exact, b"", ())],
        [commands.OpenQueue(request(2, "c"), f"DIRECT=OS:{HOST}\\exact", 0, 0, ())],
    )
    recoverable, express = packet(1, is_recoverable=True), packet(2)
    transactional = packet(3, to="exact", sequence=(5, 1, 0))
    node.put([arrivals(recoverable, express, transactional)])
    node = node.reopen()
    manager = queries.queue_manager(node.store.view)
    assert manager is not None
    assert manager.attributes.identifier == OWN
    (applied,) = node.put([receive(3, 2)])
    assert [result.message_ordinal for result in received(applied)] == [1, 2]
    counts = {one.pathname: one.message_count for one in queries.list_queues(node.store.view).items}
    assert counts[f"{HOST}\\exact"] == 1
    node.put([commands.Confirm("c", 4)])
    node.close()


@pytest.mark.spec("QB-3.1.1.3.2-01")
def test_the_log_alone_brings_every_row_back(tmp_path: Path) -> None:
    """All that [MS-MQQB] and [MS-MQDMPR] mark as surviving a failure is rows of the state."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    node.put([arrivals(packet(1, is_recoverable=True), packet(2))])
    node.put([receive(2, 1)])
    rows = sorted(node.store.state.rows())
    assert len({key[0] for key, _ in rows}) > 5, "rows of many tables"
    node.close()
    # What was not flushed when the power failed is lost, here all of it.
    shutil.rmtree(tmp_path / "node" / "store")
    node = Node(tmp_path / "node")
    assert sorted(node.store.state.rows()) == rows
    node.close()
