"""NDR 2.0: alignment, pointers and their targets, arrays, unions, and what is refused."""

import struct
from typing import Any

import msgspec
import pytest

from qm.rpc.limits import POINTER_DEPTH_MAX
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import (
    BYTES,
    GUID,
    HANDLE,
    I64,
    NIL,
    U8,
    U16,
    U32,
    Arm,
    Array,
    Full,
    Octets,
    Parameters,
    Pending,
    Ranged,
    Structure,
    Type,
    Union,
    Unique,
    Varying,
    VaryingArray,
    WideString,
)
from qm.rpc.pdu.bind import NDR20, Syntax
from qm.rpc.pdu.call import verify_trailer
from tests.unit.rpc.vectors import vector


class Correlated(msgspec.Struct):
    size: int
    items: list[int]


CORRELATED = Parameters(
    Correlated, {"size": U32, "items": Array(U16)}, lambda it: it.size == len(it.items)
)


class One(msgspec.Struct):
    value: object


def one(type_: Type[object] | Type[int] | object) -> Parameters[One]:
    return Parameters(One, {"value": type_})  # type: ignore[dict-item]


class Inner(msgspec.Struct):
    text: object


class Outer(msgspec.Struct):
    first: object
    inner: Inner
    last: object


def test_targets_come_in_the_order_of_all_pointers() -> None:
    inner = Structure(Inner, {"text": Unique(U32)})
    outer = Structure(Outer, {"first": Unique(U32), "inner": inner, "last": Unique(U32)})
    stub = one(outer).marshal(One(Outer(1, Inner(2), 3)))
    assert struct.unpack("<6I", stub)[3:] == (1, 2, 3)
    found, _ = one(outer).unmarshal(stub)
    assert found.value == Outer(1, Inner(2), 3)


@pytest.mark.spec("RP-RPCE-3.1.1.5.3.1-01")
def test_counts_must_agree_with_what_they_describe() -> None:
    good, end = CORRELATED.unmarshal(vector("ndr_correlation_ok"))
    assert (good.items, end) == ([1, 2, 3], 14)
    assert CORRELATED.marshal(good) == vector("ndr_correlation_ok")
    with pytest.raises(BadStub):
        CORRELATED.unmarshal(vector("ndr_correlation_bad"))
    # Inside a structure, and behind a pointer, whose target comes late.
    fields: dict[str, Type[Any]] = {"size": U32, "items": Unique(Array(U16))}
    for kind, head in (
        (Structure(Correlated, fields, lambda it: it.size == len(it.items)), b""),
        (Unique(Structure(Correlated, fields, lambda it: it.size == len(it.items))), b"\1\0\0\0"),
    ):
        for size, is_right in ((0, False), (2, False), (3, True), (4, False)):
            raw = head + struct.pack("<III3H", size, 7, 3, 1, 2, 3)
            if is_right:
                assert one(kind).unmarshal(raw)[0].value == Correlated(3, [1, 2, 3])
            else:
                with pytest.raises(BadStub, match="disagree"):
                    one(kind).unmarshal(raw)


class Text(msgspec.Struct):
    length: int
    room: int
    buffer: object


class TextBody(Type[str]):
    """The array of a UNICODE_STRING: WCHARs without NUL."""

    alignment = 4

    def read(self, reader: Reader) -> str:
        _, _, actual = reader.u32(), reader.u32(), reader.u32()
        return reader.take(actual * 2).decode("utf-16-le")


def test_the_unicode_string_of_the_guide_is_read() -> None:
    type_ = Structure(Text, {"length": U16, "room": U16, "buffer": Unique(TextBody())})
    found, _ = one(type_).unmarshal(vector("ndr_unicode_string"))
    assert found.value == Text(6, 8, "abc")


