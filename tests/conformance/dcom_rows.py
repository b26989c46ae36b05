"""Rows of the catalogue that describe interfaces, held against what a node serves.

A row is read whole: what it says of each slot in each revision is compared with the definition
that the node works by, with how its vtable carries the arguments, and with what a script's
GetIDsOfNames and Invoke find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from qm.client import mqac
from qm.names.guid import guid_from_text, guid_text
from qm.rpc.dcom.automation.dispatch import IDISPATCH, InvokeFlag
from qm.rpc.dcom.automation.type_interfaces import ITYPEINFO
from qm.rpc.dcom.automation.variant import BSTR, VARIANT
from qm.rpc.dcom.mqac.classes import interfaces_of
from qm.rpc.dcom.mqac.definitions import (
    Coclass,
    Definition,
    Definitions,
    Method,
    Parameter,
    definitions,
)
from qm.rpc.dcom.mqac.events import events_interface
from qm.rpc.dcom.mqac.late_binding import Table
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH
from qm.rpc.dcom.runtime.orpc import INTERFACE
from qm.rpc.ndr.types import GUID, I16, I32, U32, Type, Unique, VaryingArray
from tests.conformance.catalogue import SPEC_FOLDER
from tests.unit.rpc.dcom.scripts import Program, play, pointed

_PLACE = re.compile(r"(?P<interface>\w+)[#@](?P<number>\d+)")
_HEAD = re.compile(
    r"(?P<newest>\w+) (?:opnum (?P<slots>.+?) )?(?P<name>\w+)"
    r"(?:, dispid (?P<dispid>\S+))?: (?P<body>.*)\."
)
_SLOT = re.compile(r"(?P<opnum>\d+)(?: (?P<kind>get|putref|put))?")
_ARGUMENT = re.compile(r"(?P<way>in|out) (?P<optional>optional )?(?P<type>\S+)(?: (?P<names>.+))?")
_EXCEPTION = re.compile(
    r"revision (?P<revisions>[\d,]+): "
    r"(?:(?P<opnum>\d+) )?(?:called (?P<name>\w+) ?)?(?P<kind>get|putref|put)?(?P<type>\w+\*+)?"
)
_OTHER_TYPES = re.compile(r"revision (?P<revisions>[\d,]+): other arguments")
_SINCE = re.compile(r"since revision (?P<revision>\d+)")
_REMARK = re.compile(r"element count by .*|void|called by .*")
_REVISION = re.compile(r"\D+(\d*)")
_POINTER = re.compile(r"I[A-Z]\w+\*+")
_CLASS = re.compile(
    r"coclass (\w+) CLSID \{([0-9a-f-]+)\}; default (\w+); implements ([\w, ]+?) ?[.;]"
)
_INTERFACE = re.compile(r"(\w+) IID \{([0-9a-f-]+)\} : (\w+)")
_OPNUMS = re.compile(r"own opnums (\d+)-(\d+)")
_COCLASS = re.compile(r"; coclass (\w+)")
_SERVED_BY_CLIENTS = "_DMSMQEventEvents"
_CONTAINER = "IConnectionPointContainer"
"""MSMQEvent's, which the section of its interfaces names and the one of its class does not."""
_FLAGS = {
    "method": InvokeFlag.METHOD,
    "get": InvokeFlag.PROPERTYGET,
    "put": InvokeFlag.PROPERTYPUT,
    "putref": InvokeFlag.PROPERTYPUTREF,
}
_CARRIED: dict[str, Type[Any]] = {
    "BSTR": BSTR,
    "VARIANT": VARIANT,
    "VARIANT_BOOL": I16,
    "short": I16,
    "long": I32,
    "HRESULT": I32,
    "DWORD": U32,
    "ULONG": U32,
    "IID": GUID,
    "REFIID": GUID,
}
"""What neither is an interface pointer nor stands in `_carries`, by its type without a star."""
_TRANSACTION_INFO_BYTES = 40
_ENGLISH = 0x409
_OF_ITSELF = -1
"""MEMBERID_NIL: what GetDocumentation is asked about."""


