"""What is read of an archive for questions about single messages, whatever became of its files."""

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from qm.archive.carried import CarriedMessages
from qm.archive.destination import DestinationError
from qm.archive.manifest import MANIFEST_NAME
from qm.archive.ranges import Identity
from qm.archive.reader import ArchiveReader, Row, Wanted
from qm.archive.schema import Part
from tests.unit.archive.world import CLUSTER, CONFIG, archiver_of, ranges, table
from tests.unit.model.world import NOW_MS, PEER, PEER_ADDRESS, packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

MESSAGES = 12


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Ranges of two nodes, which end at different entries."""
    for name, entries in (("n1.1", 4), ("n2.1", 5)):
        node = Node(tmp_path / name, keeps_effects=True)
        node.put(setup_commands())
        for ordinal in range(1, MESSAGES + 1):
            node.put([arrivals(packet(ordinal, body=b"body %d" % ordinal))])
        node.put([receive(2, 3)])
        asyncio.run(_exported(node, tmp_path / "archive", name, entries))
    assert len(ranges(tmp_path / "archive")) > 2
    return tmp_path / "archive"


async def _exported(node: Node, archive: Path, name: str, entries: int) -> None:
    config = structs.replace(CONFIG, range_entries=entries)
    archiver = archiver_of(node, archive, config=config, identity=Identity(CLUSTER, name, 1))
    await archiver.step()
    await archiver.stop()


def rows(reader: ArchiveReader, wanted: Wanted) -> list[Row]:
    return [found.row for found in reader.operations(wanted)]


def test_every_operation_is_read_once_in_its_order(archive: Path) -> None:
    reader = ArchiveReader(str(archive))
    assert rows(reader, Wanted()) == table(archive, Part.OPERATIONS)
    assert (reader.begin, reader.problems) == (1, [])
    assert reader.end == ranges(archive)[-1][0].last
    assert [row["message_ordinal"] for row in rows(reader, Wanted(kinds=("received",)))] == [
        1,
        2,
        3,
    ]


def test_a_message_is_found_with_what_is_beside_its_operations(archive: Path) -> None:
    reader = ArchiveReader(str(archive))
    found = list(reader.operations(Wanted(message=(PEER, 2))))
    assert [each.row["operation"] for each in found] == ["arrived", "received"]
    assert found[0].near(1) is None, "another entry"
    beside = found[1].near(1), found[1].near(-1)
    assert [row and row["message_ordinal"] for row in beside] == [3, 1]
    assert not rows(reader, Wanted(message=(PEER, MESSAGES + 1)))
    assert not rows(reader, Wanted(message=(b"another's machine", 2)))


def test_queues_times_reasons_and_indexes_choose(archive: Path) -> None:
    reader = ArchiveReader(str(archive))
    everything = rows(reader, Wanted())
    assert rows(reader, Wanted(pattern="*\\ORDERS")) == [
        row for row in everything if row["queue"].endswith("\\orders")
    ]
    assert not rows(reader, Wanted(pattern="*nothing*"))
    assert len(rows(reader, Wanted(reasons=(0x4000,)))) == 3
    middle = everything[len(everything) // 2]["index"]
    later = rows(reader, Wanted(first=middle))
    assert later == [row for row in everything if row["index"] >= middle]
    begin, end = everything[0]["time_ms"], everything[-1]["time_ms"]
    assert rows(reader, Wanted(since_ms=begin, until_ms=end)) == everything
    assert not rows(reader, Wanted(since_ms=end + 1))
    assert not rows(reader, Wanted(until_ms=begin - 1))
    assert not reader.problems
    assert begin == NOW_MS


def test_an_entry_tells_what_was_in_a_message_and_whose_it_was(archive: Path) -> None:
    reader = ArchiveReader(str(archive))
    (arrived, _) = rows(reader, Wanted(message=(PEER, 3)))
    data = reader.entry(arrived["body_index"])
    assert data is not None
    carried = CarriedMessages(arrived["body_index"], data)
    found = carried.packet(arrived["body_ordinal"])
    assert found is not None
    assert b"body 3" in found
    origin = carried.origin(arrived["body_ordinal"])
    assert origin is not None
    assert (origin.peer_queue_manager, origin.peer_address) == (PEER, PEER_ADDRESS)
    assert carried.packet(0x8000) is None
    assert carried.origin(1) is None
    assert reader.entry(1 << 40) is None


def test_another_node_s_copy_replaces_a_file_that_cannot_be_used(archive: Path) -> None:
    whole = table(archive, Part.OPERATIONS)
    manifest, folder = ranges(archive)[1]
    damaged = folder / "operations.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    reader = ArchiveReader(str(archive))
    assert rows(reader, Wanted()) == whole
    (problem,) = reader.problems
    assert "operations.parquet has" in problem
    assert "its manifest says" in problem
    damaged.write_bytes(b"PAR1".ljust(damaged.stat().st_size + 20, b"x"))
    reader = ArchiveReader(str(archive))
    assert rows(reader, Wanted()) == whole
    assert manifest.node in reader.problems[0]


def test_what_no_node_has_whole_is_said(archive: Path) -> None:
    whole = table(archive, Part.OPERATIONS)
    shutil.rmtree(archive / CLUSTER / "ranges" / "n2.1")
    manifest, folder = ranges(archive)[1]
    (folder / MANIFEST_NAME).write_bytes(b"{")
    reader = ArchiveReader(str(archive))
    found = rows(reader, Wanted())
    assert not {row["index"] for row in found} & set(range(manifest.first, manifest.last + 1))
    assert found[-1] == whole[-1]
    assert any(
        problem == f"no usable file has the entries {manifest.first} to {manifest.last}"
        for problem in reader.problems
    )
    last = sorted(folder.parent.iterdir())[-1]
    (last / MANIFEST_NAME).unlink()
    reader = ArchiveReader(str(archive))
    assert rows(reader, Wanted(first=manifest.last + 1))
    assert not reader.problems, "a range without a manifest is still being written"


def test_a_range_of_another_place_is_not_read(archive: Path) -> None:
    _, folder = ranges(archive)[0]
    copied = folder.with_name(f"{90:020}-{99:020}")
    shutil.copytree(folder, copied)
    reader = ArchiveReader(str(archive))
    assert rows(reader, Wanted()) == table(archive, Part.OPERATIONS, "n2.1")
    assert any("belongs to" in problem for problem in reader.problems)


def test_an_archive_that_is_none_is_named(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="there is no archive in"):
        ArchiveReader(str(tmp_path / "nowhere"))
    with pytest.raises(DestinationError, match="holds nothing of cluster"):
        ArchiveReader(str(archive), "cd" * 16)
    shutil.copytree(archive / CLUSTER, archive / ("cd" * 16))
    with pytest.raises(DestinationError, match="say which with --cluster"):
        ArchiveReader(str(archive))
    assert ArchiveReader(str(archive), CLUSTER).begin == 1
