"""The lint of choice ids: what it accepts and each thing it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import choices

KNOWN = {"QB-A7": "mqqb", "QB-A17": "mqqb", "MQ-A5": "mqmq"}
USED = {"MQ-A5": ["qm/wire/a.py", "qm/wire/b.py"], "QB-A17": ["qm/wire/b.py"]}
PAGE = """# Choices

## [MS-MQMQ]

| Id | Choice | Where |
|---|---|---|
| MQ-A5 | PacketSize leaves the SessionHeader out. | `qm/wire/a.py`, `qm/wire/b.py` |

## [MS-MQQB]

| Id | Choice | Where |
|---|---|---|
| QB-A17 | SessionAck counts it in. | `qm/wire/b.py` |
"""


def test_a_page_that_agrees_with_the_code_passes() -> None:
    assert choices.check(KNOWN, USED, PAGE) == []


@pytest.mark.parametrize(
    ("page", "used", "said"),
    [
        (PAGE, USED | {"QB-A99": ["qm/x.py"]}, "qm/x.py: QB-A99 is no choice"),
        (PAGE, USED | {"QB-A7": ["qm/x.py"]}, "QB-A7 has no row in docs/choices.md"),
        (PAGE, {"MQ-A5": USED["MQ-A5"]}, "QB-A17 is named by no product code"),
        (PAGE.replace("MQ-A5", "MQ-A55"), USED, "MQ-A55 is no choice of any guide"),
        (PAGE.replace("[MS-MQQB]", "[MC-MQAC]"), USED, "QB-A17 stands under the wrong document"),
        (PAGE.replace("`qm/wire/a.py`, ", ""), USED, "places are out of date"),
        (PAGE.replace("SessionAck counts it in.", " "), USED, "say what was chosen"),
        (PAGE + PAGE.splitlines()[-1] + "\n", USED, "explained twice"),
    ],
)
def test_each_disagreement_is_named(page: str, used: dict[str, list[str]], said: str) -> None:
    problems = choices.check(KNOWN, used, page)
    assert any(said in problem for problem in problems), problems


def test_write_renews_the_places_and_nothing_else() -> None:
    stale = PAGE.replace("`qm/wire/a.py`, `qm/wire/b.py`", "`qm/gone.py`")
    assert choices.renew_places(stale, USED) == PAGE


def test_ids_are_found_in_product_code_only(tmp_path: Path) -> None:
    for name, text in {
        "qm/wire/b.py": "# QB-A17, and MQ-A05 too",
        "qm/wire/a.py": '"""MQ-A5."""',
        "qm/wire/__pycache__/a.pyc": "MQ-A6",
        "proto/x.proto": "// DM-A7",
        "tests/test_x.py": "# QB-A1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert choices.used_ids(tmp_path) == {
        "DM-A7": ["proto/x.proto"],
        "MQ-A5": ["qm/wire/a.py", "qm/wire/b.py"],
        "QB-A17": ["qm/wire/b.py"],
    }
