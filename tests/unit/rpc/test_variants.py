"""Any PROPVARIANT as a parameter of a call, and any bytes as one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.rpc.limits import POINTER_DEPTH_MAX
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Parameters
from qm.rpc.variants import PROPVARIANT, Variant
from qm.wire.enums import VarType

V = VarType


class Held(msgspec.Struct):
    value: Variant


PARAMETER = Parameters(Held, {"value": PROPVARIANT})


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    if signed:
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(0, (1 << bits) - 1)


def lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=5)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
guids = st.binary(min_size=16, max_size=16)
VALUES: dict[VarType, st.SearchStrategy[Any]] = {
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
    V.VECTOR_UI2: lists(integers(16, signed=False)),
    V.VECTOR_I4: lists(integers(32, signed=True)),
    V.VECTOR_UI4: lists(integers(32, signed=False)),
    V.VECTOR_UI8: lists(integers(64, signed=False)),
    V.VECTOR_CLSID: lists(guids),
    V.VECTOR_LPWSTR: lists(texts),
}
flat = st.one_of(*[st.builds(Variant, st.just(kind), values) for kind, values in VALUES.items()])
variants = st.recursive(
    flat, lambda inner: st.builds(Variant, st.just(V.VECTOR_VARIANT), lists(inner)), max_leaves=8
).filter(lambda variant: levels(variant) < POINTER_DEPTH_MAX)


def levels(variant: Variant) -> int:
    """How deep variants are nested; 1 for one alone."""
    inner = variant.value if variant.kind is V.VECTOR_VARIANT else []
    return 1 + max(map(levels, inner), default=0)


@given(variants)
def test_a_variant_reads_back(variant: Variant) -> None:
    stub = PARAMETER.marshal(Held(variant))
    found, end = PARAMETER.unmarshal(stub)
    assert (found.value, end) == (variant, len(stub))


@given(st.sampled_from([*V, 0x1002, 0x2000]), st.binary(max_size=60))
def test_any_bytes_end_in_a_variant_or_a_refusal(number: int, rest: bytes) -> None:
    head = number.to_bytes(2, "little")
    try:
        found, _ = PARAMETER.unmarshal(head + bytes(6) + head + rest)
    except BadStub:
        return
    again, _ = PARAMETER.unmarshal(PARAMETER.marshal(Held(found.value)))
    assert again == found


@pytest.mark.parametrize(
    "kind", [kind for kind in V if kind > V.VECTOR] + [V.BLOB], ids=lambda kind: kind.name
)
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_built(kind: VarType) -> None:
    head = kind.to_bytes(2, "little")
    for count in (0xFFFF_FFFF, 0x8000_0000, 1_000):
        raw = count.to_bytes(4, "little")
        with pytest.raises(BadStub):
            PARAMETER.unmarshal(head + bytes(6) + head + bytes(2) + raw + b"\1\0\0\0" + raw)


def test_variants_in_variants_are_read_to_a_depth() -> None:
    one = b"\x0c\x10" + bytes(6) + b"\x0c\x10" + bytes(2) + b"\1\0\0\0" * 3
    inner = b"\1\0" + bytes(6) + b"\1\0"
    for depth in (1, POINTER_DEPTH_MAX):
        raw = one * depth + inner
        found, end = PARAMETER.unmarshal(raw)
        assert end == len(raw)
        assert levels(found.value) == depth + 1
    for depth in (POINTER_DEPTH_MAX + 1, 100_000):
        with pytest.raises(BadStub, match="nested"):
            PARAMETER.unmarshal(one * depth + inner)
