"""Break the code behind covered rows: `python -m tests.conformance.mutants [--seed N] [--rows 20]
[--document mqac]`.

A claim says: this test fails when the code behind that row breaks. Here the claim is put to the
proof. Of all covered rows a seeded sample is taken (a larger one holds the smaller); for each row
the code behind it is broken, one small break at a time, in a temporary copy of the tree, and only
the row's claiming tests are run there.

The code behind a row
    1. Candidates are the breaks (`mutation`) of the product statements behind the row's claiming
       tests (`reach`): executed inside functions, or bound at import and named by what is.
    2. They are ordered twice. By how much they speak of the row: words (identifiers and numbers)
       that the row's text shares with the broken expression, with its statement, with the names and
       the docstring around it, each word weighted by how few rows and how few candidates have it,
       and whether the function, class or module cites the row's section, or the interface is the
       one that its chapter is about. And by how few other
       claiming tests stand on the statement. Chance, by the seed, decides among equals.
    3. The code behind the row is the head of both orders in turn: breaks that do not overlap, at
       most BREAKS_PER_SCOPE in one function, class or module. A break after which the product can
       no longer be imported is none, and the next is taken.

A break is killed when a claiming test fails on it. Breaks are made until one is killed by an
assertion, at most BREAKS_PER_ROW. A row is caught when one of them was killed and its claiming
tests assert something (`assert`, `pytest.raises`, in the test or a helper of the tests): a test
that calls the code and looks at nothing fails on many breaks, too, by running into an error. So a
claim that asserts nothing, one that stands on no product code and one that no break disturbs are
not caught. Words are only a guess at meaning, and some breaks change nothing that can be seen:
that is why a row gets several, and why the share of all breaks that were killed is reported
beside the rows.

Exit code 1 when a sampled row is not caught. build/conformance-mutants.json has the figures and
every row with its breaks. It is written after each row, and a run goes on where one with the same
seed was stopped: a row that was caught is taken from the report as long as neither it nor its
claiming tests nor the product files behind them have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import queue
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tests.conformance.mutation_data import INTERFACES
from tests.conformance.reach import Lines, Module, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BREAKS_PER_ROW = 6
BREAKS_PER_SCOPE = 2
# What citing the row's section is worth, against the row's most telling word.
SECTION_WORTH = 0.5
DOCUMENTS = {
    "mqmq": "MS-MQMQ",
    "mqqb": "MS-MQQB",
    "mqdmpr": "MS-MQDMPR",
    "mqac": "MC-MQAC",
    "mqrr": "MS-MQRR",
    "mqmr": "MS-MQMR",
}
BREAK_TIMEOUT_S = 120
TESTS_PASSED, TESTS_FAILED, COLLECTION_FAILED = 0, 1, 2
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "__pycache__", "*_cache", ".hypothesis", ".coverage*"
)
_WORD = re.compile(r"0x[0-9A-Fa-f_]+|\d+|[A-Za-z][A-Za-z0-9_]*")
_OBJECT = re.compile(r"\bI?(MSMQ[A-Z][A-Za-z]+)")
_DOCUMENT = re.compile(r"\[(M[SC]-[A-Z]+)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Fate(Enum):
    """What became of a break."""

    ASSERTED = "killed by an assertion"
    CRASHED = "killed by an error"
    SURVIVED = "survived"


@dataclass(frozen=True)
class Verdict:
    """What became of one sampled row."""

    row: str
    tests: tuple[str, ...]
    asserts: bool
    """Whether the claiming tests assert anything at all."""
    tried: tuple[tuple[str, Fate], ...]
    """Each break, and what the claiming tests did with it."""
    fingerprint: str = ""
    """Of all that the verdict was found on."""

    @property
    def killed(self) -> int:
        """How many breaks the claiming tests failed on."""
        return sum(fate is not Fate.SURVIVED for _, fate in self.tried)

    @property
    def is_caught(self) -> bool:
        """Whether they assert, and failed on one."""
        return self.asserts and self.killed > 0

    def to_json(self) -> dict[str, Any]:
        """The verdict as the report keeps it."""
        return {
            "row": self.row,
            "caught": self.is_caught,
            "asserts": self.asserts,
            "tests": list(self.tests),
            "breaks": [[text, fate.value] for text, fate in self.tried],
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Verdict:
        """A verdict of an earlier run."""
        return cls(
            row=kept["row"],
            tests=tuple(kept["tests"]),
            asserts=kept["asserts"],
            tried=tuple((text, Fate(fate)) for text, fate in kept["breaks"]),
            fingerprint=kept["fingerprint"],
        )


class Report:
    """The file that a run writes, and that the next one goes on from."""

    def __init__(self, file: Path, seed: int) -> None:
        self.file = file
        self.seed = seed
        self.before: dict[str, Verdict] = {}
        self.verdicts: list[Verdict] = []
        if file.exists():
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["seed"] == seed:
                verdicts = (Verdict.from_json(kept) for kept in content.get("rows", []))
                self.before = {v.row: v for v in verdicts if v.is_caught}

    def known(self, row: str, fingerprint: str) -> Verdict | None:
        """The verdict of an earlier run, if it was found on the same."""
        verdict = self.before.get(row)
        return verdict if verdict and verdict.fingerprint == fingerprint else None

    def add(self, verdict: Verdict) -> None:
        """Keep a verdict, and write the file."""
        self.verdicts.append(verdict)
        rows = sorted(self.verdicts, key=lambda v: (v.is_caught, v.row))
        # What an earlier run found and this one has not reached is kept for the next.
        reached = {verdict.row for verdict in rows}
        rows += [verdict for row, verdict in self.before.items() if row not in reached]
        lines = ",\n".join(f"  {json.dumps(verdict.to_json())}" for verdict in rows)
        figures = json.dumps(self.figures(), indent=1).removesuffix("\n}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_suffix(".part")
        partial.write_text(f'{figures},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
        partial.replace(self.file)

    def figures(self) -> dict[str, int]:
        """The counts of this run."""
        return {
            "rows_sampled": len(self.verdicts),
            "rows_caught": sum(verdict.is_caught for verdict in self.verdicts),
            "mutants_tried": sum(len(verdict.tried) for verdict in self.verdicts),
            "mutants_killed": sum(verdict.killed for verdict in self.verdicts),
            "seed": self.seed,
        }


class Workshop:
    """A copy of the tree in which code is broken and tests are run.

    `through` is put before every command, such as `nice -n 19`.
    """

    def __init__(self, project: Project, folder: Path, through: tuple[str, ...] = ()) -> None:
        self.root = folder / "tree"
        self.folder = folder
        self.through = through
        shutil.copytree(project.root, self.root, ignore=NOT_COPIED)
        moved = {
            name: self.root / getattr(project, name).relative_to(project.root)
            for name in ("tests", "spec_folder", "declared_folder")
        }
        self.project = Project(root=self.root, **moved)
        self.tree = Tree(self.root)

    def _run(self, command: list[str], timeout: float | None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.root), str(REPOSITORY)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [*self.through, *command],
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
        if done.returncode not in (TESTS_PASSED, TESTS_FAILED):
            raise SystemExit(f"mutants: the claiming tests did not run:\n{tail(done)}")
        data = CoverageData(str(contexts))
        data.read()
        executed: dict[str, Lines] = {}
        for file in data.measured_files():
            name = Path(file).resolve().relative_to(self.root.resolve()).as_posix()
            if not name.endswith(".py"):
                continue  # a template of the console
            for line, names in data.contexts_by_lineno(file).items():
                for test in names:
                    if test:
                        executed.setdefault(test, {}).setdefault(name, set()).add(line)
        return read_record(record), executed

    def fate(self, mutant: Mutant, tests: tuple[str, ...]) -> Fate | None:
        """What `tests` do with the break; None when the broken product cannot be imported."""
        file = self.root / mutant.file
        original = file.read_bytes()
        file.write_bytes(mutant.apply(original))
        try:
            return self._fate(mutant, tests)
        finally:
            file.write_bytes(original)

    def _fate(self, mutant: Mutant, tests: tuple[str, ...]) -> Fate | None:
        only, record = self.folder / "only", self.folder / "record.json"
        only.write_text("\n".join(tests), encoding="utf-8")
        files = {test.split("::", 1)[0] for test in tests}
        options = ("--spec-only", str(only), "--spec-record", str(record), "--spec-mutant")
        try:
            # Other tracebacks are parsed, which fails where a break has made a recursion endless.
            command = pytest_command(self.project, files, *options, "--tb=native")
            done = self._run(command, BREAK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return Fate.CRASHED
        if done.returncode == TESTS_PASSED:
            return Fate.SURVIVED
        if done.returncode == TESTS_FAILED:
            outcomes = read_record(record).values()
            asserted = any(outcome.has_failed_assertion for outcome in outcomes)
            return Fate.ASSERTED if asserted else Fate.CRASHED
        if done.returncode != COLLECTION_FAILED:
            raise SystemExit(f"mutants: pytest ended with code {done.returncode}:\n{tail(done)}")
        module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importing = self._run([sys.executable, "-c", f"import {module}"], BREAK_TIMEOUT_S)
        return None if importing.returncode else Fate.CRASHED


@dataclass(frozen=True)
class Candidate:
    """A break, and the words of what it breaks."""

    mutant: Mutant
    statement: Statement
    own: frozenset[str]
    whole: frozenset[str]
    around: frozenset[str]
    docstring: frozenset[str]


class Ranking:
    """Orders the breaks behind a row by how much they speak of it."""

    def __init__(
        self, tree: Tree, rows: dict[str, Row], behind: dict[str, set[Statement]], seed: int
    ) -> None:
        self.tree = tree
        self.seed = seed
        self.behind = behind
        self.rows_with = Counter(word for row in rows.values() for word in words(row.text))
        self.rows_total = len(rows)
        self.tests_on = Counter(s for statements in behind.values() for s in statements)
        self.objects = objects_of(rows.values())

    def order(self, row: Row, tests: tuple[str, ...]) -> list[tuple[tuple[str, ...], Mutant]]:
        """The breaks behind the row in the order to make them, each with its file and scope."""
        statements = {s for test in tests for s in self.behind[test] if s.mutants}
        candidates = [
            self._candidate(statement, mutant)
            for statement in sorted(statements, key=lambda s: (s.file, s.first_line, s.text))
            for mutant in statement.mutants
        ]
        random.Random(f"{self.seed} {row.id}").shuffle(candidates)
        weights = self._weights(row, candidates)
        cited = {s for s in statements if self._is_cited(s, row)}
        scored = {id(c): self._score(c, weights, is_cited=c.statement in cited) for c in candidates}
        telling = sorted(candidates, key=lambda c: -scored[id(c)])
        own = sorted(telling, key=lambda c: self.tests_on[c.statement])
        both = chain.from_iterable(zip(telling, own, strict=True))
        return [((c.statement.file, *c.statement.scope), c.mutant) for c in both]

    def _is_cited(self, statement: Statement, row: Row) -> bool:
        if statement.file != INTERFACES:
            return cites(self.tree.file(statement.file), statement, row)
        about = self.objects.get(chapter(row))
        return about is not None and statement.scope[0].strip("I1234") == about

    def _candidate(self, statement: Statement, mutant: Mutant) -> Candidate:
        docstring = self.tree.file(statement.file).docstrings.get(statement.scope, "")
        return Candidate(
            mutant,
            statement,
            own=words(mutant.before),
            whole=words(statement.text),
            around=words(" ".join(statement.scope)),
            docstring=words(docstring),
        )

    def _weights(self, row: Row, candidates: list[Candidate]) -> dict[str, float]:
        """What each word of the row is worth: rare among rows, and rare among the candidates."""
        wanted = words(row.text)
        having = Counter(w for c in candidates for w in wanted & (c.whole | c.around))
        return {
            word: math.log(self.rows_total / self.rows_with[word])
            * math.log((1 + len(candidates)) / (1 + having[word]))
            for word in wanted
        }

    def _score(self, candidate: Candidate, weights: dict[str, float], *, is_cited: bool) -> float:
        score = SECTION_WORTH * max(weights.values(), default=0) if is_cited else 0.0
        for share, found in (
            (1, candidate.own),
            (1, candidate.whole),
            (0.5, candidate.around),
            (0.25, candidate.docstring),
        ):
            # A long text shares words by chance: what counts is how much of it speaks of the row.
            worth = sum(weights[word] for word in found & weights.keys())
            score += share * worth / math.sqrt(len(found) or 1)
        return score


@cache
def words(text: str) -> frozenset[str]:
    """Identifiers without case and underscores, and numbers by value."""
    found: set[str] = set()
    for word in _WORD.findall(text):
        if word[0].isdigit():
            value = int(word.replace("_", ""), 16 if word[:2].lower() == "0x" else 10)
            found |= {str(value)} if value > 1 else set()
        elif len(word) > 1:
            found.add(word.replace("_", "").lower())
            found |= {part.lower() for part in _CAMEL.sub("_", word).split("_") if len(part) > 1}
    return frozenset(found)


def cites(module: Module, statement: Statement, row: Row) -> bool:
    """Whether the row's section is named in the function or class around, or in the lines above.

    A name like SECTION stands for the module's constant. A section without a document is one of
    those that the module names.
    """
    lines = module.source.text.splitlines()
    first = statement.first_line
    start = module.openings.get(statement.scope[:1], max(1, first - 3))
    near = "\n".join(lines[start - 1 : statement.last_line])
    near += " ".join(text for name, text in module.sections.items() if name in near)
    numbers = rf"(?:(M[SC]-[A-Z]+)\]? )?(?<![\d.]){re.escape(row.section)}(?![\d.])"
    own, named = DOCUMENTS.get(row.document), set(_DOCUMENT.findall(module.source.text))
    is_open = own in named or not named & set(DOCUMENTS.values())
    meant = {own, None} if is_open else {own}
    return any(found[1] in meant for found in re.finditer(numbers, near))


def chapter(row: Row) -> tuple[str, ...]:
    """The document and the first two numbers of the row's section."""
    return (row.document, *row.section.split(".")[:2])


