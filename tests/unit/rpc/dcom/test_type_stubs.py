"""Descriptions of types as bytes: layouts, round trips, bad input; objects that lead to them."""

from __future__ import annotations

import struct
from secrets import token_bytes
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.rpc.dcom.automation.descriptions import (
    CUSTOM_DATA,
    FUNC_DESC,
    LIB_ATTR,
    TYPE_ATTR,
    TYPE_DESC,
    VAR_DESC,
    ArrayDesc,
    CustomData,
    DefaultValue,
    ElemDesc,
    FuncDesc,
    LibAttr,
    TypeAttr,
    TypeDesc,
    TypeVarType,
    VarDesc,
)
from qm.rpc.dcom.automation.type_interfaces import ITYPECOMP, ITYPEINFO2, ITYPELIB2
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import OBJECTS_PER_CALLER_MAX, UNPINGED_MAX_S
from qm.rpc.dcom.mqac.classes import ObjectClasses
from qm.rpc.dcom.mqac.exports import Exports
from qm.rpc.dcom.mqac.type_library import library
from qm.rpc.dcom.mqac.type_objects import TypeLib, TypeObjects
from qm.rpc.dcom.runtime.exporter import Exporter, Owner
from qm.rpc.dcom.runtime.identifiers import IID_ITYPELIB
from qm.rpc.dcom.runtime.orpc import Listed
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Arm, Type
from tests.unit.rpc.dcom.scripts import pointed

GUID = bytes(range(16))
LONG, TEXT = TypeDesc(VarType.I4), TypeDesc(VarType.BSTR)
POINTED = TypeDesc(TypeVarType.PTR, TypeDesc(VarType.VARIANT))


def written(kind: Type[Any], value: Any) -> bytes:
    return Listed((kind,)).marshal([value])


def read(kind: Type[Any], raw: bytes) -> Any:
    (found,), end = Listed((kind,)).unmarshal(raw)
    assert end == len(raw)
    return found


def pointer(number: int) -> bytes:
    """The referent of the pointer of that place."""
    return struct.pack("<I", 0x2_0000 + 4 * number)


LAYOUTS: list[Any] = [
    # No gap stands before an arm that is empty; the tag is there again behind it.
    pytest.param(TYPE_DESC, TEXT, "0800 0800", id="plain"),
    pytest.param(
        TYPE_DESC, TypeDesc(TypeVarType.USERDEFINED, 7), "1d00 0000 07000000 1d00", id="defined"
    ),
    pytest.param(
        TYPE_DESC, POINTED, "1a00 0000 00000200 1a00 0000 0c00 0c00", id="pointer to a VARIANT"
    ),
    pytest.param(
        TYPE_DESC,
        TypeDesc(TypeVarType.SAFEARRAY, LONG),
        "1b00 0000 00000200 1b00 0000 0300 0300",
        id="safe array",
    ),
    pytest.param(
        TYPE_DESC,
        TypeDesc(TypeVarType.CARRAY, ArrayDesc(LONG, [(3, 1)])),
        "1c00 0000 00000200 1c00 0000 01000000 0300 0300 0100 0000 03000000 01000000",
        id="array",
    ),
    pytest.param(LIB_ATTR, LibAttr(GUID, 3, 0), GUID.hex() + "00000000 03000000 0300 0000 0000"),
    pytest.param(CUSTOM_DATA, CustomData(), "00000000 00000000"),
    pytest.param(
        TYPE_ATTR,
        TypeAttr(GUID, 8, 4, 46, 0, 1, 56, 8, 0x1040, 3, 0),
        GUID.hex()
        + "00000000 00000000 ffffffff ffffffff 00000000 08000000 04000000"
        + "2e00 0000 0100 3800 0800 4010 0300 0000 0000 0000 00000000 0000",
        id="TYPEATTR",
    ),
    pytest.param(
        VAR_DESC,
        VarDesc(0x4000_0000, Arm(2, Variant(VarType.I4, 7)), ElemDesc(LONG)),
        "00000040 00000000 02000000 00000200 0300 0300 00000000 0000 0000 02000000"
        # What the constant's pointer leads to is a pointer, too.
         "04000200 00000000 03000000 00000000 0300 000000000000 03000000 07000000",
        id="VARDESC",
    ),
    pytest.param(
        FUNC_DESC,
        FuncDesc(1, [ElemDesc(POINTED, None, 0x11), ElemDesc(LONG, None, 1)], 4, 1, 1, 56,
                 ElemDesc(TEXT), 0, 2),
        "01000000 00000000 00000200 04000000 01000000 04000000 0200 0100 3800 0000"
         "0800 0800 00000000 0000 0000"
         "02000000"
         "1a00 0000 04000200 1a00 0000 00000000 1100 0000"
         "0300 0300 00000000 0100 0000"
         "0c00 0c00",
        id="FUNCDESC",
    ),
    pytest.param(
        FUNC_DESC,
        FuncDesc(-4, None, 1, 2, 3, -8, ElemDesc(TEXT, None, 8), 0x41, 0, None, 4, 5),
        "fcffffff 00000000 00000000 01000000 02000000 04000000 0000 0300 f8ff 0500"
         "0800 0800 00000000 0800 4100",
        id="FUNCDESC without parameters",
    ),
]  # fmt: skip


