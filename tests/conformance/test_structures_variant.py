"""PROPVARIANT, VARIANT_BOOL, BLOB and counted arrays (MS-MQMQ 2.2.12 to 2.2.17) in calls."""

from struct import pack, unpack_from
from typing import Any

import msgspec
import pytest

from qm.client.mqac.variant import from_body, to_body
from qm.rpc.dcom.mqac.values import variant_of
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Parameters
from qm.rpc.variants import PROPVARIANT, VECTOR_ELEMENTS_MAX, Variant
from qm.wire.enums import VarType

V = VarType
GUID = bytes(range(0xA0, 0xB0))
POINTER = None
"""In a layout: four bytes that are not zero."""
COUNT_AT, POINTER_AT = 12, 16
"""Of what is counted: behind the type in eight bytes, the type again and two bytes."""


class Held(msgspec.Struct):
    value: Variant


PARAMETER = Parameters(Held, {"value": PROPVARIANT})


def head(number: int) -> bytes:
    """vt, three reserved members, and vt again as the tag of the union."""
    return pack("<H6xH", number, number)


def read(stub: bytes) -> Variant:
    found, end = PARAMETER.unmarshal(stub)
    assert end == len(stub)
    return found.value


def is_refused(stub: bytes) -> bool:
    try:
        PARAMETER.unmarshal(stub)
    except BadStub:
        return True
    return False


def check(kind: VarType, value: object, *layout: bytes | str | None) -> None:
    """Check that `value` stands in a call as its head and this layout, and is read from it."""
    variant = Variant(kind, value)
    stub = PARAMETER.marshal(Held(variant))
    assert stub[:10] == head(kind)
    at = 10
    for part in layout:
        if part is POINTER:
            assert unpack_from("<I", stub, at) != (0,)
            at += 4
        else:
            raw = bytes.fromhex(part) if isinstance(part, str) else part
            assert stub[at : at + len(raw)] == raw
            at += len(raw)
    assert at == len(stub)
    assert read(stub) == variant
    for size in range(len(stub)):
        assert is_refused(stub[:size])
    # The type and the tag of the union agree.
    for other in (V.EMPTY, V.UI4, V.LPWSTR, V.VARIANT, 0x1002):
        if other != kind:
            assert is_refused(stub[:8] + pack("<H", other) + stub[10:])
            assert is_refused(pack("<H", other) + stub[2:])
    if kind is V.BLOB or kind > V.VECTOR:
        (count,) = unpack_from("<I", stub, COUNT_AT)
        for other in (count - 1 & 0xFFFF_FFFF, count + 1):
            assert is_refused(stub[:COUNT_AT] + pack("<I", other) + stub[POINTER_AT:])


def counted(count: int, *elements: bytes | str | None) -> tuple[bytes | str | None, ...]:
    """The layout of a counted array: count, pointer, count again, elements."""
    return bytes(2), pack("<I", count), POINTER, pack("<I", count), *elements


def text(value: str) -> bytes:
    """What a pointer to a string points to: its size twice, with an offset, and its characters."""
    return pack("<III", len(value) + 1, 0, len(value) + 1) + (value + "\0").encode("utf-16-le")


