"""The ledger's own rules, each on a small tree with its own catalogue."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance import ledger
from tests.conformance.catalogue import REPOSITORY, CatalogueError, load_declared, load_rows
from tests.conformance.ledger import Ledger, Project

CATALOGUE = [
    {"id": f"XX-1-0{n}", "section": "1", "level": "MUST", "area": area, "text": f"Rule {n}."}
    for n, area in enumerate(["wire", "wire", "wire", "names", "names", "later", "later"], start=1)
]

DECLARED = """
[[row]]
ids = ["XX-1-06"]
status = "later"
part = "qm/session"
reason = "A session rule."

[[row]]
ids = ["XX-1-07"]
status = "not_applicable"
reason = "Binds clients only."
"""


def small_tree(root: Path, tests: str, declared: str = DECLARED) -> Project:
    """A project with one test file and seven rows."""
    for folder in ("spec", "suite", "declared"):
        (root / folder).mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in CATALOGUE)
    (root / "spec" / "xx.jsonl").write_text(lines)
    (root / "declared" / "xx.toml").write_text(declared)
    (root / "suite" / "test_small.py").write_text("import pytest\n" + tests)
    return Project(
        root=root,
        tests=root / "suite",
        spec_folder=root / "spec",
        declared_folder=root / "declared",
    )


def settled(project: Project) -> Ledger:
    """Run the whole ledger on a small tree."""
    declared = load_declared(project.declared_folder, load_rows(project.spec_folder))
    outcomes, problems = ledger.run_claims(project)
    return ledger.settle(project, outcomes, problems, declared)


def test_counts_rows_per_document_and_area(tmp_path: Path) -> None:
    project = small_tree(
        tmp_path,
        """
@pytest.mark.spec("XX-1-01", "XX-1-02")
def test_two():
    pass

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.spec("XX-1-04")
def test_cases(n):
    assert n

def test_without_claim():
    raise SystemExit("the ledger runs claiming tests only")
""",
    )
    result = settled(project)
    assert [problem.split(":")[1] for problem in result.problems] == ["wire", "names"]
    assert result.table() == {
        "xx": {
            "later": {"covered": 0, "not_applicable": 1, "later": 1, "open": 0},
            "names": {"covered": 1, "not_applicable": 0, "later": 0, "open": 1},
            "wire": {"covered": 2, "not_applicable": 0, "later": 0, "open": 1},
        }
    }
    assert json.loads(ledger.render_json(result)) == result.table()


SHARED_OUT = """
@pytest.mark.parametrize("n", range(4))
@pytest.mark.spec("XX-1-01")
def test_cases(n):
    assert n >= 0

@pytest.mark.spec("XX-1-02")
def test_that_fails():
    assert False

@pytest.mark.spec("XX-1-03")
@pytest.mark.parametrize("n", [1, 2])
def test_of_which_a_case_fails(n):
    assert n == 1

def test_without_claim():
    pass
"""


def test_outcomes_of_a_run_that_was_shared_out_are_added_up(tmp_path: Path) -> None:
    project = small_tree(tmp_path, SHARED_OUT)
    outcomes = tmp_path / "outcomes"
    command = ledger.pytest_command(
        project, ["suite/test_small.py"], *("-n", "2", "--spec-outcomes", str(outcomes))
    )
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout
    assert len(list(outcomes.glob("*.json"))) == 2
    found, problems = ledger.recorded(outcomes)
    assert problems == []
    declared = load_declared(project.declared_folder, load_rows(project.spec_folder))
    result = ledger.settle(project, found, problems, declared)
    states = {row: result.state[row] for row in ("XX-1-01", "XX-1-02", "XX-1-03")}
    assert states == {"XX-1-01": "covered", "XX-1-02": "open", "XX-1-03": "open"}
    assert ledger.recorded(tmp_path / "nothing")[1] != []


def test_an_open_row_of_any_area_is_a_problem(tmp_path: Path) -> None:
    tests = '@pytest.mark.spec("XX-1-04")\ndef test_one():\n    pass\n'
    result = settled(small_tree(tmp_path, tests))
    assert result.problems == (
        "xx:wire: 3 rows are neither claimed nor declared: XX-1-01 XX-1-02 XX-1-03",
        "xx:names: 1 rows are neither claimed nor declared: XX-1-05",
    )


def test_an_area_declared_later_stands_for_its_rows_that_are_not_claimed(tmp_path: Path) -> None:
    declared = """
[[area]]
names = ["wire", "names", "later"]
status = "later"
part = "qm/rpc"
reason = "Comes with a protocol of its own."
"""
    tests = '@pytest.mark.spec("XX-1-02")\ndef test_one():\n    pass\n'
    result = settled(small_tree(tmp_path, tests, declared))
    assert result.problems == ()
    assert [row for row, state in result.state.items() if state == "covered"] == ["XX-1-02"]
    assert list(result.state.values()).count("later") == len(CATALOGUE) - 1


def test_a_claim_whose_test_did_not_pass_or_run_is_a_problem(tmp_path: Path) -> None:
    project = small_tree(
        tmp_path,
        """
@pytest.mark.spec("XX-1-01")
def test_fails():
    assert False

@pytest.mark.spec("XX-1-02")
def test_is_skipped():
    pytest.skip("never")

@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.spec("XX-1-03")
def test_one_case_fails(n):
    assert n

