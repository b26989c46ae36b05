"""What describes a slot wrongly is seen: definitions that were changed are held against rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from qm.rpc.dcom.mqac.definitions import Definitions, Method, Parameter, definitions
from tests.conformance.dcom_rows import holds, read, rows

Change = Callable[[Method], Method]


def with_parameters(change: Callable[[list[Parameter]], list[Parameter]]) -> Change:
    return lambda method: msgspec.structs.replace(
        method, parameters=tuple(change(list(method.parameters)))
    )


def each_parameter(**fields: object) -> Change:
    return with_parameters(lambda all_: [msgspec.structs.replace(one, **fields) for one in all_])


def method_with(**fields: object) -> Change:
    return lambda method: msgspec.structs.replace(method, **fields)


def changed(interface: str, opnum: int, change: Change) -> Definitions:
    """All definitions, with one method of one interface changed."""
    made = []
    for definition in definitions().interfaces:
        if definition.name == interface:
            methods = tuple(
                change(one) if one.opnum == opnum else one for one in definition.methods
            )
            assert methods != definition.methods, "the change changes nothing"
            definition = msgspec.structs.replace(definition, methods=methods)
        made.append(definition)
    return msgspec.structs.replace(definitions(), interfaces=tuple(made))


READ_ROW, SET_ROW, FLAG_ROW, COOKIE_ROW, SEND_ROW = (
    "AC-3.11.4.1.11-12",
    "AC-3.12.4.1.12-02",
    "AC-3.11.4.1.5-03",
    "AC-3.16.4.5.4-02",
    "AC-3.17.4.1.48-28",
)
DISPID = re.compile(r", dispid (?!none)\S+:")
NONE: Change = with_parameters(lambda _: [])
SWAPPED: Change = with_parameters(lambda found: [found[1], found[0], *found[2:]])
WITHOUT_THE_LAST: Change = with_parameters(lambda found: found[:-1])


@pytest.mark.parametrize("row", [READ_ROW, SET_ROW, FLAG_ROW, COOKIE_ROW, SEND_ROW])
def test_the_definitions_hold_as_they_are(row: str) -> None:
    holds(row)


@pytest.mark.parametrize("interface", ["IMSMQQueue", "IMSMQQueue2", "IMSMQQueue4"])
@pytest.mark.parametrize(
    "change",
    [
        NONE,
        SWAPPED,
        WITHOUT_THE_LAST,
        each_parameter(is_optional=False),
        each_parameter(is_out=True),
        each_parameter(type="VARIANT"),
        method_with(name="ReceiveNow"),
        method_with(kind="get"),
        method_with(dispid=0x6002000B),
        method_with(opnum=18),
    ],
)
def test_a_method_that_is_another_one_does_not_hold(interface: str, change: Change) -> None:
    with pytest.raises(AssertionError):
        holds(READ_ROW, changed(interface, 17, change))


@pytest.mark.parametrize(
    ("row", "interface", "opnum", "change"),
    [
        (SET_ROW, "IMSMQDestination", 19, method_with(kind="put")),
        (SET_ROW, "IMSMQDestination", 19, NONE),
        (SET_ROW, "IMSMQDestination", 18, NONE),
        (SET_ROW, "IMSMQDestination", 18, each_parameter(type="IDispatch*")),
        (FLAG_ROW, "IMSMQQueue3", 11, each_parameter(type="short")),
        (FLAG_ROW, "IMSMQQueue4", 11, each_parameter(type="VARIANT_BOOL*")),
        (COOKIE_ROW, "IConnectionPoint", 6, NONE),
        (COOKIE_ROW, "IConnectionPoint", 6, each_parameter(name="cookie")),
        (SEND_ROW, "IMSMQMessage", 54, WITHOUT_THE_LAST),
        (SEND_ROW, "IMSMQMessage2", 54, SWAPPED),
        (SEND_ROW, "IMSMQMessage2", 54, each_parameter(type="IDispatch*")),
        (SEND_ROW, "IMSMQMessage3", 54, each_parameter(type="IMSMQQueue3*")),
    ],
)
def test_nor_does_another_argument(row: str, interface: str, opnum: int, change: Change) -> None:
    with pytest.raises(AssertionError):
        holds(row, changed(interface, opnum, change))


@pytest.mark.spec("AC-1-02")
def test_every_dispid_is_that_of_the_type_library() -> None:
    """What rows write of each member is looked up in the definitions that are served."""
    written = [name for name, row in rows().items() if DISPID.search(row["text"])]
    places = {place for name in written for place in rows()[name]["wire"]}
    members = [
        method
        for one in definitions().interfaces
        for method in one.methods
        if "IDispatch" in definitions().lineage(one.name)
    ]
    assert len(places) == len(members) > 500
    for name in written:
        holds(name)
    # Those of the two events are the document's own.
    events = definitions().named("_DMSMQEventEvents").methods
    assert {one.name: one.dispid for one in events} == {"Arrived": 0, "ArrivedError": 1}


def test_a_slot_that_an_earlier_revision_has_already_does_not_hold() -> None:
    made = changed("IMSMQQueue", 19, method_with(opnum=20))
    with pytest.raises(AssertionError):
        holds("AC-3.11.4.1.14-10", made)


def test_a_row_is_read_whole() -> None:
    text = "IMSMQQueue4 opnum 11 get IsOpen, dispid 4: out short*; a word that nobody reads."
    with pytest.raises(AssertionError):
        read(text)
