"""The chain over entries, and what is kept of them for the archive."""

import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from msgspec import structs

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import Command
from qm.model.values.effects import Applied, EffectKind, PositionEffects
from qm.model.values.limits import APPLY_VERSION
from qm.store.codec import array_bytes, decode_entry
from qm.store.effects.chain import CHAIN_START, META_CHAIN, chained, hash_of
from qm.store.effects.effects_log import HEAD, INDEX_END, IS_BLAKE3, NAME, RUN, Exported
from qm.store.effects.effects_row import EffectsRow, unpack_kept
from raft.types import Configuration, SnapshotMeta
from tests.unit.model.world import packet, request
from tests.unit.store.test_store import Node, arrivals, data, receive, setup_commands, workload

QUEUE = 6
COLUMNS = (
    "queue_ids", "lookup_identifiers", "reasons", "message_ordinals", "sizes_bytes",
    "body_indexes", "body_ordinals", "flags", "command_ends",
)  # fmt: skip
COLUMNS_OF_ROW = (
    "kinds", "queue_ids", "lookup_identifiers", "reasons", "message_ordinals",
    "source_queue_managers", "sizes_bytes", "body_indexes", "body_ordinals", "flags",
)  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands())
    return node


def kept(node: Node, above: int = 0) -> list[EffectsRow]:
    rows = node.store.state.scan_committed(
        Table.EFFECTS, (above + 1).to_bytes(8, "big"), INDEX_END, 1000
    )
    return [unpack_kept(int.from_bytes(key, "big"), row) for key, row in rows]


def chain_of(node: Node) -> tuple[int, bytes]:
    row = node.store.state.get(Table.META, META_CHAIN)
    assert row is not None
    return int.from_bytes(row[:8], "big"), row[8:]


def copy_to(node: Node, other: Node) -> None:
    index = node.store.applied_index()
    source = node.store.snapshot(index)
    meta = SnapshotMeta(index, node.log.term(index), Configuration(("n1.1",)), 0)
    sink = other.store.receive_snapshot(meta)
    sink.write(source.read(0, source.size_bytes()))
    sink.finish()
    source.close()


def test_the_chain_is_that_of_the_entries_in_whatever_runs_they_came(tmp_path: Path) -> None:
    singly, together, restarted = (Node(tmp_path / name) for name in ("a", "b", "c"))
    singly.put(*workload())
    together.put(*workload(), in_one_apply=True)
    for batch in workload():
        restarted.put(batch)
        restarted = restarted.reopen()
    value = CHAIN_START
    for entry in singly.log.entries(1, singly.log.last_index() + 1, 1 << 30):
        value = chained(value, entry.index, entry.term, blake3(entry.data).digest())
    for one in (singly, together, restarted):
        assert chain_of(one) == (singly.log.last_index(), value)
        one.close()


def test_what_is_kept_is_not_why_a_state_is_flushed(node: Node, tmp_path: Path) -> None:
    """RocksDB counts in MiB."""
    plain = Node(tmp_path / "plain")
    plain.put(setup_commands())
    for first in range(1, 28_001, 1_000):
        for one in (node, plain):
            one.put([arrivals(*(packet(k) for k in range(first, first + 1_000)))])
    unflushed_bytes = plain.store.unflushed_bytes()
    assert abs(node.store.unflushed_bytes() - unflushed_bytes) <= 1 << 20
    node.store.flush()
    assert 0 <= node.store.unflushed_bytes() < 1 << 20 < unflushed_bytes
    plain.close()


def test_while_an_older_build_may_take_part_entries_are_hashed_as_it_does(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands(), [commands.RaiseApplyVersion(APPLY_VERSION)], version=1)
    node.put([arrivals(packet(1))])
    entries = node.log.entries(1, 4, 1 << 20)
    hashes = [sha256(entry.data).digest() for entry in entries[:2]]
    hashes.append(blake3(entries[2].data).digest())
    rows = kept(node)
    assert [row.data_hash for row in rows] == hashes
    assert [row.is_blake3 for row in rows] == [False, False, True]
    value = CHAIN_START
    for entry, digest in zip(entries, hashes, strict=True):
        value = chained(value, entry.index, entry.term, digest)
    assert chain_of(node) == (3, value)
    node.close()


