"""The mutation tester's own judgement: what stays known, what counts, which tests are run first."""

import ast
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.mutation import __main__ as mutation
from tests.mutation.meaning import left_alone
from tests.mutation.reach import BUDGET_S, affordable, nearness
from tests.mutation.workshop import Fate, Verdict, Workshop

BREAK: dict[str, Any] = {
    "file": "qm/store/rocks.py",
    "definition": "commit",
    "operator": "core/AddNot",
    "before": "if a:",
    "after": "if not a:",
    "ordinal": 1,
    "line": 7,
    "source_hash": "aa",
}


def test_the_tests_of_the_file_s_own_module_come_first() -> None:
    took_s = {
        "tests/unit/api/test_data.py::test_one": 0.1,
        "tests/unit/store/test_rocks.py::test_slow": 2.0,
        "tests/unit/store/test_rocks.py::test_quick": 1.0,
        "tests/unit/store/test_codec.py::test_other": 0.1,
    }
    assert affordable(set(took_s), "qm/store/rocks.py", took_s) == [
        "tests/unit/store/test_rocks.py::test_quick",
        "tests/unit/store/test_rocks.py::test_slow",
        "tests/unit/store/test_codec.py::test_other",
        "tests/unit/api/test_data.py::test_one",
    ]
    assert nearness("tests/unit/raft/log/test_log.py::test_it", "raft/log/log.py") == 4


def test_tests_that_no_time_is_left_for_are_not_run() -> None:
    took_s = {"tests/unit/store/test_a.py::test_a": BUDGET_S, "tests/unit/api/test_b.py::b": 1.0}
    chosen = affordable(set(took_s), "qm/store/rocks.py", took_s)
    assert chosen == ["tests/unit/store/test_a.py::test_a"]


def test_an_equivalent_needs_a_reason_and_one_that_is_killed_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {("qm/store/rocks.py", "commit", "if a:", "if not a:"): "a is never true"}
    monkeypatch.setattr(mutation, "reasons", lambda: known)
    other = {**BREAK, "before": "if b:"}
    survived, killed = Verdict(Fate.SURVIVED, ""), Verdict(Fate.KILLED, "a test")
    report = mutation.figures([BREAK, BREAK, other], [survived, killed, survived], 50)
    counts = {name: report[name] for name in ("mutants", "killed", "equivalent", "survived")}
    assert counts == {"mutants": 3, "killed": 1, "equivalent": 1, "survived": 1}
    assert report["killed_or_equivalent_share"] == 0.6667
    assert [each["before"] for each in report["left"]] == ["if b:"]


def test_every_equivalent_that_is_listed_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in mutation.reasons().values())


def test_a_verdict_holds_while_code_and_tests_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(mutation, "FOLDER", tmp_path)
    results = mutation.Results("tests of then")
    results.keep(BREAK, Verdict(Fate.SURVIVED, ""), by_seeds=False)
    assert results.known(BREAK, by_seeds=False) == Verdict(Fate.SURVIVED, "")
    assert results.known(BREAK, by_seeds=True) is None
    later = mutation.Results("tests of now")
    assert later.known(BREAK, by_seeds=False) is None
    later.keep(BREAK, Verdict(Fate.KILLED, "a test"), by_seeds=False)
    assert mutation.Results("tests of tomorrow").known(BREAK, by_seeds=True) is not None
    assert later.known({**BREAK, "source_hash": "bb"}, by_seeds=False) is None


@pytest.mark.parametrize(("on_sound_code", "fate"), [(0, "killed"), (1, "timed_out")])
def test_a_break_that_hangs_tests_is_noticed_if_they_end_on_sound_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_sound_code: int, fate: str
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "code.py").write_text("sound")
    monkeypatch.setattr("tests.mutation.workshop.ROOT", tmp_path / "root")
    shop = Workshop(tmp_path / "tree")
    statuses: dict[str, int | None] = {"sound": on_sound_code, "broken": None}

    def ends(command: list[str], limit_s: float) -> tuple[int | None, str]:
        return statuses[(shop.root / "code.py").read_text()], ""

    monkeypatch.setattr(shop, "_run", ends)
    broken = {"file": "code.py", "source": "broken"}
    verdict = shop.judge(broken, ["a test"], frozenset(), by_seeds=False)
    assert verdict.fate == fate


def test_a_break_of_changed_code_is_shown_first_to_the_test_that_noticed_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutation, "FOLDER", tmp_path)
    results = mutation.Results("tests")
    other, unknown = {**BREAK, "before": "if b:"}, {**BREAK, "before": "if c:"}
    for each, fate in ((BREAK, Fate.KILLED), (other, Fate.KILLED), (unknown, Fate.SURVIVED)):
        results.keep(each, Verdict(fate, f"tests/a.py::{each['before']}"), by_seeds=False)
    changed = [{**each, "source_hash": "bb"} for each in (BREAK, other, unknown)]
    shop = mock.Mock()
    shop.is_noticed = lambda found, test: test == "tests/a.py::if a:"
    assert mutation.judge_again(changed, results, [shop]) == changed[1:]
    assert results.known(changed[0], by_seeds=False) is not None


LEFT_ALONE = """
@dataclass(frozen=True, slots=True)
class Limits(Base, gc=False, forbid_unknown_fields=True):
    segment_bytes: int = 64 * 1024
    reads_pending_max: int = 1024
    deadline_ms: int = 0

async def read(view, *, at: int = 7, limit: int = 100):
    logger.info("%d", 99)
    return view + 5
"""
"""Only 0, 7, 5 and `forbid_unknown_fields` mean something."""


def test_numbers_that_were_chosen_and_the_layout_of_classes_are_left_alone() -> None:
    tree = ast.parse(LEFT_ALONE)
    spans = [span for span, operator in left_alone(tree) if not operator]
    broken = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and not any(begin <= (node.lineno, node.col_offset) < end for begin, end in spans)
    ]
    assert broken == [True, 0, 7, 5]
