"""Which tests belong to a line of product code, the likeliest to notice first."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests.mutation.reach_plugin import LINES, TESTS

SLOW_S: Final = 0.5
"""A test that takes longer waits for clocks or sockets."""
BUDGET_S: Final = 15.0
"""What the tests of one line may take together, measured on sound code with coverage on."""


class Reach:
    """What a sound run measured."""

    def __init__(self, folder: Path, root: Path) -> None:
        """`folder`: of the plugin. `root`: of the tree that ran."""
        tests = json.loads((folder / TESTS).read_text(encoding="utf-8"))
        self.took_s: dict[str, float] = tests["took_s"]
        self.failed: frozenset[str] = frozenset(tests["failed"])
        self.slow = frozenset(name for name, took_s in self.took_s.items() if took_s > SLOW_S)
        self._data = CoverageData(str(folder / LINES))
        self._data.read()
        self._root = root.resolve()

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that execute the line, or any of its file if only an import does, and
        those of the module that is named as the file: what an earlier test left in a cache, they
        do not execute.

        Nearest first, then the quickest, until BUDGET_S is spent.
        """
        by_line = self._data.contexts_by_lineno(str(self._root / file))
        names = {name for name in by_line.get(line, ()) if name}
        if not names:
            names = {name for contexts in by_line.values() for name in contexts if name}
        if not names:  # a module of values alone
            names = set(self.took_s)
        names |= {name for name in self.took_s if _parts(_module(name))[-1] == _parts(file)[-1]}
        return affordable(names - self.failed, file, self.took_s)


def affordable(names: set[str], file: str, took_s: dict[str, float]) -> list[str]:
    """Return tests in the order in which they are run, those that no budget is left for not."""
    ordered = sorted(names, key=lambda name: (-nearness(name, file), took_s.get(name, 0.0), name))
    chosen: list[str] = []
    spent_s = 0.0
    for name in ordered:
        spent_s += took_s.get(name, 0.0)
        if spent_s > BUDGET_S and chosen:
            break
        chosen.append(name)
    return chosen


def nearness(test: str, file: str) -> int:
    """Return how many names of folders and modules a test shares with a file."""
    of_test = _parts(_module(test))
    of_file = _parts(file.removeprefix("qm/"))
    shared = 0
    for one, other in zip(of_test, of_file, strict=False):
        if one != other:
            break
        shared += 1
    return shared + (of_test[-1] == of_file[-1])


def _module(test: str) -> str:
    """Return the path of the file that a test's module is named after, as far as it tells."""
    return test.partition("::")[0].removeprefix("tests/unit/").replace("test_", "")


def _parts(path: str) -> Sequence[str]:
    return path.removesuffix(".py").split("/")
