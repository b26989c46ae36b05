"""Rows of the catalogue that describe interfaces, held against what a node serves."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from qm.names.guid import guid_text
from qm.rpc.dcom.mqac.definitions import Coclass, Definition, Method, definitions
from qm.rpc.dcom.mqac.events import events_interface
from qm.rpc.dcom.mqac.wire import object_interfaces
from tests.conformance.catalogue import SPEC_FOLDER

_PLACE = re.compile(r"(\w+)([#@])(\d+)")
_DISPID = re.compile(r"dispid (0x[0-9a-f]+|-?\d+)")
_CLASS = re.compile(r"coclass (\w+) CLSID \{([0-9a-f-]+)\}; default (\w+)")
_INTERFACE = re.compile(r"(\w+) IID \{([0-9a-f-]+)\} : (\w+)")
_OPNUMS = re.compile(r"own opnums (\d+)-(\d+)")
UNSERVED = "IEnumConnections"
"""EnumConnections is refused, as the document allows."""


@cache
def rows() -> dict[str, dict[str, Any]]:
    text = (SPEC_FOLDER / "mqac.jsonl").read_text(encoding="utf-8")
    return {row["id"]: row for row in map(json.loads, text.splitlines())}


def slots(row_id: str) -> list[tuple[Definition, Method]]:
    """The methods that a row is about."""
    found = []
    for place in rows()[row_id]["wire"]:
        match = _PLACE.fullmatch(place)
        assert match, place
        name, mark, number = match.groups()
        definition = definitions().named(name)
        found.append((definition, _method(definition, mark, int(number))))
    return found


def _method(definition: Definition, mark: str, number: int) -> Method:
    for one in definitions().methods(definition.name):
        if number == (one.opnum if mark == "#" else one.dispid):
            return one
    raise AssertionError(f"{definition.name} has no slot {number}")


def holds(row_id: str) -> None:
    """Assert that every slot of a row is served, and that the newest one is what the row says."""
    found, text = slots(row_id), rows()[row_id]["text"]
    for definition, method in found:
        ins = sum(not one.is_out for one in method.parameters)
        if definition.name == UNSERVED:
            continue
        if method.opnum < 0:
            assert 6 in events_interface().operations
            continue
        operation = object_interfaces()[definition.guid].operations[method.opnum]
        takes: Any = operation.takes
        gives: Any = operation.gives
        assert len(takes.types) == 1 + ins, (row_id, definition.name)
        assert len(gives.types) == 2 + len(method.parameters) - ins, (row_id, definition.name)
    newest = found[-1][0].name
    dispid = _DISPID.search(text)
    for definition, method in found:
        if definition.name != newest:
            continue
        assert method.name in text, row_id
        assert method.kind == "method" or method.kind in text, row_id
        assert method.opnum < 0 or str(method.opnum) in text, row_id
        if dispid is not None:
            assert method.dispid == int(dispid[1], 0), row_id
        for parameter in method.parameters:
            assert parameter.type in text, (row_id, parameter.type)
            if method.kind == "method" and not parameter.is_out:
                assert parameter.name in text, (row_id, parameter.name)
        if any(parameter.is_optional for parameter in method.parameters):
            assert "optional" in text, row_id


def class_holds(row_id: str) -> Coclass:
    """Assert that a coclass is what a row says; return it."""
    text = rows()[row_id]["text"]
    match = _CLASS.match(text)
    assert match, text
    name, clsid, default = match.groups()
    found = next(one for one in definitions().coclasses if one.name == name)
    assert (found.clsid, found.default) == (clsid, default)
    assert guid_text(found.guid).casefold() == clsid
    listed = text.partition("implements ")[2]
    for interface in found.interfaces:
        assert interface in listed or interface == "IConnectionPointContainer", row_id
    return found


def interface_holds(row_id: str) -> None:
    """Assert that an interface is what a row says."""
    text = rows()[row_id]["text"]
    match = _INTERFACE.match(text)
    assert match, text
    name, iid, base = match.groups()
    found = definitions().named(name)
    assert (found.iid, found.base) == (iid, base)
    opnums = _OPNUMS.search(text)
    own = [one.opnum for one in found.methods]
    if opnums is None:
        assert not own or own == [-1] * len(own), row_id
    else:
        assert (own[0], own[-1]) == (int(opnums[1]), int(opnums[2])), row_id
        assert own == list(range(own[0], own[-1] + 1)), row_id
        if name == UNSERVED:
            return
        served = object_interfaces()[found.guid]
        assert set(own) <= set(served.operations), row_id
        assert max(served.operations) == own[-1], row_id
        assert guid_text(found.guid).casefold() == iid