@pytest.mark.spec("RP-OAUT-2.2.37-01", "RP-OAUT-2.2.42-01", "RP-OAUT-2.2.44-01")
@pytest.mark.parametrize(("kind", "value", "raw"), LAYOUTS)
def test_layouts_are_those_of_the_document(kind: Type[Any], value: Any, raw: str) -> None:
    assert written(kind, value).hex(" ", -4) == bytes.fromhex(raw).hex(" ", -4)
    assert read(kind, bytes.fromhex(raw)) == value


DEFAULTS = [
    Variant(VarType.I4, -1),
    Variant(VarType.BSTR, "text"),
    array_of(VarType.UI1, b"\1\2\3"),
    array_of(VarType.BSTR, ["a", None, "b"]),
]


@pytest.mark.parametrize("value", DEFAULTS, ids=lambda one: f"{one.vt:#x}")
def test_a_default_is_a_variant_behind_its_size(value: Variant) -> None:
    parameter = ElemDesc(TEXT, DefaultValue(value), 0x31)
    desc = FuncDesc(1, [parameter, parameter], 4, 1, 2, 0, ElemDesc(LONG), 0, 2)
    raw = written(FUNC_DESC, desc)
    assert read(FUNC_DESC, raw) == desc
    at = raw.index(struct.pack("<I", 24))
    assert struct.unpack_from("<I", raw, at + 4)[0] >> 16 == 2
    kind = value.vt & ARRAY or value.vt
    assert struct.pack("<H6xI", value.vt, kind) in raw


plain = st.sampled_from([VarType.I2, VarType.BSTR, VarType.DISPATCH, TypeVarType.VOID]).map(
    TypeDesc
)
types = st.recursive(
    plain | st.integers(0, 99).map(lambda at: TypeDesc(TypeVarType.USERDEFINED, at)),
    lambda inner: (
        st.builds(TypeDesc, st.sampled_from([TypeVarType.PTR, TypeVarType.SAFEARRAY]), inner)
        | st.builds(
            TypeDesc,
            st.just(TypeVarType.CARRAY),
            st.builds(
                ArrayDesc,
                inner,
                st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), min_size=1, max_size=3),
            ),
        )
    ),
    max_leaves=6,
)
elements = st.builds(
    ElemDesc,
    types,
    st.none() | st.builds(DefaultValue, st.sampled_from(DEFAULTS)),
    st.integers(0, 0x7F),
)


@given(st.lists(elements, max_size=5), elements, st.integers(-(1 << 31), (1 << 31) - 1))
def test_functions_come_back_as_they_went(
    parameters: list[ElemDesc], result: ElemDesc, memid: int
) -> None:
    desc = FuncDesc(memid, parameters or None, 1, 2, 0, 80, result, 0, len(parameters))
    assert read(FUNC_DESC, written(FUNC_DESC, desc)) == desc


