"""docs/conformance.md: what it says, and that it is current."""

from __future__ import annotations

from pathlib import Path

from tests.conformance import page
from tests.conformance.catalogue import Declarations, Declared, Row, load_rows


def rows(*numbered: tuple[int, str]) -> dict[str, Row]:
    made = [Row(f"MR-1-0{n}", "mqmr", "1", "MUST", area, "Rule.") for n, area in numbered]
    return {row.id: row for row in made}


def test_the_page_in_the_tree_is_current() -> None:
    assert page.is_current(page.PAGE, page.current()), (
        "docs/conformance.md is out of date: python -m tests.conformance.page --write"
    )


def test_every_catalogue_has_its_section() -> None:
    assert set(page.DOCUMENTS) == {row.document for row in load_rows().values()}


def test_areas_are_counted_and_reasons_given_once() -> None:
    known = rows((1, "wire"), (2, "wire"), (3, "names"), (4, "names"), (5, "names"))
    declared = Declarations(
        {"MR-1-05": Declared("not_applicable", "", "Binds clients only.")},
        {("mqmr", "names"): Declared("later", "qm/rpc", "Comes with RPC.")},
    )
    text = page.page(known, {"MR-1-01", "MR-1-02"}, declared)
    assert "| wire | 2 | 2 | 0 | 0 |" in text
    assert "| names | 3 | 0 | 2 | 1 |" in text
    assert "| All | 5 | 2 | 2 | 1 |" in text
    assert "- Comes with RPC. `qm/rpc` (MR-1-03, MR-1-04)" in text
    assert "- Binds clients only. (MR-1-05)" in text
    many = rows(*((n, "names") for n in range(1, 9)))
    assert "(8 rows of names)" in page.page(many, set(), Declarations({}, declared.areas))


def test_a_page_that_is_missing_or_differs_is_not_current(tmp_path: Path) -> None:
    file = tmp_path / "conformance.md"
    assert not page.is_current(file, "text\n")
    file.write_text("other\n")
    assert not page.is_current(file, "text\n")
    file.write_text("text\n")
    assert page.is_current(file, "text\n")
