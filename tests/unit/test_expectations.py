"""docs/expectations.md names commands, pages, calls, metrics and tests that exist."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import pytest
from click.testing import CliRunner

from qm.cli.main import main
from qm.console.page_group import PageGroup
from qm.observe.metrics import TABLE
from qm.pb import control_pb2, data_pb2

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "expectations.md").read_text(encoding="utf-8")
NODES_PATHS: Final = {"/livez", "/readyz", "/leader", "/metrics"}
"""Answered by every node over HTTP, and asked for by name in the tests that the page names."""
COMMAND: Final = re.compile(r"`qm( [^`]+)?`")
TEST: Final = re.compile(r"`([\w/]+\.py)::(\w+)`")
PATH: Final = re.compile(r"`(/[\w/]*)`")
CALL: Final = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
METRIC: Final = re.compile(r"`((?:quorate|windows_msmq)_\w+)`")
VARIABLE: Final = re.compile(r"\{\w+:(?:[^{}]|\{\d+\})*\}")
SAME: Final = "the same test"
NOT_THERE: Final = "not there"
NOT_EXPECTED: Final = "–"
FACES: Final = 3


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


FOR_MANAGERS: Final = rows("Of a queue manager")
FOR_CLUSTERS: Final = rows("Of a cluster, beside comparable systems")


def test_every_expectation_has_its_row() -> None:
    assert [row[0] for row in FOR_MANAGERS] == [str(n) for n in range(1, 33)]
    assert [row[0] for row in FOR_CLUSTERS] == [str(n) for n in range(1, 63)]


@pytest.mark.parametrize("row", FOR_MANAGERS, ids=lambda row: str(row[0]))
def test_each_face_has_a_test_or_is_not_expected(row: list[str]) -> None:
    _, _, first, *others = row
    assert len(others) == FACES - 1
    for face in (first, *others):
        is_proven = TEST.search(face) or (SAME in face and face is not first and TEST.search(first))
        assert is_proven or face == NOT_EXPECTED or face.startswith(NOT_THERE), face


@pytest.mark.parametrize("row", FOR_CLUSTERS, ids=lambda row: str(row[0]))
def test_each_feature_has_a_test_or_is_said_not_to_be_there(row: list[str]) -> None:
    _, _, here, proof = row
    assert proof.startswith(NOT_THERE) if here == NOT_EXPECTED else TEST.search(proof)


@pytest.mark.parametrize("file", sorted({file for file, _ in TEST.findall(PAGE)}))
def test_every_test_that_is_named_exists(file: str) -> None:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    known = {
        one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {name for where, name in TEST.findall(PAGE) if where == file}
    assert {name for name in named if name.startswith("test_")} == named
    assert named <= known, named - known


@pytest.mark.parametrize("command", sorted({found.strip() for found in COMMAND.findall(PAGE)}))
def test_every_command_tells_its_help(command: str) -> None:
    """Its options are looked for in `test_docs`."""
    words = [word for word in command.split() if not word.startswith("-")]
    told = CliRunner().invoke(main, [*words, "--help"], prog_name="qm", catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert told.output.startswith(" ".join(("Usage: qm", *words)))


def groups_of(base: type[PageGroup]) -> list[type[PageGroup]]:
    """Return the groups of pages that the console serves."""
    import_module("qm.console.server")
    direct = base.__subclasses__()
    return [each for one in direct for each in (groups_of(one) or [one])]


def test_every_page_call_and_metric_exists() -> None:
    groups = [cast(Any, group)(None, None) for group in groups_of(PageGroup)]
    routes = [route.path for group in groups for route in group.routes()]
    pages = [re.compile(VARIABLE.sub(r"\\w+", route)) for route in routes]
    for path in set(PATH.findall(PAGE)) - NODES_PATHS:
        assert any(page.fullmatch(path) for page in pages), path
    services = dict(control_pb2.DESCRIPTOR.services_by_name)
    services |= data_pb2.DESCRIPTOR.services_by_name
    for service, method in CALL.findall(PAGE):
        assert method in services[service].methods_by_name, (service, method)
    assert set(METRIC.findall(PAGE)) <= {metric.name for metric in TABLE}


def test_what_is_not_there_is_found() -> None:
    """The checks above see what they are for."""
    assert TEST.findall("`unit/a.py::test_b`, `c.py::test_d`") == [
        ("unit/a.py", "test_b"), ("c.py", "test_d"),
    ]  # fmt: skip
    assert VARIABLE.sub("N", "/t/{a:[0-9a-f]{32}}/{v:x|y}/z") == "/t/N/N/z"
    with pytest.raises(AssertionError):
        test_every_command_tells_its_help("queue explain")
    with pytest.raises(AssertionError):
        test_each_face_has_a_test_or_is_not_expected(["1", "x", "`qm queue list`", "–", "–"])