SCALARS = {
    "EMPTY": 0,
    "NULL": 1,
    "I2": 2,
    "I4": 3,
    "BOOL": 11,
    "VARIANT": 12,
    "I1": 16,
    "UI1": 17,
    "UI2": 18,
    "UI4": 19,
    "I8": 20,
    "UI8": 21,
    "LPWSTR": 31,
    "BLOB": 65,
    "CLSID": 72,
    "VECTOR": 0x1000,
}
ARRAYS = ("I4", "VARIANT", "UI1", "UI2", "UI4", "UI8", "LPWSTR", "CLSID")


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """Every type in a call: a row of one type stands on the table of all."""
    assert {member.name: member.value for member in VarType} == SCALARS | {
        f"VECTOR_{name}": 0x1000 | SCALARS[name] for name in ARRAYS
    }
    check(V.EMPTY, None)
    check(V.NULL, None)
    check(V.I1, -2, "fe")
    check(V.UI1, 0xFE, "fe")
    check(V.I2, -2, "feff")
    check(V.UI2, 0x201, "0102")
    check(V.I4, -2, "0000 feffffff")
    check(V.UI4, 0x4030201, "0000 01020304")
    check(V.I8, -2, bytes(6), "feffffffffffffff")
    check(V.UI8, 0x807060504030201, bytes(6), "0102030405060708")
    check(V.BOOL, True, "ffff")
    check(V.CLSID, GUID, "0000", POINTER, GUID)
    check(V.LPWSTR, "a", "0000", POINTER, text("a"))
    check(V.BLOB, b"\x07", *counted(1, "07"))
    check(V.VECTOR_UI1, b"\x07", *counted(1, "07"))
    check(V.VECTOR_UI2, [0x201], *counted(1, "0102"))
    check(V.VECTOR_I4, [-2], *counted(1, "feffffff"))
    check(V.VECTOR_UI4, [0x4030201], *counted(1, "01020304"))
    check(V.VECTOR_UI8, [2**63 + 1], *counted(1, "0100000000000080"))
    check(V.VECTOR_CLSID, [GUID], *counted(1, GUID))
    check(V.VECTOR_LPWSTR, [""], *counted(1, POINTER, text("")))
    check(V.VECTOR_VARIANT, [Variant(V.NULL)], *counted(1, head(1)))


@pytest.mark.spec("MQ-2.2.12-01", "MQ-2.2.12-02", "MQ-2.2.12.1-01", "MQ-2.2.13.1-02")
def test_the_types() -> None:
    for name, number in SCALARS.items():
        assert VarType[name].value == number
    vectors = [member for member in V if member > V.VECTOR]
    for member in vectors:
        assert member.value == V.VECTOR.value | SCALARS[member.name.removeprefix("VECTOR_")]
    assert len(V) == len(SCALARS) + len(vectors)
    # A VARTYPE has 16 bits: a third byte belongs to wReserved1.
    assert read(b"\x11\x00\x01" + bytes(5) + b"\x11\x00\x07") == Variant(V.UI1, 7)
    assert is_refused(b"\x11\x01\x00" + bytes(5) + b"\x11\x01\x07")
    for number, other in ((0x11, 0x12), (0x13, 0x03), (0x1F, 0x48), (0x1011, 0x41)):
        assert is_refused(pack("<H6xH", number, other) + bytes(16))
    legal = {0, 1, 2, 3, 11, 16, 17, 18, 19, 20, 21, 31, 65, 72} | {v.value for v in vectors}
    for number in (*range(0x2000), 0x4000, 0x8000, 0xFFFF):
        # No elements, and a pointer to nothing.
        assert is_refused(head(number) + bytes(16)) == (number not in legal)


@pytest.mark.parametrize("kind", [V.EMPTY, V.NULL])
@pytest.mark.spec("MQ-2.2.12-03")
def test_empty_and_null_carry_no_data(kind: VarType) -> None:
    check(kind, None)
    _, after = PARAMETER.unmarshal(head(kind) + b"\x01\x02")
    assert after == 10


@pytest.mark.spec("MQ-2.2.12-04", "MQ-2.2.16.8-01", "MQ-2.2.13.2-01")
def test_variants_occur_only_in_arrays() -> None:
    assert is_refused(head(12) + bytes(40))
    one = Variant(V.UI1, 7)
    # Each element begins on a boundary of eight.
    check(V.VECTOR_VARIANT, [one], *counted(1, head(0x11), "07"))
    elements = head(0x11), "07", bytes(5), head(1)
    check(V.VECTOR_VARIANT, [one, Variant(V.NULL)], *counted(2, *elements))
    check(V.VECTOR_VARIANT, [], *counted(0))
    # What an element points to stands behind all elements.
    inner: list[Any] = [head(0x100C), bytes(2), pack("<I", 1), POINTER, bytes(4)]
    inner += [head(0x11), "07", bytes(1), pack("<I", 1), head(0x11), "07"]
    check(V.VECTOR_VARIANT, [Variant(V.VECTOR_VARIANT, [one]), one], *counted(2, *inner))
    stub = PARAMETER.marshal(Held(Variant(V.VECTOR_VARIANT, [one])))
    assert is_refused(stub[:12] + pack("<I", 2) + stub[16:20] + pack("<I", 2) + stub[24:])


