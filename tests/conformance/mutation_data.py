"""Small breaks of the interfaces that the product has as data, `qm/rpc/dcom/mqac/interfaces.json`.

What a row says of an interface or a coclass stands there and in no module: identifiers, what is
inherited or implemented, the number of a slot, its DISPID, the type and the direction of a
parameter.
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
    """The file: a statement for each interface, method and coclass. As Python it parses as well."""

    @override
    def _walk(
        self, body: list[ast.stmt], scope: tuple[str, ...], *, in_function: bool
    ) -> Iterator[Statement]:
        (whole,) = body
        assert isinstance(whole, ast.Expr)
        assert isinstance(whole.value, ast.Dict)
        interfaces, coclasses = map(_parts, whole.value.values)
        for interface in interfaces:
            own = _parts(interface)
            name = _text(own[0])
            yield self._part(name, own[:_METHODS], self._changed_head(own))
            for method in _parts(own[_METHODS]):
                yield self._part(name, [method], self._changed_method(method))
        for coclass in coclasses:
            own = _parts(coclass)
            yield self._part(f"I{_text(own[0])}", own, self._changed_head(own))

    def _part(self, scope: str, nodes: list[ast.expr], mutants: Iterator[Mutant]) -> Statement:
        return Statement(
            file=self.file,
            first_line=nodes[0].lineno,
            last_line=nodes[0].lineno,
            scope=(scope,),
            binds=(),
            at_import=True,
            text=", ".join(map(self._segment, nodes)),
            heads=(),
            mutants=tuple(mutants),
        )

    def _changed_head(self, own: list[ast.expr]) -> Iterator[Mutant]:
        """Another identifier; another base, or another newest interface of a coclass."""
        _, identifier, kin = own[:_METHODS]
        guid = _text(identifier)
        yield self._mutant(identifier, json.dumps(("1" if guid[0] == "0" else "0") + guid[1:]))
        yield self._mutant(kin, json.dumps("IUnknown" if _text(kin) != "IUnknown" else "IDispatch"))

    def _changed_method(self, method: ast.expr) -> Iterator[Mutant]:
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
