"""docs/raft-checklist.md names tests and scripts that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent.parent
CHECKLIST = HERE.parents[2] / "docs" / "raft-checklist.md"


def test_every_reference_of_the_checklist_exists() -> None:
    """In the column of ours, in backticks: a test function, a test file, a script or a folder."""
    functions = {
        name
        for path in HERE.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    files = {path.name for path in (*HERE.rglob("test_*.py"), *HERE.rglob("scripts/*.txt"))}
    missing = []
    for line in CHECKLIST.read_text().splitlines():
        if not line.startswith("| "):
            continue
        ours = line.split(" | ")[1]
        for name in re.findall(r"`([\w./-]+)`", ours):
            is_folder = (CHECKLIST.parents[1] / name).exists()
            if name not in functions | files and not is_folder:
                missing.append(name)
    assert missing == []


def test_the_checklist_is_not_empty() -> None:
    """The parser of the test above sees its rows."""
    rows = [line for line in CHECKLIST.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 100
