"""Add up the conformance ledger: `python -m tests.conformance.ledger`.

Runs every test that claims rows, then counts, per document and area, the rows that passing tests
prove (covered), the rows declared `not_applicable` or `later` (tests/conformance/declared, a
reason each), and the rest (open). Prints the table and the JSON, and writes the JSON to
build/conformance.json: document -> area -> {covered, not_applicable, later, open}.

Exit code 1, with every reason printed, when

- a claim names no row, or a declared one, or a test claims more than five (the plugin refuses
  these at collection);
- a claiming test did not run or did not pass, or a claim stands in a file that pytest never
  collects;
- a row is open: every row of every document is claimed, or declared with a reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.catalogue import (
    DECLARED_FOLDER,
    REPOSITORY,
    SPEC_FOLDER,
    CatalogueError,
    Declarations,
    Row,
    load_declared,
    load_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("covered", "not_applicable", "later", "open")
OPEN_ROWS_SHOWN_MAX = 40


@dataclass(frozen=True)
class Project:
    """Where a tree keeps its tests, its catalogues and its declared rows."""

    root: Path = REPOSITORY
    tests: Path = REPOSITORY / "tests"
    spec_folder: Path = SPEC_FOLDER
    declared_folder: Path = DECLARED_FOLDER


@dataclass(frozen=True)
class Outcome:
    """What pytest said about one claiming test."""

    ids: tuple[str, ...]
    cases: int
    passed: int
    trouble: tuple[str, ...]
    has_failed_assertion: bool = False

    @property
    def holds(self) -> bool:
        """Whether the claims of the test are proven."""
        return self.passed == self.cases > 0 and not self.trouble


@dataclass(frozen=True)
class Ledger:
    """The counted state of every row, and everything that is wrong."""

    rows: dict[str, Row]
    state: dict[str, str]
    problems: tuple[str, ...]

    def table(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return document -> area -> column -> number of rows."""
        counts = Counter((r.document, r.area, self.state[r.id]) for r in self.rows.values())
        areas = sorted({(document, area) for document, area, _ in counts})
        table: dict[str, dict[str, dict[str, int]]] = {}
        for document, area in areas:
            line = {column: counts[document, area, column] for column in COLUMNS}
            table.setdefault(document, {})[area] = line
        return table


def pytest_command(project: Project, files: Iterable[str], *options: str) -> list[str]:
    """The command that runs test files of `project`, relative to its root, with the plugin."""
    return [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
        *("-p", "tests.conformance.plugin", "--rootdir", str(project.root)),
        *("--spec-folder", str(project.spec_folder)),
        *("--spec-declared", str(project.declared_folder)),
        *options,
        *sorted(files),
    ]


def run_claims(project: Project) -> tuple[dict[str, Outcome], list[str]]:
    """Run the claiming tests; return what each did, and what went wrong with the run itself."""
    files = written_claims(project.tests, project.root)
    if not files:
        return {}, []
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = pytest_command(project, files, "--spec-record", str(record))
        done = subprocess.run(
            command,
            cwd=project.root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(project.root), str(REPOSITORY)])},
            capture_output=True,
            text=True,
            check=False,
        )
        # 5 is "no test collected": claims in files that pytest passes by, reported below.
        if done.returncode in (0, 5) and record.exists():
            return read_record(record), []
        problems = [f"the claiming tests ended with code {done.returncode}:\n{tail(done)}"]
        return (read_record(record) if record.exists() else {}), problems


def recorded(folder: Path) -> tuple[dict[str, Outcome], list[str]]:
    """Return the outcomes that runs with `--spec-outcomes` left, each run by several processes."""
    found: dict[str, Outcome] = {}
    for file in sorted(folder.glob("*.json")):
        for name, outcome in read_record(file).items():
            other = found.get(name)
            found[name] = outcome if other is None else joined(other, outcome)
    return found, [] if found else [f"{folder} has no outcomes: run `make unit`"]


def joined(one: Outcome, other: Outcome) -> Outcome:
    """Return the outcome of a test whose cases were shared out: every process collects them all."""
    return Outcome(
        ids=one.ids,
        cases=max(one.cases, other.cases),
        passed=one.passed + other.passed,
        trouble=(*one.trouble, *other.trouble),
        has_failed_assertion=one.has_failed_assertion or other.has_failed_assertion,
    )


def tail(done: subprocess.CompletedProcess[str], lines: int = 60) -> str:
    """The end of what a pytest run printed."""
    text = (done.stdout + done.stderr).strip().splitlines()
    return "\n".join(f"    {line}" for line in text[-lines:])


def read_record(file: Path) -> dict[str, Outcome]:
    """What the plugin recorded: test name to outcome."""
    content = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: Outcome(
            ids=tuple(claim["ids"]),
            cases=claim["cases"],
            passed=claim["passed"],
            trouble=tuple(claim["trouble"]),
            has_failed_assertion=claim["has_failed_assertion"],
        )
        for name, claim in content.items()
    }