@pytest.mark.spec("XX-1-04")
@pytest.mark.xfail(strict=False)
def test_expected_to_fail():
    pass

class Unseen:
    @pytest.mark.spec("XX-1-05")
    def test_in_a_class_that_pytest_passes_by(self):
        pass
""",
    )
    result = settled(project)
    text = "\n".join(result.problems)
    for name in ("test_fails", "test_is_skipped", "test_one_case_fails", "test_expected_to_fail"):
        assert f"test_small.py::{name} claims" in text
    assert "test_small.py claims XX-1-05 in a test that never ran" in text
    assert "covered" not in result.state.values()


def test_a_broken_test_file_is_a_problem(tmp_path: Path) -> None:
    result = settled(small_tree(tmp_path, "import nothing_of_that_name\npytest.mark.spec()\n"))
    assert "nothing_of_that_name" in result.problems[0]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (["XX-9-99"], "XX-9-99: no such row"),
        (["XX-1-06"], "XX-1-06, which is declared later in declared/"),
        (["XX-1-07"], "XX-1-07, which is declared not_applicable in declared/"),
        ([f"XX-1-0{n}" for n in range(1, 8)], "claims 7 rows, 5 at most"),
    ],
)
def test_the_plugin_refuses_wrong_claims_at_collection(
    tmp_path: Path, claims: list[str], said: str
) -> None:
    ids = ", ".join(f'"{row}"' for row in claims)
    tests = f"@pytest.mark.spec({ids})\ndef test_one():\n    pass\n"
    result = settled(small_tree(tmp_path, tests))
    assert said in result.problems[0]


@pytest.mark.parametrize(("cases", "said"), [(5, None), (6, "claims 6 rows, 5 at most")])
def test_the_cases_of_a_test_share_its_claims(tmp_path: Path, cases: int, said: str | None) -> None:
    project = small_tree(
        tmp_path,
        f"""
@pytest.mark.parametrize("n", [
    pytest.param(n, marks=pytest.mark.spec(f"XX-1-0{{n}}")) for n in range(1, {cases} + 1)
])
def test_cases(n):
    pass
""",
        declared="",
    )
    result = settled(project)
    refused = [problem for problem in result.problems if "neither claimed" not in problem]
    assert (said is None) == (refused == [])
    assert said is None or said in refused[0]
    assert list(result.state.values()).count("covered") == (0 if said else cases)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('[[row]]\nids=["XX-9-99"]\nstatus="later"\npart="p"\nreason="r"', "XX-9-99 is not in"),
        ('[[row]]\nids=["XX-1-01"]\nstatus="maybe"\nreason="r"', "status must be one of"),
        ('[[row]]\nids=["XX-1-01"]\nstatus="later"\nreason="r"', "name the part"),
        ('[[row]]\nids=["XX-1-01"]\nstatus="not_applicable"\nreason=" "', "a reason is missing"),
        (
            '[[row]]\nids=["XX-1-01"]\nstatus="not_applicable"\nreason="r"\nwhy="w"',
            "unknown keys why",
        ),
        ('[[row]]\nstatus="not_applicable"\nreason="r"', "an entry has no ids"),
        ('[[area]]\nnames=["sky"]\nstatus="later"\npart="p"\nreason="r"', "area sky is not in"),
        ('[[area]]\nnames=["wire"]\nstatus="not_applicable"\nreason="r"', "only `later` is said"),
        ("[[page]]", "unknown table page"),
    ],
)
def test_declarations_are_checked(tmp_path: Path, entry: str, said: str) -> None:
    project = small_tree(tmp_path, "", entry)
    with pytest.raises(CatalogueError, match=said):
        load_declared(project.declared_folder, load_rows(project.spec_folder))


@pytest.mark.parametrize(
    "entry",
    [
        '[[row]]\nids=["XX-1-01"]\nstatus="not_applicable"\nreason="r"\n',
        '[[area]]\nnames=["wire"]\nstatus="later"\npart="p"\nreason="r"\n',
    ],
)
def test_what_is_declared_twice_is_refused(tmp_path: Path, entry: str) -> None:
    project = small_tree(tmp_path, "", entry * 2)
    with pytest.raises(CatalogueError, match="declared twice"):
        load_declared(project.declared_folder, load_rows(project.spec_folder))


def test_a_declaration_stands_in_the_file_of_its_document(tmp_path: Path) -> None:
    project = small_tree(tmp_path, "")
    (project.declared_folder / "xx.toml").rename(project.declared_folder / "yy.toml")
    with pytest.raises(CatalogueError, match="there is no catalogue of that name"):
        load_declared(project.declared_folder, load_rows(project.spec_folder))


def test_a_row_that_exists_twice_is_refused(tmp_path: Path) -> None:
    project = small_tree(tmp_path, "")
    (project.spec_folder / "yy.jsonl").write_text(json.dumps(CATALOGUE[0]) + "\n")
    with pytest.raises(CatalogueError, match="XX-1-01 exists twice"):
        load_rows(project.spec_folder)


def test_the_project_s_own_catalogues_load() -> None:
    assert Counter(row.document for row in load_rows().values()) == {
        "mqmq": 458,
        "mqqb": 350,
        "mqdmpr": 473,
        "mqac": 1_160,
        "rpc": 365,
        "mqrr": 227,
        "mqmr": 111,
    }
