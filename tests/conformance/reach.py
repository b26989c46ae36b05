"""Which statements of product code stand behind a test.

Two kinds, found in two ways. Statements inside functions are behind a test when the test executes
them (coverage contexts of the mutants' first pass). Statements that run once, at import, such as
constants, tables and enum members, are behind a test when the test's own code or a statement that
it executes names them, directly or through other such statements; an enum or a class that is used
as a whole (called, iterated) stands for all its members. What the product has as data stands behind
every test that runs the code around it (`mutation_data`).
"""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from tests.conformance.mutation import Source, Statement
from tests.conformance.mutation_data import INTERFACES, READERS, Interfaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PRODUCT = ("qm/", "raft/", "spark/")
_ASSERTING = ("pytest.raises", "pytest.fail", "pytest.warns")
Lines = dict[str, set[int]]
"""File relative to the tree -> executed lines."""


class Module:
    """A file as names: what it imports, defines and binds."""

    def __init__(self, file: str, text: str) -> None:
        self.source = (Interfaces if file == INTERFACES else Source)(file, text)
        self.is_product = file.startswith(PRODUCT)
        self.imports: dict[str, str] = {}
        self.functions: dict[str, ast.AST] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.openings: dict[tuple[str, ...], int] = {}
        """First line of each class and function, by the names around and its own."""
        self.docstrings: dict[tuple[str, ...], str] = {}
        self.sections: dict[str, str] = {}
        """Constants that hold the number of a section: name -> text."""
        self._look_into(self.source.tree.body, ())
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    target = alias.name if alias.asname else alias.name.split(".")[0]
                    self.imports[alias.asname or target] = target
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in self.source.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node

    def _look_into(self, body: list[ast.stmt], scope: tuple[str, ...]) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                within = (*scope, node.name)
                self.openings[within] = node.lineno
                self.docstrings[within] = ast.get_docstring(node) or ""
                self._look_into(node.body, within)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not scope:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and "SECTION" in target.id and node.value:
                    self.sections[target.id] = ast.unparse(node.value)

    def bound(self, scope: tuple[str, ...], name: str | None) -> Iterator[Statement]:
        """The import-time statements of `scope` that bind `name`; all of them for None."""
        for statement in self.source.statements:
            is_here = statement.at_import and statement.scope == scope
            if is_here and (name is None or name in statement.binds):
                yield statement


class Tree:
    """A copy of the project, its modules read on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.module = cache(self._module)
        self.interfaces = cache(self._interfaces)

    def _module(self, dotted: str) -> Module | None:
        path = dotted.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if (self.root / file).is_file():
                return Module(file, (self.root / file).read_text(encoding="utf-8"))
        return None

    def _interfaces(self) -> Module | None:
        file = self.root / INTERFACES
        return Module(INTERFACES, file.read_text(encoding="utf-8")) if file.is_file() else None

    def file(self, name: str) -> Module:
        """The module of a file that exists, or the interfaces."""
        if name == INTERFACES and (interfaces := self.interfaces()):
            return interfaces
        module = self.module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        if module is None:
            raise FileNotFoundError(self.root / name)
        return module

    def asserts(self, test: str) -> bool:
        """Whether `test`, or what it uses of the tests' own code, asserts anything."""
        file, *names = test.split("::")
        module = self.file(file)
        node = _test_node(module, names)
        search = _Search(self)
        search.expressions(module, [node])
        return any(_asserts(part) for part in [node, *search.test_code])

    def behind(self, test: str, executed: Lines) -> set[Statement]:
        """Every product statement behind `test`, a node id without its case."""
        found: set[Statement] = set()
        search = _Search(self)
        for file, lines in executed.items():
            module = self.file(file)
            for statement in module.source.statements:
                if not statement.at_import and _touches(statement, lines):
                    found.add(statement)
                    search.expressions(module, statement.heads)
        interfaces = self.interfaces()
        if interfaces and any(file.startswith(READERS) for file in executed):
            found.update(interfaces.source.statements)
        file, *names = test.split("::")
        module = self.file(file)
        search.expressions(module, [_test_node(module, names)])
        return found | search.found


class _Search:
    """Follows names from code to the import-time statements they mean."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.found: set[Statement] = set()
        self.test_code: list[ast.AST] = []
        """Functions and classes of the tests that were gone through."""
        self.seen: set[tuple[str, str]] = set()

    def expressions(self, module: Module, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            for chain in _chains(node):
                self.resolve(module, chain)

    def resolve(self, module: Module, chain: tuple[str, ...]) -> None:
        """Find what `chain` ("limits", "LABEL_LENGTH_MAX_CHARS") means in `module`."""
        key = (module.source.file, ".".join(chain))
        if key in self.seen:
            return
        self.seen.add(key)
        head, *rest = chain
        if statements := list(module.bound((), head)):
            self._take(module, statements)
        elif head in module.classes:
            self._class(module, head, rest)
        elif head in module.functions:
            if not module.is_product:  # a helper of the tests: go on inside
                self.test_code.append(module.functions[head])
                self.expressions(module, [module.functions[head]])
        elif head in module.imports:
            self._import(module.imports[head], rest)

    def _import(self, target: str, rest: list[str]) -> None:
        imported = self.tree.module(target)
        if imported is not None:
            if rest:
                self.resolve(imported, tuple(rest))
            return
        parent, _, name = target.rpartition(".")
        origin = self.tree.module(parent) if parent else None
        if origin is not None:
            self.resolve(origin, (name, *rest))

    def _class(self, module: Module, name: str, rest: list[str]) -> None:
        if not module.is_product:
            self.test_code.append(module.classes[name])
            self.expressions(module, [module.classes[name]])
            return
        member = list(module.bound((name,), rest[0])) if rest else []
        self._take(module, member or module.bound((name,), None))

    def _take(self, module: Module, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if module.is_product:
                self.found.add(statement)
            self.expressions(module, statement.heads)


def _asserts(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Assert)
        or (isinstance(inner, ast.Attribute) and ast.unparse(inner) in _ASSERTING)
        for inner in ast.walk(node)
    )


def _touches(statement: Statement, lines: set[int]) -> bool:
    return any(line in lines for line in range(statement.first_line, statement.last_line + 1))


def _test_node(module: Module, names: list[str]) -> ast.AST:
    node: ast.AST = module.source.tree
    for name in names:
        node = next(
            child
            for child in getattr(node, "body", [])
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and child.name == name
        )
    return node


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Every dotted name that `node` reads, annotations left out; the longest form of each."""
    if isinstance(node, ast.Attribute):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield (inner.id, *chain)
        else:
            yield from _chains(inner)
        return
    if isinstance(node, ast.Name):
        yield (node.id,)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _chains(child)
