"""Runs of code lines that stand in two places."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

import msgspec

from tests.house.modules import Module

RUN_LINES_MIN = 6
_SILENT = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
)
_BREAK = ""
"""Stands between functions: no run goes over it."""


class Duplicate(msgspec.Struct, frozen=True):
    """A run of lines that two places have in common."""

    first: str
    second: str
    """Path and line where it begins."""
    lines: int

    def __str__(self) -> str:
        return f"{self.first} ~ {self.second}: {self.lines} lines"


def duplicates(modules: Iterable[Module]) -> list[Duplicate]:
    """Every pair of identical runs of RUN_LINES_MIN lines and more, the longest first.

    Lines count as `code_lines` has them.
    """
    files = {module.path: code_lines(module) for module in modules}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, lines in files.items():
        texts = [text for _, text in lines]
        for start in range(len(texts) - RUN_LINES_MIN + 1):
            window = tuple(texts[start : start + RUN_LINES_MIN])
            if _BREAK not in window:
                places[window].append((path, start))
    found = []
    for same in places.values():
        for one, other in combinations(same, 2):
            length = _common(files, one, other)
            if length and not (one[0] == other[0] and one[1] + length > other[1]):
                found.append(Duplicate(_where(files, one), _where(files, other), length))
    return sorted(found, key=lambda each: (-each.lines, each.first, each.second))


def _common(
    files: dict[str, list[tuple[int, str]]], one: tuple[str, int], other: tuple[str, int]
) -> int:
    """How many lines two places have in common, 0 unless they differ before."""
    left, right = files[one[0]], files[other[0]]
    i, k = one[1], other[1]
    if i and k and left[i - 1][1] == right[k - 1][1] != _BREAK:
        return 0
    length = 0
    while (
        i + length < len(left)
        and k + length < len(right)
        and left[i + length][1] == right[k + length][1] != _BREAK
    ):
        length += 1
    return length


def _where(files: dict[str, list[tuple[int, str]]], place: tuple[str, int]) -> str:
    return f"{place[0]}:{files[place[0]][place[1]][0]}"


def code_lines(module: Module) -> list[tuple[int, str]]:
    """Number and text of each line that says something of its own.

    Left out are comments, docstrings, imports, `__all__`, lines of brackets alone, and the heads of
    functions, which follow the face that they implement.
    """
    silent, heads = _left_out(module.tree)
    texts: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _SILENT:
            texts[token.start[0]].append(token.string)
    found: list[tuple[int, str]] = []
    for number in sorted(texts):
        if number in heads:
            found.append((number, _BREAK))
        elif number not in silent and any(c.isalnum() for text in texts[number] for c in text):
            found.append((number, " ".join(texts[number])))
    return found


def _left_out(tree: ast.Module) -> tuple[set[int], set[int]]:
    silent: set[int] = set()
    heads: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_text(node) or _is_all(node):
            silent |= _span(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            heads |= set(range(first, max(node.body[0].lineno, node.lineno + 1)))
    return silent, heads


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _span(node: ast.AST) -> set[int]:
    assert isinstance(node, ast.stmt)
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