class Said(NamedTuple):
    """What a row says of an argument."""

    is_out: bool
    type: str
    is_optional: bool
    name: str
    """Empty for that of a property."""


@dataclass(frozen=True)
class Slot:
    """What a row says of one slot in one revision."""

    name: str
    kind: str
    arguments: tuple[Said, ...]
    has_other_types: bool = False
    """The row says no more than that: of which types its interface pointers are not."""


@dataclass
class Row:
    """A row about slots, read."""

    newest: str
    dispid: str | None = None
    since: int = 1
    slots: dict[int, Slot] = field(default_factory=dict)
    """Of the newest revision, by opnum; -1 for a dispinterface's."""
    exceptions: list[re.Match[str]] = field(default_factory=list)

    def slot(self, revision: int, opnum: int) -> Slot:
        """What it says of a slot in a revision."""
        found = self.slots[opnum]
        for one in self.exceptions:
            given = one.groupdict()
            if str(revision) not in given["revisions"].split(","):
                continue
            if "opnum" not in given:
                found = replace(found, has_other_types=True)
            elif given["opnum"] in (None, str(opnum)):
                found = _changed(found, given)
        return found


def _changed(slot: Slot, given: dict[str, Any]) -> Slot:
    arguments = slot.arguments
    if given["type"]:
        # An earlier revision of the object that the method answers, or that the property holds.
        arguments = (*arguments[:-1], arguments[-1]._replace(type=given["type"]))
    return Slot(given["name"] or slot.name, given["kind"] or slot.kind, arguments)


@cache
def rows() -> dict[str, dict[str, Any]]:
    text = (SPEC_FOLDER / "mqac.jsonl").read_text(encoding="utf-8")
    return {row["id"]: row for row in map(json.loads, text.splitlines())}


# Reading a row ---------------------------------------------------------------------------------


def read(text: str) -> Row:
    """Read a row about slots; every word of it must be understood."""
    head = _HEAD.fullmatch(text)
    assert head, text
    made = Row(head["newest"], head["dispid"])
    arguments: list[Said] = []
    for part in head["body"].split("; "):
        if part.startswith(("in ", "out ")):
            arguments += _arguments(part)
        elif since := _SINCE.fullmatch(part):
            made.since = int(since["revision"])
        elif exception := _OTHER_TYPES.fullmatch(part) or _EXCEPTION.fullmatch(part):
            made.exceptions.append(exception)
        else:
            assert part == "no arguments" or _REMARK.fullmatch(part), (text, part)
    if head["slots"] is None:
        made.slots[-1] = Slot(head["name"], "method", tuple(arguments))
        return made
    slots = [_SLOT.fullmatch(one) for one in head["slots"].split(", ")]
    for place, slot in enumerate(slots):
        assert slot, text
        own = tuple(arguments)
        if slot["kind"] is not None:
            assert len(arguments) == len(slots), text
            own = (arguments[place],)
        made.slots[int(slot["opnum"])] = Slot(head["name"], slot["kind"] or "method", own)
    return made


def _arguments(part: str) -> Iterable[Said]:
    for each in re.split(r", (?=in |out )", part):
        found = _ARGUMENT.fullmatch(each)
        assert found, part
        for name in (found["names"] or "").split(", "):
            yield Said(found["way"] == "out", found["type"], found["optional"] is not None, name)


# Slots -----------------------------------------------------------------------------------------


def holds(row_id: str, made: Definitions | None = None) -> None:
    """Assert that every slot of a row is served, in each revision as the row says.

    `made`: definitions to hold it against, if not those that the node works by.
    """
    made = made or definitions()
    row = read(rows()[row_id]["text"])
    places = [_PLACE.fullmatch(place) for place in rows()[row_id]["wire"]]
    revisions = set()
    for place in places:
        assert place, row_id
        definition = _named(made, place["interface"])
        revision = _revision(definition.name)
        revisions.add(revision)
        method = _method(definition, int(place["number"]))
        _is_as_said(row.slot(revision, method.opnum), method, row.slots[method.opnum])
        _is_carried(definition, method, row.slot(revision, method.opnum))
        _is_found_by_name(definition, method, row.dispid)
    assert min(revisions) == row.since, row_id
    assert max(revisions) == _revision(row.newest), row_id
    _is_not_in_earlier_ones(row, made)