def test_what_a_stamp_says_is_the_hash_of_its_entry(node: Node) -> None:
    node.put([arrivals(packet(1))], [receive(2, 1), arrivals(packet(2))], is_hashed=True)
    node.put([receive(3, 1)])
    entries, rows = node.log.entries(2, 5, 1 << 20), kept(node, 1)
    value = chain_of(node)[1]
    for entry, row in zip(entries, rows, strict=True):
        said = decode_entry(entry.index, entry.data).stamp.entry_hash
        assert bool(said) is (entry.index < 4)
        assert row.data_hash == blake3(entry.data.replace(said, bytes(len(said)))).digest()
        assert row.data_hash == hash_of(entry.data, is_blake3=True)
    assert chained(rows[2].chain_before, 4, 1, rows[2].data_hash) == value


def test_no_byte_of_an_entry_changes_unseen() -> None:
    batch = (arrivals(packet(1), packet(2)), receive(2, 1))
    sound = data(*batch, is_hashed=True)
    digest = hash_of(sound, is_blake3=True)
    assert hash_of(memoryview(sound).cast("b"), is_blake3=True) == digest
    for at in range(len(sound)):
        altered = bytearray(sound)
        altered[at] ^= 1
        assert hash_of(bytes(altered), is_blake3=True) != digest, at
    assert digest not in {
        hash_of(other, is_blake3=True)
        for other in (sound[:-1], sound + b"x", sound[:20], b"", data(*batch))
    }


def test_entries_are_chained_from_where_a_leader_archives(tmp_path: Path) -> None:
    """Hashing every entry is not for nothing: and what came before is seen to be missing."""
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put([commands.LeaderActivated(1, "n1")], setup_commands()[1:])
    assert node.store.state.get(Table.META, META_CHAIN) is None
    assert kept(node) == []
    activated = commands.LeaderActivated(2, "n1", is_archived=True)
    node.put([activated], [arrivals(packet(1))], [activated], in_one_apply=True)
    rows = kept(node)
    assert [(row.index, row.previous_index) for row in rows] == [(3, 2), (4, 3), (5, 4)]
    assert rows[0].chain_before == CHAIN_START
    node.store.flush()
    node = node.reopen()
    node.put([commands.LeaderActivated(3, "n1")])
    assert chain_of(node)[0] == 6
    node.close()


def test_a_snapshot_carries_the_chain_on(node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path / "other", keeps_effects=True)
    copy_to(node, other)
    assert chain_of(other) == chain_of(node)
    assert other.store.applied.digest == node.store.applied.digest
    other.close()


def test_a_row_says_what_apply_said(node: Node) -> None:
    (applied,) = node.put(
        [arrivals(packet(1), packet(2)), receive(2, 2), commands.PurgeQueue(request(), QUEUE, ())]
    )
    before, row = kept(node)
    effects = applied.effects
    assert bytes(row.kinds) == bytes(effects.kinds) == bytes((1, 1, 5, 5))
    for column in COLUMNS:
        assert bytes(getattr(row, column)) == array_bytes(getattr(effects, column)), column
    assert bytes(row.source_queue_managers) == b"".join(effects.source_queue_managers)
    assert effects.command_ends.tolist() == [2, 4, 4]
    assert effects.body_ordinals.tolist() == [0, 1, 0, 1]
    entry = node.log.entries(2, 3, 1 << 20)[0]
    assert (row.index, row.term, row.time_ms, row.commands) == (2, 1, applied.now_ms, 3)
    assert row.leader == "n1.1"
    assert (row.previous_index, row.data_bytes) == (before.index, len(entry.data))
    assert (row.data_hash, row.is_blake3) == (blake3(entry.data).digest(), True)
    assert row.chain_before == chained(CHAIN_START, 1, 1, before.data_hash)
    assert row.total_bytes == before.data_bytes + row.data_bytes
    assert row.names == {QUEUE: "vhost\\orders"}
    assert not row.needs_commands


