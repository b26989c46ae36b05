"""The pytest plugin behind the ledger: checks claims in every run, records them in the ledger's.

A claim is `@pytest.mark.spec("MQ-2.2.20.1-03", ...)`. A parametrised test is one test: its claims
are the union over its cases, and it passes when all its cases pass. Checked at collection, in
every run, so that a wrong claim is seen by the one who writes it:

- each id is in a catalogue, and its row is not declared `later` or `not_applicable`;
- a test claims at most five rows.

With `--spec-record FILE` only claiming tests are run, and FILE receives what each claimed and how
it ended. With `--spec-contexts FILE` (the mutants' first pass) the lines of product code that
each claiming test executes are stored as coverage data, one context per test. `--spec-only FILE`
narrows the run to the tests that FILE names, one per line; `--spec-mutant` is a run on broken code:
hypothesis does not minimise what fails, and memory is bounded.
"""

from __future__ import annotations

import json
import os
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.conformance.catalogue import (
    CLAIMS_PER_TEST_MAX,
    DECLARED_FOLDER,
    SPEC_FOLDER,
    CatalogueError,
    load_declared,
    load_rows,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from coverage import Coverage

MARKER = "spec"
MUTANT_MEMORY_MAX_BYTES = 8 * 1024**3


@dataclass
class Claim:
    """What one test function claims, and how its cases ended."""

    ids: list[str] = field(default_factory=list)
    cases: int = 0
    passed: int = 0
    trouble: list[str] = field(default_factory=list)
    has_failed_assertion: bool = False
    """Whether a case failed by what it asserts, not by an error that it ran into."""


def test_name(item: pytest.Item) -> str:
    """The function's node id, without the case of a parametrised test."""
    return item.nodeid.split("[", 1)[0]


def claimed_ids(item: pytest.Item) -> Iterator[object]:
    """Every argument of every `spec` marker of the test, its class, its module and its case."""
    for marker in item.iter_markers(MARKER):
        yield from marker.args


def is_assertion(error: BaseException) -> bool:
    """Whether a test failed by what it asserts: `assert`, `pytest.raises`, `pytest.fail`."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_assertion(inner) for inner in error.exceptions)
    return isinstance(error, (AssertionError, pytest.fail.Exception))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance ledger")
    group.addoption(
        "--spec-record", type=Path, help="run claiming tests only, record outcomes here"
    )
    group.addoption(
        "--spec-outcomes",
        type=Path,
        help="record outcomes of claiming tests in this folder, a file for each process",
    )
    group.addoption(
        "--spec-contexts", type=Path, help="store executed lines per claiming test here"
    )
    group.addoption("--spec-only", type=Path, help="run only the tests named in this file")
    group.addoption("--spec-mutant", action="store_true", help="a run on broken code")
    group.addoption("--spec-folder", type=Path, default=SPEC_FOLDER, help="the catalogues")
    group.addoption("--spec-declared", type=Path, default=DECLARED_FOLDER, help="declared rows")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spec(*ids): catalogue rows that this test proves")
    if config.getoption("--spec-mutant"):
        # One counterexample is enough to know that a break was noticed, and a loop that no longer
        # ends must not take the machine's memory with it.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutant", phases=phases, database=None)
        hypothesis.settings.load_profile("mutant")
        resource.setrlimit(resource.RLIMIT_AS, (MUTANT_MEMORY_MAX_BYTES, MUTANT_MEMORY_MAX_BYTES))
    config.pluginmanager.register(Ledger(config), "conformance-ledger")


class Ledger:
    """The claims of one pytest run."""

    def __init__(self, config: pytest.Config) -> None:
        self.record: Path | None = config.getoption("--spec-record")
        self.outcomes: Path | None = config.getoption("--spec-outcomes")
        self.contexts: Path | None = config.getoption("--spec-contexts")
        self.only: Path | None = config.getoption("--spec-only")
        self.folder: Path = config.getoption("--spec-folder")
        self.declared_folder: Path = config.getoption("--spec-declared")
        self.claims: dict[str, Claim] = {}
        self.coverage: Coverage | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        claiming: list[pytest.Item] = []
        for item in items:
            ids = list(claimed_ids(item))
            if not ids:
                continue
            claiming.append(item)
            claim = self.claims.setdefault(test_name(item), Claim())
            claim.cases += 1
            claim.ids += [str(row) for row in ids if str(row) not in claim.ids]
        if problems := self._problems():
            raise pytest.UsageError("conformance: " + "\n  ".join(problems))
        self._narrow(config, items, claiming)

    def _problems(self) -> list[str]:
        try:
            rows = load_rows(self.folder)
            declared = load_declared(self.declared_folder, rows)
        except CatalogueError as error:
            return [str(error)]
        problems = []
        for name, claim in self.claims.items():
            problems += [f"{name} claims {i}: no such row" for i in claim.ids if i not in rows]
            problems += [
                f"{name} claims {i}, which is declared {declared.rows[i].status} in declared/:"
                " delete the entry there"
                for i in claim.ids
                if i in declared.rows
            ]
            if len(claim.ids) > CLAIMS_PER_TEST_MAX:
                problems.append(
                    f"{name} claims {len(claim.ids)} rows, {CLAIMS_PER_TEST_MAX} at most: split it"
                )
        return problems

    def _narrow(
        self, config: pytest.Config, items: list[pytest.Item], claiming: list[pytest.Item]
    ) -> None:
        if self.record is None and self.only is None:
            return
        keep = claiming
        if self.only is not None:
            names = set(self.only.read_text(encoding="utf-8").split("\n"))
            keep = [item for item in claiming if test_name(item) in names]
        kept = set(keep)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = keep

    def pytest_sessionstart(self) -> None:
        if self.contexts is None:
            return
        import coverage  # only the mutants' first pass needs it

        self.coverage = coverage.Coverage(
            data_file=str(self.contexts), source=["qm", "raft", "spark"], config_file=False
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self.coverage is not None:
            self.coverage.switch_context(test_name(item))
        result = yield
        if self.coverage is not None:
            self.coverage.switch_context("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None and is_assertion(call.excinfo.value):
            claim = self.claims.get(test_name(item))
            if claim is not None:
                claim.has_failed_assertion = True
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        claim = self.claims.get(report.nodeid.split("[", 1)[0])
        if claim is None:
            return
        if not report.passed:
            claim.trouble.append(f"{report.nodeid}: {report.when} {report.outcome}")
        elif report.when == "call":
            # An expected failure that passes is reported as passed; it proves nothing.
            if hasattr(report, "wasxfail"):
                claim.trouble.append(f"{report.nodeid}: expected to fail")
            else:
                claim.passed += 1

    def pytest_sessionfinish(self) -> None:
        if self.coverage is not None:
            self.coverage.stop()
            self.coverage.save()
        record = self._record_file()
        if record is None:
            return
        content = {
            name: {
                "ids": claim.ids,
                "cases": claim.cases,
                "passed": claim.passed,
                "trouble": claim.trouble,
                "has_failed_assertion": claim.has_failed_assertion,
            }
            for name, claim in sorted(self.claims.items())
        }
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _record_file(self) -> Path | None:
        if self.record is not None or self.outcomes is None:
            return self.record
        # Each process of a run that is shared out knows what it ran itself; the one that hands out
        # knows no claims.
        return self.outcomes / f"{os.getpid()}.json" if self.claims else None
