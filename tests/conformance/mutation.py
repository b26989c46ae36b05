"""Small breaks of Python source: each `Mutant` replaces one stretch of one statement.

Kinds: constant changed (numbers and with them bounds, booleans, byte order of a struct format,
text), comparison flipped, condition negated, arithmetic swapped, `and`/`or` swapped, arguments
exchanged, effect of a statement removed, a named result left out. Left alone, because breaking
them proves nothing: docstrings, annotations, assertions, the words of errors, `__all__`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
_STRUCT_FORMAT = re.compile(r"^[<>=!@][0-9a-zA-Z? ]+$")
_WIDE_CODES = set("hHiIlLqQ")
_SECTION = re.compile(r"^M[SC]-[A-Z]+ \d")
# What a call says for people only: a field's full name, a few plain words.
_LABEL = re.compile(r"^([A-Z]\w+(\.\w+)+|[a-z]+( [a-z]+)+)$")
_YES_OR_NO = re.compile(r"^(is|has|uses|needs|wants)_")
_ERRORS = ("Error", "OutOfRange", "Exception")


@dataclass(frozen=True)
class Mutant:
    """One break: `file[start:end]` was `before` and becomes `after` (offsets in bytes)."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """The broken source."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def overlaps(self, other: Mutant) -> bool:
        """Whether both break the same code."""
        is_apart = self.end <= other.start or other.end <= self.start
        return self.file == other.file and not is_apart

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before!r} became {self.after!r}"


@dataclass(frozen=True)
class Statement:
    """A simple statement, or the head of a compound one (the test of an `if`)."""

    file: str
    first_line: int
    last_line: int
    scope: tuple[str, ...]
    """Enclosing classes and functions, outermost first."""
    binds: tuple[str, ...]
    """Names it binds at import; empty inside functions."""
    at_import: bool
    text: str
    heads: tuple[ast.AST, ...] = field(compare=False, repr=False)
    """The expressions that belong to the statement itself."""
    mutants: tuple[Mutant, ...] = field(compare=False, repr=False)


class Source:
    """One file: its statements with their mutants."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.tree = ast.parse(text, file)
        self._encoded = text.encode()
        self._lines = [0]
        for line in self._encoded.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.statements = list(self._walk(self.tree.body, (), in_function=False))

    def _walk(
        self, body: list[ast.stmt], scope: tuple[str, ...], *, in_function: bool
    ) -> Iterator[Statement]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from self._walk(node.body, (*scope, node.name), in_function=True)
            elif isinstance(node, ast.ClassDef):
                within = (*scope, node.name)
                for statement in self._walk(node.body, within, in_function=in_function):
                    if statement.scope == within and not in_function:
                        statement = _member(statement, node)
                    yield statement
            else:
                yield self._statement(node, scope, in_function=in_function)
                for part in _bodies(node):
                    yield from self._walk(part, scope, in_function=in_function)

    def _statement(self, node: ast.stmt, scope: tuple[str, ...], *, in_function: bool) -> Statement:
        heads = tuple(_heads(node))
        last = max([node.lineno, *(getattr(head, "end_lineno", 0) or 0 for head in heads)])
        if not _bodies(node):
            last = node.end_lineno or last
        return Statement(
            file=self.file,
            first_line=node.lineno,
            last_line=last,
            scope=scope,
            binds=() if in_function else tuple(_bound(node)),
            at_import=not in_function,
            text="\n".join(self.text.splitlines()[node.lineno - 1 : last]),
            heads=heads,
            mutants=tuple(self._mutants(node, heads, in_function=in_function)),
        )

    def _mutants(
        self, node: ast.stmt, heads: tuple[ast.AST, ...], *, in_function: bool
    ) -> Iterator[Mutant]:
        if _is_text_only(node):
            return
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and in_function):
            yield self._mutant(node, "pass")
        if isinstance(node, ast.Raise):
            return
        if isinstance(node, (ast.If, ast.While)) and not isinstance(node.test, ast.Constant):
            yield self._mutant(node.test, f"not ({self._segment(node.test)})")
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Attribute):
            yield self._mutant(node.value, "None")
        if isinstance(node, ast.AugAssign) and (swap := _OPERATORS.get(type(node.op))):
            target, value = self._segment(node.target), self._segment(node.value)
            yield self._mutant(node, f"{target} {swap}= {value}")
        for head in heads:
            for inner in _expressions(head):
                yield from self._expression(inner)

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.Constant):
            is_hexadecimal = self._segment(node)[:2].lower() == "0x"
            after = _other_constant(node.value, is_hexadecimal=is_hexadecimal)
            if after is not None:
                yield self._mutant(node, after)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._segment(node.left), self._segment(node.comparators[0])
            yield self._mutant(node, f"({left} {_COMPARISONS[type(node.ops[0])]} {right})")
        elif isinstance(node, ast.BinOp) and (swap := _OPERATORS.get(type(node.op))):
            left, right = self._segment(node.left), self._segment(node.right)
            yield self._mutant(node, f"(({left}) {swap} ({right}))")
        elif isinstance(node, ast.Call):
            yield from self._arguments(node)
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            joined = word.join(f"({self._segment(value)})" for value in node.values)
            yield self._mutant(node, f"({joined})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._mutant(node, f"bool({self._segment(node.operand)})")
        elif isinstance(node, ast.IfExp):
            test, body, other = (self._segment(n) for n in (node.test, node.body, node.orelse))
            yield self._mutant(node, f"({other} if {test} else {body})")

    def _arguments(self, call: ast.Call) -> Iterator[Mutant]:
        """Neighbouring arguments change places; a keyword that says yes or no is negated."""
        for left, right in pairwise(call.args):
            if _is_plain(left) and _is_plain(right) and not _words_errors(call):
                start, end = self._span(left)[0], self._span(right)[1]
                between = self._encoded[self._span(left)[1] : self._span(right)[0]].decode()
                after = self._segment(right) + between + self._segment(left)
                before = self._encoded[start:end].decode()
                yield Mutant(self.file, left.lineno, start, end, before, after)
        for keyword in call.keywords:
            if keyword.arg and _YES_OR_NO.match(keyword.arg) and _is_plain(keyword.value):
                yield self._mutant(keyword.value, f"not ({self._segment(keyword.value)})")

    def _segment(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._encoded[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        first = self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        last = self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return first, last

    def _mutant(self, node: ast.AST, after: str) -> Mutant:
        start, end = self._span(node)
        before = self._encoded[start:end].decode()
        line = node.lineno  # type: ignore[attr-defined]
        return Mutant(self.file, line, start, end, before, after)


def _member(statement: Statement, around: ast.ClassDef) -> Statement:
    """A statement of a class body; members of a plain `Enum` are told apart by names alone."""
    if [ast.unparse(base) for base in around.bases] != ["Enum"]:
        return statement
    kept = tuple(mutant for mutant in statement.mutants if mutant.before[0] not in "\"'")
    return replace(statement, mutants=kept)


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _bodies(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a compound statement."""
    blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(node, "handlers", [])]
    blocks += [case.body for case in getattr(node, "cases", [])]
    return [block for block in blocks if block]


