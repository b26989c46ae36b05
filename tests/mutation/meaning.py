"""Where a break of a source file proves nothing about its tests."""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

REMOVE_STATEMENT: Final = "quorate/RemoveStatement"
_TUNING: Final = re.compile(
    r"_(MAX|MIN|S|MS|NS|US|MIB|KIB|BYTES|COUNT|ENTRIES|ROWS|MESSAGES|SHARE|DAYS|TICKS|BATCHES|"
    r"PER_STEP|PER_RUN|STEP|SIZE|LIMIT|EVERY|AFTER|[A-Z]+_MAX)$"
)
_FOR_TYPES: Final = frozenset({"override", "overload", "runtime_checkable", "final"})
_LAYOUT: Final = frozenset({"frozen", "slots", "gc", "kw_only", "weakref"})
"""Settings of a class that mypy holds code to, or that save memory: no value depends on them."""
_PAGE: Final = frozenset({"limit"})
"""Arguments that say how much is read at a time."""
_CHOSEN_MIN: Final = 2
"""A default from here on was chosen; 0 and 1 may mean something."""

Span = tuple[tuple[int, int], tuple[int, int]]


def left_alone(tree: ast.Module) -> list[tuple[Span, str]]:
    """Return spans in which a break proves nothing, with the operator it is about ("": all).

    Annotations, log lines, texts of errors, assertions, settings of a class' layout, tuning
    constants and defaults of the same kind: a test that holds such a number would say it twice. In
    `__init__` a first value left out ends in an AttributeError, which proves nothing either.
    """
    spans: list[tuple[Span, str]] = []
    for node in ast.walk(tree):
        for part in _without_meaning(node):
            spans.append((_span(part), ""))
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and _TUNING.search(t.id) for t in targets):
                spans.append((_span(node), ""))
        spans += [(_span(default), "") for default in _tuning_defaults(node)]
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            assignments = (
                part for part in node.body if isinstance(part, (ast.Assign, ast.AnnAssign))
            )
            spans += [(_span(part), REMOVE_STATEMENT) for part in assignments]
    return spans


def _without_meaning(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        yield node.returns
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield from (d for d in node.decorator_list if _name(d) in _FOR_TYPES)
    if isinstance(node, ast.ClassDef):
        settings = [*node.keywords]
        for decorator in node.decorator_list:
            settings += decorator.keywords if isinstance(decorator, ast.Call) else []
        yield from (each.value for each in settings if each.arg in _LAYOUT)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and _name(function.value) == "logger":
            yield node
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from node.exc.args
    if isinstance(node, ast.Assert):
        yield node
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        yield node


def _tuning_defaults(node: ast.AST) -> Iterator[ast.expr]:
    """Yield defaults of a class' fields and of a function's arguments."""
    pairs: list[tuple[str, ast.expr | None]] = []
    if isinstance(node, ast.ClassDef):
        pairs = [
            (_name(field.target), field.value)
            for field in node.body
            if isinstance(field, ast.AnnAssign)
        ]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        plain = [*node.args.posonlyargs, *node.args.args]
        defaults = node.args.defaults
        pairs = [(arg.arg, each) for arg, each in zip(plain[::-1], defaults[::-1], strict=False)]
        pairs += [
            (arg.arg, each)
            for arg, each in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        ]
    for name, default in pairs:
        is_tuning = name in _PAGE or _TUNING.search(f"_{name.upper()}") is not None
        if default is not None and is_tuning and _number(default) >= _CHOSEN_MIN:
            yield default


def _number(node: ast.expr) -> float:
    """Return what a number or arithmetic of numbers gives, 0 for anything else."""
    parts = (ast.Constant, ast.BinOp, ast.operator)
    if not all(isinstance(part, parts) for part in ast.walk(node)):
        return 0
    value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    return value if isinstance(value, (int, float)) else 0


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _span(node: Any) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
