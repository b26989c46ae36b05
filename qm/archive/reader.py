"""Reads the operations and entries of an archive with pyarrow alone, for questions about messages.

The ranges of replicas overlap: each entry is read from one of them, and from the next one where a
file cannot be used. One row group is in memory at a time, and files and row groups that cannot hold
what is wanted are not read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from qm.archive.destination import DestinationError, file_system
from qm.archive.manifest import (
    MANIFEST_NAME,
    RANGES_FOLDER,
    Manifest,
    ManifestError,
    ManifestFile,
    decode_manifest,
    folder_indexes,
    node_folder,
    range_folder,
)
from qm.archive.schema import SCHEMA_VERSION, SCHEMAS, Part

RANGES_MAX: Final = 1_000_000
"""Names of ranges in memory; an archive with more is to be compacted first."""
_ROWS_AT_A_TIME: Final = 1_024
"""Rows as Python values at the same time."""
_I64_MAX: Final = (1 << 63) - 1
Row = dict[str, Any]
_Test = Callable[[Any], Any]
"""From a column to one boolean per row."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which operations to find; what is not given admits all."""

    message: tuple[bytes, int] | None = None
    """Source queue manager and ordinal."""
    pattern: str = ""
    """Shell pattern for names of queues, in any case."""
    kinds: Sequence[str] = ()
    reasons: Sequence[int] = ()
    first: int = 0
    """Lowest index."""
    since_ms: int = 0
    until_ms: int = _I64_MAX

    def bounds(self, reached: int) -> dict[str, tuple[int, int]]:
        """Return the lowest and highest value of columns that may have statistics."""
        found = {
            "index": (max(self.first, reached + 1), _I64_MAX),
            "time_ms": (self.since_ms, self.until_ms),
        }
        if self.message is not None:
            found["message_ordinal"] = (self.message[1], self.message[1])
        return found

    def tests(self, reached: int) -> Iterator[tuple[str, _Test]]:
        """Yield columns, each with what its values must pass, the rarest first."""
        if self.message is not None:
            source, ordinal = self.message
            yield "message_ordinal", lambda column: pc.equal(column, ordinal)
            yield (
                "source_queue_manager",
                lambda column: pc.equal(column, pa.scalar(source, column.type)),
            )
        for name, values in (("reason", self.reasons), ("operation", self.kinds)):
            if values:
                yield name, _is_one_of(values)
        if self.pattern:
            yield "queue", self._is_like
        if self.since_ms or self.until_ms < _I64_MAX:
            yield "time_ms", _is_between(self.since_ms, self.until_ms)
        yield "index", _is_between(max(self.first, reached + 1), _I64_MAX)

    def _is_like(self, column: Any) -> Any:
        pattern = self.pattern.casefold()
        names = [n for n in column.unique().to_pylist() if fnmatchcase(n.casefold(), pattern)]
        return pc.is_in(column, pa.array(names, column.type))


def _is_one_of(values: Sequence[object]) -> _Test:
    return lambda column: pc.is_in(column, pa.array(values, column.type))


def _is_between(low: int, high: int) -> _Test:
    return lambda column: pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))


class Operation(NamedTuple):
    """One row of `operations`, and where it is in its row group."""

    row: Row
    table: pa.Table
    at: int

    def near(self, step: int) -> Row | None:
        """Return the row so many rows further on, if it is of the same entry."""
        at = self.at + step
        if not 0 <= at < self.table.num_rows:
            return None
        (row,) = self.table.slice(at, 1).to_pylist()
        return row if row["index"] == self.row["index"] else None


class Span(NamedTuple):
    """The indexes of a range, from the name of its folder."""

    first: int
    last: int
    node: str


class UnusableFile(Exception):
    """A file of a range cannot be used; the text says why."""


