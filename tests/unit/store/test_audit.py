"""Any byte of any row that changes unnoticed is found by the node's next mark."""

import random
from array import array
from pathlib import Path
from typing import Any

import pytest

from qm.model.queries import list_outgoing_queues, outgoing_messages
from qm.model.state.ledger import META_COUNTERS
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command
from qm.model.values.elements import DirectoryObjectType, QueueAccessType
from qm.store.audit import MarkGone, prove
from qm.store.digest import digest_bytes
from qm.store.effects.chain import META_CHAIN
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.model.world import HOST, packet, request
from tests.unit.store.test_store import Node, arrivals, setup_commands

WHO = "auditor"
RECEIVE = QueueAccessType.RECEIVE_ACCESS
NR = int(AcknowledgeFlags.NR | AcknowledgeFlags.PA)
FLIPS_PER_TABLE = 2
WRITTEN_ANEW = {bytes((Table.META,)) + key for key in (META_COUNTERS, META_CHAIN)}
LOGICAL = [table for table in Table if table < Table.LOCAL_FIRST]


def send(number: int, to: str, raw: bytes, transaction: bytes | None = None) -> Command:
    return commands.Send.of(commands.Request(WHO, number, 0), [(to, raw)], transaction=transaction)


def create(name: str, *, is_transactional: bool = False) -> Command:
    identifier = name.encode().ljust(16, b"\0")
    attributes = {"transactional": encode_attribute(is_transactional)}
    path = f".\\{name}"
    return commands.CreateQueue(request(), identifier, identifier[::-1], path, attributes, b"", ())


def fill(node: Node) -> None:
    """Leave rows in every table."""
    admin: dict[str, Any] = {
        "admin_queue": DirectQueueFormatName(f"OS:{HOST}\\plain"),
        "properties": {"flags": NR},
    }
    exact = [packet(100 + k, to="exact", sequence=(1 << 32, k, k - 1)) for k in range(1, 4)]
    ended = packet(104, to="exact", sequence=(1 << 32, 4, 3), final_ack=True, time_to_be_received=0)
    away, transactional = "DIRECT=OS:away\\q", packet(0, sequence=(1, 1, 0), final_ack=True)
    node.put(setup_commands())
    node.put([create("plain"), create("exact", is_transactional=True), create("purged")])
    node.put([arrivals(*(packet(k, to="plain", time_to_be_received=600) for k in range(1, 9)))])
    node.put([arrivals(*exact, ended), arrivals(packet(20, to="plain", **admin))])
    node.put([arrivals(*(packet(30 + k, to="purged") for k in range(4)))])
    node.put([commands.OpenClient(WHO, "somebody", 60_000)])
    (opened,) = node.put(
        [
            commands.OpenQueue(
                commands.Request(WHO, 1, 0), f"DIRECT=OS:{HOST}\\plain", RECEIVE, 0, ()
            ),
            commands.TxBegin(commands.Request(WHO, 2, 0), b"t" * 16, True, "", 60_000),
            commands.TxBegin(commands.Request(WHO, 3, 0), b"u" * 16, True, "", 60_000),
            send(4, f"DIRECT=OS:{HOST}\\exact", transactional, b"t" * 16),
            send(5, away, transactional, b"u" * 16),
            commands.TxCommit(commands.Request(WHO, 6, 0), b"u" * 16),
        ]
    )
    place = opened.outcomes[0].value
    assert isinstance(place, tuple)
    handle, queue_id = place
    node.put([commands.ReceiveRun(WHO, handle, queue_id, 7, 2, 0)])
    node.put([commands.ReceiveRun(WHO, handle, queue_id, 9, 1, 0, is_two_phase=True)])
    (outgoing,) = list_outgoing_queues(node.store.view).items
    keys = [
        one.position.lookup_identifier
        for one in outgoing_messages(node.store.view, outgoing.queue_id).items
    ]
    node.put([commands.AssignTransfer(outgoing.queue_id, array("Q", keys))])
    site = {"name": encode_attribute("North")}
    node.put([commands.DirectoryWrite(request(), b"s" * 16, DirectoryObjectType.SITE, site, ())])
    node.put([commands.PurgeQueue(request(), queue_id + 4, ())])
    node.store.flush()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    made = Node(tmp_path_factory.mktemp("audit") / "node")
    fill(made)
    return made


