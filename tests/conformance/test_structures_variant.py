"""PROPVARIANT, VARIANT_BOOL, BLOB and counted arrays (MS-MQMQ 2.2.12 to 2.2.17)."""

from struct import pack, unpack_from

import msgspec
import pytest

from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Parameters
from qm.rpc.variants import PROPVARIANT, Variant
from qm.wire.enums import VarType
from qm.wire.errors import ProtocolError
from qm.wire.rpc.variant import (
    VARIANT_ELEMENTS_MAX,
    PropVariant,
    VariantValue,
    parse_propvariant,
    parse_variant_bool,
    write_propvariant,
    write_variant_bool,
)

V = VarType
GUID = bytes(range(0xA0, 0xB0))


def raw_variant(number: int, body: bytes | str = b"") -> bytes:
    """The storage form with zero reserved bytes."""
    arm = bytes.fromhex(body) if isinstance(body, str) else body
    return number.to_bytes(2, "little") + bytes(6) + arm


def parse(raw: bytes) -> PropVariant:
    value, after = parse_propvariant(b"\xee" + raw + b"\xee" * 9, 1, 1 + len(raw))
    assert after == 1 + len(raw)
    return value


def check(kind: VarType, value: VariantValue, body: bytes | str) -> None:
    """Check that `value` is written as `body` behind the head, and read back from nothing less."""
    raw = raw_variant(kind.value, body)
    assert write_propvariant(PropVariant(kind, value)) == raw
    assert parse(raw) == PropVariant(kind, value)
    for size in range(len(raw)):
        assert is_refused(raw[:size])
    is_carried(kind, value, raw[8:])


# The same values as parameters of calls ---------------------------------------------------------


class Held(msgspec.Struct):
    value: Variant


PARAMETER = Parameters(Held, {"value": PROPVARIANT})
WIDTHS = {V.VECTOR_UI1: 1, V.VECTOR_UI2: 2, V.VECTOR_I4: 4, V.VECTOR_UI4: 4, V.VECTOR_UI8: 8}
"""Of the elements of arrays that hold nothing but numbers."""


def carried(value: object) -> object:
    """A value as calls carry it: lists for tuples, and their own kind of variants."""
    if isinstance(value, PropVariant):
        return Variant(value.vartype, carried(value.value))
    return [carried(each) for each in value] if isinstance(value, tuple) else value


def is_carried(kind: VarType, value: VariantValue, arm: bytes) -> None:
    """Check that a parameter of this type has the same content as the storage form's `arm`."""
    stub = PARAMETER.marshal(Held(Variant(kind, carried(value))))
    assert PARAMETER.unmarshal(stub) == (Held(Variant(kind, carried(value))), len(stub))
    # Reserved bytes are sent as zeros, and are not looked at; the type stands there once more.
    assert stub[:10] == pack("<H6xH", kind, kind)
    for at in range(2, 8):
        marked = stub[:at] + b"\xaa" + stub[at + 1 :]
        assert PARAMETER.unmarshal(marked)[0].value == Variant(kind, carried(value))
    for other in (V.EMPTY, V.UI4, V.LPWSTR, 12, 0x1002):
        if other != kind:
            with pytest.raises(BadStub):
                PARAMETER.unmarshal(stub[:8] + pack("<H", other) + stub[10:])
            with pytest.raises(BadStub):
                PARAMETER.unmarshal(pack("<H", other) + stub[2:])
    for size in range(len(stub)):
        with pytest.raises(BadStub):
            PARAMETER.unmarshal(stub[:size])
    if kind is V.BLOB or kind > V.VECTOR:
        (count,) = unpack_from("<I", stub, 12)
        for other in (count - 1 & 0xFFFF_FFFF, count + 1):
            with pytest.raises(BadStub):
                PARAMETER.unmarshal(stub[:12] + pack("<I", other) + stub[16:])
    if kind in (V.EMPTY, V.NULL):
        assert len(stub) == 10
    elif kind is V.BLOB or kind in WIDTHS:
        # Its count, a pointer, and then a conformant array with the same count.
        assert (stub[12:16], stub[20:24], stub[24:]) == (arm[:4], arm[:4], arm[4:])
    elif kind in (V.LPWSTR, V.CLSID):
        text = arm[:4] + bytes(4) + arm if kind is V.LPWSTR else arm
        assert (stub[12:16] != bytes(4), stub[16:]) == (True, text)
    elif kind > V.VECTOR:
        assert (stub[12:16], stub[20:24]) == (arm[:4], arm[:4])
    else:
        assert stub[10:] == bytes(-10 % len(arm)) + arm


# -------------------------------------------------------------------------------------------------