@pytest.mark.spec("RP-C706-14.2.2-01", "RP-C706-14.2.2-02", "RP-C706-14.3.2-01")
def test_values_are_aligned_to_their_size_and_gaps_are_zero() -> None:
    inner = Structure(Correlated, {"size": U8, "items": I64})
    raw = one(inner).marshal(One(Correlated(7, -1)))  # type: ignore[arg-type]
    assert raw == b"\x07" + bytes(7) + b"\xff" * 8
    found, _ = one(inner).unmarshal(b"\x07" + b"x" * 7 + b"\xff" * 8)
    assert found.value == Correlated(7, -1)  # type: ignore[arg-type]
    # Before a structure, a UUID and an array of numbers, too.
    for kind, width, value in (
        (inner, 8, b"\x07" + b"x" * 7 + b"\xff" * 8),
        (GUID, 4, bytes(range(16))),
        (Array(I64), 4, struct.pack("<I", 1) + b"\1" + bytes(7)),
    ):
        outer = Parameters(Correlated, {"size": U8, "items": kind})
        filled, end = outer.unmarshal(b"\x09" + b"x" * (width - 1) + value)
        assert filled == outer.unmarshal(b"\x09" + bytes(width - 1) + value)[0]
        assert (filled.size, end) == (9, width + len(value))
        assert outer.marshal(filled) == b"\x09" + bytes(width - 1) + value.replace(b"x", b"\0")
    # Elements behind their count, and parameters that are numbers alone.
    numbers = Parameters(Correlated, {"size": I64, "items": Array(I64)})
    raw = struct.pack("<qI4xq", 9, 1, -1)
    assert numbers.marshal(Correlated(9, [-1])) == raw
    assert numbers.unmarshal(raw) == (Correlated(9, [-1]), 24)
    for number in (U16, U32, I64):
        size = number.size_min
        plain = Parameters(Correlated, {"size": U8, "items": number})
        raw = b"\x09" + bytes(size - 1) + b"\7" + bytes(size - 1)
        assert plain.marshal(Correlated(9, 7)) == raw  # type: ignore[arg-type]
        for order, wanted in (("<", 7), (">", 7 << 8 * (size - 1))):
            assert plain.unmarshal(raw, order)[0] == Correlated(9, wanted)  # type: ignore[arg-type]


@pytest.mark.spec("RP-C706-14.3.12-01", "RP-C706-14.3.12-02", "RP-C706-14.3.10-01")
def test_targets_follow_their_construction_in_order() -> None:
    class Pair(msgspec.Struct):
        first: object
        second: object

    leaf = Structure(One, {"value": Unique(U32)})
    pair = Structure(Pair, {"first": Unique(leaf), "second": Unique(U32)})

    class Both(msgspec.Struct):
        pair: Pair
        after: int

    both = Parameters(Both, {"pair": pair, "after": U32})
    raw = struct.pack("<7I", 5, 6, 9, 111, 222, 333, 0)[:24]
    found, end = both.unmarshal(raw)
    assert found.pair.first == One(111)
    assert (found.pair.second, found.after, end) == (222, 333, 24)
    assert both.marshal(found)[12:] == raw[12:]
    none, _ = both.unmarshal(bytes(12))
    assert (none.pair.first, none.pair.second) == (None, None)
    # A parameter that is a pointer itself has its target before the next one, too.
    pointed = Parameters(Both, {"pair": Unique(pair), "after": U32})
    raw = struct.pack("<7I", 4, 5, 6, 9, 111, 222, 333)
    found, end = pointed.unmarshal(raw)
    assert found.pair.first == One(111)
    assert (found.pair.second, found.after, end) == (222, 333, 28)
    assert pointed.marshal(found)[16:] == raw[16:]

    # Of an array, whose pointers may be any number, equal ones too: its targets in their order,
    # each with what it points at, all behind the array and what comes after it.
    class Row(msgspec.Struct):
        kept: object
        arm: object

    choice = Union(U32, {1: Unique(U32)})
    rows = Structure(
        Both, {"after": U32, "pair": Array(Structure(Row, {"kept": Unique(leaf), "arm": choice}))}
    )
    raw = struct.pack(
        "<2I6I5I",
        *(2, 77),
        *(1, 1, 0xFFFF_0000, 1, 1, 1),
        *(0x0002_0000, 11, 12, 0, 13),
    )
    wrapped, end = one(rows).unmarshal(raw)
    content: Any = wrapped.value
    assert end == len(raw)
    first, second = content.pair
    assert (first.kept, first.arm.value) == (One(11), 12)
    assert (second.kept, second.arm.value) == (One(None), 13)
    assert one(rows).marshal(wrapped)[36:] == raw[36:]
    pointers = one(Array(Unique(U32)))
    raw = struct.pack("<6I4I", 5, 1, 0, 0xFFFF_FFFF, 0x0002_0000, 1, 21, 22, 23, 24)
    assert pointers.unmarshal(raw)[0].value == [21, None, 22, 23, 24]