def rows_of(node: Node, table: Table) -> list[tuple[bytes, bytes]]:
    return [row for row in node.store._state.rows() if row[0][0] == table]


def is_sound(node: Node, number: int) -> bool:
    node.put([commands.AuditMark(number)])
    return prove(node.store.copy_at(node.store.marks.pop())).is_sound


@pytest.mark.parametrize("table", LOGICAL, ids=lambda table: table.name)
def test_any_byte_of_any_table(node: Node, table: Table) -> None:
    chance = random.Random(table)
    database = node.store._state._database._rocks
    assert is_sound(node, 1000 + table)
    for k in range(FLIPS_PER_TABLE):
        rows = rows_of(node, table)
        assert rows, f"the workload leaves nothing in {table.name}"
        key, value = chance.choice(rows)
        row, bit = bytearray(key + value), 1 << chance.randrange(8)
        row[chance.randrange(1, len(row))] ^= bit
        flipped = bytes(row)
        database.delete(key)
        database.put(flipped[: len(key)], flipped[len(key) :])
        # The mark's own entry rewrites some rows, and so heals them.
        is_anew, is_key_whole = key in WRITTEN_ANEW, flipped.startswith(key)
        is_healed = is_sound(node, 2000 + k) and is_anew and is_key_whole
        assert is_healed or not is_sound(node, 2500 + k), f"{key.hex()} became {flipped.hex()}"
        if not (is_anew and is_key_whole):
            database.delete(flipped[: len(key)])
        if not is_anew:
            database.put(key, value)
    assert is_sound(node, 3000 + table)


def test_a_row_that_is_gone_or_one_too_many(node: Node) -> None:
    database = node.store._state._database._rocks
    key, value = rows_of(node, Table.POSITION)[0]
    database.delete(key)
    assert not is_sound(node, 1)
    database.put(key, value)
    database.put(key + b"\0", value)
    assert not is_sound(node, 2)
    database.delete(key + b"\0")
    assert is_sound(node, 3)


def test_a_copy_of_the_state_is_removed_once_it_is_proven(tmp_path: Path) -> None:
    made = Node(tmp_path / "node")
    made.put(setup_commands(), [commands.AuditMark(1)])
    copy = made.store.copy_at(made.store.marks.pop())
    assert copy.folder.exists()
    prove(copy)
    assert not copy.folder.exists()
    made.close()


def test_what_is_applied_before_the_copy_is_taken_belongs_to_no_mark(tmp_path: Path) -> None:
    made = Node(tmp_path / "node")
    made.put(setup_commands(), [arrivals(packet(1), packet(2), packet(3))], [commands.AuditMark(1)])
    kept = digest_bytes(made.store.applied.digest)
    made.put([arrivals(packet(4), packet(5))])
    mark = made.store.marks.pop()
    proof = prove(made.store.copy_at(mark))
    assert (proof.is_sound, proof.digest, mark.kept) == (True, kept, kept)
    (queue,) = (one for one in proof.queues if one.messages)
    assert queue.messages == 3
    made.close()


def test_a_mark_flushes_nothing_while_entries_wait(tmp_path: Path) -> None:
    made = Node(tmp_path / "node")
    made.put(setup_commands(), [arrivals(packet(1), packet(2), packet(3))])
    database = made.store._state._database._rocks
    assert not database.live_files()
    made.put([commands.AuditMark(1)])
    assert not database.live_files()
    made.store.copy_at(made.store.marks.pop())
    assert database.live_files()
    made.close()


def test_a_mark_of_a_state_that_was_closed_is_gone(tmp_path: Path) -> None:
    made = Node(tmp_path / "node")
    made.put(setup_commands(), [commands.AuditMark(1)])
    mark = made.store.marks.pop()
    made.close()
    reopened = Node(tmp_path / "node")
    with pytest.raises(MarkGone):
        reopened.store.copy_at(mark)
    reopened.close()
