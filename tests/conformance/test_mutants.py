"""The mutants: what they break, what they leave alone, and that a hollow claim does not pass."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.conformance import mutants
from tests.conformance.catalogue import Row, load_rows
from tests.conformance.ledger import Project
from tests.conformance.mutants import Fate, Report, Verdict
from tests.conformance.mutation import Mutant, Source
from tests.conformance.mutation_data import INTERFACES, Interfaces
from tests.conformance.reach import Module, Tree
from tests.conformance.test_ledger import small_tree

PRODUCT = '''"""A small product [MS-XX 1]."""

from struct import Struct

LIMIT_BYTES = 8
UNRELATED = 3
_LAYOUT = Struct("<HI")


def parse(data):
    """Read two numbers [MS-XX 1]."""
    if len(data) > LIMIT_BYTES:
        raise ValueError("too long")
    kind, size = _LAYOUT.unpack(data)
    return kind & 7, size


def unrelated():
    return UNRELATED + 1
'''

CLAIMS = """
import struct
from qm.wire import part

@pytest.mark.spec("XX-1-01")
def test_honest():
    assert part.parse(b"\\x0f\\0\\x02\\0\\0\\0") == (7, 2)
    assert part.parse(b"\\x01\\0\\x02\\0\\0\\0") == (1, 2)
    for size in (5, 9):
        with pytest.raises((ValueError, struct.error)) as raised:
            part.parse(bytes(size))
        assert isinstance(raised.value, ValueError) == (size == 9)

@pytest.mark.spec("XX-1-02")
def test_hollow():
    part.parse(b"\\x0f\\0\\x02\\0\\0\\0")

@pytest.mark.spec("XX-1-03")
def test_about_nothing():
    assert True

@pytest.mark.spec("XX-1-04")
def test_beside_the_point():
    try:
        part.parse(b"\\x0f\\0\\x02\\0\\0\\0")
    except Exception:
        pass
    assert part
"""

# As templates are run: compiled under the template's own name.
RENDERED = """
from pathlib import Path

@pytest.mark.spec("XX-1-01")
def test_rendered():
    file = Path(part.__file__).parents[1] / "page.html"
    exec(compile("part.unrelated()", str(file), "exec"))