@pytest.mark.parametrize(
    ("kind", "bits", "signed"),
    [
        (V.I1, 8, True),
        (V.UI1, 8, False),
        (V.I2, 16, True),
        (V.UI2, 16, False),
        (V.I4, 32, True),
        (V.UI4, 32, False),
        (V.I8, 64, True),
        (V.UI8, 64, False),
    ],
)
@pytest.mark.spec("MQ-2.2.12-05", "MQ-2.2.17-01")
def test_integers_have_their_width_and_sign(kind: VarType, bits: int, signed: bool) -> None:
    low = -(1 << bits - 1) if signed else 0
    size = bits // 8
    for value in (low, low + (1 << bits) - 1, 0, 1, low + 0x5A):
        raw = value.to_bytes(size, "little", signed=signed)
        check(kind, value, bytes(-10 % size), raw)
        # From a caller that sends the highest byte first.
        stub = pack(">H6xH", kind, kind) + bytes(-10 % size) + raw[::-1]
        assert PARAMETER.unmarshal(stub, ">")[0].value == Variant(kind, value)


@pytest.mark.spec("MQ-2.2.12-06", "MQ-2.2.15-01")
def test_strings_guids_and_blobs() -> None:
    check(V.LPWSTR, "hi", "0000", POINTER, text("hi"))
    check(V.LPWSTR, "", "0000", POINTER, text(""))
    check(V.CLSID, GUID, "0000", POINTER, GUID)
    check(V.BLOB, b"\x01\x02\x03", *counted(3, "010203"))
    check(V.BLOB, b"", *counted(0))
    check(V.BOOL, True, "ffff")
    check(V.BOOL, False, "0000")
    # A string ends with its only NUL; nothing may stand where that is, or before its end.
    start = head(31) + bytes(2) + pack("<I", 1)
    assert read(start + text("hi")) == Variant(V.LPWSTR, "hi")
    for characters in ("hip", "h\0\0", "\0i\0"):
        assert is_refused(start + text("hi")[:12] + characters.encode("utf-16-le"))
    assert is_refused(start + bytes(12))
    assert is_refused(head(65) + bytes(2) + pack("<III", 0xFFFF_FFFF, 1, 0xFFFF_FFFF) + b"\0")
    # A pointer may be NULL: there is no string, no GUID, and no byte.
    assert read(head(31) + bytes(6)) == Variant(V.LPWSTR, None)
    assert read(head(72) + bytes(6)) == Variant(V.CLSID, None)
    assert read(head(65) + bytes(10)) == Variant(V.BLOB, b"")
    assert is_refused(head(65) + bytes(2) + pack("<II", 1, 0))


@pytest.mark.spec("MQ-2.2.13.1-01", "MQ-2.2.13.1-03", "MQ-2.2.13.1-04")
def test_reserved_bytes_are_zero_when_written_and_ignored_when_read() -> None:
    for kind, value in ((V.UI4, 0x0403_0201), (V.VECTOR_UI1, b"\x07"), (V.LPWSTR, "a"), (V.I8, 5)):
        variant = Variant(kind, value)
        stub = PARAMETER.marshal(Held(variant))
        assert stub[:10] == pack("<HBBIH", kind, 0, 0, 0, kind)
        assert read(stub[:2] + bytes.fromhex("aabbccddeeff") + stub[8:]) == variant
        for at in range(2, 8):
            assert read(stub[:at] + b"\xaa" + stub[at + 1 :]) == variant
    assert read(bytes.fromhex("1300 aa bb ccddeeff 1300 0000 01020304")) == Variant(
        V.UI4, 0x0403_0201
    )


