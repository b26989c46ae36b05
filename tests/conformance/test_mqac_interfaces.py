"""The objects against the interfaces of [MC-MQAC]: tests/data/spec/mqac-interfaces.json.

Opnums, identifiers and dispatch identifiers of that file have no counterpart before DCOM; names,
kinds, arguments and defaults do.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from qm.client import mqac
from qm.client.errors import CallFailed, InvalidArgument, MqError, NotAllowed, Unavailable
from qm.client.mqac import constants
from qm.client.mqac.cluster.manager import asked
from qm.client.mqac.event import EVENTS_IID, Sink
from qm.rpc.dcom.hresults import Hresult
from qm.wire.codes import CUSTOMER_BIT, SEVERITY_BIT, ErrorCode
from tests.conformance.catalogue import SPEC_FOLDER

CONTENT = json.loads((SPEC_FOLDER / "mqac-interfaces.json").read_text(encoding="utf-8"))
INTERFACES = {each["name"]: each for each in CONTENT["interfaces"]}
COCLASSES = {each["name"]: each for each in CONTENT["coclasses"]}
NAMES = {"_NewEnum": "__iter__"}
NUMBER = re.compile(r"\((0x[0-9A-F]+|\d+)\)")
# Sinks are what applications implement; their methods are an attribute each of MSMQEvent.
CLIENT_SIDE = "_DMSMQEventEvents"


def bases(name: str) -> Iterator[dict[str, Any]]:
    """An interface and those that it inherits, without COM's own."""
    while name in INTERFACES:
        yield INTERFACES[name]
        name = INTERFACES[name]["base"]