def objects_of(rows: Iterable[Row]) -> dict[tuple[str, ...], str]:
    """The object that the rows of each chapter of [MC-MQAC] name most: sections of interfaces."""
    named: dict[tuple[str, ...], Counter[str]] = {}
    for row in rows:
        for name in _OBJECT.findall(row.text) if row.document == "mqac" else ():
            named.setdefault(chapter(row), Counter())[name] += 1
    return {place: names.most_common(1)[0][0] for place, names in named.items()}


def examine(
    workshop: Workshop, row: Row, tests: tuple[str, ...], ranking: Ranking, fingerprint: str = ""
) -> Verdict:
    """Break the code behind one row, one break at a time, until an assertion notices."""
    tried: list[tuple[Mutant, Fate]] = []
    in_scope: Counter[tuple[str, ...]] = Counter()
    for scope, mutant in ranking.order(row, tests):
        if len(tried) == BREAKS_PER_ROW:
            break
        is_known = any(mutant.overlaps(other) for other, _ in tried)
        if is_known or in_scope[scope] == BREAKS_PER_SCOPE:
            continue
        fate = workshop.fate(mutant, tests)
        if fate is not None:
            tried.append((mutant, fate))
            in_scope[scope] += 1
        if fate is Fate.ASSERTED:
            break
    asserts = any(ranking.tree.asserts(test) for test in tests)
    broken = tuple((str(mutant), fate) for mutant, fate in tried)
    return Verdict(row.id, tests, asserts, broken, fingerprint)