def _heads(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement that are not in its blocks, annotations left out."""
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody", "handlers", "annotation", "type_params"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.match_case):
                yield part.pattern
                if part.guard is not None:
                    yield part.guard
            elif isinstance(part, ast.AST):
                yield part


def _bound(node: ast.stmt) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name):
                yield inner.id


def _is_text_only(node: ast.stmt) -> bool:
    """Docstrings, imports, assertions, `__all__`: nothing that runs with an effect."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass, ast.Assert, ast.Nonlocal)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return "__all__" in _bound(node)


def _expressions(head: ast.AST) -> Iterator[ast.expr]:
    """Every expression under `head` that is worth breaking."""
    if isinstance(head, ast.JoinedStr):
        return
    if isinstance(head, ast.Lambda):
        yield from _expressions(head.body)
        return
    if isinstance(head, ast.expr):
        yield head
    skipped = _words_of_errors(head) if isinstance(head, ast.Call) else set()
    for child in ast.iter_child_nodes(head):
        if child not in skipped:
            yield from _expressions(child)


def _words_of_errors(call: ast.Call) -> set[ast.AST]:
    """The arguments of a call that only word an error: text beside a section, names of fields."""
    arguments: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    if ast.unparse(call.func).endswith(_ERRORS):
        return set(arguments) | set(call.keywords)
    texts = {a for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    if _words_errors(call):
        return set(texts)
    return {text for text in texts if _LABEL.match(str(text.value))}


def _words_errors(call: ast.Call) -> bool:
    """Whether the call makes an error, or passes on the words for one."""
    made = ast.unparse(call.func).endswith(_ERRORS)
    return made or any(_names_a_section(argument) for argument in call.args)


def _names_a_section(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return bool(_SECTION.match(str(node.value)))
    return isinstance(node, ast.Name) and "SECTION" in node.id


def _other_constant(value: object, *, is_hexadecimal: bool = False) -> str | None:
    """Source of a constant of the same type that is not `value`."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        # A mask (an unbroken run of ones) moves to other bits: one more could mean nothing.
        run = value // (value & -value) if value else 0
        is_mask = is_hexadecimal and value and run & (run + 1) == 0
        return f"0x{value << 1:X}" if is_mask else str(value + 1)
    if isinstance(value, bytes):
        return repr(bytes([value[0] ^ 1]) + value[1:]) if value else repr(b"\x01")
    if not isinstance(value, str) or _SECTION.match(value):
        return None
    if _STRUCT_FORMAT.match(value):
        if not _WIDE_CODES & set(value):
            return None  # single bytes have no order to break
        return repr((">" if value[0] == "<" else "<") + value[1:])
    return repr(value + "~")
