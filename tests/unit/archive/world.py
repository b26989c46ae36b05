"""One node's log and store with a real archiver, driven round by round."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from msgspec import structs
from prometheus_client import CollectorRegistry

from qm.archive import archiver as archiver_module
from qm.archive.archiver import Archiver, ArchiverConfig
from qm.archive.bodies import Span
from qm.archive.destination import (
    Destination,
    DestinationError,
    FolderDestination,
    Output,
)
from qm.archive.manifest import MANIFEST_NAME, Manifest, decode_manifest
from qm.archive.ranges import AckRow, Identity, Policy
from qm.archive.schema import Part
from qm.archive.source import LogGone, LogHold
from qm.observe.metrics import Metrics
from qm.store.effects.chain import CHAIN_START, chained
from qm.store.effects.effects_log import EffectsLog
from qm.store.signing import Signer
from qm.store.snapshot import Pinned
from raft.log_view import Compacted
from tests.unit.store.test_store import Node

CLUSTER = "ab" * 16
IDENTITY = Identity(CLUSTER, "n1.1", 1)
CONFIG = ArchiverConfig("", Policy.FULL, 4, 1 << 30, 0.0, 1 << 30)
"""Ranges of four entries at most, and of whatever there is at every step."""


class StoreSource:
    """Implements `qm.archive.source.ArchiveSource` over a log and a store."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_installing = False

    def keeper(self) -> EffectsLog | None:
        return None if self.is_installing else self.node.store.kept

    def hold(self, index: int) -> LogHold:
        try:
            return self.node.store.hold_log(index)
        except Compacted as error:
            raise LogGone(str(error)) from error

    def next_row(self, above: int) -> tuple[int, bytes] | None:
        rows = self.rows(above, 1)
        return rows[0] if rows else None

    def rows(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        return self.node.store.kept_rows(above, limit)

    def flush(self) -> None:
        self.node.store.flush()

    def pin(self) -> Pinned:
        return self.node.store.pin()

    def entry(self, index: int) -> bytes | memoryview:
        try:
            return self.node.store.read_entry(index)
        except Compacted as error:
            raise LogGone(str(error)) from error


class Told:
    """Calls from and to an archiver."""

    def __init__(self) -> None:
        self.alarms: list[tuple[str, str]] = []
        self.acks: list[AckRow] = []
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def take_acks(self) -> Sequence[AckRow]:
        acks, self.acks = self.acks, []
        return acks

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def archiver_of(
    node: Node,
    url: Path | str,
    told: Told | None = None,
    config: ArchiverConfig = CONFIG,
    identity: Identity = IDENTITY,
    turn: int = 0,
    others: Mapping[str, Span] = MappingProxyType({}),
    wanted_s: Callable[[], float] = lambda: 0.0,
    signer: Signer | None = None,
) -> Archiver:
    """Return an archiver that holds the node's log; so many others write checkpoints, or entries'
    data, before it. `others`: what they say that they wrote. A quiet node, without `wanted_s`.
    """
    told = told or Told()

    async def ask_others() -> Mapping[str, Span]:
        return others

    made = Archiver(
        structs.replace(config, url=str(url)),
        identity,
        StoreSource(node),
        told.take_acks,
        lambda name, text: told.alarms.append((name, text)),
        told.metrics,
        lambda: turn,
        ask_others,
        wanted_s,
        lambda: signer,
    )
    made.begin()
    return made


def export(
    node: Node,
    url: Path | str,
    told: Told | None = None,
    config: ArchiverConfig = CONFIG,
    signer: Signer | None = None,
) -> None:
    """Export everything there is."""

    async def scenario() -> None:
        archiver = archiver_of(node, url, told, config, signer=signer)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())


class Failing(FolderDestination):
    """A folder that fails at one of the calls that change it, before or after it did."""

    def __init__(self, root: Path, calls: int, *, is_done: bool) -> None:
        super().__init__(root)
        self.left = calls
        self._is_done = is_done

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        with self._guarded(), super().create(path) as output:
            yield output

    def remove_folder(self, path: str) -> None:
        with self._guarded():
            super().remove_folder(path)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self._is_done):
            raise DestinationError("out of reach")
        is_last = self.left == 0
        yield
        if is_last:
            raise DestinationError("no answer")


def with_destination(monkeypatch: Any, destination: Destination) -> None:
    monkeypatch.setattr(archiver_module, "open_destination", lambda url: destination)


def ranges(root: Path, node: str = "n1.1") -> list[tuple[Manifest, Path]]:
    """Return a node's ranges in order, each of whose files is what its manifest says."""
    found = []
    for folder in sorted((root / CLUSTER / "ranges" / node).iterdir()):
        path = folder / MANIFEST_NAME
        if not path.exists():
            continue
        manifest = decode_manifest(path.read_bytes())
        for file in manifest.files:
            data = (folder / file.name).read_bytes()
            assert (len(data), blake3(data).hexdigest()) == (file.size_bytes, file.blake3)
            assert pq.read_metadata(folder / file.name).num_rows == file.rows
        found.append((manifest, folder))
    return found


def table(root: Path, part: Part, node: str = "n1.1") -> list[dict[str, Any]]:
    """Return a part's rows over all ranges."""
    files = [
        pq.read_table(folder / file.name)
        for manifest, folder in ranges(root, node)
        for file in manifest.files
        if file.part == part.value
    ]
    rows: list[dict[str, Any]] = pa.concat_tables(files).to_pylist() if files else []
    return rows


def check_chain(root: Path, node: str = "n1.1") -> list[int]:
    """Check that entries follow one another from the first on, each once; return the indexes."""
    previous, value, end = 0, CHAIN_START, 0
    indexes = []
    for manifest, _ in ranges(root, node):
        assert manifest.first == end + 1
        assert not manifest.is_gap_before
        assert bytes.fromhex(manifest.chain_before) == value
        inside = [
            row
            for row in table(root, Part.ENTRIES, node)
            if manifest.first <= row["index"] <= manifest.last
        ]
        for row in inside:
            assert (row["previous_index"], row["chain_before"]) == (previous, value)
            assert blake3(row["data"]).digest() == row["data_blake3"]
            value = chained(value, row["index"], row["term"], row["data_blake3"])
            assert row["chain"] == value
            previous = row["index"]
            indexes.append(previous)
        assert bytes.fromhex(manifest.chain_after) == value
        end = manifest.last
    assert len(set(indexes)) == len(indexes)
    return indexes