def is_refused(raw: bytes) -> bool:
    try:
        parse(raw)
    except ProtocolError:
        return True
    return False


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
    """Every type in the storage form: a row of one type stands on the table of all."""
    assert {member.name: member.value for member in VarType} == SCALARS | {
        f"VECTOR_{name}": 0x1000 | SCALARS[name] for name in ARRAYS
    }
    for raw, variant in {
        "0000 000000000000": PropVariant(V.EMPTY),
        "0100 000000000000": PropVariant(V.NULL),
        "1000 000000000000 fe": PropVariant(V.I1, -2),
        "1100 000000000000 fe": PropVariant(V.UI1, 0xFE),
        "0200 000000000000 feff": PropVariant(V.I2, -2),
        "1200 000000000000 0102": PropVariant(V.UI2, 0x201),
        "0300 000000000000 feffffff": PropVariant(V.I4, -2),
        "1300 000000000000 01020304": PropVariant(V.UI4, 0x4030201),
        "1400 000000000000 feffffffffffffff": PropVariant(V.I8, -2),
        "1500 000000000000 0102030405060708": PropVariant(V.UI8, 0x807060504030201),
        "0b00 000000000000 ffff": PropVariant(V.BOOL, True),
        "4800 000000000000" + GUID.hex(): PropVariant(V.CLSID, GUID),
        "4100 000000000000 01000000 07": PropVariant(V.BLOB, b"\x07"),
        "1f00 000000000000 02000000 61000000": PropVariant(V.LPWSTR, "a"),
        "1110 000000000000 01000000 07": PropVariant(V.VECTOR_UI1, b"\x07"),
        "1210 000000000000 01000000 0102": PropVariant(V.VECTOR_UI2, (0x201,)),
        "0310 000000000000 01000000 feffffff": PropVariant(V.VECTOR_I4, (-2,)),
        "1310 000000000000 01000000 01020304": PropVariant(V.VECTOR_UI4, (0x4030201,)),
        "1510 000000000000 01000000 0100000000000080": PropVariant(V.VECTOR_UI8, (2**63 + 1,)),
        "4810 000000000000 01000000" + GUID.hex(): PropVariant(V.VECTOR_CLSID, (GUID,)),
        "1f10 000000000000 01000000 01000000 0000": PropVariant(V.VECTOR_LPWSTR, ("",)),
        "0c10 000000000000 01000000 0000 000000000000": PropVariant(
            V.VECTOR_VARIANT, (PropVariant(V.EMPTY),)
        ),
    }.items():
        assert write_propvariant(variant) == bytes.fromhex(raw)
        assert parse(bytes.fromhex(raw)) == variant
        is_carried(variant.vartype, variant.value, bytes.fromhex(raw)[8:])
    too_many = VARIANT_ELEMENTS_MAX + 1
    assert not is_refused(raw_variant(0x1012, (too_many - 1).to_bytes(4, "little") + bytes(131072)))
    assert is_refused(raw_variant(0x1012, too_many.to_bytes(4, "little") + bytes(131074)))


@pytest.mark.spec("MQ-2.2.12-01", "MQ-2.2.12-02", "MQ-2.2.12.1-01", "MQ-2.2.13.1-02")
def test_the_types() -> None:
    for name, number in SCALARS.items():
        assert VarType[name].value == number
    vectors = [member for member in V if member > V.VECTOR]
    for member in vectors:
        assert member.value == V.VECTOR.value | SCALARS[member.name.removeprefix("VECTOR_")]
    assert len(V) == len(SCALARS) + len(vectors)
    # A VARTYPE has 16 bits: a third byte belongs to wReserved1.
    assert parse(b"\x11\x00\x01" + bytes(5) + b"\x07") == PropVariant(V.UI1, 7)
    legal = {0, 1, 2, 3, 11, 16, 17, 18, 19, 20, 21, 31, 65, 72} | {v.value for v in vectors}
    for number in range(0x2000):
        arm = bytes(4) if number == 31 or number > 0x1000 else bytes(16)
        if number == 31:
            arm = b"\x01\0\0\0\0\0"
        try:
            value, _ = parse_propvariant(raw_variant(number, arm), 0, 8 + len(arm))
        except ProtocolError as error:
            assert error.field == "PROPVARIANT.vt"
            assert number not in legal
        else:
            assert value.vartype.value == number
            assert number in legal


@pytest.mark.parametrize("kind", [V.EMPTY, V.NULL])
@pytest.mark.spec("MQ-2.2.12-03")
def test_empty_and_null_carry_no_data(kind: VarType) -> None:
    check(kind, None, b"")
    _, after = parse_propvariant(raw_variant(kind.value, b"\x01\x02"), 0, 10)
    assert after == 8


