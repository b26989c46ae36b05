"""The interfaces and coclasses of [MC-MQAC] as data: `interfaces.json` beside this module.

A test holds it equal to the published IDL as the catalogue restates it.
"""

from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from qm.names.guid import guid_from_text
from qm.wire.guid import Guid

_FILE: Final = Path(__file__).with_name("interfaces.json")


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """A parameter of a method."""

    name: str
    type: str
    """As IDL has it, such as `VARIANT*`."""
    is_out: bool = False
    is_optional: bool = False
    """VT_ERROR with DISP_E_PARAMNOTFOUND stands for its default."""
    is_result: bool = False
    """[retval]: what Invoke returns."""


class Method(msgspec.Struct, frozen=True, array_like=True):
    """A method, or one direction of a property."""

    opnum: int
    """-1 in a dispinterface."""
    name: str
    kind: str
    """method, get, put or putref."""
    dispid: int
    parameters: tuple[Parameter, ...] = ()
    is_restricted: bool = False
    """Not for programs' authors: what a language itself calls."""


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """An interface without what it inherits."""

    name: str
    iid: str
    base: str
    methods: tuple[Method, ...]
    attributes: tuple[str, ...] = ()
    """As IDL has them, such as `dual`."""

    @property
    def guid(self) -> Guid:
        """Its IID as PDUs carry it."""
        return _guid(self.iid)


class Coclass(msgspec.Struct, frozen=True, array_like=True):
    """A class of objects."""

    name: str
    clsid: str
    default: str
    """The newest interface, which late-bound callers see."""
    interfaces: tuple[str, ...]
    source: str = ""
    """The interface that it calls at its clients."""

    @property
    def guid(self) -> Guid:
        """Its CLSID as PDUs carry it."""
        return _guid(self.clsid)


class Definitions(msgspec.Struct, frozen=True):
    """Everything."""

    interfaces: tuple[Definition, ...]
    coclasses: tuple[Coclass, ...]

    def named(self, name: str) -> Definition:
        """Return the interface of a name."""
        return _by_name()[name]

    def methods(self, name: str) -> list[Method]:
        """Return all methods of an interface, inherited ones first."""
        definition = _by_name().get(name)
        if definition is None:
            return []
        return [*self.methods(definition.base), *definition.methods]

    def lineage(self, name: str) -> list[str]:
        """Return an interface and those that it inherits from, IUnknown aside."""
        found = []
        while name in _by_name():
            found.append(name)
            name = _by_name()[name].base
        if name == "IDispatch":
            found.append(name)
        return found


@cache
def definitions() -> Definitions:
    """Return the content of the file."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Definitions)


@cache
def _by_name() -> dict[str, Definition]:
    return {one.name: one for one in definitions().interfaces}


def _guid(text: str) -> Guid:
    raw = guid_from_text(text)
    assert raw is not None, text
    return raw
