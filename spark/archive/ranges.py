"""Which ranges an archive holds, which of their files can be used, and why others cannot."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from qm.archive.manifest import MANIFEST_NAME, RANGES_FOLDER, Manifest
from qm.archive.schema import ADDED, SCHEMA_VERSION, Part
from spark.archive.cover import Piece, cover
from spark.archive.files import FileProblem, JudgedRange, folder_of, judge_range, reaches_above
from spark.archive.standing import NoArchive
from spark.archive.store import ArchiveStore
from spark.findings import FINDINGS
from spark.literals import literal_table


@dataclass
class Ranges:
    """The usable files by part, each with its manifest, and the problems of the others."""

    manifests: list[Manifest] = field(default_factory=list)
    files: dict[Part, list[tuple[Manifest, str]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[FileProblem] = field(default_factory=list)

    def take(self, judged: JudgedRange) -> None:
        """Add a range, as far as it can be used."""
        self.problems += judged.problems
        if judged.manifest is None:
            return
        self.manifests.append(judged.manifest)
        for part, path in judged.files:
            self.files[part].append((judged.manifest, path))

    def above(self, index: int) -> "Ranges":
        """Return the ranges that reach above an index."""
        higher = Ranges()
        higher.manifests = [manifest for manifest in self.manifests if manifest.last > index]
        for part, files in self.files.items():
            higher.files[part] = [(m, path) for m, path in files if m.last > index]
        higher.problems = [p for p in self.problems if p.last > index or not p.last]
        return higher

    def incomparable(self, part: Part) -> frozenset[str]:
        """Return the columns that some of these ranges are too old to have."""
        oldest = min((manifest.schema for manifest in self.manifests), default=SCHEMA_VERSION)
        return frozenset(name for name, since in ADDED.get(part, {}).items() if since > oldest)

    def begins_after(self, group: int) -> int:
        """Return the index of the entry before the first one; 0 for a cluster's first entry."""
        return min((m.previous_index for m in self.manifests if m.group == group), default=0)

    def groups(self) -> list[int]:
        """Return the groups of which there is anything."""
        return sorted({manifest.group for manifest in self.manifests})

    def rows_of_one_copy(self, part: Part) -> int:
        """Return the number of rows of a part by the manifests, for the node that has most."""
        rows: Counter[str] = Counter()
        for manifest in self.manifests:
            rows[manifest.node] += sum(f.rows for f in manifest.files if f.part == part.value)
        return max(rows.values(), default=0)

    def whole_manifests(self) -> list[Manifest]:
        """Return the manifests of ranges with all files of their entries and operations."""
        usable = {path for files in self.files.values() for _, path in files}
        return [
            manifest
            for manifest in self.manifests
            if all(
                f"{folder_of(manifest)}/{file.name}" in usable
                for file in manifest.files
                if file.part in _JUDGED_PARTS
            )
        ]

    def entry_files(self, group: int, after: int, upto: int) -> list[str]:
        """Return files that hold the entries of (after, upto], in their order."""
        return [path for _, paths in self._covering(group, after, upto) for path in paths]

    def entry_bytes(self, group: int, after: int, upto: int) -> Callable[[int], float]:
        """Return a function that estimates how many bytes of these files are below an index."""
        ends: list[int] = [after]
        totals: list[int] = [0]
        for piece, _ in self._covering(group, after, upto):
            files = piece.manifest.files
            size = sum(f.size_bytes for f in files if f.part == Part.ENTRIES.value)
            share = (piece.high - piece.low + 1) / (piece.manifest.last - piece.manifest.first + 1)
            ends.append(piece.high)
            totals.append(totals[-1] + int(size * share))

        def bytes_upto(index: int) -> float:
            at = bisect_left(ends, index)
            if at == 0 or at == len(ends):
                return float(totals[-1] if at else 0)
            share = (index - ends[at - 1]) / (ends[at] - ends[at - 1])
            return totals[at - 1] + share * (totals[at] - totals[at - 1])

        return bytes_upto

    def _covering(self, group: int, after: int, upto: int) -> list[tuple[Piece, list[str]]]:
        """Return the ranges that one copy of these entries is taken from, and their files."""
        paths: dict[tuple[str, int], list[str]] = {}
        for manifest, path in self.files[Part.ENTRIES]:
            if manifest.group == group:
                paths.setdefault((manifest.node, manifest.first), []).append(path)
        own = [m for m in self.manifests if (m.node, m.first) in paths and m.group == group]
        return [
            (piece, sorted(paths[piece.manifest.node, piece.manifest.first]))
            for piece in _with_data_first(own, after, upto)
        ]

    def leave_out(self, problems: list[FileProblem]) -> None:
        """Stop using these files."""
        self.problems += problems
        bad = {problem.path for problem in problems}
        for part, files in self.files.items():
            self.files[part] = [(manifest, path) for manifest, path in files if path not in bad]

    def majority_last(self) -> int:
        """Return the index up to which most nodes exported: up to it replicas can be compared."""
        lasts: dict[str, int] = {}
        for manifest in self.manifests:
            lasts[manifest.node] = max(manifest.last, lasts.get(manifest.node, 0))
        if not lasts:
            return 0
        return sorted(lasts.values(), reverse=True)[len(lasts) // 2]


def _with_data_first(manifests: list[Manifest], after: int, upto: int) -> list[Piece]:
    """Return pieces of ranges that have their entries' data, and of others where none has."""
    pieces: list[Piece] = []
    reached = after
    for piece in cover([m for m in manifests if m.has_data], after, upto):
        pieces += cover(manifests, reached, piece.low - 1)
        pieces.append(piece)
        reached = piece.high
    return pieces + cover(manifests, reached, upto)


_JUDGED_PARTS: Final = frozenset({Part.ENTRIES.value, Part.OPERATIONS.value})
MANIFESTS_MAX: Final = 4_000_000
READERS: Final = 32
"""Manifests and footers read at the same time, since an object store answers slowly."""


def find_ranges(store: ArchiveStore, cluster: str, above: int) -> Ranges:
    """Return the ranges of a cluster that reach above an index. Raises NoArchive."""
    found = Ranges()
    everything = store.names(f"{cluster}/{RANGES_FOLDER}", MANIFEST_NAME)
    if not everything:
        raise NoArchive(f"no ranges of cluster {cluster} below {store.url}")
    paths = [path for path in everything if reaches_above(path, above)]
    if len(paths) > MANIFESTS_MAX:
        raise NoArchive(f"more than {MANIFESTS_MAX} ranges: compact the archive first")
    with ThreadPoolExecutor(READERS) as pool:
        judged = pool.map(partial(judge_range, store, cluster, above), paths)
        for range_ in judged:
            found.take(range_)
    return found


def problem_rows(spark: SparkSession, problems: list[FileProblem]) -> DataFrame:
    """Return problems as findings; there are at most as many as files."""
    rows = [
        (
            "file_unusable", p.group, p.first, p.node or None, p.path, f"the file {p.detail}",
            f'{{"first": {p.first}, "last": {p.last}}}',
        )
        for p in problems
    ]  # fmt: skip
    return literal_table(spark, rows, FINDINGS)
