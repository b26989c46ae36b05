"""The data of [MC-MQAC]'s interfaces, and what is made of it."""

from __future__ import annotations

import inspect
import json

import pytest

from qm.client import mqac
from qm.client.mqac.transaction import TransactionImpl
from qm.names.guid import guid_text
from qm.rpc.dcom.mqac.classes import Coclasses, ObjectClasses, coclass_of, interfaces_of
from qm.rpc.dcom.mqac.definitions import Method, definitions
from qm.rpc.dcom.mqac.events import ConnectionPoints, DcomEvent
from qm.rpc.dcom.mqac.late_binding import table_of
from qm.rpc.dcom.mqac.members import ENUMERATOR, inputs
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IUNKNOWN
from qm.rpc.pdu.codes import AuthLevel
from tests.dcom_interfaces import TARGET, compact
from tests.unit.rpc.dcom.scripts import clsid, iid

PYTHON = {
    **{one.name: getattr(mqac, one.name) for one in definitions().coclasses},
    "MSMQEvent": DcomEvent,
}
CONTAINER = "IConnectionPointContainer"
"""The one interface of a coclass that is not IDispatch's."""
OTHERS = {"ITransaction": TransactionImpl, "IEnumConnectionPoints": ConnectionPoints}


def members() -> list[tuple[str, type, Method]]:
    """(interface, class, method) of everything that objects have."""
    found = []
    for coclass in definitions().coclasses:
        for name in coclass.interfaces:
            for method in definitions().methods(name):
                found.append((name, PYTHON[coclass.name], method))
    for name, made in OTHERS.items():
        found += [(name, made, method) for method in definitions().methods(name)]
    return found


REVISED = {
    "IMSMQMessage": 4,
    "IMSMQQueue": 4,
    "IMSMQQueueInfo": 4,
    "IMSMQQueueInfos": 4,
    "IMSMQQuery": 4,
    "IMSMQTransactionDispenser": 3,
    "IMSMQCoordinatedTransactionDispenser": 3,
}
"""Revisions that do not derive from the one before."""
DERIVED = {"IMSMQApplication": 3, "IMSMQTransaction": 3, "IMSMQEvent": 3}


def revisions(name: str, last: int) -> list[str]:
    return [name, *(f"{name}{number}" for number in range(2, last + 1))]


@pytest.mark.spec("AC-6-11")
def test_revisions_derive_from_what_the_document_says() -> None:
    lineage = definitions().lineage
    for name, last in REVISED.items():
        for one in revisions(name, last):
            assert lineage(one) == [one, "IDispatch"]
    for name, last in DERIVED.items():
        every = revisions(name, last)
        for count, one in enumerate(every, 1):
            assert lineage(one) == [*reversed(every[:count]), "IDispatch"]
    for one in ("IMSMQOutgoingQueueManagement", "IMSMQQueueManagement"):
        assert lineage(one) == [one, "IMSMQManagement", "IDispatch"]


@pytest.mark.spec("AC-3.9.4.2-01")
def test_the_second_revision_of_transactions_has_the_id_of_the_text() -> None:
    found = definitions().named("IMSMQTransaction2")
    assert found.iid.casefold() == "2ce0c5b0-6e67-11d2-b0e6-00e02c074f6b"
    assert guid_text(found.guid).casefold() == found.iid.casefold()
    assert definitions().lineage(found.name)[1] == "IMSMQTransaction"


def test_the_data_is_the_published_idl() -> None:
    assert TARGET.read_text(encoding="utf-8") == compact()


def test_it_has_all_interfaces_classes_and_methods() -> None:
    found = definitions()
    assert (len(found.interfaces), len(found.coclasses)) == (48, 15)
    assert sum(len(one.methods) for one in found.interfaces) == 660