def methods(coclass: str, *, newest: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """(interface, method) of an object, of all revisions or of the newest."""
    found = COCLASSES[coclass]
    for name in [found["default"]] if newest else found["interfaces"]:
        if name != CLIENT_SIDE:
            for each in bases(name):
                for method in each["methods"]:
                    yield each["name"], method


def accessor(kind: str, found: Any) -> Any:
    """What implements one kind of access of a property."""
    return found.fget if kind == "get" else found.fset


@pytest.mark.parametrize("coclass", COCLASSES)
def test_an_object_has_every_name_of_every_revision(coclass: str) -> None:
    made = getattr(mqac, coclass)
    missing = []
    for interface, method in methods(coclass):
        found = inspect.getattr_static(made, NAMES.get(method["name"], method["name"]), None)
        if method["kind"] == "method":
            is_there = callable(found)
        else:
            is_there = isinstance(found, property) and accessor(method["kind"], found) is not None
        if not is_there:
            missing.append(f"{interface}.{method['name']} ({method['kind']})")
    assert missing == []


@pytest.mark.parametrize("coclass", COCLASSES)
def test_methods_of_the_newest_revision_take_what_is_written(coclass: str) -> None:
    made = getattr(mqac, coclass)
    for interface, method in methods(coclass, newest=True):
        if method["kind"] != "method" or method["name"] in NAMES:
            continue
        parameters = [*inspect.signature(getattr(made, method["name"])).parameters.values()][1:]
        given = [each for each in method["params"] if each["dir"] == "in"]
        where = f"{interface}.{method['name']}"
        assert [each.name for each in parameters] == [each["name"] for each in given], where
        for parameter, written in zip(parameters, given, strict=True):
            is_optional = parameter.default is not inspect.Parameter.empty
            assert is_optional == bool(written["optional"]), f"{where}: {parameter.name}"
            if written["default"] is not None:
                default = written["default"]
                number = NUMBER.search(default) if isinstance(default, str) else None
                wanted = int(number[1], 0) if number else default
                assert parameter.default == wanted, f"{where}: {parameter.name}"


@pytest.mark.spec("AC-3.1-02")
def test_puts_and_gets_are_one_property() -> None:
    for coclass in COCLASSES:
        for _, method in methods(coclass):
            if method["kind"] != "method":
                found = inspect.getattr_static(getattr(mqac, coclass), method["name"])
                assert isinstance(found, property)
                assert accessor(method["kind"], found) is not None


@pytest.mark.spec("AC-2.2.2.5-02")
def test_nothing_puts_is_transactional() -> None:
    for name in ("IsTransactional", "IsTransactional2"):
        found = inspect.getattr_static(mqac.MSMQQueueInfo, name)
        assert isinstance(found, property)
        assert found.fset is None


def test_a_sink_is_the_dispinterface() -> None:
    events = INTERFACES[CLIENT_SIDE]
    assert events["iid"] == EVENTS_IID
    for method in events["methods"]:
        parameters = [*inspect.signature(getattr(Sink, method["name"])).parameters][1:]
        assert parameters == [each["name"] for each in method["params"]]


HRESULTS = {
    "S_FALSE": 0x0000_0001,
    "E_NOTIMPL": 0x8000_4001,
    "E_NOINTERFACE": 0x8000_4002,
    "E_POINTER": 0x8000_4003,
    "E_INVALIDARG": 0x8007_0057,
    "OLE_E_BLANK": 0x8004_0007,
    "XACT_E_NOTSUPPORTED": 0x8004_D00F,
    "CONNECT_E_NOCONNECTION": 0x8004_0200,
    "CONNECT_E_ADVISELIMIT": 0x8004_0201,
    "CONNECT_E_CANNOTCONNECT": 0x8004_0202,
}

AUTOMATION = {
    "S_OK": 0x0000_0000, "S_FALSE": 0x0000_0001, "E_NOTIMPL": 0x8000_4001,
    "E_NOINTERFACE": 0x8000_4002, "E_POINTER": 0x8000_4003, "E_UNEXPECTED": 0x8000_FFFF,
    "E_ACCESSDENIED": 0x8007_0005, "E_OUTOFMEMORY": 0x8007_000E, "E_INVALIDARG": 0x8007_0057,
    "RPC_E_CALL_CANCELED": 0x8001_0002, "RPC_E_DISCONNECTED": 0x8001_0108,
    "RPC_E_INVALID_OBJECT": 0x8001_0114, "RPC_E_VERSION_MISMATCH": 0x8001_0110,
    "RPC_E_INVALID_HEADER": 0x8001_0111, "RPC_E_INVALID_OBJREF": 0x8001_011D,
    "CO_E_OBJNOTREG": 0x8004_01FB, "REGDB_E_CLASSNOTREG": 0x8004_0154,
    "DISP_E_UNKNOWNINTERFACE": 0x8002_0001, "DISP_E_MEMBERNOTFOUND": 0x8002_0003,
    "DISP_E_PARAMNOTFOUND": 0x8002_0004, "DISP_E_TYPEMISMATCH": 0x8002_0005,
    "DISP_E_UNKNOWNNAME": 0x8002_0006, "DISP_E_BADVARTYPE": 0x8002_0008,
    "DISP_E_EXCEPTION": 0x8002_0009, "DISP_E_OVERFLOW": 0x8002_000A,
    "DISP_E_BADINDEX": 0x8002_000B, "DISP_E_BADPARAMCOUNT": 0x8002_000E,
    "DISP_E_PARAMNOTOPTIONAL": 0x8002_000F, "TYPE_E_ELEMENTNOTFOUND": 0x8002_802B,
    "TYPE_E_BADMODULEKIND": 0x8002_88BD, "TYPE_E_TYPEMISMATCH": 0x8002_8CA0,
}  # fmt: skip
"""Those of COM itself."""


@pytest.mark.spec("AC-1.8-01", "AC-1.8-02")
def test_every_code_is_a_published_one() -> None:
    """So none needs the customer bit, which says that a vendor made it up."""
    found = {
        name: value
        for name, value in vars(constants).items()
        if name.startswith(("S_", "E_", "OLE_E", "XACT_E", "CONNECT_E"))
    }
    assert found == HRESULTS
    assert {code.name: code for code in Hresult} == AUTOMATION
    table = json.loads((SPEC_FOLDER / "errors.json").read_text(encoding="utf-8"))
    assert {code.name: code for code in ErrorCode}.items() <= {
        name: int(code, 16) for name, code in table.items()
    }.items()
    assert not any(code & CUSTOMER_BIT for code in (*HRESULTS.values(), *Hresult, *ErrorCode))


@pytest.mark.spec("AC-3.1.4.3-01", "AC-3.1.4.3-02")
def test_whatever_fails_is_an_error_hresult_and_has_no_result() -> None:
    for error, code in (
        (MqError(ErrorCode.MQ_ERROR_QUEUE_EXISTS), ErrorCode.MQ_ERROR_QUEUE_EXISTS),
        (Unavailable("no node"), ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE),
        (NotAllowed("no role"), ErrorCode.MQ_ERROR_ACCESS_DENIED),
        (InvalidArgument("queue", "wrong"), ErrorCode.MQ_ERROR_INVALID_PARAMETER),
        (CallFailed("INTERNAL", "broken"), ErrorCode.MQ_ERROR_INVALID_PARAMETER),
    ):

        def call(raised: Exception = error) -> str:
            raise raised

        with pytest.raises(MqError) as seen:
            asked(call)
        assert seen.value.code == code
        assert seen.value.code & SEVERITY_BIT
    assert asked(lambda: "a result") == "a result"
