"""Small breaks of the interfaces that the product has as data, `qm/rpc/dcom/mqac/interfaces.json`.

What a row of an interface says of a slot stands there and in no module: the number of a slot, its
DISPID, the type and the direction of a parameter.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

from typing_extensions import override

from tests.conformance.mutation import Mutant, Source, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERFACES = "qm/rpc/dcom/mqac/interfaces.json"
READERS = "qm/rpc/dcom/"
"""A test that runs code here stands on the file, which is read once a process."""
_METHODS, _PARAMETERS = 3, 4
"""Places in an interface, and in a method."""


class Interfaces(Source):
    """The file: a statement for each method. As Python it parses as well."""

    @override
    def _walk(
        self, body: list[ast.stmt], scope: tuple[str, ...], *, in_function: bool
    ) -> Iterator[Statement]:
        (whole,) = body
        assert isinstance(whole, ast.Expr)
        assert isinstance(whole.value, ast.Dict)
        for interface in _parts(whole.value.values[0]):
            name = _text(_parts(interface)[0])
            for method in _parts(_parts(interface)[_METHODS]):
                yield self._method(name, method)

    def _method(self, interface: str, method: ast.expr) -> Statement:
        return Statement(
            file=self.file,
            first_line=method.lineno,
            last_line=method.lineno,
            scope=(interface,),
            binds=(),
            at_import=True,
            text=self._segment(method),
            heads=(),
            mutants=tuple(self._changed(method)),
        )

    def _changed(self, method: ast.expr) -> Iterator[Mutant]:
        own = _parts(method)
        opnum, name, kind, dispid = own[:_PARAMETERS]
        for number in (opnum, dispid):
            yield self._mutant(number, str(int(self._segment(number)) + 1))
        yield self._mutant(name, json.dumps(_text(name) + "~"))
        yield self._mutant(kind, json.dumps("put" if _text(kind) == "get" else "get"))
        for parameter in _parts(own[_PARAMETERS]) if len(own) > _PARAMETERS else ():
            _, given, *flags = _parts(parameter)
            other = "long" if _text(given).startswith("BSTR") else "BSTR"
            yield self._mutant(given, json.dumps(other + "*" * _text(given).count("*")))
            for flag in flags:
                yield self._mutant(flag, "false" if self._segment(flag) == "true" else "true")


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    return str(node.value)


def _parts(node: ast.expr) -> list[ast.expr]:
    assert isinstance(node, ast.List)
    return node.elts