def pointers(row_id: str) -> list[tuple[str, int, str]]:
    """What a row says of the interface pointer that its slot answers: the interface of the slot, in
    each revision, the slot's place in the vtable, and the interface of the pointer.
    """
    row = read(rows()[row_id]["text"])
    found = []
    for place in rows()[row_id]["wire"]:
        interface, opnum = place.split("#")
        slot = row.slot(_revision(interface), int(opnum))
        if slot.kind in ("get", "method"):
            (answered,) = [one.type for one in slot.arguments if one.is_out]
            found.append((interface, int(opnum), answered.removesuffix("**")))
    return found


def arguments(row_id: str) -> list[str]:
    """The names of what a row's slot takes, in their order."""
    (slot,) = read(rows()[row_id]["text"]).slots.values()
    return [one.name for one in slot.arguments if not one.is_out]


def _named(made: Definitions, name: str) -> Definition:
    return next(one for one in made.interfaces if one.name == name)


def _revision(name: str) -> int:
    found = _REVISION.fullmatch(name)
    assert found, name
    return int(found[1] or 1)


def _method(definition: Definition, number: int) -> Method:
    for one in definition.methods:
        if number == (one.dispid if one.opnum < 0 else one.opnum):
            return one
    raise AssertionError(f"{definition.name} has no slot {number}")


def _is_as_said(said: Slot, method: Method, newest: Slot) -> None:
    assert (method.name, method.kind) == (said.name, said.kind)
    found = [_said(one, is_named=said.kind == "method") for one in method.parameters]
    if not said.has_other_types:
        assert found == list(said.arguments), method
        return
    assert [one._replace(type="") for one in found] == [
        one._replace(type="") for one in newest.arguments
    ], method
    for one, other in zip(found, newest.arguments, strict=True):
        is_pointer = _POINTER.fullmatch(other.type) is not None
        assert (one.type != other.type) == is_pointer, method


def _said(parameter: Parameter, *, is_named: bool) -> Said:
    name = parameter.name if is_named else ""
    return Said(parameter.is_out, parameter.type, parameter.is_optional, name)


def _is_carried(definition: Definition, method: Method, said: Slot) -> None:
    """Assert that a vtable's slot reads and writes arguments of these types."""
    if definition.name == _SERVED_BY_CLIENTS:
        assert 6 in events_interface().operations, "clients' sinks are called by Invoke alone"
        return
    operation = object_interfaces()[definition.guid].operations[method.opnum]
    takes: Any = operation.takes
    gives: Any = operation.gives
    ins = [one.type for one in said.arguments if not one.is_out]
    outs = [one.type for one in said.arguments if one.is_out]
    # ORPCTHIS before the former; ORPCTHAT before the latter and the HRESULT behind them.
    for kinds, types in ((ins, takes.types[1:]), (outs, gives.types[1:-1])):
        assert len(kinds) == len(types), (definition.name, method)
        for kind, carried in zip(kinds, types, strict=True):
            assert _carries(kind, carried), (definition.name, method, kind)


def _carries(kind: str, carried: Type[Any]) -> bool:
    kind = kind.removesuffix("*")
    if kind == "XACTTRANSINFO":
        return carried.size_min == _TRANSACTION_INFO_BYTES
    if kind == "BOID":
        return isinstance(carried, Unique) and carried is not INTERFACE
    if kind == "LPCONNECTIONPOINT":
        return isinstance(carried, VaryingArray)
    return carried is _CARRIED.get(kind, INTERFACE)


def _is_found_by_name(definition: Definition, method: Method, dispid: str | None) -> None:
    """Assert that GetIDsOfNames and Invoke find it, if the interface has them."""
    if dispid in (None, "none"):
        assert definition.base == "IUnknown", definition.name
        return
    assert definition.base != "IUnknown", definition.name
    assert method.dispid == int(str(dispid), 0), definition.name
    table = Table(definition.methods)
    assert table.member(method.dispid, _FLAGS[method.kind]) is method
    # Invoke knows the argument of a put by its place alone.
    is_method = method.kind == "method"
    names = [one.name for one in method.parameters if is_method and not one.is_out]
    assert table.numbers([method.name, *names]) == [method.dispid, *range(len(names))]