def rendered(verdict: Verdict) -> str:
    """One row's verdict for people."""
    word = "caught" if verdict.is_caught else "NOT CAUGHT"
    lines = [f"{verdict.row}: {word}, {verdict.killed} of {len(verdict.tried)} breaks killed"]
    lines += [f"    {fate.value}: {mutant}" for mutant, fate in verdict.tried]
    if not verdict.asserts:
        lines.append("    the claiming tests assert nothing")
    if not verdict.is_caught:
        lines += [f"    claimed by {test}" for test in verdict.tests]
    return "\n".join(lines)


def sampled(claims: Iterable[str], seed: int, size: int) -> list[str]:
    """`size` of the claimed rows by the seed; new claims and a larger size keep the others."""

    def place(row: str) -> bytes:
        return hashlib.sha256(f"{seed} {row}".encode()).digest()

    return sorted(claims, key=place)[:size]


def of_document(claims: Iterable[str], rows: Mapping[str, Row], document: str) -> list[str]:
    """Those claimed rows that are of this catalogue; "": all."""
    return [row for row in claims if document in ("", rows[row].document)]


class Run:
    """The first pass over a project, and then its sampled rows, several at a time."""

    def __init__(self, project: Project, folder: Path, seed: int, through: tuple[str, ...]) -> None:
        self.project = project
        self.folder = folder
        self.through = through
        self.rows = load_rows(project.spec_folder)
        # Nothing is broken in this copy: what is read of the code is read here.
        self.whole = Workshop(project, folder / "whole", through)
        outcomes, executed = self.whole.first_pass()
        self.claims: dict[str, tuple[str, ...]] = {}
        for test, outcome in outcomes.items():
            if not outcome.holds:  # not covered, which is for the ledger to say
                print(f"mutants: {test} does not pass without a break", file=sys.stderr)
                continue
            for claimed in outcome.ids:
                self.claims[claimed] = (*self.claims.get(claimed, ()), test)
        tree = self.whole.tree
        self.behind = {test: tree.behind(test, executed.get(test, {})) for test in outcomes}
        self.ranking = Ranking(tree, self.rows, self.behind, seed)

    def examine(self, sample: list[str], report: Report, workers: int) -> None:
        """Examine the rows of `sample`, those first that the report does not know yet."""
        left = []
        for row in sample:
            known = report.known(row, self.fingerprint(row))
            if known is None:
                left.append(row)
            else:
                report.add(known)
        workshops: queue.Queue[Workshop] = queue.Queue()
        for number in range(min(workers, len(left))):
            place = self.folder / str(number)
            workshops.put(Workshop(self.whole.project, place, self.through))

        def one(row: str) -> Verdict:
            workshop = workshops.get()
            try:
                tests, fingerprint = self.claims[row], self.fingerprint(row)
                return examine(workshop, self.rows[row], tests, self.ranking, fingerprint)
            finally:
                workshops.put(workshop)

        with ThreadPoolExecutor(workers) as pool:
            for done in as_completed([pool.submit(one, row) for row in left]):
                print(rendered(done.result()), flush=True)
                report.add(done.result())

    def fingerprint(self, row: str) -> str:
        """Of the row, its claiming tests' files and the product files behind them."""
        tests = self.claims[row]
        files = {test.split("::", 1)[0] for test in tests}
        files |= {statement.file for test in tests for statement in self.behind[test]}
        found = hashlib.sha256(repr((self.rows[row], tests)).encode())
        for file in sorted(files):
            found.update((self.whole.root / file).read_bytes())
        return found.hexdigest()[:16]


