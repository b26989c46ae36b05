"""Rules of NDR 2.0, each where it could be broken alone."""

import struct
from typing import Any

import msgspec
import pytest

from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import (
    BYTES,
    HANDLE,
    I64,
    NIL,
    U8,
    U16,
    U32,
    Arm,
    Array,
    Parameters,
    Ranged,
    Structure,
    Type,
    Union,
    Unique,
)
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from tests.unit.rpc.dcom.test_automation import read
from tests.unit.rpc.test_ndr import One, one
from tests.unit.rpc.vectors import vector


class Pair(msgspec.Struct):
    first: Any
    second: Any


@pytest.mark.spec("RP-RPCE-2.2.1.1.4-01")
@pytest.mark.parametrize("name", [NIL, bytes(range(16))])
def test_a_context_handle_beside_others_is_twenty_bytes_at_a_multiple_of_four(name: bytes) -> None:
    handle = b"\0\0\0\0" + name
    cases: list[tuple[Type[Any], Type[Any], Pair, bytes]] = [
        (HANDLE, BYTES, Pair(name, b"ab"), handle + b"\2\0\0\0ab"),
        (U8, HANDLE, Pair(7, name), b"\7\0\0\0" + handle),
        (Array(HANDLE), U8, Pair([name, name], 7), b"\2\0\0\0" + handle * 2 + b"\7"),
        (BYTES, HANDLE, Pair(b"abcde", name), b"\5\0\0\0abcde\0\0\0" + handle),
    ]
    for first, second, values, raw in cases:
        both = Parameters(Pair, {"first": first, "second": second})
        assert both.marshal(values) == raw
        assert both.unmarshal(raw) == (values, len(raw))


@pytest.mark.spec("RP-RPCE-2.2.4.6-01")
def test_an_enumeration_has_two_bytes_and_one_of_version_1_four() -> None:
    answer = bytearray(vector("mqrr_startreceive_response_two_sections"))
    for at, kind in ((28, 1), (44, 2)):  # SectionType, and the gap before the size
        assert answer[at : at + 4] == bytes((kind, 0, 0, 0))
        answer[at + 2 : at + 4] = b"\xee\xee"
    found = REMOTE_READ.operations[7].gives.unmarshal(bytes(answer))[0]
    assert [each.kind for each in found.sections] == [1, 2]
    written = REMOTE_READ.operations[7].gives.marshal(found)
    assert written == vector("mqrr_startreceive_response_two_sections")
    array = bytearray(vector("rpc_oaut_variant_array_ui1"))
    at = array.index(struct.pack("<III", 0x10, 3, 0x20008))  # SF_TYPE is a v1_enum [MS-OAUT]
    assert read(bytes(array)).value.items == b"\1\2\3"
    array[at + 2] = 1
    with pytest.raises(BadStub):
        read(bytes(array))


@pytest.mark.spec("RP-C706-14.3.3-01")
def test_a_count_precedes_all_structures_around_its_array() -> None:
    cases: list[tuple[Type[Any], Any, bytes]] = [
        (BYTES, b"abc", b"abc"),
        (Array(U16), [1, 2, 3], b"\0" + struct.pack("<3H", 1, 2, 3)),
    ]
    for kind, value, body in cases:
        inner = Structure(Pair, {"first": U8, "second": kind})
        middle = Structure(Pair, {"first": U16, "second": inner})
        outer = Structure(Pair, {"first": U8, "second": middle})
        raw = struct.pack("<IB3xHxxB", 3, 7, 8, 9) + body
        made = Pair(7, Pair(8, Pair(9, value)))
        for wrapped, head in ((outer, b""), (Unique(outer), b"\0\0\2\0")):
            assert one(wrapped).marshal(One(made)) == head + raw
            assert one(wrapped).unmarshal(head + raw) == (One(made), len(head + raw))


@pytest.mark.spec("RP-C706-14.3.2-01")
@pytest.mark.parametrize(
    ("type_", "value", "alignment", "body"),
    [
        (U8, 5, 1, b"\5"),
        (U16, 5, 2, b"\5\0"),
        (U32, 5, 4, b"\5\0\0\0"),
        (I64, 5, 8, b"\5" + bytes(7)),
        (Unique(U8), None, 4, bytes(4)),
        (Array(U8), [7], 4, b"\7"),
    ],
)
def test_a_structure_begins_where_its_most_aligned_member_may(
    type_: Any, value: object, alignment: int, body: bytes
) -> None:
    inner = Structure(Pair, {"first": U8, "second": type_})
    assert inner.alignment == alignment
    outer = Parameters(Pair, {"first": U8, "second": inner})
    raw = outer.marshal(Pair(9, Pair(1, value)))
    count = b"\1\0\0\0" if value == [7] else b""
    expected = b"\x09" + bytes(max(alignment, 4 if count else 1) - 1) + count
    expected += b"\1" + (b"" if count else bytes(alignment - 1)) + body
    assert raw == expected
    found, _ = outer.unmarshal(raw)
    assert found.second.first == 1


@pytest.mark.spec("RP-RPCE-2.2.4.14-01")
@pytest.mark.parametrize(
    ("value", "is_within"), [(0, False), (1, True), (128, True), (129, False), (1 << 31, False)]
)
def test_a_range_has_two_ends(value: int, is_within: bool) -> None:
    parameters = one(Ranged(U32, 1, 128))
    # Alone, in either order of bytes, and beside what has no fixed size.
    beside = Parameters(Pair, {"first": Ranged(U32, 1, 128), "second": BYTES})
    within = one(Structure(Pair, {"first": Ranged(U32, 1, 128), "second": U8}))
    raw, swapped = struct.pack("<I", value), struct.pack(">I", value)
    if is_within:
        assert parameters.unmarshal(raw)[0] == One(value)
        assert parameters.unmarshal(swapped, ">")[0] == One(value)
        assert beside.unmarshal(raw + bytes(4))[0] == Pair(value, b"")
        assert within.unmarshal(raw + b"\7")[0] == One(Pair(value, 7))
        return
    refused: list[tuple[Parameters[Any], bytes, str]] = [
        (parameters, raw, "<"),
        (parameters, swapped, ">"),
        (beside, raw + bytes(4), "<"),
        (within, raw + b"\7", "<"),
    ]
    for one_of, stub, order in refused:
        with pytest.raises(BadStub):
            one_of.unmarshal(stub, order)


@pytest.mark.spec("RP-C706-14.3.8-01", "RP-C706-14.3.8-02")
def test_a_union_agrees_with_what_switches_it() -> None:
    class Switched(msgspec.Struct):
        kind: int
        what: Arm

    union = Union(U16, {1: U32, 2: None})
    both = Parameters(Switched, {"kind": U16, "what": union}, lambda it: it.kind == it.what.tag)
    good = struct.pack("<HHI", 1, 1, 9)
    assert both.unmarshal(good)[0].what == Arm(1, 9)
    assert both.marshal(Switched(1, Arm(1, 9))) == good
    for bad in (struct.pack("<HH", 1, 2), struct.pack("<HHI", 2, 1, 9), struct.pack("<HH", 3, 3)):
        with pytest.raises(BadStub):
            both.unmarshal(bad)
    # So it is with the objects of remote management.
    raw = vector("mqmr_getinfo_request_machine")
    with pytest.raises(BadStub):
        QMMGMT.operations[0].takes.unmarshal(raw[:2] + b"\3" + raw[3:])
