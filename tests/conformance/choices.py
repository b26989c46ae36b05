"""Keep docs/choices.md true: `python -m tests.conformance.choices`.

Where a specification is silent or contradicts itself, the code names the choice that was made:
its document's prefix and its number, `QB-A17`. The known ids are tests/data/spec/choice_ids.json.
The lint fails when

- product code or docs/choices.md names an id that does not exist (`QB-A07` is read as `QB-A7`);
- product code names an id that docs/choices.md does not explain, or explains under another
  document's heading;
- docs/choices.md explains an id that no product code names any more;
- its column of places is not what the code says (`--write` renews that column).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.catalogue import REPOSITORY

PRODUCT_FOLDERS = ("qm", "raft", "spark", "proto", "deploy", "helm")
# Tables of the documents may print a number as 07: the id is the number.
CHOICE = re.compile(r"\b([A-Z]{2}-A)0*(\d+)\b")
TABLE_ROW = re.compile(r"^\| (?P<id>[A-Z]{2}-A\d+) \| (?P<text>.*?) \| (?P<places>.*?) \|$")
HEADING = re.compile(r"^## \[(?P<name>M[SC]-[A-Z]+)\]")
DOCUMENTS = {
    "MS-MQMQ": "mqmq",
    "MS-MQQB": "mqqb",
    "MS-MQDMPR": "mqdmpr",
    "MC-MQAC": "mqac",
    "MS-RPCE": "rpc",
}


@dataclass(frozen=True)
class Explained:
    """One row of docs/choices.md."""

    id: str
    document: str
    text: str
    places: str
    line: int


def known_ids(file: Path) -> dict[str, str]:
    """Choice id to the catalogue it belongs to."""
    content = json.loads(file.read_text(encoding="utf-8"))
    return {choice: document for document, ids in content.items() for choice in ids}


def used_ids(root: Path) -> dict[str, list[str]]:
    """Choice id to the product files that name it, both in order."""
    found: dict[str, list[str]] = {}
    for folder in PRODUCT_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            text = file.read_bytes().decode("utf-8", errors="replace")
            for choice in sorted({prefix + number for prefix, number in CHOICE.findall(text)}):
                found.setdefault(choice, []).append(file.relative_to(root).as_posix())
    return dict(sorted(found.items(), key=lambda item: sort_key(item[0])))


def sort_key(choice: str) -> tuple[str, int]:
    """Document first, then the number as a number."""
    prefix, number = choice.split("-A")
    return prefix, int(number)


def explained(page: str) -> list[Explained]:
    """The rows of docs/choices.md."""
    rows = []
    document = ""
    for number, line in enumerate(page.splitlines(), start=1):
        if heading := HEADING.match(line):
            document = DOCUMENTS.get(heading["name"], "")
        if row := TABLE_ROW.match(line):
            rows.append(Explained(row["id"], document, row["text"], row["places"], number))
    return rows


def render_places(files: list[str]) -> str:
    """The column of places."""
    return ", ".join(f"`{file}`" for file in files)


def check(known: dict[str, str], used: dict[str, list[str]], page: str) -> list[str]:
    """Everything that is wrong, one line each."""
    problems = [
        f"{files[0]}: {choice} is no choice of any guide"
        for choice, files in used.items()
        if choice not in known
    ]
    rows: dict[str, Explained] = {}
    for row in explained(page):
        where = f"docs/choices.md:{row.line}: {row.id}"
        if row.id in rows:
            problems.append(f"{where} is explained twice")
        rows[row.id] = row
        if row.id not in known:
            problems.append(f"{where} is no choice of any guide")
        elif known[row.id] != row.document:
            problems.append(f"{where} stands under the wrong document")
        if row.id not in used:
            problems.append(f"{where} is named by no product code: delete the row")
        elif row.places != render_places(used[row.id]):
            problems.append(f"{where}: the places are out of date (run with --write)")
        if not row.text.strip():
            problems.append(f"{where}: say what was chosen")
    problems += [
        f"{used[choice][0]}: {choice} has no row in docs/choices.md"
        for choice in used
        if choice in known and choice not in rows
    ]
    return problems


def renew_places(page: str, used: dict[str, list[str]]) -> str:
    """The page with its column of places as the code says."""
    lines = page.splitlines()
    for row in explained(page):
        if row.id in used:
            lines[row.line - 1] = f"| {row.id} | {row.text} | {render_places(used[row.id])} |"
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Lint the choices; 0 when the page and the code agree."""
    parser = argparse.ArgumentParser(prog="tests.conformance.choices")
    parser.add_argument("--write", action="store_true", help="renew the column of places")
    arguments = parser.parse_args(argv)
    file = REPOSITORY / "docs" / "choices.md"
    used = used_ids(REPOSITORY)
    if arguments.write:
        file.write_text(renew_places(file.read_text(encoding="utf-8"), used), encoding="utf-8")
    known = known_ids(REPOSITORY / "tests" / "data" / "spec" / "choice_ids.json")
    problems = check(known, used, file.read_text(encoding="utf-8"))
    for problem in problems:
        print(f"choices: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
