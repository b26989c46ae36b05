"""The breaks that Cosmic Ray can make, and a sample of them. Runs in Cosmic Ray's environment.

    build/cosmic-ray/bin/python tests/mutation/breaks.py ROOT SEED NUMBER FILE

Of each place one break is taken, so that `a + b` counts once and not eleven times. Which place
and which break is chosen by a hash of the seed and of the line's text: a change of other lines
leaves the rest of the sample as it was. FILE receives a list of breaks in JSON.
"""

import ast
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import OPERATOR_PROVIDERS, get_operator

from tests.mutation.meaning import REMOVE_STATEMENT, Span, left_alone

PACKAGES: Final = ("raft", "qm/store", "qm/model", "qm/edge")
NOT_DURABLE: Final = ("/pb/", "metrics.py", "__init__.py")
OPERATORS: Final = (
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in (
            "Add_Sub",
            "Sub_Add",
            "Mul_FloorDiv",
            "FloorDiv_Mul",
            "Div_Mul",
            "Mod_FloorDiv",
            "LShift_RShift",
            "RShift_LShift",
            "BitAnd_BitOr",
            "BitOr_BitAnd",
            "BitXor_BitOr",
        )
    ),
    *(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot")
    ),
    "core/ReplaceComparisonOperator_IsNot_Is",
    "core/ReplaceUnaryOperator_USub_UAdd",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/AddNot",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ExceptionReplacer",
    "core/NumberReplacer",
    "core/RemoveDecorator",
    "core/ZeroIterationForLoop",
    REMOVE_STATEMENT,
)
"""Those whose result a careless reader takes for right. `+` turned into `**` or `is` into `<=`
ends in an error wherever it runs and would only raise the share of the killed."""


class RemoveStatement(Operator):  # type: ignore[misc]
    """Replace a call whose result nobody takes, or a change of an attribute or item, by `pass`.

    Cosmic Ray has none of this kind, and a call left out is what durable code suffers most from.
    """

    NAME: Final = REMOVE_STATEMENT

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield where a whole statement is a call, an await of one, or an augmented assignment."""
        if node.type != "simple_stmt" or len(node.children) != 2:
            return
        statement = node.children[0]
        is_call = (
            statement.type in ("atom_expr", "await", "power")
            and getattr(statement.children[-1], "type", "") == "trailer"
            and statement.children[-1].children[0] == "("
        )
        is_change = (
            statement.type == "expr_stmt"
            and statement.children[0].type in ("atom_expr", "power")
            and statement.children[1].type != "annassign"
        )
        if is_call or is_change:
            yield (statement.start_pos, statement.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        """See Operator."""
        old = node.children[0]
        node.children[0] = parso.python.tree.Keyword(
            "pass", old.start_pos, old.get_first_leaf().prefix
        )
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """See Operator."""
        return ()


OPERATOR_PROVIDERS["quorate"] = {"RemoveStatement": RemoveStatement}


@dataclass(frozen=True)
class Place:
    """Where a break can be made, and which one was drawn."""

    order: str
    """The hash by which places are sampled."""
    file: str
    operator: str
    occurrence: int
    """Of what the operator changes in the file."""
    definition: str
    ordinal: int


@dataclass(frozen=True)
class Break:
    """One changed place of one file."""

    file: str
    operator: str
    line: int
    definition: str
    """The function or class around it."""
    before: str
    after: str
    """The lines that differ, without indentation."""
    ordinal: int
    """Among the breaks of the file that read the same, in order of place."""
    source_hash: str
    source: str
    """The whole broken file."""


def _is_left_alone(spans: list[tuple[Span, str]], operator: str, start: Any, end: Any) -> bool:
    return any(
        only in ("", operator) and begin <= end and start < stop for (begin, stop), only in spans
    )


def places_of(root: Path, file: str, seed: int) -> Iterator[Place]:
    """Yield every place of a file."""
    source = (root / file).read_text(encoding="utf-8")
    spans = left_alone(ast.parse(source))
    lines = source.splitlines()
    parsed = get_ast(source)
    found: dict[tuple[Any, str], list[tuple[str, int, str]]] = {}
    for operator in OPERATORS:
        made = get_operator(operator)()
        positions = (
            (node, start, end)
            for node in ast_nodes(parsed)
            for start, end in made.mutation_positions(node)
        )
        for occurrence, (node, start, end) in enumerate(positions):
            if not _is_left_alone(spans, operator, start, end):
                definition = ASTQuery(node).get_definition_name() or ""
                kind = operator.partition("_")[0]
                found.setdefault((start, kind), []).append((operator, occurrence, definition))
    seen: Counter[str] = Counter()
    for (start, kind), choices in sorted(found.items()):
        name = f"{file} {choices[0][2]} {kind} {lines[start[0] - 1].strip()}"
        seen[name] += 1
        order = hashlib.blake2b(f"{seed} {name} {seen[name]}".encode(), digest_size=16).hexdigest()
        operator, occurrence, definition = choices[int(order[-4:], 16) % len(choices)]
        yield Place(order, file, operator, occurrence, definition, seen[name])


def broken(root: Path, place: Place) -> Break | None:
    """Make the break; None: the result is not Python, or the same program."""
    sound = (root / place.file).read_text(encoding="utf-8")
    try:
        source = mutate_code(sound, get_operator(place.operator)(), place.occurrence)
    except AttributeError:
        return None  # ExceptionReplacer does not know dotted names
    if source is None:
        return None
    try:
        if ast.dump(ast.parse(source)) == ast.dump(ast.parse(sound)):
            return None
    except SyntaxError:
        return None
    old, new = sound.splitlines(), source.splitlines()
    first = next(k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    last = next(k for k, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    return Break(
        file=place.file,
        operator=place.operator,
        line=first + 1,
        definition=place.definition,
        before=" ".join(line.strip() for line in old[first : len(old) - last]),
        after=" ".join(line.strip() for line in new[first : len(new) - last]),
        ordinal=place.ordinal,
        source_hash=hashlib.blake2b(sound.encode(), digest_size=8).hexdigest(),
        source=source,
    )


def main() -> None:
    """Write the sample."""
    root, seed, number, target = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    files = [
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        if not any(part in path.as_posix() for part in NOT_DURABLE)
    ]
    found = sorted(
        (place for file in files for place in places_of(root, file, seed)),
        key=lambda place: place.order,
    )
    made = (broken(root, place) for place in found)
    sample = list(islice((each for each in made if each is not None), number))
    Path(target).write_text(
        json.dumps({"places": len(found), "breaks": [asdict(each) for each in sample]})
    )


if __name__ == "__main__":
    main()