@pytest.mark.spec("MQ-2.2.13.1-05")
def test_no_other_arrays_than_eight() -> None:
    permitted = {0x1003, 0x100C, 0x1011, 0x1012, 0x1013, 0x1015, 0x101F, 0x1048}
    for number in range(0x1000, 0x2000):
        # No elements, and a NULL pointer to them.
        stub = head(number) + bytes(10)
        if number in permitted:
            assert read(stub).kind == number
        else:
            assert is_refused(stub)


@pytest.mark.spec("MQ-2.2.14-01")
def test_a_boolean_is_ffff_or_0000() -> None:
    check(V.BOOL, True, "ffff")
    check(V.BOOL, False, "0000")
    for raw, value in ((b"\xff\xff", True), (b"\0\0", False), (b"\x01\0", True), (b"\0\x01", True)):
        assert read(head(V.BOOL) + raw) == Variant(V.BOOL, value)
        # So it is in the body of a message that an object sent.
        assert from_body(raw, V.BOOL) is value
    for value, number in ((True, 0xFFFF), (False, 0x0000)):
        assert to_body(value) == (pack("<H", number), 11)
        # And so objects answer over DCOM.
        found = variant_of(value, lambda _: pytest.fail("no object"))
        assert (found.vt, found.value) == (11, number)


@pytest.mark.spec("MQ-2.2.16.1-01", "MQ-2.2.16.2-01", "MQ-2.2.16.3-01", "MQ-2.2.16.4-01")
def test_arrays_of_bytes_shorts_and_longs() -> None:
    check(V.VECTOR_UI1, b"\x01\xff", *counted(2, "01ff"))
    check(V.VECTOR_UI2, [1, 0xFFFE], *counted(2, "0100 feff"))
    check(V.VECTOR_I4, [1, -2], *counted(2, "01000000 feffffff"))
    check(V.VECTOR_UI4, [1, 0xFFFF_FFFE], *counted(2, "01000000 feffffff"))
    for kind, empty in ((V.VECTOR_UI1, b""), (V.VECTOR_UI2, []), (V.VECTOR_I4, [])):
        check(kind, empty, *counted(0))
    for number in (0x1011, 0x1012, 0x1003, 0x1013):
        for count in (3, VECTOR_ELEMENTS_MAX, 0xFFFF_FFFF):
            stub = head(number) + bytes(2) + pack("<III", count, 1, count)
            assert is_refused(stub + b"\x01\x02")
        # Where there is no array, there is no element to count.
        assert is_refused(head(number) + bytes(2) + pack("<II", 1, 0))


@pytest.mark.spec("MQ-2.2.16.5-01", "MQ-2.2.16.6-01", "MQ-2.2.16.7-01")
def test_arrays_of_large_integers_guids_and_strings() -> None:
    large = counted(2, "0100000000000000 feffffffffffffff")
    check(V.VECTOR_UI8, [1, 2**64 - 2], *large)
    check(V.VECTOR_CLSID, [GUID, GUID[::-1]], *counted(2, GUID + GUID[::-1]))
    # The strings stand behind all pointers, each on a boundary of four.
    strings = (text("a"), text(""), bytes(2), text("bc"))
    check(V.VECTOR_LPWSTR, ["a", "", "bc"], *counted(3, POINTER, POINTER, POINTER, *strings))
    for number in (0x1015, 0x1048, 0x101F):
        for count in (2, VECTOR_ELEMENTS_MAX, 0xFFFF_FFFF):
            stub = head(number) + bytes(2) + pack("<III", count, 1, count)
            assert is_refused(stub + b"\x01\0")
        assert is_refused(head(number) + bytes(2) + pack("<II", 1, 0))


@pytest.mark.spec("MQ-2.2.16.2-01", "MQ-2.2.16.4-01", "MQ-2.2.16.5-01")
def test_the_elements_of_an_array_are_limited() -> None:
    for kind, size in ((V.VECTOR_UI2, 2), (V.VECTOR_UI4, 4), (V.VECTOR_UI8, 8)):
        for count in (VECTOR_ELEMENTS_MAX, VECTOR_ELEMENTS_MAX + 1):
            stub = head(kind) + bytes(2) + pack("<III", count, 1, count) + bytes(size * count)
            assert is_refused(stub) == (count > VECTOR_ELEMENTS_MAX)
