"""The requirement rows of `tests/data/spec` and the reviewed list of rows that no test can claim.

Everything that is wrong with either file is a `CatalogueError` with the file's name: the ledger
is only as good as its input.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SPEC_FOLDER = REPOSITORY / "tests" / "data" / "spec"
DECLARED_FILE = REPOSITORY / "tests" / "conformance" / "declared.toml"

CLAIMS_PER_TEST_MAX = 5
STATUSES = ("not_applicable", "later")


class CatalogueError(Exception):
    """A catalogue or the declared list cannot be believed; the text says which file and why."""


@dataclass(frozen=True)
class Row:
    """One requirement: `document` is the catalogue's name ("mqmq"), `area` its part of it."""

    id: str
    document: str
    section: str
    level: str
    area: str
    text: str


@dataclass(frozen=True)
class Declared:
    """A row that no test claims, and why; `part` names the later part that will claim it."""

    id: str
    status: str
    part: str
    reason: str


def load_rows(folder: Path = SPEC_FOLDER) -> dict[str, Row]:
    """Read every `*.jsonl` of `folder`: row id to row, in document order."""
    rows: dict[str, Row] = {}
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise CatalogueError(f"{folder}: no catalogue (*.jsonl) found")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            entry = json.loads(line)
            row = Row(
                id=entry["id"],
                document=file.stem,
                section=entry["section"],
                level=entry["level"],
                area=entry["area"],
                text=entry["text"],
            )
            if row.id in rows:
                raise CatalogueError(f"{file.name}:{number}: row {row.id} exists twice")
            rows[row.id] = row
    return rows


def load_declared(file: Path, rows: dict[str, Row]) -> dict[str, Declared]:
    """Read the declared rows of `file`, each checked against `rows`."""
    declared: dict[str, Declared] = {}
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    if unknown := set(content) - {"row"}:
        raise CatalogueError(f"{file.name}: unknown table {', '.join(sorted(unknown))}")
    for entry in content.get("row", []):
        known = Declared(
            id=entry.get("id", ""),
            status=entry.get("status", ""),
            part=entry.get("part", ""),
            reason=entry.get("reason", "").strip(),
        )
        _check_declared(known, file.name, rows, declared, set(entry))
        declared[known.id] = known
    return declared


def _check_declared(
    entry: Declared,
    file: str,
    rows: dict[str, Row],
    before: dict[str, Declared],
    keys: set[str],
) -> None:
    if entry.id not in rows:
        raise CatalogueError(f"{file}: {entry.id or 'a row without id'} is in no catalogue")
    if entry.id in before:
        raise CatalogueError(f"{file}: {entry.id} is declared twice")
    if unknown := keys - {"id", "status", "part", "reason"}:
        raise CatalogueError(f"{file}: {entry.id} has unknown keys {', '.join(sorted(unknown))}")
    if entry.status not in STATUSES:
        raise CatalogueError(f"{file}: {entry.id}: status must be one of {', '.join(STATUSES)}")
    if entry.status == "later" and not entry.part:
        raise CatalogueError(f"{file}: {entry.id}: name the part that will cover it")
    if not entry.reason:
        raise CatalogueError(f"{file}: {entry.id}: a reason is missing")