class ArchiveReader:
    """What an archive holds of one cluster."""

    def __init__(self, url: str, cluster: str = "") -> None:
        """`url`: a folder, or what a node's `archive.url` may be; `cluster`: may be left out if
        there is only one. Raises DestinationError.
        """
        is_url = "://" in url
        self._files, self._root = file_system(url) if is_url else (fs.LocalFileSystem(), url)
        self._cluster = cluster or self._only_cluster(url)
        self._spans = {node: self._spans_of(node) for node in self._nodes()}
        if not any(self._spans.values()):
            raise DestinationError(f"{url} holds nothing of cluster {self._cluster}")
        self.problems: list[str] = []
        """Files that cannot be used, and why."""
        self._entries: pa.Table | None = None
        """The row group of entries that was read last."""

    @property
    def begin(self) -> int:
        """The first index that it holds."""
        return min(spans[0].first for spans in self._spans.values() if spans)

    @property
    def end(self) -> int:
        """The last index that it holds."""
        return max(spans[-1].last for spans in self._spans.values() if spans)

    # Folders

    def _only_cluster(self, url: str) -> str:
        found = [name for name in self._folders("") if self._folders(f"{name}/{RANGES_FOLDER}")]
        if len(found) != 1:
            names = ", ".join(found)
            raise DestinationError(
                f"{url} holds the clusters {names}: say which with --cluster"
                if found
                else f"there is no archive in {url}"
            )
        return found[0]

    def _nodes(self) -> list[str]:
        return self._folders(f"{self._cluster}/{RANGES_FOLDER}")

    def _spans_of(self, node: str) -> list[Span]:
        names = self._folders(node_folder(self._cluster, node))
        if len(names) > RANGES_MAX:
            raise DestinationError(f"more than {RANGES_MAX} ranges: compact the archive first")
        indexes = [found for name in names if (found := folder_indexes(name)) is not None]
        return [Span(first, last, node) for first, last in sorted(indexes)]

    def _folders(self, path: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{path}", allow_not_found=True)
        try:
            found = self._files.get_file_info(selector)
        except (pa.ArrowException, OSError) as error:
            raise DestinationError(f"{self._root}/{path}: {error}") from error
        return sorted(one.base_name for one in found if one.type is fs.FileType.Directory)

    # Files

    def _manifest(self, span: Span) -> Manifest | None:
        """Return the manifest of a range; None: it is not complete. Raises UnusableFile."""
        folder = range_folder(self._cluster, span.node, span.first, span.last)
        path = f"{folder}/{MANIFEST_NAME}"
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as stream:
                manifest = decode_manifest(stream.read())
        except FileNotFoundError:
            return None
        except (ManifestError, pa.ArrowException, OSError) as error:
            raise UnusableFile(f"{path}: {error}") from error
        own = range_folder(manifest.cluster, manifest.node, manifest.first, manifest.last)
        if own != folder:
            raise UnusableFile(f"{path} belongs to {own}")
        if not 1 <= manifest.schema <= SCHEMA_VERSION:
            raise UnusableFile(
                f"{path} has schema {manifest.schema}, this build knows up to {SCHEMA_VERSION}"
            )
        return manifest

    @contextmanager
    def _opened(self, span: Span, file: ManifestFile) -> Iterator[pq.ParquetFile]:
        """Open a file of a range. Raises UnusableFile, also for errors while it is read."""
        folder = range_folder(self._cluster, span.node, span.first, span.last)
        path = f"{folder}/{file.name}"
        try:
            with self._files.open_input_file(f"{self._root}/{path}") as opened:
                if opened.size() != file.size_bytes:
                    raise UnusableFile(
                        f"{path} has {opened.size()} bytes, its manifest says {file.size_bytes}"
                    )
                with pq.ParquetFile(opened) as parquet:
                    yield parquet
        except (pa.ArrowException, OSError, KeyError) as error:
            raise UnusableFile(f"{path}: {error}") from error

    def _files_of(self, span: Span, part: Part, *, has_data: bool = False) -> list[ManifestFile]:
        manifest = self._manifest(span)
        if manifest is None or (has_data and not manifest.has_data):
            return []
        return [file for file in manifest.files if file.part == part.value]

    # Operations

    def operations(self, wanted: Wanted) -> Iterator[Operation]:
        """Yield operations in their order. Entries that no usable file has are missing: then
        `problems` names them.
        """
        spans = self._in_time(wanted)
        reached = max(wanted.first, min((span.first for span in spans), default=1)) - 1
        complete = reached
        for span in spans:
            if span.last <= reached:
                continue
            try:
                files = self._files_of(span, Part.OPERATIONS)
                complete = max(complete, span.last) if files else complete
                for file in files:
                    with self._opened(span, file) as parquet:
                        self._note_gap(reached + 1, span.first - 1)
                        for k, high in _places(parquet, wanted, reached):
                            yield from _matching(parquet, k, wanted, reached)
                            reached = max(reached, high)
                    reached = span.last
            except UnusableFile as error:
                complete = max(complete, span.last)
                self.problems.append(str(error))
        self._note_gap(reached + 1, complete)

    def _note_gap(self, first: int, last: int) -> None:
        if first <= last:
            self.problems.append(f"no usable file has the entries {first} to {last}")

    def _in_time(self, wanted: Wanted) -> list[Span]:
        """Return the ranges that may hold what is wanted, in the order of their indexes."""
        found = []
        for spans in self._spans.values():
            low, high = 0, len(spans)
            with suppress(UnusableFile):
                if wanted.since_ms:
                    low = bisect_left(spans, wanted.since_ms, key=lambda span: self._times(span)[1])
                if wanted.until_ms < _I64_MAX:
                    high = bisect_right(
                        spans, wanted.until_ms, lo=low, key=lambda span: self._times(span)[0]
                    )
            found += spans[low:high]
        return sorted(found, key=lambda span: (span.first, -span.last, span.node))

    def _times(self, span: Span) -> tuple[int, int]:
        """Return the first and the last time of a range: cluster time never goes back.

        Raises UnusableFile.
        """
        for file in self._files_of(span, Part.ENTRIES):
            with self._opened(span, file) as parquet:
                groups = parquet.metadata.num_row_groups
                bounds = [_statistics(parquet, k)["time_ms"] for k in range(groups)]
            if bounds:
                return bounds[0][0], bounds[-1][1]
        raise UnusableFile(f"{span} has no entries")

    # Entries

    def entry(self, index: int) -> bytes | None:
        """Return an entry's data; None if no usable file has them."""
        data = _data_of(self._entries, index)
        if data is not None:
            return data
        for spans in self._spans.values():
            at = bisect_right(spans, index, key=lambda span: span.first) - 1
            if at < 0 or spans[at].last < index:
                continue
            try:
                self._entries = self._read_entries(spans[at], index)
            except UnusableFile as error:
                if str(error) not in self.problems:
                    self.problems.append(str(error))
                continue
            data = _data_of(self._entries, index)
            if data is not None:
                return data
        return None

    def _read_entries(self, span: Span, index: int) -> pa.Table | None:
        """Return the row group that an entry is in. Raises UnusableFile."""
        for file in self._files_of(span, Part.ENTRIES, has_data=True):
            with self._opened(span, file) as parquet:
                for k in range(parquet.metadata.num_row_groups):
                    low, high = _statistics(parquet, k).get("index", (index, index))
                    if low <= index <= high:
                        return parquet.read_row_group(k, columns=["index", "data"])
        return None


def _data_of(entries: pa.Table | None, index: int) -> bytes | None:
    if entries is None:
        return None
    at = pc.index(entries["index"], index).as_py()
    data: bytes | None = entries["data"][at].as_py() if at >= 0 else None
    return data


def _statistics(parquet: pq.ParquetFile, k: int) -> dict[str, tuple[int, int]]:
    """Return the bounds of the columns of a row group that has them."""
    group = parquet.metadata.row_group(k)
    columns = [group.column(i) for i in range(group.num_columns)]
    return {
        column.path_in_schema: (column.statistics.min, column.statistics.max)
        for column in columns
        if column.is_stats_set and column.statistics.has_min_max
    }


def _places(parquet: pq.ParquetFile, wanted: Wanted, reached: int) -> Iterator[tuple[int, int]]:
    """Yield the row groups that may hold what is wanted, each with its highest index."""
    bounds = wanted.bounds(reached)
    for k in range(parquet.metadata.num_row_groups):
        found = _statistics(parquet, k)
        if all(
            low <= found[n][1] and found[n][0] <= high
            for n, (low, high) in bounds.items()
            if n in found
        ):
            yield k, found.get("index", (0, 0))[1]


def _matching(parquet: pq.ParquetFile, k: int, wanted: Wanted, reached: int) -> Iterator[Operation]:
    """Yield what is wanted of a row group; other columns are only read where there is something."""
    mask = None
    for name, test in wanted.tests(reached):
        column = parquet.read_row_group(k, columns=[name])[name]
        passed = test(column)
        mask = passed if mask is None else pc.and_(mask, passed)
        if not pc.any(mask).as_py():
            return
    names = [name for name in SCHEMAS[Part.OPERATIONS].names if name in parquet.schema_arrow.names]
    table = parquet.read_row_group(k, columns=names).combine_chunks()
    places = pc.indices_nonzero(mask)
    for begin in range(0, len(places), _ROWS_AT_A_TIME):
        some = places.slice(begin, _ROWS_AT_A_TIME)
        for at, row in zip(some.to_pylist(), table.take(some).to_pylist(), strict=True):
            yield Operation(row, table, at)