def written_claims(tests: Path, root: Path) -> dict[str, set[str]]:
    """Row ids that stand in `mark.spec(...)` calls of the source, per file relative to `root`.

    This finds the claims of files that pytest passes by: a wrong file name, a class not called
    Test.
    """
    found: dict[str, set[str]] = {}
    for file in sorted(tests.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text, str(file))) if "mark.spec" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.spec"):
                ids = found.setdefault(file.relative_to(root).as_posix(), set())
                ids |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return found


def settle(
    project: Project,
    outcomes: dict[str, Outcome],
    problems: list[str],
    declared: Declarations,
) -> Ledger:
    """Decide each row's state and list what is wrong."""
    rows = load_rows(project.spec_folder)
    problems = list(problems)
    collected: dict[str, set[str]] = {}
    covered: set[str] = set()
    for name, outcome in outcomes.items():
        collected.setdefault(name.split("::", 1)[0], set()).update(outcome.ids)
        if outcome.holds:
            covered.update(outcome.ids)
            continue
        why = "; ".join(outcome.trouble) or f"{outcome.passed} of {outcome.cases} cases ran"
        problems.append(f"{name} claims {', '.join(outcome.ids)} and did not pass: {why}")
    for file, ids in written_claims(project.tests, project.root).items():
        if missing := ids - collected.get(file, set()):
            problems.append(f"{file} claims {', '.join(sorted(missing))} in a test that never ran")
    state = settled_state(rows, covered, declared)
    problems += _open_rows(rows, state)
    return Ledger(rows=rows, state=state, problems=tuple(problems))


def settled_state(
    rows: dict[str, Row], covered: set[str], declared: Declarations
) -> dict[str, str]:
    """Return the state of each row, one of COLUMNS."""
    return {row.id: _state(row, covered, declared) for row in rows.values()}


def _state(row: Row, covered: set[str], declared: Declarations) -> str:
    if row.id in covered:
        return "covered"
    entry = declared.of(row)
    return entry.status if entry else "open"


def _open_rows(rows: dict[str, Row], state: dict[str, str]) -> list[str]:
    left: dict[str, list[str]] = {}
    for row in rows.values():
        if state[row.id] == "open":
            left.setdefault(f"{row.document}:{row.area}", []).append(row.id)
    problems = []
    for area, ids in left.items():
        shown = " ".join(ids[:OPEN_ROWS_SHOWN_MAX])
        more = "" if len(ids) <= OPEN_ROWS_SHOWN_MAX else " ..."
        problems.append(f"{area}: {len(ids)} rows are neither claimed nor declared: {shown}{more}")
    return problems


def render(ledger: Ledger) -> str:
    """The table people read."""
    lines = [f"{'document':10}{'area':16}{'covered':>9}{'n/a':>9}{'later':>9}{'open':>9}"]
    total: Counter[str] = Counter()
    for document, areas in ledger.table().items():
        for area, counts in areas.items():
            total.update(counts)
            figures = "".join(f"{counts[column]:>9}" for column in COLUMNS)
            lines.append(f"{document:10}{area:16}{figures}")
    lines.append(f"{'all':26}" + "".join(f"{total[column]:>9}" for column in COLUMNS))
    return "\n".join(lines)


def render_json(ledger: Ledger) -> str:
    """The counts as JSON, one area per line."""
    documents = []
    for document, areas in ledger.table().items():
        lines = [f"  {json.dumps(area)}: {json.dumps(counts)}" for area, counts in areas.items()]
        documents.append(f" {json.dumps(document)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(documents) + "\n}"


def main(argv: list[str] | None = None) -> int:
    """Run the ledger; 0 when every claim holds and no row is open."""
    parser = argparse.ArgumentParser(prog="tests.conformance.ledger", description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("build/conformance.json"))
    parser.add_argument("--open", metavar="DOC:AREA", help="also list the open rows of an area")
    parser.add_argument(
        "--recorded", type=Path, help="take the outcomes of an earlier run from this folder"
    )
    arguments = parser.parse_args(argv)
    project = Project()
    try:
        declared = load_declared(project.declared_folder, load_rows(project.spec_folder))
    except CatalogueError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    outcomes, problems = (
        recorded(arguments.recorded) if arguments.recorded is not None else run_claims(project)
    )
    ledger = settle(project, outcomes, problems, declared)
    table = render_json(ledger)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(table + "\n", encoding="utf-8")
    print(render(ledger))
    print(table)
    for row in ledger.rows.values():
        if arguments.open == f"{row.document}:{row.area}" and ledger.state[row.id] == "open":
            print(f"open {row.id}: {row.text}")
    for problem in ledger.problems:
        print(f"conformance: {problem}", file=sys.stderr)
    return 1 if ledger.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