def takes(function: object, count: int) -> bool:
    """Whether it can be called with so many arguments besides the object."""
    given = [object()] * (1 + count)
    try:
        inspect.signature(function).bind(*given)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def test_every_slot_of_every_object_has_its_member_in_python() -> None:
    missing = []
    for interface, made, method in members():
        if method.name in (ENUMERATOR, "IEnumConnections"):
            continue
        found = inspect.getattr_static(made, method.name, None)
        if method.kind == "method":
            is_there = callable(found) and takes(found, len(inputs(method)))
        else:
            is_there = (
                isinstance(found, property)
                and (found.fget if method.kind == "get" else found.fset) is not None
            )
        if not is_there:
            missing.append(f"{interface}.{method.name} ({method.kind})")
    assert missing == []


@pytest.mark.spec("AC-3.1-01", "RP-DCOM-2.1-01", "RP-DCOM-3.1.1.5.4-06", "RP-DCOM-3.1.1.5.4-03")
def test_every_interface_of_objects_can_be_bound() -> None:
    served = object_interfaces()
    for coclass in definitions().coclasses:
        for name in coclass.interfaces:
            interface = served[iid(name)]
            assert interface.level is AuthLevel.INTEGRITY
            assert (interface.syntax.major, interface.syntax.minor) == (0, 0)
            own = {one.opnum for one in definitions().methods(name)}
            # IUnknown's three are called through IRemUnknown, never by these numbers.
            expected = own if name == CONTAINER else own | {3, 4, 5, 6}
            assert interface.operations.keys() == expected, name
            assert not own or min(own) == (3 if name == CONTAINER else 7), name
            assert IID_IDISPATCH in interfaces_of(PYTHON[coclass.name])
    # A transaction itself is no automation object.
    transaction = served[iid("ITransaction")]
    assert transaction.operations.keys() == {3, 4, 5}
    assert interfaces_of(TransactionImpl).keys() == {iid("ITransaction")}


@pytest.mark.parametrize("name", sorted(PYTHON.keys() - {"MSMQEvent"}))
def test_an_object_has_the_interfaces_of_its_class(name: str) -> None:
    made = PYTHON[name]
    coclass = coclass_of(made)
    assert coclass is not None
    assert coclass.name == name
    found = interfaces_of(made)
    assert {iid(one) for one in coclass.interfaces} <= found.keys()
    assert IID_IDISPATCH in found
    foreign = {one.guid for one in definitions().interfaces} - found.keys()
    assert iid("IMSMQQuery" if name != "MSMQQuery" else "IMSMQQueue") in foreign


def test_others_than_coclasses_have_their_own_interface_alone() -> None:
    classes = ObjectClasses()
    points = ConnectionPoints((1,))
    assert classes.facet(points, iid("IEnumConnectionPoints")) is points
    assert classes.facet(points, IID_IUNKNOWN) is points
    assert classes.facet(points, IID_IDISPATCH) is None


def test_applications_make_what_the_document_lets_them_make() -> None:
    classes = Coclasses(lambda _: None, lambda _: None)  # type: ignore[arg-type,return-value]
    made = {one.name for one in definitions().coclasses if classes.has(one.guid)}
    assert made == {one.name for one in definitions().coclasses}
    assert not classes.has(bytes(16))


def test_names_are_found_in_any_case_and_as_often_as_they_are_asked() -> None:
    _, table = table_of(mqac.MSMQCollection(), IID_IDISPATCH)
    assert table.numbers(["item", "INDEX"]) == [0, 0]
    assert table.numbers(["_newenum"]) == [-4]
    assert table.numbers(["colour", "index"]) == [None, None]


def test_dispatch_identifiers_are_those_of_the_catalogue() -> None:
    content = json.loads(
        (TARGET.parents[4] / "tests" / "data" / "spec" / "mqac-interfaces.json").read_text("utf-8")
    )
    known = {
        (each["name"], method["name"], method["kind"]): method["dispid"]
        for each in content["interfaces"]
        for method in each["methods"]
        if method["dispid"] is not None
    }
    found = {
        (one.name, method.name, method.kind): method.dispid
        for one in definitions().interfaces
        for method in one.methods
    }
    assert {key: found[key] for key in known} == known
    assert clsid("MSMQQueue") != clsid("MSMQQuery")
