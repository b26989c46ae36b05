"""The figures of `make house`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.duplicates import RUN_LINES_MIN, code_lines, duplicates
from tests.house.legs import LEGS, PageUnusable, Place, hops, legs, place_of
from tests.house.legs import PAGE as LEGS_PAGE
from tests.house.modules import (
    Module,
    circles,
    function_lines,
    imports,
    modules_per_folder,
    product_modules,
)


def module(name: str, text: str = "", *, is_package: bool = False) -> Module:
    path = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
    return Module(name, path, text)


def named(*modules: Module) -> dict[str, Module]:
    return {each.name: each for each in modules}


# Imports -----------------------------------------------------------------------------------


def test_imports_within_functions_and_for_types_count() -> None:
    late = "def f():\n    from qm.b import x\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import qm.a\n"
    graph = imports(named(module("qm.a", late), module("qm.b", typed)))
    assert graph == {"qm.a": {"qm.b"}, "qm.b": {"qm.a"}}
    assert circles(graph) == [["qm.a", "qm.b"]]


def test_packages_in_a_circle_need_no_module_in_one() -> None:
    graph = {"qm.a.one": {"qm.b.one"}, "qm.b.two": {"qm.a.two"}, "qm.a.two": set[str]()}
    assert circles(graph) == [["qm.a", "qm.b"]]


def test_a_package_that_imports_what_imports_it_is_a_circle() -> None:
    own = module("qm.a", "from qm.a.b import x", is_package=True)
    assert circles(imports(named(own, module("qm.a.b", "from qm.a import y")))) == [
        ["qm.a.__init__", "qm.a.b"]
    ]
    assert circles(imports(named(own, module("qm.a.b")))) == []


# Sizes -------------------------------------------------------------------------------------


def test_a_package_s_own_file_is_no_module_of_its_folder() -> None:
    modules = [module("qm.a", is_package=True), module("qm.a.b"), module("qm.a.c")]
    assert modules_per_folder(modules) == {"qm/a": 2}


def test_functions_count_from_their_def_to_their_end() -> None:
    text = "@cache\ndef f():\n    return 1\n\n\nclass C:\n    async def g(self): ...\n"
    assert function_lines([module("qm.a", text)]) == {"qm/a.py:f": 2, "qm/a.py:g": 1}


def test_generated_modules_do_not_count() -> None:
    names = product_modules().keys()
    assert "qm.store.store" in names
    assert not [name for name in names if name.startswith(("qm.pb", "raft.pb"))]


# Duplicates --------------------------------------------------------------------------------


def lines(count: int, word: str = "x") -> str:
    return "".join(f"    {word}{number} = {number}\n" for number in range(count))


@pytest.mark.parametrize(("count", "found"), [(RUN_LINES_MIN - 1, 0), (RUN_LINES_MIN, 1), (9, 1)])
def test_a_run_in_two_places_is_found_once(count: int, found: int) -> None:
    one = module("qm.a", f"def f():\n{lines(3, 'y')}{lines(count)}")
    other = module("qm.b", f"def g(a, b):\n{lines(count)}    # the end\n")
    same = duplicates([one, other])
    assert len(same) == found
    assert [each.lines for each in same] == [count] * found
    assert [(each.first, each.second) for each in same] == [("qm/a.py:5", "qm/b.py:2")] * found


def test_a_run_does_not_go_over_a_function_s_end() -> None:
    text = f"def f():\n{lines(4)}\n\ndef g():\n{lines(4, 'z')}"
    assert duplicates([module("qm.a", text), module("qm.b", text)]) == []


def test_what_says_nothing_of_its_own_does_not_count() -> None:
    text = (
        '"""Doc."""\nfrom a import (\n    b,\n)\n\n__all__ = [\n    "b",\n]\n'
        '\n\n@cache\ndef f(\n    a: int,\n) -> int:\n    """Doc."""\n'
        "    return (\n        a\n    )\n"
    )
    assert [text for _, text in code_lines(module("qm.a", text)) if text] == ["return (", "a"]


# Legs --------------------------------------------------------------------------------------

PAGE = """# A message
## Arrival
It comes.
1. `edge.flow.Flow.take` frames it,
   `edge.flow.cut`.
2. `qm.store.store.Store.apply` applies it: `SessionAck`.
## Acknowledgement
1. `qm.store.store.Store.apply()`
## Receive and confirm
1. `store.store`
## Outgoing
1. `edge.flow.cut`
## What else
1. `nothing.at.all`
"""
MODULES = named(
    module("qm.edge.flow", "class Flow:\n    def take(self): ...\ndef cut(): ..."),
    module("qm.store.store", "class Store:\n    async def apply(self): ..."),
)


def test_legs_are_counted_from_the_names_of_their_steps(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = legs(MODULES, page)
    assert found["arrival"] == [
        Place("qm.edge.flow", "Flow.take"),
        Place("qm.edge.flow", "cut"),
        Place("qm.store.store", "Store.apply"),
    ]
    assert [hops(found[leg]) for leg in LEGS] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (None, "does not exist"),
        (PAGE.replace("Flow.take", "Flow.lost"), "names `edge.flow.Flow.lost`"),
        (PAGE.replace("## Outgoing", "## Elsewhere"), "begins with 'outgoing'"),
    ],
)
def test_a_page_that_cannot_be_counted_is_refused(
    tmp_path: Path, page: str | None, complaint: str
) -> None:
    path = tmp_path / "page.md"
    if page is not None:
        path.write_text(page)
    with pytest.raises(PageUnusable, match=complaint) as raised:
        legs(MODULES, path)
    assert "page.md" in str(raised.value)


def test_the_page_of_the_legs_names_what_exists() -> None:
    modules = product_modules()
    names = re.findall(r"`([a-z_]\w*(?:\.\w+)+)`", LEGS_PAGE.read_text(encoding="utf-8"))
    assert len(names) > 80
    for name in names:
        place_of(name, modules, LEGS_PAGE.name)


def test_the_arrival_leg_stays_short() -> None:
    found = legs(product_modules())
    assert len({place.module for place in found["arrival"]}) <= 45
