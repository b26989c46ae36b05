"""Entries' data are in the ranges of one node; no node lets them go before one has them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from qm.archive.archiver import ArchiverConfig
from qm.archive.bodies import DataTurns, Span
from qm.archive.schema import Part
from tests.unit.archive.world import CONFIG, archiver_of, ranges, table
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, setup_commands

ONCE = structs.replace(CONFIG, has_data_once=True, range_s=1000.0)
"""Ranges of four entries, data in those of one node; who waits for another waits long."""
LAST = 8


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands(), *([arrivals(packet(n))] for n in range(1, LAST)))
    return node


def export(
    node: Node,
    root: Path,
    turn: int,
    others: Mapping[str, Span],
    config: ArchiverConfig = ONCE,
) -> Span | None:
    """Do what is due; return what the node says that it wrote."""

    async def scenario() -> Span | None:
        archiver = archiver_of(node, root, config=config, turn=turn, others=others)
        await archiver.step()
        await archiver.stop()
        return archiver.data_span

    return asyncio.run(scenario())


def exported(root: Path) -> list[tuple[int, bool]]:
    """Return the indexes of entries, and whether they have their data."""
    if not root.exists():
        return []
    for manifest, _ in ranges(root):
        inside = range(manifest.first, manifest.last + 1)
        rows = [row for row in table(root, Part.ENTRIES) if row["index"] in inside]
        assert {row["data"] is not None for row in rows} == {manifest.has_data}
    return [(row["index"], row["data"] is not None) for row in table(root, Part.ENTRIES)]


def test_whose_turn_it_is_writes_data_and_says_so(node: Node, tmp_path: Path) -> None:
    span = export(node, tmp_path / "archive", 0, {})
    assert span == Span(1, LAST)
    assert exported(tmp_path / "archive") == [(index, True) for index in range(1, LAST + 1)]


def test_the_others_wait_and_leave_data_out(node: Node, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert export(node, archive, 1, {}) is None
    assert exported(archive) == [], "nobody has any"
    assert export(node, archive, 1, {"n2": Span(2, LAST)}) is None
    assert exported(archive) == [], "nobody has the first"
    assert export(node, archive, 1, {"n2": Span(3, 6), "n3": Span(1, 2)}) is None
    assert exported(archive) == [(index, False) for index in range(1, 7)]
    operations = table(archive, Part.OPERATIONS)
    assert [row["index"] for row in operations] == list(range(2, 7)), "effects are everybody's"


def test_who_waited_in_vain_writes_data(node: Node, tmp_path: Path) -> None:
    at_once = structs.replace(ONCE, range_s=0.0)
    assert export(node, tmp_path / "archive", 2, {"n2": Span(1, 4)}, at_once) == Span(5, LAST)
    expected = [(index, index > 4) for index in range(1, LAST + 1)]
    assert exported(tmp_path / "archive") == expected


def test_who_holds_much_writes_data(node: Node, tmp_path: Path) -> None:
    node.put([arrivals(packet(100, body=bytes(50_000)))])
    narrow = structs.replace(ONCE, hold_bytes=100_000)
    span = export(node, tmp_path / "archive", 2, {}, narrow)
    assert span is not None
    assert exported(tmp_path / "archive")[0] == (1, True)


def test_every_node_writes_data_where_that_is_wanted(node: Node, tmp_path: Path) -> None:
    everybody = structs.replace(ONCE, has_data_once=False)
    export(node, tmp_path / "archive", 2, {"n2": Span(1, LAST)}, everybody)
    assert exported(tmp_path / "archive") == [(index, True) for index in range(1, LAST + 1)]


def test_turns_are_waited_for_one_after_the_other() -> None:
    turns = DataTurns(lambda: 2, 60.0, 999, is_once=True)
    assert not turns.is_over(10.0, 0)
    assert not turns.is_over(129.0, 0)
    assert turns.is_over(130.0, 0)
    turns.went_on()
    assert not turns.is_over(131.0, 0)
    assert turns.is_over(131.0, 1000)


def test_what_was_heard_stays_true() -> None:
    turns = DataTurns(lambda: 1, 60.0, 1000, is_once=True)
    turns.heard({"n2": Span(1, 10), "n3": Span(30, 40)})
    turns.heard({"n3": Span(11, 20)})
    assert [turns.covered(index) for index in (1, 20, 21)] == [20, 20, 20]


def test_ranges_that_follow_one_another_are_one_span() -> None:
    turns = DataTurns(lambda: 0, 60.0, 1000, is_once=True)
    turns.wrote(1, 10)
    turns.wrote(11, 20)
    assert turns.own == Span(1, 20)
    turns.wrote(31, 40)
    assert turns.own == Span(31, 40)
