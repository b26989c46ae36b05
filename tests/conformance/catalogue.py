"""The requirement rows of `tests/data/spec` and the reviewed list of rows that no test claims.

Everything that is wrong with either is a `CatalogueError` with the file's name: the ledger is only
as good as its input.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SPEC_FOLDER = REPOSITORY / "tests" / "data" / "spec"
DECLARED_FOLDER = REPOSITORY / "tests" / "conformance" / "declared"

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
    """Why no test claims a row; `part` names the later part that will claim it."""

    status: str
    part: str
    reason: str


@dataclass(frozen=True)
class Declarations:
    """What is declared: single rows, which no test may claim, and whole areas.

    An area is declared when none or few of its rows are built: what a test claims of it counts as
    covered, and the entry stands for all other rows.
    """

    rows: dict[str, Declared]
    areas: dict[tuple[str, str], Declared]
    """By document and area."""

    def of(self, row: Row) -> Declared | None:
        """What is declared of a row that no test claims."""
        return self.rows.get(row.id) or self.areas.get((row.document, row.area))


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


def load_declared(folder: Path, rows: dict[str, Row]) -> Declarations:
    """Read every `<document>.toml` of `folder`, each entry checked against `rows`."""
    found = Declarations({}, {})
    for file in sorted(folder.glob("*.toml")):
        _Reader(file, rows, found).read()
    return found


class _Reader:
    """Reads one file of declarations into `found`."""

    def __init__(self, file: Path, rows: dict[str, Row], found: Declarations) -> None:
        self.file = file
        self.document = file.stem
        self.rows = rows
        self.areas = {row.area for row in rows.values() if row.document == self.document}
        self.found = found

    def read(self) -> None:
        content = tomllib.loads(self.file.read_text(encoding="utf-8"))
        if unknown := set(content) - {"row", "area"}:
            raise self._wrong(f"unknown table {', '.join(sorted(unknown))}")
        if not self.areas:
            raise self._wrong("there is no catalogue of that name")
        for entry in content.get("row", []):
            self._rows(entry)
        for entry in content.get("area", []):
            self._areas(entry)

    def _rows(self, entry: dict[str, Any]) -> None:
        declared = self._declared(entry, "ids")
        for row in entry["ids"]:
            if row not in self.rows or self.rows[row].document != self.document:
                raise self._wrong(f"{row} is not in this document's catalogue")
            if row in self.found.rows:
                raise self._wrong(f"{row} is declared twice")
            self.found.rows[row] = declared

    def _areas(self, entry: dict[str, Any]) -> None:
        declared = self._declared(entry, "names")
        if declared.status != "later":
            raise self._wrong(f"area {entry['names'][0]}: only `later` is said of whole areas")
        for area in entry["names"]:
            if area not in self.areas:
                raise self._wrong(f"area {area} is not in this document's catalogue")
            if (self.document, area) in self.found.areas:
                raise self._wrong(f"area {area} is declared twice")
            self.found.areas[self.document, area] = declared

    def _declared(self, entry: dict[str, Any], names: str) -> Declared:
        if unknown := set(entry) - {names, "status", "part", "reason"}:
            raise self._wrong(f"unknown keys {', '.join(sorted(unknown))}")
        if not entry.get(names):
            raise self._wrong(f"an entry has no {names}")
        declared = Declared(
            status=entry.get("status", ""),
            part=entry.get("part", ""),
            reason=entry.get("reason", "").strip(),
        )
        first = entry[names][0]
        if declared.status not in STATUSES:
            raise self._wrong(f"{first}: status must be one of {', '.join(STATUSES)}")
        if declared.status == "later" and not declared.part:
            raise self._wrong(f"{first}: name the part that will cover it")
        if not declared.reason:
            raise self._wrong(f"{first}: a reason is missing")
        return declared

    def _wrong(self, what: str) -> CatalogueError:
        return CatalogueError(f"{self.file.name}: {what}")
