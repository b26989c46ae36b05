"""Rounds of `tests.bench.failover` on disk, so that a measurement can be taken in several calls."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import msgspec


class Gap(msgspec.Struct, frozen=True):
    """A round."""

    what: str
    turn: int
    ms: float
    load_average: float
    """Of the machine, when the round began."""


class Judged(msgspec.Struct, frozen=True):
    """What one call did to one cluster, and what became of the probes: a line."""

    backlog: int | None
    """None: a peer's, which is not judged."""
    gaps: tuple[Gap, ...]
    build: str
    lost: int = 0
    duplicated: int = 0
    holds: bool = True


class Series(msgspec.Struct):
    """Rounds of one kind, of all calls."""

    what: str
    backlog: int | None
    gaps: list[Gap]
    calls: int = 0
    lost: int = 0
    """These and `holds`: of all probes of the clusters in those calls."""
    duplicated: int = 0
    holds: bool = True

    @property
    def name(self) -> str:
        return f"gap-{self.what}" if self.backlog is None else f"gap-{self.what}-{self.backlog}"

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(gap.ms for gap in self.gaps)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

    @property
    def median_ms(self) -> float:
        return round(median(gap.ms for gap in self.gaps), 1)


class RoundsFile:
    """Appends what a call did to a cluster when it is judged: what is not, counts for nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, judged: Judged) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(judged) + b"\n")

    def read(self) -> list[Judged]:
        if not self._path.exists():
            return []
        # The last line, of a process that was killed, may be cut.
        lines = self._path.read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=Judged) for line in lines]

    def missing(self, what: str, backlog: int | None, rounds: int) -> list[int]:
        """Return the turns that are not there."""
        found = {gap.turn for one in self.read() if one.backlog == backlog for gap in of(one, what)}
        return [turn for turn in range(rounds) if turn not in found]

    def series(self) -> list[Series]:
        found: dict[tuple[str, int | None], Series] = {}
        for one in self.read():
            for what, gaps in _by_kind(one.gaps):
                series = found.setdefault((what, one.backlog), Series(what, one.backlog, []))
                series.gaps += gaps
                series.calls += 1
                series.lost += one.lost
                series.duplicated += one.duplicated
                series.holds &= one.holds
        return list(found.values())


def of(judged: Judged, what: str) -> Iterator[Gap]:
    return (gap for gap in judged.gaps if gap.what == what)


def _by_kind(gaps: Iterable[Gap]) -> Iterable[tuple[str, list[Gap]]]:
    kinds: dict[str, list[Gap]] = defaultdict(list)
    for gap in gaps:
        kinds[gap.what].append(gap)
    return kinds.items()