@pytest.mark.spec("RP-C706-14.3.10-02")
def test_equal_full_pointers_are_one_object() -> None:
    class Two(msgspec.Struct):
        first: object
        second: object

    class Outer(msgspec.Struct):
        both: Two

    two = Parameters(Outer, {"both": Structure(Two, {"first": Full(BYTES), "second": Full(BYTES)})})
    found, _ = two.unmarshal(struct.pack("<III", 8, 8, 3) + b"abc")
    assert found.both == Two(b"abc", b"abc")
    assert len(two.marshal(found)) == 15
    # As parameters the second one comes when the target is read already.
    each = Parameters(Two, {"first": Full(BYTES), "second": Full(BYTES)})
    raw = struct.pack("<II", 8, 4) + b"abcd" + struct.pack("<I", 8)
    read, end = each.unmarshal(raw)
    assert (read, end) == (Two(b"abcd", b"abcd"), 16)
    assert len(each.marshal(read)) == 16
    # Another referent is another object, though it looks the same.
    raw = struct.pack("<II", 8, 4) + b"abcd" + struct.pack("<II", 12, 4) + b"efgh"
    assert each.unmarshal(raw)[0] == Two(b"abcd", b"efgh")


@pytest.mark.spec("RP-C706-14.3.11-01", "RP-C706-14.3.4-01", "RP-RPCE-3.1.1.5.3.3-02")
def test_wide_strings_end_in_a_nul_that_their_counts_include() -> None:
    text = one(WideString(8))
    raw = text.marshal(One("abc"))
    assert raw == struct.pack("<III", 4, 0, 4) + "abc\0".encode("utf-16-le")
    assert text.unmarshal(raw)[0].value == "abc"
    for content in ("", "12345678", "a\U0001f4ee"):
        assert text.unmarshal(text.marshal(One(content)))[0].value == content
    units = "a\U0001f4ee\0".encode("utf-16-le")
    assert text.marshal(One("a\U0001f4ee")) == struct.pack("<III", 4, 0, 4) + units
    big = struct.pack(">III", 4, 0, 4) + "abc\0".encode("utf-16-be")
    assert text.unmarshal(big, ">")[0].value == "abc"
    pointed = one(Unique(WideString(8)))
    assert pointed.marshal(One("abc"))[4:] == raw, "behind the pointer"
    assert pointed.unmarshal(b"\0\0\2\0" + raw)[0].value == "abc"
    with pytest.raises(BadStub):
        text.unmarshal(text.marshal(One("123456789")))
    for bad in (
        struct.pack("<III", 3, 0, 3) + "abc".encode("utf-16-le"),
        struct.pack("<III", 4, 0, 4) + "a\0c\0".encode("utf-16-le"),
        struct.pack("<III", 4, 1, 3) + "bc\0".encode("utf-16-le"),
        struct.pack("<III", 3, 0, 4) + "abc\0".encode("utf-16-le"),
        struct.pack("<III", 10, 0, 10) + bytes(20),
        struct.pack("<III", 0xFFFFFFFF, 0, 0xFFFFFFFF) + b"a\0",
        struct.pack("<III", 0, 0, 0),
    ):
        with pytest.raises(BadStub):
            text.unmarshal(bad)