def test_a_row_of_runs_says_what_apply_said(node: Node) -> None:
    """They are there as keys and rows, also in an entry with something else before them."""
    count = 24
    several: list[Command] = [
        arrivals(*(packet(n) for n in range(1, 2 * count + 1))),
        receive(2, 2 * count),
    ]
    mixed: list[Command] = [
        arrivals(packet(2 * count + 1)),
        commands.PurgeQueue(request(), QUEUE, ()),
        arrivals(*(packet(n) for n in range(1000, 1000 + 2 * count))),
    ]
    applied = node.put(several, mixed)
    for row, one in zip(kept(node)[1:], applied, strict=True):
        effects = one.effects
        assert len(row.kinds) >= 2 * count
        assert bytes(row.kinds) == bytes(effects.kinds)
        for column in COLUMNS:
            assert bytes(getattr(row, column)) == array_bytes(getattr(effects, column)), column
        assert bytes(row.source_queue_managers) == b"".join(effects.source_queue_managers)
        assert row.names == {QUEUE: "vhost\\orders"}


def test_a_queue_that_goes_has_its_name_to_the_end(node: Node) -> None:
    node.put([arrivals(packet(1))], [commands.DeleteQueue(request(), QUEUE, ())])
    node.put([commands.PurgeStep(QUEUE, 10), commands.PurgeStep(QUEUE, 10)])
    assert node.store.view.queue(QUEUE) is None
    node = node.reopen()
    last = kept(node)[-1]
    assert bytes(last.kinds) == bytes((EffectKind.QUEUE_DELETED,))
    assert last.names == {QUEUE: "vhost\\orders"}


def test_rows_come_again_with_the_entries_that_make_them(node: Node) -> None:
    node.put([arrivals(packet(1))])
    node.store.flush()
    node.put([receive(2, 1)], [arrivals(packet(2), packet(3))])
    rows = kept(node)
    assert [row.index for row in rows] == [1, 2, 3, 4]
    node.close()  # what was not flushed is lost with it
    again = Node(node.path, keeps_effects=True)
    assert kept(again) == rows
    assert again.store.kept is not None
    assert again.store.kept.total_bytes == rows[-1].total_bytes
    again.put([arrivals(packet(4))])
    assert kept(again)[-1].total_bytes > rows[-1].total_bytes
    again.close()


def test_exported_rows_go_with_the_next_commit(node: Node) -> None:
    node.put([arrivals(packet(1))], [arrivals(packet(2))])
    keeper = node.store.kept
    assert keeper is not None
    keeper.move(Exported(2, b"c" * 32), [1, 2])
    node.put([arrivals(packet(3))])
    assert [row.index for row in kept(node)] == [3, 4]
    node.store.flush()
    again = node.reopen()
    assert again.store.kept is not None
    assert again.store.kept.exported == Exported(2, b"c" * 32)
    assert again.store.kept.total_bytes == kept(again)[-1].total_bytes


def test_a_snapshot_brings_no_rows_of_its_sender(node: Node, tmp_path: Path) -> None:
    keeper = node.store.kept
    assert keeper is not None
    keeper.move(Exported(1, b"c" * 32), [1])
    node.put([arrivals(packet(1))])
    other = Node(tmp_path / "other", keeps_effects=True)
    copy_to(node, other)
    assert kept(other) == []
    assert other.store.kept is not None
    assert other.store.kept.exported == Exported(2, restored_at=2)
    other.close()


def test_without_an_archiver_nothing_is_kept(node: Node) -> None:
    node.put([arrivals(packet(1))])
    assert len(kept(node)) == 2
    node.store.flush()
    node.close()
    without = Node(node.path)
    without.put([arrivals(packet(2))])
    assert without.store.kept is None
    assert kept(without) == []
    without.close()


def test_what_only_commands_tell_is_marked(node: Node) -> None:
    transaction = b"t" * 16
    transactional = arrivals(packet(1, sequence=(1 << 32, 1, 0)))
    for batch in (
        [commands.TxBegin(request(9, "c"), transaction, True, "", 1000)],
        [commands.AuditMark(7)],
        [transactional],
        [commands.TxCommit(request(10, "c"), transaction)],
    ):
        node.put(batch)
    assert [row.needs_commands for row in kept(node, 1)] == [True] * 4


def test_a_refused_transactional_message_has_an_effect(node: Node) -> None:
    refused: Applied
    (refused,) = node.put([arrivals(packet(5, sequence=(1 << 32, 1, 0)))])
    effects = refused.effects
    assert bytes(effects.kinds) == bytes((EffectKind.REFUSED,))
    assert effects.message_ordinals.tolist() == [5]
    assert effects.reasons[0] & 0x8000
    assert (effects.queue_ids[0], effects.lookup_identifiers[0]) == (0, 0)
    (row,) = kept(node, 1)
    assert row.names == {0: ""}