"""


def mutated(source: str) -> list[str]:
    """The source after each of its mutants."""
    found = []
    for statement in Source("x.py", source).statements:
        for mutant in statement.mutants:
            after = mutant.apply(source.encode()).decode()
            ast.parse(after)
            found.append(after)
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 4", ["x = 5"]),
        ("x: int = 4", ["x: int = 5"]),
        ("def f():\n    return A.B", ["def f():\n    return None"]),
        ("assert a == 4, 'words'", []),
        ("class A(Enum):\n    X = 'label'", []),
        ("class A(StrEnum):\n    X = 'word'", ["class A(StrEnum):\n    X = 'word~'"]),
        ("class A(Enum):\n    X = 4", ["class A(Enum):\n    X = 5"]),
        ("x = 0x60", ["x = 0xC0"]),
        ("x = 0xA0", ["x = 161"]),
        ("x = True", ["x = False"]),
        ('x = "<HI"', ["x = '>HI'"]),
        ('x = "<BB"', []),
        ('x = "DIRECT="', ["x = 'DIRECT=~'"]),
        ("x = b'AB'", ["x = b'@B'"]),
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a in b", ["x = (a not in b)"]),
        ("x = a + b", ["x = ((a) - (b))"]),
        ("x = a & b", ["x = ((a) | (b))"]),
        ("x = a and b", ["x = ((a) or (b))"]),
        ("x = not a", ["x = bool(a)"]),
        ("x = f(a, b.c, 4)", ["x = f(b.c, a, 4)", "x = f(a, b.c, 5)"]),
        ("x = f(is_a=b, c=d)", ["x = f(is_a=not (b), c=d)"]),
        ("x = a if b else c", ["x = (c if b else a)"]),
        ("x = data[:4]", ["x = data[:5]"]),
        ("def f():\n    x += 2", ["def f():\n    x -= 2", "def f():\n    x += 3"]),
        ("def f():\n    g(a)", ["def f():\n    pass"]),
        ("def f():\n    raise E(1)", ["def f():\n    pass"]),
        ("if a:\n    b()", ["if not (a):\n    b()"]),
        ('x = "é", 1', ["x = 'é~', 1", 'x = "é", 2']),
        ('"""Words."""', []),
        ("import a", []),
        ('__all__ = ["a"]', []),
        ('SECTION = "MS-MQMQ 2.2.19"', []),
        ("x = ProtocolError(0, 'text')", []),
        ("x = truncated(o, n, 'BaseHeader', SECTION)", []),
        ("x = parse(o, 'UserHeader.AdminQueue')", []),
        ("x = f'{a} and {4}'", []),
        ("def f(a: Literal[4] = 3) -> 'B': ...", []),
    ],
)
def test_what_is_broken_and_what_is_left_alone(before: str, after: list[str]) -> None:
    assert mutated(before) == after


def test_the_code_behind_a_test_is_what_it_runs_and_names(tmp_path: Path) -> None:
    small_product(tmp_path)
    lines = {number for number, line in enumerate(PRODUCT.splitlines(), 1) if "kind" in line}
    behind = Tree(tmp_path).behind("suite/test_small.py::test_hollow", {"qm/wire/part.py": lines})
    assert sorted(statement.text.strip() for statement in behind) == [
        '_LAYOUT = Struct("<HI")',
        "kind, size = _LAYOUT.unpack(data)",
        "return kind & 7, size",
    ]


def test_members_stand_for_themselves_and_a_class_for_all(tmp_path: Path) -> None:
    (tmp_path / "qm").mkdir()
    (tmp_path / "suite").mkdir()
    (tmp_path / "qm" / "codes.py").write_text(
        "from enum import IntEnum\nBASE = 1\nclass Code(IntEnum):\n    ONE = BASE\n    TWO = 2\n"
    )
    (tmp_path / "suite" / "test_codes.py").write_text(
        "from qm.codes import Code\n"
        "def helper(): return Code(2)\n"
        "def test_one(): assert Code.ONE == 1\n"
        "def test_all(): assert helper()\n"
        "def test_none(): pass\n"
    )
    tree = Tree(tmp_path)
    behind = {
        test: sorted(s.text.strip() for s in tree.behind(f"suite/test_codes.py::{test}", {}))
        for test in ("test_one", "test_all", "test_none")
    }
    assert behind == {
        "test_one": ["BASE = 1", "ONE = BASE"],
        "test_all": ["BASE = 1", "ONE = BASE", "TWO = 2"],
        "test_none": [],
    }


def test_words_compare_identifiers_without_case_and_numbers_by_value() -> None:
    assert {"recoverableackflags", "100", "order", "ack"} <= mutants.words(
        "RecoverableAckFlags 0x64 ORDER_ACK OrderAck"
    )
    assert "recoverableackflags" in mutants.words("recoverable_ack_flags = 100")


def test_an_honest_claim_is_caught_and_a_hollow_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "BREAKS_PER_ROW", 3)
    project = small_product(tmp_path)
    report = Report(tmp_path / "report.json", seed=1)
    verdicts = {v.row: v for v in mutants.run(project, 1, 20, report, workers=2)}
    assert {row: verdict.is_caught for row, verdict in sorted(verdicts.items())} == {
        "XX-1-01": True,  # honest
        "XX-1-02": False,  # calls the code and looks at nothing
        "XX-1-03": False,  # stands on no product code
        "XX-1-04": False,  # looks at something else
    }
    assert verdicts["XX-1-02"].killed > 0
    assert not verdicts["XX-1-02"].asserts
    assert verdicts["XX-1-03"].tried == ()
    assert verdicts["XX-1-04"].asserts
    broken = {text for v in verdicts.values() for text, _ in v.tried}
    assert not any("UNRELATED" in text for text in broken)
    assert (tmp_path / "qm" / "wire" / "part.py").read_text() == PRODUCT
    written = json.loads((tmp_path / "report.json").read_text())
    assert (written["rows_sampled"], written["rows_caught"]) == (4, 1)
    assert [row["row"] for row in written["rows"] if row["caught"]] == ["XX-1-01"]


def test_a_run_takes_what_was_caught_from_the_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    caught = Verdict("XX-1-01", ("a::b",), True, (("x", Fate.ASSERTED),), "same")
    missed = Verdict("XX-1-02", ("a::c",), True, (("x", Fate.SURVIVED),), "same")
    for verdict in (caught, missed):
        Report(file, seed=1).add(verdict)
    report = Report(file, seed=1)
    assert report.known("XX-1-01", "same") == caught
    assert report.known("XX-1-01", "changed") is None
    assert report.known("XX-1-02", "same") is None
    assert Report(file, seed=2).known("XX-1-01", "same") is None


def test_a_sample_may_be_of_one_document() -> None:
    rows = load_rows(Project().spec_folder)
    some = ["AC-1-01", "DM-2-01", "QB-2.1-01", "MQ-1.1-04"]
    assert mutants.of_document(some, rows, "mqdmpr") == ["DM-2-01"]
    assert mutants.of_document(some, rows, "") == some
    with pytest.raises(SystemExit):
        mutants.main(["--document", "mqxx"])


@pytest.mark.parametrize(
    ("docstring", "is_cited"),
    [
        ("Kinds [MC-MQAC].", True),
        ("Kinds [MS-MQDMPR], as [MC-MQAC] 2.2 has them.", True),
        ("Kinds.", True),
        ("Kinds [MS-MQDMPR].", False),
    ],
)
def test_a_section_without_a_document_is_of_one_that_the_module_names(
    docstring: str, is_cited: bool
) -> None:
    row = Row("AC-3.1.1.2-01", "mqac", "3.1.1.2", "MUST", "queue", "")
    for head in ("3.1.1.2", "[MC-MQAC] 3.1.1.2", "[MS-MQQB] 3.1.1.2"):
        text = f'"""{docstring}"""\n\ndef kind():\n    """A kind ({head})."""\n    return 1\n'
        module = Module("qm/kinds.py", text)
        statement = module.source.statements[-1]
        expected = "MC-MQAC" in head or (is_cited and head[0] == "3")
        assert mutants.cites(module, statement, row) is expected, head


def test_a_chapter_is_about_the_object_that_its_rows_name_most() -> None:
    objects = mutants.objects_of(load_rows(Project().spec_folder).values())
    assert objects["mqac", "3", "2"] == "MSMQApplication"
    assert objects["mqac", "3", "17"] == "MSMQMessage"
    assert {document for document, *_ in objects} == {"mqac"}


def test_a_larger_sample_holds_the_smaller_one() -> None:
    claims = [f"XX-1-{n:02}" for n in range(40)]
    few, many = (mutants.sampled(claims, 7, size) for size in (5, 20))
    assert many[:5] == few
    assert mutants.sampled(claims, 8, 5) != few
    claims.remove(few[0])
    assert mutants.sampled(claims, 7, 4) == few[1:]


def test_a_break_that_stops_the_import_is_no_break(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    workshop = mutants.Workshop(small_product(tmp_path / "project"), tmp_path)
    test = "suite/test_small.py::test_hollow"
    start = PRODUCT.index('"<HI"')

    def replaced_by(layout: str) -> Fate | None:
        mutant = Mutant("qm/wire/part.py", 7, start, start + 5, '"<HI"', layout)
        return workshop.fate(mutant, (test,))

    assert replaced_by('"no layout"') is None
    assert replaced_by('"<HIB"') is Fate.CRASHED
    assert replaced_by('"<IH"') is Fate.SURVIVED


SLOTS = """{"interfaces": [
["IOne","00000000-0000-0000-0000-000000000001","IDispatch",[[7,"Label","get",1,[["text","BSTR*",true]]]]]],
"coclasses": [
["One","10000000-0000-0000-0000-000000000002","IOne",["IOne"]]]}
"""


def test_slots_of_the_interfaces_are_broken_as_what_a_test_of_objects_stands_on(
    tmp_path: Path,
) -> None:
    head, slot, coclass = Interfaces(INTERFACES, SLOTS).statements
    assert head.scope == slot.scope == coclass.scope == ("IOne",)
    assert [(mutant.before[:3], mutant.after[:9]) for mutant in head.mutants] == [
        ('"00', '"10000000'),
        ('"ID', '"IUnknown'),
    ]
    assert [(mutant.before[:3], mutant.after[:9]) for mutant in coclass.mutants] == [
        ('"10', '"00000000'),
        ('"IO', '"IUnknown'),
    ]
    changed = [mutant.apply(SLOTS.encode()).decode().splitlines()[1] for mutant in slot.mutants]
    method = '[7,"Label","get",1,[["text","BSTR*",true]]]'
    assert [line[line.index("[[") + 1 : -4] for line in changed] == [
        method.replace("7", "8"),
        method.replace("1", "2"),
        method.replace("Label", "Label~"),
        method.replace("get", "put"),
        method.replace("BSTR*", "long*"),
        method.replace("true", "false"),
    ]
    small_product(tmp_path)
    (tmp_path / INTERFACES).parent.mkdir(parents=True)
    (tmp_path / INTERFACES).write_text(SLOTS)
    (tmp_path / "qm" / "rpc" / "dcom" / "object.py").write_text("def made():\n    return 1\n")
    tree = Tree(tmp_path)
    objects = tree.behind("suite/test_small.py::test_hollow", {"qm/rpc/dcom/object.py": {2}})
    assert {s.file for s in objects} == {"qm/rpc/dcom/object.py", INTERFACES}
    parts = tree.behind("suite/test_small.py::test_hollow", {"qm/wire/part.py": {14}})
    assert {s.file for s in parts} == {"qm/wire/part.py"}


def test_a_template_that_a_test_renders_is_not_code_to_break(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project = small_product(tmp_path / "project")
    (project.root / "qm" / "page.html").write_text("A page\n")
    with (project.tests / "test_small.py").open("a", encoding="utf-8") as claims:
        claims.write(RENDERED)
    outcomes, executed = mutants.Workshop(project, tmp_path).first_pass()
    assert all(outcome.holds for outcome in outcomes.values())
    assert set(executed["suite/test_small.py::test_rendered"]) == {"qm/wire/part.py"}


def small_product(root: Path) -> Project:
    """A project with a product of one module and an honest, a hollow and an empty claim."""
    project = small_tree(root, CLAIMS, declared="")
    (root / "qm" / "wire").mkdir(parents=True)
    (root / "qm" / "__init__.py").write_text("")
    (root / "qm" / "wire" / "__init__.py").write_text("")
    (root / "qm" / "wire" / "part.py").write_text(PRODUCT)
    return project