@pytest.mark.spec("RP-C706-14.3.8-01", "RP-C706-14.3.8-02")
def test_unions_repeat_their_tag_and_align_the_arm_alone() -> None:
    union = Union(U16, {1: U32, 2: None, 3: Unique(U16)})
    found, end = one(union).unmarshal(struct.pack("<HHI", 1, 0, 9))
    assert (found.value, end) == (Arm(1, 9), 8)
    found, end = one(union).unmarshal(struct.pack("<H", 2))
    assert (found.value, end) == (Arm(2), 2)
    found, _ = one(union).unmarshal(struct.pack("<HHIH", 3, 0, 1, 5))
    assert found.value == Arm(3, 5)
    assert one(union).marshal(found)[:2] == b"\3\0"
    with pytest.raises(BadStub):
        one(union).unmarshal(struct.pack("<HHI", 4, 0, 9))


@pytest.mark.spec("RP-C706-14.3.3-01", "RP-C706-14.3.3-02")
def test_a_trailing_conformant_array_counts_before_the_structure() -> None:
    class Blob(msgspec.Struct):
        size: int
        data: bytes

    blob = Structure(Blob, {"size": U16, "data": BYTES})
    raw = one(blob).marshal(One(Blob(3, b"abc")))
    assert raw == struct.pack("<IH", 3, 3) + b"abc"
    assert one(blob).unmarshal(raw)[0].value == Blob(3, b"abc")
    room = one(VaryingArray(U8))
    with pytest.raises(BadStub):
        room.unmarshal(struct.pack("<III", 2, 0, 3) + b"abc")
    full = room.unmarshal(struct.pack("<III", 3, 0, 3) + b"abc")[0]
    assert full.value == Varying(3, [*b"abc"])
    for offset, actual in ((1, 3), (3, 1), (4, 0), (0xFFFFFFFF, 1)):
        with pytest.raises(BadStub):
            room.unmarshal(struct.pack("<III", 3, offset, actual) + b"abc")
    # A string is such an array, too.
    text = one(WideString(10))
    assert text.unmarshal(struct.pack("<III", 2, 0, 2) + b"a\0\0\0")[0].value == "a"
    for count_max, offset, actual in ((1, 0, 2), (2, 1, 2), (2, 2, 1)):
        with pytest.raises(BadStub):
            text.unmarshal(struct.pack("<III", count_max, offset, actual) + b"a\0\0\0")


@pytest.mark.spec("RP-RPCE-2.2.4.14-01", "RP-RPCE-3.1.3.5.1-01", "RP-OUR-limits-04")
def test_ranges_counts_and_nesting_are_bounded_before_anything_is_made() -> None:
    with pytest.raises(BadStub):
        one(Ranged(U32, 1, 128)).unmarshal(struct.pack("<I", 0))
    for bad in (0x7FFFFFFF, 0xFFFFFFFF, 3):
        with pytest.raises(BadStub):
            one(Array(GUID)).unmarshal(struct.pack("<I", bad) + bytes(40))
        with pytest.raises(BadStub):
            one(BYTES).unmarshal(struct.pack("<I", bad) + b"ab")

    class Counted(Type[int]):
        size_min = 8

        def __init__(self) -> None:
            self.reads = 0

        def read(self, reader: Reader) -> int:
            self.reads += 1
            return int.from_bytes(reader.take(8), "little")

    long = struct.pack("<III", 10, 0, 10) + "a".encode("utf-16-le") * 9 + bytes(2)
    with pytest.raises(BadStub):
        one(WideString(8)).unmarshal(long)
    assert one(WideString(9)).unmarshal(long)[0].value == "a" * 9

    for head, make in (
        (struct.pack("<I", 4), Array),
        (struct.pack("<III", 4, 0, 4), VaryingArray),
        (struct.pack("<I", 4), lambda counted: Structure(One, {"value": Array(counted)})),
    ):
        element = Counted()
        with pytest.raises(BadStub):
            one(make(element)).unmarshal(head + bytes(31))
        assert element.reads == 0, "the count alone tells"
        one(make(element)).unmarshal(head + bytes(32))
        assert element.reads == 4

    class Chain(Type[object]):
        alignment = 4

        def read(self, reader: Reader) -> object:
            found: list[object] = [None]
            if reader.u32():
                reader.defer(self, found.append)
            return found

    assert POINTER_DEPTH_MAX == 16
    for depth in (0, 1, 16):
        one(Chain()).unmarshal(struct.pack("<I", 1) * depth + bytes(4))
    for depth in (17, 1_000):
        with pytest.raises(BadStub, match="nested"):
            one(Chain()).unmarshal(struct.pack("<I", 1) * depth + bytes(4))

    # What a type allows, though the bytes are there.
    three = struct.pack("<III", 3, 0, 3) + bytes(12)
    for made, known in ((Array(U32, 2), three[8:]), (VaryingArray(U32, 2), three)):
        with pytest.raises(BadStub, match="3 elements"):
            one(made).unmarshal(known)
    one(Array(U32, 3)).unmarshal(three[8:])
    one(VaryingArray(U32, 3)).unmarshal(three)