def test_all_of_the_library_comes_back_as_it_went() -> None:
    for reference in range(1_000):
        of = library().at(reference)
        if of is None:
            break
        assert read(TYPE_ATTR, written(TYPE_ATTR, of.attr)) == of.attr
        for one in of.functions:
            assert read(FUNC_DESC, written(FUNC_DESC, one.desc)) == one.desc
        for one in of.variables:
            assert read(VAR_DESC, written(VAR_DESC, one.desc)) == one.desc
    assert reference > 100


def nested(depth: int) -> TypeDesc:
    found = LONG
    for _ in range(depth):
        found = TypeDesc(TypeVarType.PTR, found)
    return found


BAD: list[Any] = [
    pytest.param(TYPE_DESC, "0800 0900", id="tag that disagrees"),
    pytest.param(TYPE_DESC, "1a00 0000 00000200 1a00", id="pointer to nothing"),
    pytest.param(TYPE_DESC, written(TYPE_DESC, nested(17)).hex(), id="deep"),
    pytest.param(
        TYPE_DESC,
        "1c00 0000 00000200 1c00 0000 02000000 0300 0300 0100 0000 03000000 01000000",
        id="dimensions that disagree",
    ),
    pytest.param(
        TYPE_DESC,
        "1c00 0000 00000200 1c00 0000 ffff0000 0300 0300 ffff 0000",
        id="dimensions that are not there",
    ),
    pytest.param(
        FUNC_DESC,
        "01000000 00000000 00000000 04000000 01000000 04000000 0200 0100 3800 0000"
        "0800 0800 00000000 0000 0000",
        id="parameters that are not there",
    ),
    pytest.param(
        VAR_DESC, "00000040 00000000 09000000 00000000", id="kind of variable that is none"
    ),
]


@pytest.mark.parametrize(("kind", "raw"), BAD)
def test_what_contradicts_itself_is_refused(kind: Type[Any], raw: str) -> None:
    with pytest.raises(BadStub):
        read(kind, bytes.fromhex(raw))
    assert read(TYPE_DESC, written(TYPE_DESC, nested(16))) == nested(16)


@given(st.binary(max_size=120))
def test_no_question_about_types_does_harm(raw: bytes) -> None:
    for interface in (ITYPEINFO2, ITYPELIB2, ITYPECOMP):
        for operation in interface.operations.values():
            try:
                operation.takes.unmarshal(raw)
            except BadStub:
                continue


async def nothing(_: bytes, __: Any) -> Any:
    raise AssertionError


def test_each_type_is_one_object_of_a_caller_until_it_is_lost_and_counts_as_one() -> None:
    clock, lost = [0.0], list[bool]()
    exporter = Exporter(1, ObjectClasses(), lambda _, is_lost: lost.append(is_lost), token_bytes)
    exports = Exports(exporter, Places((), lambda: 2103, lambda: clock[0]))
    types = TypeObjects(exports, nothing)
    alice, bob = Owner("alice", "10.0.0.1"), Owner("bob", "10.0.0.1")
    calls: dict[Owner, Any] = {
        owner: SimpleNamespace(
            identity=SimpleNamespace(name=owner.name),
            address=owner.address,
            local=("vip", 135),
            request=SimpleNamespace(object_uuid=None),
        )
        for owner in (alice, bob)
    }

    def all_of(owner: Owner) -> list[int]:
        found = [types.info(calls[owner], one) for one in library().types]
        return [pointed(raw).oid for raw in found if raw is not None]

    first = all_of(alice)
    assert all_of(alice) == first
    assert not set(all_of(bob)) & set(first)
    assert exporter.owned(alice) == exporter.owned(bob) == len(set(first)) == len(library().types)
    clock[0] = UNPINGED_MAX_S + 1
    assert exporter.sweep(clock[0]) == len(lost) == 2 * len(first)
    assert all(lost)
    assert not set(all_of(alice)) & set(first)
    for _ in range(OBJECTS_PER_CALLER_MAX):
        exports.pointer_to(calls[bob], TypeLib(None), IID_ITYPELIB)
    with pytest.raises(ComError) as full:
        types.lib(calls[bob])
    assert full.value.status == Hresult.E_OUTOFMEMORY
    assert types.lib(calls[alice])
