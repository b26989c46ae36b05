"""Write docs/conformance.md: `python -m tests.conformance.page --write`; without it, check it.

The page says of each document and area how many rows passing tests prove, and what is later and
why. It is made from the claims that stand in the tests and from `declared/`; that every claim's
test passes is the ledger's to say (`make conformance`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.catalogue import (
    DECLARED_FOLDER,
    REPOSITORY,
    Declarations,
    Row,
    load_declared,
    load_rows,
)
from tests.conformance.ledger import COLUMNS, settled_state, written_claims

PAGE = REPOSITORY / "docs" / "conformance.md"
IDS_SHOWN_MAX = 6
DOCUMENTS = {
    "mqmq": "[MS-MQMQ] Data Structures",
    "mqqb": "[MS-MQQB] Message Queue to Message Queue Protocol",
    "mqdmpr": "[MS-MQDMPR] Common Data Model and Processing Rules",
    "mqac": "[MC-MQAC] ActiveX Client Protocol",
    "mqrr": "[MS-MQRR] Queue Manager Remote Read Protocol",
    "mqmr": "[MS-MQMR] Queue Manager Management Protocol",
    "rpc": "What the RPC interfaces stand on: DCE/RPC, NDR, NTLM, SPNEGO, Kerberos, DCOM",
}
HEAD = """# Conformance

What of each published specification works here, row by row of its catalogue in `tests/data/spec`.
A row is one thing that an implementation must do or know. It is *covered* when a passing test
proves it; *later* when the part that brings it is not built, or when we decided to leave it out for
now; *not applicable* when it binds no queue manager, or when another mechanism serves the same end.
No row is open: the build fails on one that is neither claimed nor decided.

`make conformance` runs the claims and prints the ledger; `make conformance-mutants ROWS=200` breaks
the code behind sampled rows and expects their tests to fail. Where a document is silent or
contradicts itself, [choices.md](choices.md) says what was chosen. This page is generated:
`python -m tests.conformance.page --write` renews it.
"""


def page(rows: dict[str, Row], claimed: set[str], declared: Declarations) -> str:
    """The whole page."""
    state = settled_state(rows, claimed, declared)
    lines = [
        HEAD,
        "| Document | Rows | Covered | Later | Not applicable |",
        "|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for document, title in DOCUMENTS.items():
        counts = Counter(state[row.id] for row in rows.values() if row.document == document)
        total += counts
        lines.append(_figures(title, counts))
    lines += [_figures("All", total), ""]
    for document, title in DOCUMENTS.items():
        lines += _section(
            title, [r for r in rows.values() if r.document == document], state, declared
        )
    return "\n".join(lines).rstrip() + "\n"


def _figures(name: str, counts: Counter[str]) -> str:
    covered, not_applicable, later, _ = (counts[column] for column in COLUMNS)
    total = sum(counts.values())
    return f"| {name} | {total} | {covered} | {later} | {not_applicable} |"


def _section(
    title: str, rows: list[Row], state: dict[str, str], declared: Declarations
) -> list[str]:
    lines = [f"## {title}", "", "| Area | Rows | Covered | Later | Not applicable |"]
    lines.append("|---|---|---|---|---|")
    areas = sorted({row.area for row in rows})
    for area in areas:
        lines.append(_figures(area, Counter(state[row.id] for row in rows if row.area == area)))
    for status, heading in (("later", "Later"), ("not_applicable", "Not applicable")):
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            entry = declared.of(row)
            if state[row.id] == status and entry is not None:
                groups.setdefault((entry.part, entry.reason), []).append(row)
        if groups:
            lines += ["", f"{heading}:", ""]
        lines += [_reason(part, reason, group) for (part, reason), group in groups.items()]
    return [*lines, ""]


def _reason(part: str, reason: str, rows: list[Row]) -> str:
    shown = ", ".join(row.id for row in rows)
    if len(rows) > IDS_SHOWN_MAX:
        areas = Counter(row.area for row in rows)
        within = ", ".join(f"{area} {count}" for area, count in sorted(areas.items()))
        shown = f"{len(rows)} rows of {within if len(areas) > 1 else rows[0].area}"
    place = f" `{part}`" if part else ""
    return f"- {reason}{place} ({shown})"


def current() -> str:
    """The page as it should be."""
    rows = load_rows()
    claimed = {
        row for ids in written_claims(REPOSITORY / "tests", REPOSITORY).values() for row in ids
    }
    return page(rows, claimed, load_declared(DECLARED_FOLDER, rows))


def main(argv: list[str] | None = None) -> int:
    """Check or renew the page; 0 when it is current."""
    parser = argparse.ArgumentParser(prog="tests.conformance.page")
    parser.add_argument("--write", action="store_true", help="renew the page")
    arguments = parser.parse_args(argv)
    text = current()
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not is_current(PAGE, text):
        print(
            f"{PAGE.name} is out of date: python -m tests.conformance.page --write", file=sys.stderr
        )
        return 1
    return 0


def is_current(file: Path, text: str) -> bool:
    """Whether the page in the tree is the one that would be written."""
    return file.exists() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
