"""The scenarios of `scripts/`: what they print is what they say."""

from pathlib import Path

import pytest

from tests.unit.raft.core.scripts.interaction import rewritten, scripts


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    """Rewrite with `python -m tests.unit.raft.core.scripts --rewrite-scripts`, then review."""
    text = path.read_text()
    assert rewritten(text).splitlines() == text.splitlines()


def test_there_are_scripts() -> None:
    """The folder was found."""
    assert len(scripts()) >= 12
