"""Rounds on disk, each written as soon as it is over: an interrupted run can be resumed."""

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from qm.drill.runner import Round
from qm.node.packages import PACKAGE_FOLDERS

DIGEST_CHARS: Final = 12


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    scenario: str
    seed: int
    target: str
    rate_per_s: float
    build: str
    """The build that ran, as `this_build` gives it."""
    round: Round | None = None
    failure: str = ""
    """Why there is no round: a node exited on its own, or gave an impossible answer."""

    @property
    def holds(self) -> bool:
        """Whether the entry passed."""
        return self.round is not None and self.round.holds


class RoundsFile:
    """Appends entries, each passed to the operating system at once."""

    def __init__(self, path: Path, target: str, rate_per_s: float) -> None:
        """`target`, `rate_per_s`: those of the rounds to come."""
        self._path = path
        self._target = target
        self._rate_per_s = rate_per_s
        self.build: Final = this_build()

    def clear(self) -> None:
        """Start over with an empty file."""
        self._path.unlink(missing_ok=True)

    def standing(self) -> list[Entry]:
        """Return the rounds that still count: those of each scenario since one last failed, run on
        the same target at the same rate, each seed once.
        """
        if not self._path.exists():
            return []
        lines = self._path.read_bytes().split(b"\n")
        # The last line may be cut, if the process was killed.
        entries = (msgspec.json.decode(line, type=Entry) for line in lines[:-1])
        same = (e for e in entries if (e.target, e.rate_per_s) == (self._target, self._rate_per_s))
        return _since_failures(same)

    def judged(self, one: Round) -> None:
        """Record a round with its verdict."""
        self._append(one.scenario, one.seed, one, "")

    def failed(self, scenario: str, seed: int, failure: str) -> None:
        """Record a round that ended without a verdict, which is a failure."""
        self._append(scenario, seed, None, failure)

    def _append(self, scenario: str, seed: int, one: Round | None, failure: str) -> None:
        entry = Entry(
            scenario=scenario,
            seed=seed,
            target=self._target,
            rate_per_s=self._rate_per_s,
            build=self.build,
            round=one,
            failure=failure,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")


def this_build() -> str:
    """Return the version of this build with a digest of its source."""
    digest = hashlib.sha256()
    for root in PACKAGE_FOLDERS:
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root.parent)}\n".encode())
            digest.update(path.read_bytes())
    return f"{metadata.version('quorate')}+{digest.hexdigest()[:DIGEST_CHARS]}"


def _since_failures(entries: Iterable[Entry]) -> list[Entry]:
    standing: dict[str, dict[int, Entry]] = {}
    for entry in entries:
        of_scenario = standing.setdefault(entry.scenario, {})
        if entry.holds:
            of_scenario[entry.seed] = entry
        else:
            of_scenario.clear()
    return [entry for of_scenario in standing.values() for entry in of_scenario.values()]