@pytest.mark.spec("MQ-2.2.12-04", "MQ-2.2.16.8-01", "MQ-2.2.13.2-01")
def test_variants_occur_only_in_arrays() -> None:
    assert is_refused(raw_variant(12, bytes(40)))
    one = raw_variant(0x11, b"\x07")
    inner = raw_variant(0x100C, b"\x01\0\0\0" + one)
    check(V.VECTOR_VARIANT, (PropVariant(V.UI1, 7),), b"\x01\0\0\0" + one)
    check(V.VECTOR_VARIANT, (), b"\0\0\0\0")
    check(
        V.VECTOR_VARIANT,
        (PropVariant(V.VECTOR_VARIANT, (PropVariant(V.UI1, 7),)), PropVariant(V.UI1, 7)),
        b"\x02\0\0\0" + inner + one,
    )
    assert is_refused(raw_variant(0x100C, b"\x02\0\0\0" + one))


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
    for value in (low, low + (1 << bits) - 1, 0, 1, low + 0x5A):
        check(kind, value, value.to_bytes(bits // 8, "little", signed=signed))
    for value in (low - 1, low + (1 << bits)):
        with pytest.raises(ValueError, match="PROPVARIANT"):
            write_propvariant(PropVariant(kind, value))


@pytest.mark.spec("MQ-2.2.12-06", "MQ-2.2.15-01")
def test_strings_guids_and_blobs() -> None:
    check(V.LPWSTR, "hi", "03000000 6800 6900 0000")
    check(V.LPWSTR, "", "01000000 0000")
    check(V.CLSID, GUID, GUID)
    check(V.BLOB, b"\x01\x02\x03", "03000000 010203")
    check(V.BLOB, b"", "00000000")
    check(V.BOOL, True, "ffff")
    assert is_refused(raw_variant(31, "02000000 6800 6900"))
    assert is_refused(raw_variant(31, "00000000"))
    assert is_refused(raw_variant(31, "03000000 6800 0000 0000"))
    assert is_refused(raw_variant(65, "ffffffff 00"))


@pytest.mark.spec("MQ-2.2.13.1-01", "MQ-2.2.13.1-03", "MQ-2.2.13.1-04")
def test_reserved_bytes_are_zero_when_written_and_ignored_when_read() -> None:
    value = PropVariant(V.UI4, 0x0403_0201)
    assert write_propvariant(value) == bytes.fromhex("1300 00 00 00000000 01020304")
    assert parse(bytes.fromhex("1300 aa bb ccddeeff 01020304")) == value


@pytest.mark.spec("MQ-2.2.13.1-05")
def test_no_other_arrays_than_eight() -> None:
    permitted = {0x1003, 0x100C, 0x1011, 0x1012, 0x1013, 0x1015, 0x101F, 0x1048}
    for number in range(0x1000, 0x2000):
        assert is_refused(raw_variant(number, bytes(4))) == (number not in permitted)
        # In a call: the type once more, no elements, and a NULL pointer to them.
        stub = raw_variant(number, pack("<HxxII", number, 0, 0))
        if number in permitted:
            assert PARAMETER.unmarshal(stub)[0].value.kind == number
        else:
            with pytest.raises(BadStub):
                PARAMETER.unmarshal(stub)


@pytest.mark.spec("MQ-2.2.14-01")
def test_a_boolean_is_ffff_or_0000() -> None:
    assert write_variant_bool(True) == b"\xff\xff"
    assert write_variant_bool(False) == b"\x00\x00"
    for raw, value in ((b"\xff\xff", True), (b"\0\0", False), (b"\x01\0", True), (b"\0\x01", True)):
        assert parse_variant_bool(b"\xee" + raw, 1, 3) == (value, 3)
    check(V.BOOL, True, "ffff")
    check(V.BOOL, False, "0000")


@pytest.mark.spec("MQ-2.2.16.1-01", "MQ-2.2.16.2-01", "MQ-2.2.16.3-01", "MQ-2.2.16.4-01")
def test_arrays_of_bytes_shorts_and_longs() -> None:
    check(V.VECTOR_UI1, b"\x01\xff", "02000000 01ff")
    check(V.VECTOR_UI2, (1, 0xFFFE), "02000000 0100 feff")
    check(V.VECTOR_I4, (1, -2), "02000000 01000000 feffffff")
    check(V.VECTOR_UI4, (1, 0xFFFF_FFFE), "02000000 01000000 feffffff")
    for kind, empty in ((V.VECTOR_UI1, b""), (V.VECTOR_UI2, ()), (V.VECTOR_I4, ())):
        check(kind, empty, "00000000")
    for number in (0x1011, 0x1012, 0x1003, 0x1013):
        for count in ("03000000", "ffffffff"):
            assert is_refused(raw_variant(number, f"{count} 0102"))


@pytest.mark.spec("MQ-2.2.16.5-01", "MQ-2.2.16.6-01", "MQ-2.2.16.7-01")
def test_arrays_of_large_integers_guids_and_strings() -> None:
    check(V.VECTOR_UI8, (1, 2**64 - 2), "02000000 0100000000000000 feffffffffffffff")
    check(V.VECTOR_CLSID, (GUID, GUID[::-1]), b"\x02\0\0\0" + GUID + GUID[::-1])
    check(
        V.VECTOR_LPWSTR,
        ("a", "", "bc"),
        "03000000 02000000 6100 0000 01000000 0000 03000000 6200 6300 0000",
    )
    for number in (0x1015, 0x1048, 0x101F):
        for count in ("02000000", "ffffffff"):
            assert is_refused(raw_variant(number, f"{count} 0100"))
