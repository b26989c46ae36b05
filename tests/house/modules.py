"""The product's modules as syntax trees: sizes, and who imports whom."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("qm", "raft", "spark")
GENERATED = ("qm.pb", "raft.pb")
INIT = "__init__"
"""A package's own module, as a name beside those of its children."""


class Module:
    """One file."""

    def __init__(self, name: str, path: str, text: str) -> None:
        self.name = name
        """Dotted, without `__init__`."""
        self.path = path
        """Below the project's folder."""
        self.text = text
        self.tree = ast.parse(text, path)

    @property
    def is_package(self) -> bool:
        """Whether it is an `__init__`."""
        return self.path.endswith("/__init__.py")

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.path.rpartition("/")[0]


def product_modules(root: Path = ROOT) -> dict[str, Module]:
    """Every module of the product but generated ones, by name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            relative = path.relative_to(root)
            name = ".".join(relative.with_suffix("").parts).removesuffix(f".{INIT}")
            if name not in GENERATED and not name.startswith(tuple(f"{g}." for g in GENERATED)):
                found[name] = Module(name, relative.as_posix(), path.read_text(encoding="utf-8"))
    return found


def modules_per_folder(modules: Iterable[Module]) -> Counter[str]:
    """How many modules of its own each folder has; its `__init__` does not count."""
    return Counter(module.folder for module in modules if not module.is_package)


def module_lines(modules: Iterable[Module]) -> Counter[str]:
    """Lines of each module, by path."""
    return Counter({module.path: module.text.count("\n") for module in modules})


def function_lines(modules: Iterable[Module]) -> Counter[str]:
    """Lines of each function from its `def` on, by path and name."""
    lengths: Counter[str] = Counter()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                lengths[f"{module.path}:{node.name}"] = node.end_lineno - node.lineno + 1
    return lengths


def imports(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """What each module imports of the others, within functions and for types as well."""
    return {name: _imported(module, modules) - {name} for name, module in modules.items()}


def _imported(module: Module, modules: Mapping[str, Module]) -> set[str]:
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
    return found & modules.keys()


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of siblings, at any level, of which each leads to each by imports.

    Siblings are what one package holds: modules, packages with all that is in them, and its own
    `__init__`. That `qm.cli` starts the jobs of `spark`, which read the formats of `qm.archive`, is
    no circle: they have no package in common.
    """
    siblings: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for importer, imported in graph.items():
        for each in imported:
            parent, one, other = _parting(importer, each)
            siblings[parent][one].add(other)
    found = []
    for parent in sorted(siblings.keys() - {""}):
        for group in strongly_connected(siblings[parent]):
            if len(group) > 1:
                found.append(sorted(f"{parent}.{name}" for name in group))
    return found


def _parting(one: str, other: str) -> tuple[str, str, str]:
    """The package that two modules have in common, and the child of it that holds each."""
    left, right = one.split("."), other.split(".")
    common = 0
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    children = [(parts[common] if len(parts) > common else INIT) for parts in (left, right)]
    return ".".join(left[:common]), children[0], children[1]


def strongly_connected(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Groups of nodes of which each leads to each."""
    reached = {node: _reached(graph, node) for node in sorted(graph)}
    groups: list[set[str]] = []
    for node, others in reached.items():
        if not any(node in group for group in groups):
            groups.append({node} | {o for o in others if node in reached.get(o, ())})
    return groups


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        for each in graph.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(each)
    return found