@pytest.mark.spec("RP-RPCE-2.2.1.1.4-01")
def test_a_context_handle_is_twenty_bytes() -> None:
    raw = one(HANDLE).marshal(One(NIL))
    assert raw == bytes(20)
    assert one(HANDLE).marshal(One(bytes(range(16)))) == bytes(4) + bytes(range(16))
    assert one(HANDLE).unmarshal(bytes(4) + bytes(range(16)))[0].value == bytes(range(16))


def test_big_endian_stubs_are_read() -> None:
    found, _ = CORRELATED.unmarshal(struct.pack(">IIHH", 2, 2, 1, 2), ">")
    assert found.items == [1, 2]
    assert one(Octets(3)).unmarshal(b"abc", ">")[0].value == b"abc"
    assert one(GUID).unmarshal(bytes(range(16)), ">")[0].value == bytes.fromhex(
        "03020100050407060809" + "0a0b0c0d0e0f"
    )


@pytest.mark.spec(
    "RP-RPCE-2.2.2.13-01",
    "RP-RPCE-2.2.2.13-02",
    "RP-RPCE-2.2.2.13.1-02",
    "RP-RPCE-2.2.2.13.2-01",
    "RP-RPCE-2.2.2.13.4-01",
)
def test_a_verification_trailer_must_agree_with_the_call() -> None:
    pdu = vector("pdu_request_verification_trailer")
    stub = pdu[24:]
    remote_read = Syntax(bytes.fromhex("dd34911a397bba45ad8844d01ca47f28"), 1)
    head = (0, b"\x10\0\0\0", 2, 0, 7)

    def agrees(stub: bytes, interface: Syntax = remote_read, *, signs: bool = True) -> bool:
        return verify_trailer(
            stub, 56, signs_header=signs, interface=interface, transfer=NDR20, pdu_head=head
        )

    assert agrees(stub)
    assert agrees(stub[:56])
    assert not agrees(stub, NDR20)
    assert not agrees(stub, signs=False)
    magic = stub[56:64]
    assert agrees(magic.rjust(64, b"\0") + struct.pack("<HH", 0x4005, 0))
    assert not agrees(magic.rjust(64, b"\0") + struct.pack("<HH", 0xC005, 0))
    header2 = struct.pack("<HHBBH4sIHH", 0x4003, 16, 0, 0, 0, b"\x10\0\0\0", 2, 0, 7)
    assert agrees(magic.rjust(64, b"\0") + header2)
    assert not agrees(magic.rjust(64, b"\0") + header2[:-2] + b"\x08\0")
    for cut in range(65, len(stub)):
        agrees(stub[:cut])


def test_a_writer_starts_referents_where_peers_expect_them() -> None:
    writer = Writer()
    writer.point(U32, 1)
    assert bytes(writer.raw) == struct.pack("<I", 0x20000)
    assert Pending(U32).shared == 0
