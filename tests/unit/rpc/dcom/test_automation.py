"""VARIANT, SAFEARRAY and IDispatch's parameters: bytes of the guide, round trips, bad input."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qm.rpc.dcom.automation.dispatch import DISPATCH_OPERATIONS, DISPID_PROPERTYPUT, arguments_of
from qm.rpc.dcom.automation.variant import (
    STRING_BLOB,
    VARIANT,
    WIRE_VARIANT,
    SafeArray,
    Variant,
    array_of,
)
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, BYTES, VarType
from qm.rpc.dcom.hresults import Hresult
from qm.rpc.dcom.limits import POINTERS_PER_REQUEST_MAX
from qm.rpc.dcom.runtime.orpc import Listed, OrpcThis
from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.ndr.types import U32, U64, Array
from tests.unit.rpc.vectors import vector

ONE = Listed((VARIANT,))


def read(raw: bytes) -> Variant:
    """A variant that stands without a pointer before it."""
    reader = Reader(raw)
    found = WIRE_VARIANT.read(reader)
    reader.flush()
    return found


def written(variant: Variant) -> bytes:
    writer = Writer()
    writer.point(WIRE_VARIANT, variant)
    writer.raw.clear()
    writer.flush()
    return bytes(writer.raw)


VECTORS: dict[str, Variant] = {
    "bool_true": Variant(VarType.BOOL, 0xFFFF),
    "bstr": Variant(VarType.BSTR, "hello"),
    "bstr_null": Variant(VarType.BSTR, None),
    "byref_i4": Variant(BYREF | VarType.I4, 9),
    "date": Variant(VarType.DATE, 5.25),
    "decimal": Variant(VarType.DECIMAL, Decimal("-123.45")),
    "error_omitted": Variant(VarType.ERROR, Hresult.DISP_E_PARAMNOTFOUND),
    "i4": Variant(VarType.I4, 7),
    "i8": Variant(VarType.I8, -2),
    "array_ui1": Variant(BYTES, SafeArray(VarType.UI1, b"\1\2\3", [(3, 0)])),
}


@pytest.mark.spec("RP-OAUT-2.2.23-01", "RP-OAUT-2.2.26-01", "RP-OAUT-2.2.29.1-01")
@pytest.mark.parametrize("name", VECTORS)
def test_a_variant_is_read_as_the_guide_has_it(name: str) -> None:
    assert read(vector(f"rpc_oaut_variant_{name}")) == VECTORS[name]


@pytest.mark.spec("RP-OAUT-2.2.23-01", "RP-OAUT-2.2.26-01", "RP-OAUT-2.2.29.1-01")
@pytest.mark.parametrize("name", sorted(VECTORS.keys() - {"array_ui1", "bstr_null"}))
def test_a_variant_is_written_as_the_guide_has_it(name: str) -> None:
    raw = written(VECTORS[name])
    # Referents are free, as long as no two are alike.
    expected = vector(f"rpc_oaut_variant_{name}")
    assert len(raw) == len(expected)
    assert [a for a, b in zip(raw, expected, strict=True) if a != b] in ([], [4])
    blob = Listed((STRING_BLOB,))
    for text, size, units in ((None, 0xFFFF_FFFF, 0), ("", 0, 0), ("a\0\U0001f600", 8, 4)):
        raw = struct.pack("<III", units, size, units) + (text or "").encode("utf-16-le")
        assert blob.marshal([text]) == raw
        assert blob.unmarshal(raw) == ([text], len(raw))


scalars = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1).map(lambda n: Variant(VarType.I4, n)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: Variant(VarType.CY, n)),
    st.integers(0, 255).map(lambda n: Variant(VarType.UI1, n)),
    st.integers(-128, 127).map(lambda n: Variant(VarType.I1, n)),
    st.floats(allow_nan=False).map(lambda n: Variant(VarType.R8, n)),
    st.text(st.characters(codec="utf-8"), max_size=30).map(
        lambda text: Variant(VarType.BSTR, text)
    ),
    st.just(Variant(VarType.NULL)),
    st.binary(max_size=60).map(lambda raw: array_of(VarType.UI1, raw)),
    st.binary(min_size=1, max_size=60).map(lambda raw: Variant(VarType.DISPATCH, raw)),
    st.decimals(-(10**9), 10**9, places=4).map(lambda n: Variant(VarType.DECIMAL, n)),
)
variants = st.one_of(
    scalars,
    st.lists(scalars, max_size=5).map(lambda found: array_of(VarType.VARIANT, found)),
    st.lists(st.text("abc", max_size=5), max_size=5).map(
        lambda found: array_of(VarType.BSTR, found)
    ),
    st.lists(st.integers(0, 65535), max_size=5).map(lambda found: array_of(VarType.UI2, found)),
    scalars.map(lambda one: Variant(BYREF | VarType.VARIANT, one)),
)


@given(variants)
def test_what_is_written_is_read_again(variant: Variant) -> None:
    raw = ONE.marshal([variant])
    (found,), end = ONE.unmarshal(raw)
    assert found == variant
    assert end == len(raw)


@pytest.mark.spec("RP-OAUT-2.2.29.1-03")
@given(variants)
@example(Variant(VarType.BSTR, "8 units."))
def test_a_variant_without_a_pointer_before_it_is_read_too(variant: Variant) -> None:
    """RP-A23."""
    (found,), _ = ONE.unmarshal(written(variant))
    assert found == variant
    # With one, and with another parameter behind it.
    two = Listed((VARIANT, U32))
    raw = two.marshal([variant, 7])
    assert raw[:4] == b"\0\0\2\0"
    bare = written(variant)
    bare += bytes(-len(bare) % 4) + raw[-4:]
    assert two.unmarshal(raw)[0] == two.unmarshal(bare)[0] == [variant, 7]


def test_arrays_of_several_dimensions_keep_their_bounds() -> None:
    array = SafeArray(VarType.I2, [1, 2, 3, 4, 5, 6], [(3, 1), (2, 0)])
    variant = Variant(ARRAY | VarType.I2, array)
    assert ONE.unmarshal(ONE.marshal([variant]))[0] == [variant]


def nested(depth: int) -> Variant:
    found = Variant(VarType.I4, 1)
    for _ in range(depth):
        found = Variant(BYREF | VarType.VARIANT, found)
    return found


def test_variants_within_variants_end_somewhere() -> None:
    assert ONE.unmarshal(ONE.marshal([nested(3)]))[0] == [nested(3)]
    with pytest.raises(BadStub):
        ONE.unmarshal(ONE.marshal([nested(60)]))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (48, 0x7FFF_FFFF),  # elements of the array
        (56, 0x7FFF_FFFF),  # bounds
        (64, 0x4000_0000),  # bytes
    ],
)
def test_an_array_of_gigabytes_is_refused_before_anything_is_made(at: int, value: int) -> None:
    raw = bytearray(written(array_of(VarType.UI1, b"abc")))
    struct.pack_into("<I", raw, at, value)
    with pytest.raises(BadStub):
        read(bytes(raw))


@pytest.mark.spec("RP-OUR-limits-04")
@pytest.mark.parametrize("text", ["", None])
def test_a_call_has_fewer_pointers_than_an_answer(text: str | None) -> None:
    takes, count = DISPATCH_OPERATIONS[6].takes, POINTERS_PER_REQUEST_MAX
    for items, is_read in (([text] * (count // 2), True), ([text] * (count + 1), False)):
        texts = array_of(VarType.BSTR, items)
        stub = takes.marshal(
            [OrpcThis(bytes(16)), 0, bytes(16), 0, 4, arguments_of([texts], [-3]), 0, [], []]
        )
        if is_read:
            (_, _, _, _, _, arguments, *_), _ = takes.unmarshal(stub)
            assert arguments.values == [texts]
        else:
            with pytest.raises(BadStub, match="pointers"):
                takes.unmarshal(stub)
        assert ONE.unmarshal(ONE.marshal([texts]))[0] == [texts]
    # Together, too, however few each array has.
    several = [array_of(VarType.BSTR, [""] * (count // 4)) for _ in range(4)]
    stub = takes.marshal(
        [OrpcThis(bytes(16)), 0, bytes(16), 0, 1, arguments_of(several), 0, [], []]
    )
    with pytest.raises(BadStub, match="pointers"):
        takes.unmarshal(stub)


@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_of_an_array_are_read_alike_together_and_alone(order: str) -> None:
    numbers = [0, 1, (1 << 64) - 1, 7]
    packed = struct.pack(f"{order}4xI4Q", 4, *numbers)
    reader = Reader(packed, order)
    reader.u32()
    assert Array(U64).read(reader) == numbers
    assert reader.left == 0
    together = Listed((U32, Array(U64)))
    assert together.unmarshal(together.marshal([9, numbers]))[0] == [9, numbers]
    assert together.unmarshal(together.marshal([9, []]))[0] == [9, []]
    with pytest.raises(BadStub):
        together.unmarshal(together.marshal([9, numbers])[:-1])


@pytest.mark.spec("RP-OAUT-2.2.29.1-02")
@pytest.mark.parametrize("vt", [0x24, 15, 0x1F, BYREF, ARRAY | VarType.DECIMAL, 0xFFFF])
def test_types_that_no_variant_has_are_refused(vt: int) -> None:
    raw = bytearray(written(Variant(VarType.I4, 1)))
    struct.pack_into("<H", raw, 8, vt)
    struct.pack_into("<I", raw, 16, vt & 0x6000 if vt & ARRAY else vt)
    with pytest.raises(BadStub):
        read(bytes(raw))


@pytest.mark.spec("RP-OAUT-2.2.29.1-02")
@pytest.mark.parametrize("vt", [0, 1, 0x0F, 0x1F, 0x24, 0x1011, 0x8011])
def test_types_that_no_array_has_are_refused(vt: int) -> None:
    raw = bytearray(written(array_of(VarType.UI1, b"abc")))
    assert read(bytes(raw)).vt == 0x2011
    struct.pack_into("<H", raw, 8, ARRAY | vt)
    with pytest.raises(BadStub):
        read(bytes(raw))


@pytest.mark.spec("RP-OAUT-2.2.26-01")
@pytest.mark.parametrize(
    ("scale", "sign", "high", "low", "value"),
    [
        (0, 0, 1, 5, "18446744073709551621"),
        (2, 0, 0, 12_345, "123.45"),
        (28, 0x80, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, "-7.9228162514264337593543950335"),
        (3, 0x80, 0x0001_0002, 0, "-1208962713102776593809.408"),
    ],
)
def test_a_decimal_has_96_bits_a_scale_and_a_sign(
    scale: int, sign: int, high: int, low: int, value: str
) -> None:
    raw = struct.pack("<IIHHHHI4x", 5, 0, 14, 0, 0, 0, 14)
    raw += struct.pack("<HBBIQ", 0, scale, sign, high, low)
    variant = Variant(VarType.DECIMAL, Decimal(value))
    assert read(raw) == variant
    assert read(raw).value.as_tuple() == variant.value.as_tuple()
    assert written(variant) == raw


@pytest.mark.spec("RP-OUR-limits-04")
def test_texts_and_arrays_in_variants_are_bounded() -> None:
    for longest, longer, why in (
        (
            Variant(VarType.BSTR, "x" * (2 << 20)),
            Variant(VarType.BSTR, "x" * ((2 << 20) + 1)),
            "BSTR",
        ),
        (
            array_of(VarType.UI2, [7] * 65_536),
            array_of(VarType.UI2, [7] * 65_537),
            "65537 elements",
        ),
    ):
        assert ONE.unmarshal(ONE.marshal([longest]))[0] == [longest]
        with pytest.raises(BadStub, match=why):
            ONE.unmarshal(ONE.marshal([longer]))


SIZE = 1 << 16
FULL: list[tuple[VarType, Any]] = [
    (VarType.UI2, [300] * 30_000),
    (VarType.R8, [1.5] * 8_000),
    (VarType.BSTR, [""] * 2_040),
    (VarType.VARIANT, [Variant(VarType.I4, 7)] * 1_600),
    (VarType.UI1, bytes(SIZE - 400)),
]


@pytest.mark.spec("RP-OUR-limits-04")
@pytest.mark.parametrize(("vt", "items"), FULL)
def test_a_request_of_64_kib_takes_a_small_multiple_of_that(vt: VarType, items: Any) -> None:
    takes = DISPATCH_OPERATIONS[6].takes
    array = array_of(vt, items)
    stub = takes.marshal(
        [OrpcThis(bytes(16)), 0, bytes(16), 0, 1, arguments_of([array]), 0, [], []]
    )
    assert SIZE // 2 < len(stub) <= SIZE
    assert most_memory(lambda: takes.unmarshal(stub)) < 32 * SIZE
    # Nor does one that says to be larger than it is.
    begin = stub.index(struct.pack("<I", len(items)))
    for count in (0x7FFF_FFFF, 0x0100_0000):
        lying = stub[:begin] + stub[begin:].replace(
            struct.pack("<I", len(items)), struct.pack("<I", count)
        )

        def refused(stub: bytes = lying) -> None:
            with pytest.raises(BadStub):
                takes.unmarshal(stub)

        assert most_memory(refused) < 32 * SIZE


def most_memory(call: Callable[[], object]) -> int:
    """How many bytes a call holds at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(raw: bytes) -> None:
    for parameters in (ONE, DISPATCH_OPERATIONS[6].takes, DISPATCH_OPERATIONS[5].takes):
        try:
            parameters.unmarshal(raw)
        except BadStub:
            continue


