"""docs/configuration.md says what the schema says, and its example can be used."""

from pathlib import Path

import pytest

from qm.node.config.loading import parse
from tests.config_reference import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.config_reference --write"


def test_every_key_has_a_meaning() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_example_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    example = page().partition("```toml\n")[2].partition("```")[0]
    assert [member.name for member in parse(example, tmp_path).members] == ["n1", "n2", "n3"]
