"""When ranges are written, what is held for them, and what is reported otherwise."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from qm.archive import archiver as archiver_module
from qm.archive.archiver import ALARM_LAG
from qm.archive.columns import MarkReport
from qm.archive.destination import DestinationError, FolderDestination, Output
from qm.archive.ranges import Policy, RangeExport
from qm.archive.schema import Part
from qm.model.values import commands
from qm.store.effects.chain import CHAIN_START
from raft.types import Configuration, SnapshotMeta
from tests.unit.archive.world import (
    CLUSTER,
    CONFIG,
    StoreSource,
    Told,
    archiver_of,
    check_chain,
    export,
    ranges,
    table,
    with_destination,
)
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, setup_commands

WHOLE = structs.replace(CONFIG, range_entries=1000)


class OutOfReach(FolderDestination):
    """Nothing can be written while it is away."""

    is_away = True

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        if self.is_away:
            raise DestinationError("out of reach")
        with super().create(path) as output:
            yield output


class Full(FolderDestination):
    """Its disk has room for so much."""

    room = 0

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        with super().create(path) as output:
            yield Filling(self, output)


class Filling:
    """Implements Output."""

    def __init__(self, disk: Full, output: Output) -> None:
        self._disk = disk
        self._output = output

    def write(self, data: bytes | memoryview) -> None:
        self._disk.room -= len(data)
        if self._disk.room < 0:
            raise DestinationError("no space left")
        self._output.write(data)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands())
    return node


def fill(node: Node, first: int, count: int, size: int = 2000) -> None:
    for n in range(first, first + count):
        node.put([arrivals(packet(n, body=bytes(size)))])


async def stop_within_a_round(
    node: Node, archive: Path, is_at_work: threading.Event, may_go_on: threading.Event
) -> None:
    archiver = archiver_of(node, archive)
    step = asyncio.create_task(archiver.step())
    await asyncio.to_thread(is_at_work.wait, 30)
    stopping = asyncio.create_task(archiver.stop())
    await asyncio.sleep(0)
    may_go_on.set()
    await asyncio.gather(step, stopping)


def test_a_young_range_waits_for_more(node: Node, tmp_path: Path) -> None:
    patient = structs.replace(CONFIG, range_s=3600.0, range_entries=6)
    fill(node, 1, 3)
    export(node, tmp_path / "archive", config=patient)
    assert not (tmp_path / "archive").exists()
    fill(node, 10, 3)
    export(node, tmp_path / "archive", config=patient)
    assert check_chain(tmp_path / "archive") == list(range(1, 7))
    node.close()


def test_the_log_is_held_until_it_is_exported(node: Node, tmp_path: Path) -> None:
    async def scenario() -> None:
        archiver = archiver_of(node, tmp_path / "archive")
        fill(node, 1, 100)
        node.compact()
        assert node.log.first_index() == 1
        await archiver.step()
        node.compact()
        assert node.log.first_index() > 50
        await archiver.stop()

    asyncio.run(scenario())
    assert check_chain(tmp_path / "archive") == list(range(1, 102))
    node.close()


def test_more_than_is_held_is_given_up_oldest_first(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, archive = Told(), tmp_path / "archive"
    destination = OutOfReach(archive)
    with_destination(monkeypatch, destination)
    config = structs.replace(WHOLE, hold_bytes=100_000)

    async def scenario() -> None:
        archiver = archiver_of(node, archive, told, config)
        destination.is_away = False
        await archiver.step()
        destination.is_away = True
        fill(node, 1, 100)
        await archiver.step()
        assert [name for name, _ in told.alarms] == [ALARM_LAG]
        given_up = int(told.value("quorate_archive_given_up_entries_total"))
        assert 40 < given_up < 70
        assert told.value("quorate_archive_lag_entries") == 100 - given_up
        assert told.value("quorate_archive_failures_total", reason="destination") == 1
        node.put([commands.ClockTick(1)])
        node.compact()
        assert 1 < node.log.first_index() <= given_up + 2
        destination.is_away = False
        await archiver.step()
        assert len(ranges(archive)) == 1, "it waits a moment before it tries again"
        monkeypatch.setattr(archiver, "_retry_at", 0.0)
        await archiver.step()
        assert told.value("quorate_archive_lag_entries") == 0
        _, (manifest, _) = ranges(archive)
        assert (manifest.first, manifest.last) == (given_up + 2, 102)
        assert manifest.is_gap_before
        assert [row["index"] for row in table(archive, Part.ENTRIES)] == [
            1,
            *range(given_up + 2, 103),
        ]
        fill(node, 200, 2)
        await archiver.step()
        assert not ranges(archive)[-1][0].is_gap_before
        await archiver.stop()

    asyncio.run(scenario())
    node.close()


def test_ranges_behind_a_snapshot_say_so(node: Node, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    fill(node, 1, 5)
    other = Node(tmp_path / "other", keeps_effects=True)
    other.put(setup_commands())

    async def scenario() -> None:
        archiver = archiver_of(other, archive)
        await archiver.step()
        source = node.store.snapshot(6)
        meta = SnapshotMeta(6, 1, Configuration(("n1.1",)), source.size_bytes())
        sink = other.store.receive_snapshot(meta)
        sink.write(source.read(0, source.size_bytes()))
        sink.finish()
        other.log.reset(meta)
        source.close()
        await archiver.step()
        fill(other, 100, 2)
        await archiver.step()
        fill(other, 102, 1)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    told = [(one.first, one.last, one.restored_at, one.is_gap_before) for one, _ in ranges(archive)]
    assert told == [(1, 1, 0, False), (7, 8, 6, False), (9, 9, 0, False)]
    rows = table(archive, Part.ENTRIES)
    assert [row["previous_index"] for row in rows] == [0, 6, 7, 8]
    for one in (node, other):
        one.close()


def test_a_snapshot_that_comes_during_an_export_ends_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, told = tmp_path / "archive", Told()
    fill(node, 1, 3)
    run = RangeExport.run
    sources: list[StoreSource] = []

    def installing(self: RangeExport) -> object:
        done = run(self)
        sources.append(self._source)  # type: ignore[arg-type]
        sources[-1].is_installing = True
        return done

    async def scenario() -> None:
        archiver = archiver_of(node, archive, told)
        with monkeypatch.context() as patch:
            patch.setattr(RangeExport, "run", installing)
            await archiver.step()
        await archiver.step()
        sources[-1].is_installing = False
        await archiver.stop()

    asyncio.run(scenario())
    assert node.store.kept is not None
    assert node.store.kept.exported.upto == 0
    export(node, archive)
    assert check_chain(archive) == [1, 2, 3, 4]
    node.close()


def test_a_node_that_archives_from_now_on_says_what_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    fill(node, 1, 5)
    node.close()
    node, told = Node(node.path, keeps_effects=True), Told()
    without_data = structs.replace(CONFIG, policy=Policy.NONE)

    async def scenario() -> None:
        archiver = archiver_of(node, tmp_path / "archive", told, without_data)
        await archiver.step()
        assert told.value("quorate_archive_lag_entries") == 0
        fill(node, 6, 2)
        await archiver.step()
        await archiver.stop()

    node.store.flush()
    asyncio.run(scenario())
    ((manifest, _),) = ranges(tmp_path / "archive")
    assert manifest.previous_index == manifest.first - 1 > 0
    assert manifest.last == 8
    node.close()


def test_a_mark_waits_for_what_the_node_reports(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"

    async def scenario() -> None:
        archiver = archiver_of(node, archive, config=WHOLE)
        node.put([arrivals(packet(1))], [commands.AuditMark(1)], [commands.ClockTick(1)])
        await archiver.step()
        assert ranges(archive)[-1][0].last == 2
        archiver.report(3, MarkReport(1, b"d" * 16, ()))
        await archiver.step()
        assert ranges(archive)[-1][0].last == 4
        node.put([commands.AuditMark(2)])
        await archiver.step()
        assert ranges(archive)[-1][0].last == 4
        monkeypatch.setattr(archiver_module, "REPORT_WAIT_S", 0.0)
        await archiver.step()
        assert ranges(archive)[-1][0].last == 5
        await archiver.stop()

    asyncio.run(scenario())
    told = [(row["audit_mark"], row["digest"]) for row in table(archive, Part.ENTRIES)]
    assert told[2:] == [(1, b"d" * 16), (None, None), (2, None)]
    node.close()


def test_acks_are_exported_with_the_entries_on_which_they_depend(
    node: Node, tmp_path: Path
) -> None:
    archive, told = tmp_path / "archive", Told()

    async def scenario() -> None:
        archiver = archiver_of(node, archive, told, WHOLE)
        told.acks = [("n1", 7, 1, 1, 1), ("n1", 7, 2, 2, 2)]
        await archiver.step()
        assert [row["position"] for row in table(archive, Part.ACKS)] == [1]
        fill(node, 1, 1)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    assert [row["position"] for row in table(archive, Part.ACKS)] == [1, 2]
    node.close()


def test_a_stopping_node_names_no_half_range(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    fill(node, 1, 20)

    is_written = threading.Event()
    may_go_on = threading.Event()

    class Slow(FolderDestination):
        @contextmanager
        def create(self, path: str) -> Iterator[Output]:
            with super().create(path) as output:
                is_written.set()
                assert may_go_on.wait(30)
                yield output

    with_destination(monkeypatch, Slow(archive))

    asyncio.run(stop_within_a_round(node, archive, is_written, may_go_on))
    assert ranges(archive) == []
    monkeypatch.undo()
    export(node, archive)
    assert check_chain(archive) == list(range(1, 22))
    node.close()


def test_a_node_that_stops_while_the_archive_is_asked_reads_no_more(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, 1, 20)
    is_asked, may_go_on = threading.Event(), threading.Event()

    class Slow(FolderDestination):
        def folders(self, path: str) -> list[str]:
            is_asked.set()
            assert may_go_on.wait(30)
            return super().folders(path)

    with_destination(monkeypatch, Slow(tmp_path / "archive"))

    asyncio.run(stop_within_a_round(node, tmp_path / "archive", is_asked, may_go_on))
    assert not (tmp_path / "archive").exists()
    node.close()


def test_an_archive_that_does_not_answer_holds_no_stopping_node(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver_module, "STOP_WAIT_S", 0.05)
    may_go_on, is_written = threading.Event(), threading.Event()

    class Hanging(FolderDestination):
        def write(self, path: str, data: bytes | memoryview) -> None:
            is_written.set()
            assert may_go_on.wait(30)
            raise DestinationError("no answer")

    with_destination(monkeypatch, Hanging(tmp_path / "archive"))

    async def scenario() -> None:
        archiver = archiver_of(node, tmp_path / "archive")
        step = asyncio.create_task(archiver.step())
        await asyncio.to_thread(is_written.wait, 30)
        await archiver.stop()
        assert not step.done()
        node.close()
        may_go_on.set()
        await step

    asyncio.run(scenario())


def test_what_is_exported_is_counted(node: Node, tmp_path: Path) -> None:
    archive, told = tmp_path / "archive", Told()
    fill(node, 1, 9)
    export(node, archive, told)
    assert told.value("quorate_archive_ranges_total") == 3
    size = sum(file.size_bytes for manifest, _ in ranges(archive) for file in manifest.files)
    assert told.value("quorate_archive_bytes_total") == size
    assert bytes.fromhex(ranges(archive)[0][0].chain_before) == CHAIN_START
    node.close()


@pytest.mark.parametrize("room", [0, 100, 10_000, 50_000])
def test_a_disk_that_is_full_halfway_leaves_no_range(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    archive, told = tmp_path / "archive", Told()
    disk = Full(archive)
    disk.room = room
    with_destination(monkeypatch, disk)
    for n in range(1, 31):
        node.put([arrivals(packet(n, body=random.Random(n).randbytes(2000)))])

    async def scenario() -> None:
        archiver = archiver_of(node, archive, told, WHOLE)
        await archiver.step()
        assert told.value("quorate_archive_failures_total", reason="destination") == 1
        assert ranges(archive) == []
        disk.room = 1 << 30
        fill(node, 100, 1)
        monkeypatch.setattr(archiver, "_retry_at", 0.0)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    assert check_chain(archive) == list(range(1, 33))
    assert len(list((archive / CLUSTER / "ranges" / "n1.1").iterdir())) == 1, "leftovers"
    node.close()