def test_invoke_is_read_as_another_client_writes_it() -> None:
    """A put without the name that puts have, and without the last array: impacket's."""
    takes: Any = DISPATCH_OPERATIONS[6].takes
    (_, dispid, _, lcid, flags, arguments, count, indexes, refs), _ = takes.unmarshal(
        vector("rpc_oaut_invoke_propput_request")
    )
    assert (dispid, lcid, flags, count, indexes, refs) == (2, 0x409, 4, 0, [], [])
    assert arguments.values == [Variant(VarType.BSTR, "hello label")]
    (_, dispid, *_, arguments, _, _, _), _ = takes.unmarshal(
        vector("rpc_oaut_invoke_propget_request")
    )
    assert (dispid, arguments.values) == (2, None)


def test_an_answer_is_read_as_another_server_writes_it() -> None:
    gives: Any = DISPATCH_OPERATIONS[6].gives
    found, _ = gives.unmarshal(vector("rpc_oaut_invoke_propget_response"))
    assert found[1] == Variant(VarType.BSTR, "hello label")
    assert found[-1] == 0
    assert len(gives.marshal(found)) == len(vector("rpc_oaut_invoke_propget_response"))
    names: Any = DISPATCH_OPERATIONS[5]
    (_, _, asked, count, _), _ = names.takes.unmarshal(vector("rpc_oaut_getidsofnames_request"))
    assert (asked, count) == (["Label"], 1)
    assert names.gives.unmarshal(vector("rpc_oaut_getidsofnames_response"))[0][1:] == [[2], 0]


def test_arguments_go_in_reverse_order() -> None:
    one, two = Variant(VarType.I4, 1), Variant(VarType.I4, 2)
    found = arguments_of([one, two], [DISPID_PROPERTYPUT])
    assert (found.values, found.names) == ([two, one], [DISPID_PROPERTYPUT])
