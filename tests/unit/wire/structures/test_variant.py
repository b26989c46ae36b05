from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.enums import VarType
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.rpc.counted import TEXT_MAX_CHARS
from qm.wire.rpc.variant import (
    VARIANT_DEPTH_MAX,
    VARIANT_ELEMENTS_MAX,
    PropVariant,
    parse_propvariant,
    parse_variant_bool,
    write_propvariant,
    write_variant_bool,
)
from tests.unit.wire.structures.codec_check import check_codec, check_refused, value_or_error

V = VarType
GUID = bytes(range(16))


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    if signed:
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(0, (1 << bits) - 1)


def tuples(elements: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(elements, max_size=5).map(tuple)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
guids = st.binary(min_size=16, max_size=16)
VALUES: dict[VarType, st.SearchStrategy[object]] = {
    V.EMPTY: st.none(),
    V.NULL: st.none(),
    V.I1: integers(8, signed=True),
    V.UI1: integers(8, signed=False),
    V.I2: integers(16, signed=True),
    V.UI2: integers(16, signed=False),
    V.I4: integers(32, signed=True),
    V.UI4: integers(32, signed=False),
    V.I8: integers(64, signed=True),
    V.UI8: integers(64, signed=False),
    V.BOOL: st.booleans(),
    V.CLSID: guids,
    V.BLOB: st.binary(max_size=20),
    V.LPWSTR: texts,
    V.VECTOR_UI1: st.binary(max_size=20),
    V.VECTOR_UI2: tuples(integers(16, signed=False)),
    V.VECTOR_I4: tuples(integers(32, signed=True)),
    V.VECTOR_UI4: tuples(integers(32, signed=False)),
    V.VECTOR_UI8: tuples(integers(64, signed=False)),
    V.VECTOR_CLSID: tuples(guids),
    V.VECTOR_LPWSTR: tuples(texts),
}
flat = st.one_of(
    *[st.builds(PropVariant, st.just(kind), values) for kind, values in VALUES.items()]
)
variants = st.recursive(
    flat,
    lambda inner: st.builds(PropVariant, st.just(V.VECTOR_VARIANT), tuples(inner)),
    max_leaves=8,
).filter(lambda variant: depth(variant) <= VARIANT_DEPTH_MAX)


def depth(variant: PropVariant) -> int:
    if variant.vartype is not V.VECTOR_VARIANT:
        return 1
    assert isinstance(variant.value, tuple)
    nested = [depth(element) for element in variant.value if isinstance(element, PropVariant)]
    return 1 + max(nested, default=0)


@given(variants)
def test_a_variant_reads_back(variant: PropVariant) -> None:
    check_codec(parse_propvariant, write_propvariant, variant, write_propvariant(variant))


@given(st.binary(max_size=40), st.sampled_from([*V, 0x1002, 0x2000]))
def test_any_bytes_end_in_a_variant_or_the_protocol_error(raw: bytes, number: int) -> None:
    head = number.to_bytes(2, "little") + bytes(6)
    variant = value_or_error(parse_propvariant, head + raw)
    if isinstance(variant, PropVariant):
        again = write_propvariant(variant)
        assert parse_propvariant(again, 0, len(again)) == (variant, len(again))
    value_or_error(parse_propvariant, raw)


@pytest.mark.parametrize(
    ("variant", "raw"),
    [
        (PropVariant(V.EMPTY), "0000 00 00 00000000"),
        (PropVariant(V.NULL), "0100 00 00 00000000"),
        (PropVariant(V.I1, -2), "1000 00 00 00000000 fe"),
        (PropVariant(V.UI1, 254), "1100 00 00 00000000 fe"),
        (PropVariant(V.I2, -2), "0200 00 00 00000000 feff"),
        (PropVariant(V.UI2, 65534), "1200 00 00 00000000 feff"),
        (PropVariant(V.I4, -2), "0300 00 00 00000000 feffffff"),
        (PropVariant(V.UI4, 2**32 - 2), "1300 00 00 00000000 feffffff"),
        (PropVariant(V.I8, -2), "1400 00 00 00000000 feffffffffffffff"),
        (PropVariant(V.UI8, 2**64 - 2), "1500 00 00 00000000 feffffffffffffff"),
        (PropVariant(V.BOOL, True), "0b00 00 00 00000000 ffff"),
        (PropVariant(V.BOOL, False), "0b00 00 00 00000000 0000"),
        (PropVariant(V.CLSID, GUID), "4800 00 00 00000000" + GUID.hex()),
        (PropVariant(V.BLOB, b"\x05\x06"), "4100 00 00 00000000 02000000 0506"),
        (PropVariant(V.LPWSTR, "hi"), "1f00 00 00 00000000 03000000 680069000000"),
        (PropVariant(V.VECTOR_UI1, b"\x05\x06"), "1110 00 00 00000000 02000000 0506"),
        (PropVariant(V.VECTOR_UI2, (5, 6)), "1210 00 00 00000000 02000000 05000600"),
        (PropVariant(V.VECTOR_I4, (-1,)), "0310 00 00 00000000 01000000 ffffffff"),
        (PropVariant(V.VECTOR_UI4, (5,)), "1310 00 00 00000000 01000000 05000000"),
        (PropVariant(V.VECTOR_UI8, (5,)), "1510 00 00 00000000 01000000 0500000000000000"),
        (PropVariant(V.VECTOR_CLSID, (GUID,)), "4810 00 00 00000000 01000000" + GUID.hex()),
        (
            PropVariant(V.VECTOR_LPWSTR, ("a", "")),
            "1f10 00 00 00000000 02000000 02000000 61000000 01000000 0000",
        ),
        (
            PropVariant(V.VECTOR_VARIANT, (PropVariant(V.UI1, 7), PropVariant(V.EMPTY))),
            "0c10 00 00 00000000 02000000 1100 00 00 00000000 07 0000 00 00 00000000",
        ),
    ],
    ids=lambda value: value.vartype.name if isinstance(value, PropVariant) else "",
)
def test_the_storage_form(variant: PropVariant, raw: str) -> None:
    check_codec(parse_propvariant, write_propvariant, variant, bytes.fromhex(raw))


def test_reserved_bytes_are_ignored_and_written_as_zero() -> None:
    raw = bytes.fromhex("1100 aa bb ccddeeff 07")
    variant, _ = parse_propvariant(raw, 0, len(raw))
    assert variant == PropVariant(V.UI1, 7)
    assert write_propvariant(variant) == bytes.fromhex("1100 00 00 00000000 07")


def test_only_the_listed_types_are_legal() -> None:
    legal = set(V) - {V.VARIANT, V.VECTOR}
    for number in range(0x10000):
        if number not in legal:
            raw = number.to_bytes(2, "little") + bytes(6)
            error = value_or_error(parse_propvariant, raw)
            assert isinstance(error, ProtocolError)
            assert error.field == "PROPVARIANT.vt"
    for number in (V.VARIANT, V.VECTOR):
        with pytest.raises(ValueOutOfRange):
            write_propvariant(PropVariant(number))


@pytest.mark.parametrize("raw", [b"\x01\x00", b"\x00\x01", b"\xff\xff", b"\xfe\x7f"])
def test_any_nonzero_boolean_is_true_and_written_as_ffff(raw: bytes) -> None:
    assert parse_variant_bool(raw, 0, 2) == (True, 2)
    assert write_variant_bool(True) == b"\xff\xff"
    check_codec(parse_variant_bool, write_variant_bool, False, b"\0\0")


def counted(kind: VarType, count: int, rest: bytes = b"") -> bytes:
    return kind.to_bytes(2, "little") + bytes(6) + count.to_bytes(4, "little") + rest


@pytest.mark.parametrize(
    "kind", [kind for kind in V if kind > V.VECTOR] + [V.BLOB, V.LPWSTR], ids=lambda kind: kind.name
)
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_built(kind: VarType) -> None:
    for count in (0xFFFF_FFFF, 0x8000_0000, 1000):
        assert check_refused(parse_propvariant, counted(kind, count, bytes(100))).offset <= 3 + 12


@pytest.mark.parametrize("kind", [V.VECTOR_UI2, V.VECTOR_UI4, V.VECTOR_CLSID, V.VECTOR_VARIANT])
def test_the_number_of_elements_is_limited(kind: VarType) -> None:
    body = bytes(16 * (VARIANT_ELEMENTS_MAX + 1))
    parse_propvariant(counted(kind, VARIANT_ELEMENTS_MAX, body), 0, 12 + len(body))
    error = check_refused(parse_propvariant, counted(kind, VARIANT_ELEMENTS_MAX + 1, body))
    assert str(VARIANT_ELEMENTS_MAX) in error.reason


def test_elements_of_nested_arrays_count_together() -> None:
    half = PropVariant(V.VECTOR_UI4, (0,) * (VARIANT_ELEMENTS_MAX // 2))
    with pytest.raises(ValueOutOfRange):
        write_propvariant(PropVariant(V.VECTOR_VARIANT, (half, half)))
    raw = counted(V.VECTOR_VARIANT, 2) + write_propvariant(half) * 2
    check_refused(parse_propvariant, raw)


def nested(levels: int) -> PropVariant:
    variant = PropVariant(V.EMPTY)
    for _ in range(levels - 1):
        variant = PropVariant(V.VECTOR_VARIANT, (variant,))
    return variant


def test_nesting_is_limited() -> None:
    deepest = nested(VARIANT_DEPTH_MAX)
    check_codec(parse_propvariant, write_propvariant, deepest, write_propvariant(deepest))
    with pytest.raises(ValueOutOfRange, match="nested"):
        write_propvariant(nested(VARIANT_DEPTH_MAX + 1))
    raw = counted(V.VECTOR_VARIANT, 1) * 100_000 + bytes(8)
    assert "nested" in check_refused(parse_propvariant, raw).reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: PropVariant(V.EMPTY, 0),
        lambda: PropVariant(V.UI1, 256),
        lambda: PropVariant(V.I4, "7"),
        lambda: PropVariant(V.UI4, None),
        lambda: PropVariant(V.BOOL, 1),
        lambda: PropVariant(V.CLSID, b"short"),
        lambda: PropVariant(V.BLOB, "text"),
        lambda: PropVariant(V.LPWSTR, b"bytes"),
        lambda: PropVariant(V.LPWSTR, "with\0nul"),
        lambda: PropVariant(V.LPWSTR, "x" * TEXT_MAX_CHARS),
        lambda: PropVariant(V.VECTOR_UI1, (1, 2)),
        lambda: PropVariant(V.VECTOR_UI2, (65536,)),
        lambda: PropVariant(V.VECTOR_UI2, b"\1\2"),
        lambda: PropVariant(V.VECTOR_CLSID, (b"short",)),
        lambda: PropVariant(V.VECTOR_LPWSTR, (1,)),
        lambda: PropVariant(V.VECTOR_VARIANT, (1,)),
    ],
)
def test_a_value_of_another_type_is_refused(make: Callable[[], PropVariant]) -> None:
    with pytest.raises(ValueOutOfRange):
        write_propvariant(make())
