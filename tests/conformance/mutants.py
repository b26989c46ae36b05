"""Break the code behind covered rows: `python -m tests.conformance.mutants [--seed N] [--rows 20]`.

A claim says: this test fails when the code behind that row breaks. Here the claim is put to the
proof. Of all covered rows a seeded sample is taken; for each row the code behind it is broken,
one small break at a time, in a temporary copy of the tree, and only the row's claiming tests are
run there.

The code behind a row
    1. Candidates are the product statements behind the row's claiming tests (`reach`): executed
    in their functions, or bound at import and named by them. 2. Candidates are ordered by how
    specific they are to the row. First come those that share rare words with the row's text
    (identifiers and numbers, weighed by how few rows of the catalogues have them), in the
    statement itself or the names of the function and class around it, and those whose
    surroundings cite the row's section. Among equals, first come those that the fewest other
    claiming tests stand on; then chance, by the seed. 3. The code behind the row is the first
    BREAKS statements of that order that can be broken (`mutation`); each gets one break. A break
    after which the product can no longer be imported is no break, and the next one is taken.

A row is caught when its claiming tests fail on the majority of its breaks. A row without a
statement to break is not caught: a test that stands on no product code proves nothing about it. A
break that no longer ends (120 s) counts as killed.

Exit code 1 when a sampled row is not caught. Writes build/conformance-mutants.json: rows_sampled,
rows_caught, mutants_tried, mutants_killed, seed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

from tests.conformance.catalogue import REPOSITORY, Row, load_rows
from tests.conformance.ledger import (
    Outcome,
    Project,
    pytest_command,
    read_record,
    tail,
    written_claims,
)
from tests.conformance.mutation import Mutant, Statement
from tests.conformance.reach import Lines, Tree

BREAKS_PER_ROW = 3
BREAK_TIMEOUT_S = 120
TESTS_PASSED, TESTS_FAILED, COLLECTION_FAILED = 0, 1, 2
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "__pycache__", "*_cache", ".hypothesis", ".coverage*"
)
_WORD = re.compile(r"0x[0-9A-Fa-f_]+|\d+|[A-Za-z][A-Za-z0-9_]*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Verdict:
    """What became of one sampled row."""

    row: str
    tests: tuple[str, ...]
    tried: tuple[tuple[Mutant, bool], ...]
    """Each break, and whether the claiming tests failed on it."""

    @property
    def killed(self) -> int:
        """How many breaks the claiming tests noticed."""
        return sum(killed for _, killed in self.tried)

    @property
    def is_caught(self) -> bool:
        """Whether they noticed the majority."""
        return 2 * self.killed > len(self.tried)


class Workshop:
    """A copy of the tree in which code is broken and tests are run."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.root = folder / "tree"
        self.folder = folder
        shutil.copytree(project.root, self.root, ignore=NOT_COPIED)
        moved = {
            name: self.root / getattr(project, name).relative_to(project.root)
            for name in ("tests", "spec_folder", "declared_file")
        }
        self.project = Project(root=self.root, **moved)
        self.tree = Tree(self.root)

    def _run(self, command: list[str], timeout: float | None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.root), str(REPOSITORY)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def first_pass(self) -> tuple[dict[str, Outcome], dict[str, Lines]]:
        """Run all claiming tests; return their outcomes and the product lines each executed."""
        record, contexts = self.folder / "record.json", self.folder / "contexts"
        options = ("--spec-record", str(record), "--spec-contexts", str(contexts))
        files = written_claims(self.project.tests, self.root)
        done = self._run(pytest_command(self.project, files, *options), None)
        if done.returncode != 0:
            raise SystemExit(f"mutants: the claiming tests must pass first:\n{tail(done)}")
        data = CoverageData(str(contexts))
        data.read()
        executed: dict[str, Lines] = {}
        for file in data.measured_files():
            name = Path(file).resolve().relative_to(self.root.resolve()).as_posix()
            for line, names in data.contexts_by_lineno(file).items():
                for test in names:
                    if test:
                        executed.setdefault(test, {}).setdefault(name, set()).add(line)
        return read_record(record), executed

    def kills(self, mutant: Mutant, tests: tuple[str, ...]) -> bool | None:
        """Whether `tests` fail on the break; None when the broken product cannot be imported."""
        file = self.root / mutant.file
        original = file.read_bytes()
        file.write_bytes(mutant.apply(original))
        try:
            return self._fails(mutant, tests)
        finally:
            file.write_bytes(original)

    def _fails(self, mutant: Mutant, tests: tuple[str, ...]) -> bool | None:
        only = self.folder / "only"
        only.write_text("\n".join(tests), encoding="utf-8")
        files = {test.split("::", 1)[0] for test in tests}
        options = ("--spec-only", str(only), "-x", "--spec-no-shrink")
        command = pytest_command(self.project, files, *options)
        try:
            done = self._run(command, BREAK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode in (TESTS_PASSED, TESTS_FAILED):
            return done.returncode == TESTS_FAILED
        if done.returncode != COLLECTION_FAILED:
            raise SystemExit(f"mutants: pytest ended with code {done.returncode}:\n{tail(done)}")
        module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importing = self._run([sys.executable, "-c", f"import {module}"], BREAK_TIMEOUT_S)
        # Tests that no longer collect, on a product that imports, have noticed the break.
        return None if importing.returncode else True


class Ranking:
    """Orders the statements behind a row by how specific they are to it."""

    def __init__(
        self, tree: Tree, rows: dict[str, Row], behind: dict[str, set[Statement]], seed: int
    ) -> None:
        self.tree = tree
        self.seed = seed
        self.behind = behind
        self.rows_with = Counter(word for row in rows.values() for word in words(row.text))
        self.rows_total = len(rows)
        self.tests_on = Counter(s for statements in behind.values() for s in statements)

    def order(self, row: Row, tests: tuple[str, ...]) -> list[Statement]:
        """Statements behind the row that can be broken, most specific first."""
        chance = random.Random(f"{self.seed} {row.id}")
        candidates = {s for test in tests for s in self.behind[test] if s.mutants}
        ordered = sorted(candidates, key=lambda s: (s.file, s.first_line, s.text))
        chance.shuffle(ordered)
        wanted = words(row.text)
        return sorted(ordered, key=lambda s: (-self._relevance(s, row, wanted), self.tests_on[s]))

    def _relevance(self, statement: Statement, row: Row, wanted: set[str]) -> float:
        own = words(statement.text) & wanted
        around = words(" ".join(statement.scope)) & wanted
        score = sum(self._weight(w) for w in own) + sum(self._weight(w) for w in around - own) / 2
        source = self.tree.file(statement.file).source.text
        if cites(source, statement, row.section):
            score += math.log(self.rows_total)
        return round(score, 1)

    def _weight(self, word: str) -> float:
        return math.log(self.rows_total / self.rows_with[word])


def words(text: str) -> set[str]:
    """Identifiers without case and underscores, and numbers by value."""
    found: set[str] = set()
    for word in _WORD.findall(text):
        if word[0].isdigit():
            value = int(word.replace("_", ""), 16 if word[:2].lower() == "0x" else 10)
            found |= {str(value)} if value > 1 else set()
        elif len(word) > 1:
            found.add(word.replace("_", "").lower())
            found |= {part.lower() for part in _CAMEL.sub("_", word).split("_") if len(part) > 1}
    return found


def cites(source: str, statement: Statement, section: str) -> bool:
    """Whether the file cites the row's section near the statement: in its function or class."""
    lines = source.splitlines()
    first = statement.first_line
    if statement.scope:
        opening = re.compile(rf"^\s*(async\s+def|def|class)\s+{re.escape(statement.scope[0])}\b")
        above = [n for n in range(1, first + 1) if opening.match(lines[n - 1])]
        start = above[-1] if above else first
    else:
        start = max(1, first - 3)
    near = "\n".join(lines[start - 1 : statement.last_line])
    return re.search(rf"(?<![\d.]){re.escape(section)}(?![\d.])", near) is not None


def examine(workshop: Workshop, row: Row, tests: tuple[str, ...], ranking: Ranking) -> Verdict:
    """Break the code behind one row, BREAKS_PER_ROW times, one at a time."""
    chance = random.Random(f"{ranking.seed} {row.id} breaks")
    tried: list[tuple[Mutant, bool]] = []
    for statement in ranking.order(row, tests):
        mutants = list(statement.mutants)
        chance.shuffle(mutants)
        for mutant in mutants:
            killed = workshop.kills(mutant, tests)
            if killed is not None:
                tried.append((mutant, killed))
                break
        if len(tried) == BREAKS_PER_ROW:
            break
    return Verdict(row.id, tests, tuple(tried))


def report(verdict: Verdict) -> str:
    """One row's verdict for people."""
    word = "caught" if verdict.is_caught else "NOT CAUGHT"
    lines = [f"{verdict.row}: {word}, {verdict.killed} of {len(verdict.tried)} breaks noticed"]
    for mutant, killed in verdict.tried:
        lines.append(f"    {'killed  ' if killed else 'survived'} {mutant}")
    if not verdict.is_caught:
        lines += [f"    claimed by {test}" for test in verdict.tests]
    return "\n".join(lines)


def run(project: Project, seed: int, sample_size: int) -> list[Verdict]:
    """Examine a seeded sample of the covered rows of `project`; print each verdict."""
    rows = load_rows(project.spec_folder)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(project, Path(folder))
        outcomes, executed = workshop.first_pass()
        claims: dict[str, tuple[str, ...]] = {}
        for test, outcome in outcomes.items():
            for claimed in outcome.ids if outcome.holds else ():
                claims[claimed] = (*claims.get(claimed, ()), test)
        sample = random.Random(seed).sample(sorted(claims), min(sample_size, len(claims)))
        behind = {test: workshop.tree.behind(test, executed.get(test, {})) for test in outcomes}
        ranking = Ranking(workshop.tree, rows, behind, seed)
        for claimed in sample:
            verdict = examine(workshop, rows[claimed], claims[claimed], ranking)
            print(report(verdict), flush=True)
            verdicts.append(verdict)
    return verdicts


def main(argv: list[str] | None = None) -> int:
    """Run the mutants; 0 when every sampled row is caught."""
    parser = argparse.ArgumentParser(prog="tests.conformance.mutants")
    parser.add_argument("--seed", type=int, default=1, help="which rows and breaks are taken")
    parser.add_argument("--rows", type=int, default=20, help="how many rows are sampled")
    parser.add_argument("--json", type=Path, default=Path("build/conformance-mutants.json"))
    arguments = parser.parse_args(argv)
    verdicts = run(Project(), arguments.seed, arguments.rows)
    figures = {
        "rows_sampled": len(verdicts),
        "rows_caught": sum(verdict.is_caught for verdict in verdicts),
        "mutants_tried": sum(len(verdict.tried) for verdict in verdicts),
        "mutants_killed": sum(verdict.killed for verdict in verdicts),
        "seed": arguments.seed,
    }
    text = json.dumps(figures, indent=1)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if verdicts and figures["rows_caught"] == figures["rows_sampled"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