def _is_not_in_earlier_ones(row: Row, made: Definitions) -> None:
    family = re.compile(re.escape(row.newest.rstrip("0123456789")) + r"\d*")
    for definition in made.interfaces:
        if family.fullmatch(definition.name) and _revision(definition.name) < row.since:
            opnums = {one.opnum for one in definition.methods}
            assert not opnums & row.slots.keys(), definition.name


# Classes and interfaces ------------------------------------------------------------------------


def class_holds(row_id: str) -> Coclass:
    """Assert that a coclass is what a row says; return it."""
    text = rows()[row_id]["text"]
    match = _CLASS.match(text)
    assert match, text
    name, clsid, default, listed = match.groups()
    found = next(one for one in definitions().coclasses if one.name == name)
    assert (found.clsid, found.default) == (clsid, default)
    assert guid_text(found.guid).casefold() == clsid
    own = {*listed.split(", ")} - {_SERVED_BY_CLIENTS}
    assert {*found.interfaces} - {_CONTAINER} == own, row_id
    served = interfaces_of(getattr(mqac, name))
    assert served[IID_IDISPATCH] == default
    assert own <= {*served.values()}, row_id
    return found


def classes_hold(*row_ids: str) -> None:
    """Assert that coclasses are what rows say, and that a program gets each by its CLSID."""

    async def scenario(program: Program) -> None:
        for row_id in row_ids:
            found = class_holds(row_id)
            await _is_made(program, rows()[row_id]["text"], found)

    play(scenario)


async def _is_made(program: Program, text: str, found: Coclass) -> None:
    """Assert that an object has each interface that its row names, and is late bound by the
    default one.
    """
    match = _CLASS.match(text)
    assert match, text
    name, clsid, default, listed = match.groups()
    names = [one for one in listed.split(", ") if one != _SERVED_BY_CLIENTS]
    wanted = [definitions().named(one).guid for one in names]
    identifier = guid_from_text(clsid)
    assert identifier == found.guid
    refs = await program.server.create(identifier, IID_IDISPATCH, *wanted)
    assert [one.iid for one in refs] == [IID_IDISPATCH, *wanted], name
    assert len({one.oid for one in refs}) == 1, name
    raw, status = await program.server.call(refs[0].ipid, IDISPATCH, 4, [0, _ENGLISH])
    assert status == 0, name
    information = pointed(raw).ipid
    described, *_ = await program.server.call(information, ITYPEINFO, 12, [_OF_ITSELF, 1])
    assert described == default
    if _SERVED_BY_CLIENTS in listed:
        container = definitions().named(_CONTAINER).guid
        (ref,) = await program.server.create(identifier, container)
        source = definitions().named(_SERVED_BY_CLIENTS).guid
        served = object_interfaces()[container]
        _, status = await program.server.call(ref.ipid, served, 4, [source])
        assert status == 0, "FindConnectionPoint"
    await program.server.release(*refs)


def interface_holds(row_id: str) -> None:
    """Assert that an interface is what a row says."""
    text = rows()[row_id]["text"]
    match = _INTERFACE.match(text)
    assert match, text
    name, iid, base = match.groups()
    found = definitions().named(name)
    assert (found.iid, found.base) == (iid, base)
    assert guid_text(found.guid).casefold() == iid
    coclass = _COCLASS.search(text)
    if coclass and name != _SERVED_BY_CLIENTS:
        assert interfaces_of(getattr(mqac, coclass[1]))[found.guid] == name
    opnums = _OPNUMS.search(text)
    own = [one.opnum for one in found.methods]
    if opnums is None:
        assert not own or own == [-1] * len(own), row_id
        return
    assert own == list(range(int(opnums[1]), int(opnums[2]) + 1)), row_id
    served = object_interfaces()[found.guid]
    assert set(own) <= set(served.operations), row_id
    assert max(served.operations) == own[-1], row_id
