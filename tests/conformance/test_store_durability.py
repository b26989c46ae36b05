"""What survives a restart of a node."""

import shutil
from array import array
from pathlib import Path
from typing import Any

import pytest

from qm.model import queries
from qm.model.state.outgoing_queues import OUTGOING_RECORD
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command
from qm.model.values.records import OutgoingPosition, decode
from qm.model.values.rows import unpack_position
from qm.store.bodies.body_places import BodyPlace
from qm.wire.packets.user_message import parse_user_message
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
    kept = bodies(node)
    assert sorted(kept.values()) == sorted((recoverable, express, transactional))
    node = node.reopen()  # from the log
    assert bodies(node) == kept
    fillers = [packet(number, body=bytes(70_000)) for number in (4, 5)]
    node.put(*([arrivals(filler)] for filler in fillers))
    node.compact()
    assert node.log.first_index() > 4, "their entries are dropped"
    node = node.reopen()  # from the state
    assert bodies(node).items() > kept.items()
    manager = queries.queue_manager(node.store.view)
    assert manager is not None
    assert manager.attributes.identifier == OWN
    (applied,) = node.put([receive(3, 2)])
    assert [result.message_ordinal for result in received(applied)] == [1, 2]
    counts = {one.pathname: one.message_count for one in queries.list_queues(node.store.view).items}
    assert counts[f"{HOST}\\exact"] == 1
    node.put([commands.Confirm("c", 4)])
    node.close()


AWAY = "DIRECT=OS:away\\q"


def sent(node: Node, number: int, count: int, **header: Any) -> tuple[int, list[int]]:
    """Send transactional messages to another queue manager in one transaction, and number them;
    return their queue and its keys.
    """
    name = b"%016d" % number
    raw = packet(0, sequence=(1, 1, 0), body=name, **header)
    sends: list[Command] = [
        commands.Send.of(request(number + 1 + k, "c"), [(AWAY, raw)], transaction=name)
        for k in range(count)
    ]
    begin = commands.TxBegin(request(number, "c"), name, True, "", 60_000)
    end = commands.TxCommit(request(number + 1 + count, "c"), name)
    (applied,) = node.put([begin, *sends, end])
    assert [one.status for one in applied.outcomes] == [0] * (2 + count)
    (queue,) = queries.list_outgoing_queues(node.store.view).items
    keys = [
        one.position.lookup_identifier
        for one in queries.outgoing_messages(node.store.view, queue.queue_id).items
    ]
    node.put([commands.AssignTransfer(queue.queue_id, array("Q", keys))])
    return queue.queue_id, keys


def fill(node: Node) -> None:
    """Leave something of each element that must survive: see ELEMENTS."""
    exact = {"transactional": encode_attribute(True)}
    insecure = {"send_insecure_nacks": encode_attribute(True)}
    node.put(
        [commands.CreateQueue(request(), b"e" * 16, b"f" * 16, ".\\exact", exact, b"", ())],
        [commands.SetQueueManager(request(), insecure, ())],
        [arrivals(packet(1, is_recoverable=True), packet(2), packet(3, body=b"third"))],
        [arrivals(packet(4, to="exact", sequence=(5 << 32 | 7, 1, 0), body=b"in order"))],
        [receive(2, 1)],
    )
    # One that was acknowledged waits for its FinalAck; another is numbered and under way.
    queue_id, keys = sent(node, 3, 1, has_positive_journaling=True)
    (numbered,) = outgoing(node)
    sequences = array("Q", [numbered.sequence_identifier])
    node.put(
        [commands.TransferAcked(queue_id, array("Q", keys))],
        [commands.OrderAcked(sequences, array("Q", [1]))],
    )
    sent(node, 6, 1)


def rows_of(node: Node, table: Table) -> list[tuple[bytes, bytes]]:
    return [(key[1:], row) for key, row in node.store.state.rows() if key[0] == table]


def outgoing(node: Node) -> list[OutgoingPosition]:
    """The sender's numbers of every message, in order."""
    return [
        decode(OutgoingPosition, value)
        for key, value in rows_of(node, Table.OUTGOING)
        if key[:1] == OUTGOING_RECORD
    ]


def bodies(node: Node) -> dict[bytes, bytes]:
    """Every packet at a position, by its key, read with its checksum."""
    found = {}
    for key, row in rows_of(node, Table.POSITION):
        one = unpack_position(row)
        at = BodyPlace(
            one.body_index, one.body_offset, one.body_length, one.body_ordinal, one.body_crc32
        )
        found[key] = node.store.bodies.read(at)
    return found


ELEMENTS = {
    Table.META: "QueueManager: MessageIdOrdinal, SendInsecureNacks, ResendTimeouts",
    Table.QUEUE: "QueueCollection",
    Table.POSITION: "MessagePositionList",
    Table.HISTORY: "MessageIDHistoryTable",
    Table.SEQUENCE_IN: "IncomingTxSequenceID, IncomingTxSequenceNumber, TxMessageRejectCount",
    Table.SEQUENCE_OUT: "OutgoingTxSequenceID, OutgoingTxSequenceNumber",
    Table.OUTGOING: "OutgoingMessagePosition.TxSequenceNumber",
    Table.AWAITING_FINAL_ACK: "AwaitingFinalACKTable",
}
"""What the documents mark as surviving failures, by the table that has it."""


@pytest.mark.spec("QB-3.1.1.3.2-01")
def test_the_log_alone_brings_every_row_back(tmp_path: Path) -> None:
    """All that [MS-MQQB] and [MS-MQDMPR] mark as surviving a failure is rows of the state."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    defaults = queries.queue_manager(node.store.view)
    assert defaults is not None
    assert not defaults.attributes.send_insecure_nacks
    fill(node)
    rows, packets = sorted(node.store.state.rows()), bodies(node)
    for table, elements in ELEMENTS.items():
        assert rows_of(node, table), elements
    read = [parse_user_message(raw, 0, len(raw))[0] for raw in packets.values()]
    assert sorted(one.properties.message_body for one in read) == sorted(
        [b"body", b"third", b"in order", b"%016d" % 3, b"%016d" % 6]
    )
    node.close()
    # What was not flushed when the power failed is lost, here all of it.
    shutil.rmtree(tmp_path / "node" / "store")
    node = Node(tmp_path / "node")
    assert sorted(node.store.state.rows()) == rows
    assert bodies(node) == packets
    manager = queries.queue_manager(node.store.view)
    assert manager is not None
    assert manager.attributes.send_insecure_nacks
    # And they are worked with: the next one continues the sequence.
    assert [one.sequence_number for one in outgoing(node)] == [1, 1]
    sent(node, 9, 1)
    awaited, waiting, last = outgoing(node)
    assert awaited.is_settled
    assert waiting.sequence_identifier == last.sequence_identifier > awaited.sequence_identifier
    assert (last.sequence_number, last.previous_number) == (2, 1)
    node.close()