def test_what_one_row_tells_of_many_is_what_their_own_rows_tell(node: Node) -> None:
    """Equal stretches of several lengths and sizes, and what is before, between and after them."""
    stretches: tuple[tuple[int, dict[str, Any]], ...] = (
        (1, {"priority": 1}), (20, {"priority": 3}), (2, {"body": b"other"}), (300, {}),
        (40, {"priority": 7, "body": b"longer than others"}), (3, {"to": "kept"}), (90, {}),
        (1, {"to": "kept"}),
    )  # fmt: skip
    numbers = iter(range(1, 2000, 3))
    packets = [packet(next(numbers), **how) for count, how in stretches for _ in range(count)]
    growing = [packet(2000 + n, body=bytes(n % 7)) for n in range(60)]
    applied = node.put([arrivals(*packets), arrivals(*growing)])[0]
    assert sum(len(alike.message_ordinals) for run in applied.runs for alike in run.alike) > 450
    assert len(applied.effects.kinds) == len(packets) + len(growing)
    assert_tells(kept(node)[-1], applied.effects)


def test_received_messages_are_told_whether_their_keys_count_up_or_not(node: Node) -> None:
    priorities = (3, 5, 3)
    packets = [packet(20 * k + n, priority=p) for k, p in enumerate(priorities) for n in range(20)]
    counting, jumping = [receive(2, 12), receive(14, 1)], [receive(15, 30)]
    results = node.put([arrivals(*packets)], counting, jumping)
    for row, applied, messages in zip(kept(node)[-2:], results[1:], (13, 30), strict=True):
        assert len(applied.effects.kinds) == messages
        assert_tells(row, applied.effects)


def assert_tells(row: EffectsRow, effects: PositionEffects) -> None:
    assert row.count == len(effects.kinds)
    assert bytes(row.kinds) == bytes(effects.kinds)
    for column in COLUMNS:
        assert bytes(getattr(row, column)) == array_bytes(getattr(effects, column)), column
    assert bytes(row.source_queue_managers) == b"".join(effects.source_queue_managers)


def test_rows_of_the_versions_before_are_read(node: Node) -> None:
    """A node that is upgraded has some that are not exported yet: runs were columns, too, and then
    keys and rows of all positions.
    """
    (applied,) = node.put([arrivals(*(packet(n) for n in range(1, 49))), receive(2, 48)])
    now = kept(node)[-1]
    name = now.names[QUEUE].encode()
    names = now.leader.encode() + NAME.pack(QUEUE, len(name)) + name
    columns = b"".join(getattr(now, column) for column in COLUMNS_OF_ROW if column != "flags")
    runs = b"".join(
        RUN.pack(run.kind, run.reason, len(run.keys)) + b"".join((*run.keys, *run.rows))
        for run in applied.runs
    )
    for version, count, positions in ((1, now.count, columns), (2, 0, runs)):
        head = HEAD.pack(
            version, IS_BLAKE3, len(now.leader), 1, 0, now.term, now.time_ms, now.previous_index,
            now.chain_before, now.data_hash, now.data_bytes, now.commands, count, now.total_bytes,
        )  # fmt: skip
        row = b"".join((head, names, now.command_ends, positions))
        told = unpack_kept(now.index, row)
        assert count == 0 or bytes(told.flags) == bytes(2 * count), "columns had none"
        assert structs.replace(told, flags=now.flags) == now
        with pytest.raises(ValueError, match="upgrade this node"):
            unpack_kept(now.index, b"\xff" + row[1:])


def test_the_value_of_the_chain_says_all_before_it_and_where_an_entry_stands() -> None:
    before, data = bytes(range(32)), b"d" * 32
    expected = sha256(before + struct.pack(">QQ", 7, 3) + data).digest()
    assert chained(before, 7, 3, data) == expected


def test_what_was_kept_for_an_archiver_goes_with_it(tmp_path: Path) -> None:
    node = Node(tmp_path / "archiving", keeps_effects=True)
    node.put(setup_commands(), [arrivals(packet(1))])
    assert node.store.state.scan(Table.EFFECTS, b"", b"\xff" * 9, 99)
    node.keeps_effects = False
    node = node.reopen()
    assert not node.store.state.scan(Table.EFFECTS, b"", b"\xff" * 9, 99)
    node.close()