def run(
    project: Project,
    seed: int,
    sample_size: int,
    report: Report,
    workers: int = 1,
    through: tuple[str, ...] = (),
    document: str = "",
) -> list[Verdict]:
    """Examine a seeded sample of the covered rows of `project`, or of one document of it; print
    each new verdict.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        whole = Run(project, Path(folder), seed, through)
        claims = of_document(whole.claims, whole.rows, document)
        whole.examine(sampled(claims, seed, sample_size), report, workers)
    return report.verdicts


def main(argv: list[str] | None = None) -> int:
    """Run the mutants; 0 when every sampled row is caught."""
    documents = sorted({row.document for row in load_rows(Project().spec_folder).values()})
    parser = argparse.ArgumentParser(prog="tests.conformance.mutants")
    parser.add_argument("--seed", type=int, default=1, help="which rows and breaks are taken")
    parser.add_argument("--rows", type=int, default=20, help="how many rows are sampled")
    parser.add_argument("--document", default="", choices=documents, help="sample one alone")
    parser.add_argument("--workers", type=int, default=2, help="how many rows at a time")
    parser.add_argument("--through", default="", help="a command put before each run of tests")
    parser.add_argument("--json", type=Path, default=Path("build/conformance-mutants.json"))
    arguments = parser.parse_args(argv)
    report = Report(arguments.json, arguments.seed)
    through = tuple(shlex.split(arguments.through))
    verdicts = run(
        Project(),
        arguments.seed,
        arguments.rows,
        report,
        arguments.workers,
        through,
        arguments.document,
    )
    figures = report.figures()
    print(json.dumps(figures, indent=1))
    return 0 if verdicts and figures["rows_caught"] == figures["rows_sampled"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
