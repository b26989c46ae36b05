"""VARIANTs and stubs that no honest client writes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Final

from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import ARRAY, BYREF, VarType
from qm.rpc.limits import STUB_MAX_BYTES

_HUGE = 0xFFFF_FFFF
_GIGABYTE = 1 << 30
_POINTER = pack("<I", 0x0002_0000)
_SELF = BYREF | VarType.VARIANT
_LEVEL_BYTES = 32
_DEPTHS = (14, 15, 17, 100, 10_000, STUB_MAX_BYTES // _LEVEL_BYTES - 8)
_ELEMENTS = 60_000
_SOUND: Final = (
    Variant(),
    Variant(VarType.I4, -1),
    Variant(VarType.BSTR, "text"),
    Variant(VarType.BOOL, 0xFFFF),
    Variant(VarType.R8, float("nan")),
    Variant(VarType.R8, float("inf")),
    Variant(VarType.DATE, 1e300),
    Variant(VarType.CY, -(1 << 63)),
    Variant(VarType.UI8, (1 << 64) - 1),
    Variant(VarType.ERROR, 0x8002_0004),
    Variant(VarType.DISPATCH, None),
    Variant(VarType.DISPATCH, b"MEOW" + bytes(60)),
    Variant(VarType.UNKNOWN, b""),
    Variant(VarType.BSTR, "\0" * 1_000),
    Variant(_SELF, Variant(_SELF, Variant(VarType.BSTR, "behind two"))),
    array_of(VarType.UI1, bytes(1_000)),
    array_of(VarType.BSTR, ["a", None, "c"]),
    array_of(VarType.VARIANT, [Variant(VarType.I4, 1), Variant()]),
    array_of(VarType.I4, [0] * 1_000),
)


def sound(number: int) -> Variant:
    """Return a variant that is well-formed."""
    return _SOUND[number % len(_SOUND)]


def strange(chance: Random) -> Variant:
    """Return one that is well-formed, and hardly what a member wants."""
    return chance.choice(_SOUND)


def mutated(chance: Random, raw: bytes) -> bytes:
    """Return bytes with some of them changed, repeated or cut off."""
    changed = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) - 4)
        match chance.randrange(4):
            case 0:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                changed[at : at + 4] = pack("<I", chance.choice((0, 1, _GIGABYTE, _HUGE)))
            case 2:
                del changed[-chance.randrange(1, len(changed) // 2) :]
            case _:
                changed += changed[at:]
    return bytes(changed[: STUB_MAX_BYTES // 2])


def pointed(variant: bytes) -> bytes:
    """Return a variant behind its pointer, as a parameter that stands 32 bytes into a stub."""
    return _POINTER + bytes(4) + variant


def _head(vt: int, quads: int = _HUGE) -> bytes:
    tag = vt & (ARRAY | BYREF) if vt & ARRAY else vt
    return pack("<IIHHHHI", quads, 0, vt, 0, 0, 0, tag)


def _array(vartype: int, tag: int, size: int, bounds: list[int], claims: int, rest: bytes) -> bytes:
    """Return an array that claims so many elements, and what stands in their place."""
    head = pack("<HHIII", len(bounds) & 0xFFFF, 0x80, size, vartype << 16, tag)
    limits = b"".join(pack("<Ii", count, 0) for count in bounds)
    raw = _POINTER + _POINTER + pack("<I", len(bounds)) + head + pack("<I", claims) + _POINTER
    return _head(ARRAY | vartype) + raw + limits + pack("<I", claims) + rest


def nested(chance: Random) -> bytes:
    """A variant in a variant in a variant."""
    level = _head(_SELF) + _POINTER + _POINTER + bytes(4)
    return level * chance.choice(_DEPTHS) + _head(VarType.EMPTY)


def gigabyte_of_bytes(chance: Random) -> bytes:
    """An array of bytes that are not there."""
    size = chance.choice((_GIGABYTE, _HUGE))
    return _array(VarType.UI1, VarType.I1, 1, [size], size, bytes(chance.choice((0, 1_000))))


def gigabyte_of_numbers(chance: Random) -> bytes:
    """An array of numbers that are not there."""
    size = chance.choice((65_536, 65_537, _GIGABYTE))
    return _array(VarType.I8, VarType.I8, 8, [size], size, bytes(64))


def many_numbers(chance: Random) -> bytes:
    """As many numbers as an array may have."""
    count = chance.choice((65_535, 65_536))
    return _array(VarType.I4, VarType.I4, 4, [count], count, bytes(4 * count))


def many_texts(chance: Random) -> bytes:
    """As many empty texts as an array may have, or none behind their pointers."""
    count = chance.choice((4_000, 65_536))
    pointers = pack("<I", chance.choice((0, 0x0002_0000))) * count
    return _array(VarType.BSTR, VarType.BSTR, 4, [count], count, pointers + bytes(12) * count)


def gigabyte_of_text(chance: Random) -> bytes:
    """A text that is not there."""
    units = chance.choice((1 << 21, _GIGABYTE, 0x7FFF_FFFF, _HUGE))
    return _head(VarType.BSTR) + _POINTER + pack("<III", units, _HUGE, units) + bytes(64)


def bounds_that_overflow(chance: Random) -> bytes:
    """Dimensions whose product is nothing, or beyond all numbers."""
    bounds = [chance.choice((0, 1 << 16, _HUGE)) for _ in range(chance.choice((2, 8, 9, 4_000)))]
    return _array(VarType.UI1, VarType.I1, 1, bounds, 0x100, bytes(256))


def many_variants(chance: Random) -> bytes:
    """As many variants as an array may have: some of them nothing, or all."""
    count = chance.choice((_ELEMENTS, 65_536))
    pointers = pack("<I", chance.choice((0, 0x0002_0000))) * count
    behind = (_head(VarType.EMPTY, 3) + bytes(4)) * count
    return _array(VarType.VARIANT, VarType.VARIANT, 16, [count], count, pointers + behind)


def arrays_of_arrays(chance: Random) -> bytes:
    """Arrays of variants, each of which is an array of variants."""
    inner = _head(VarType.EMPTY)
    for _ in range(chance.choice((4, 8, 16, 100))):
        inner = _array(VarType.VARIANT, VarType.VARIANT, 16, [1], 1, _POINTER + bytes(4) + inner)
    return inner


def other_types(chance: Random) -> bytes:
    """Types that there are not, or whose two halves disagree."""
    vt = chance.choice((15, 24, 36, 0x1011, BYREF, ARRAY, ARRAY | 99, 0xFFFF))
    return _head(vt) + chance.randbytes(chance.choice((0, 8, 200)))


HOSTILE: Final[tuple[Callable[[Random], bytes], ...]] = (
    nested,
    gigabyte_of_bytes,
    gigabyte_of_numbers,
    many_numbers,
    many_texts,
    gigabyte_of_text,
    bounds_that_overflow,
    many_variants,
    arrays_of_arrays,
    other_types,
)
"""Each returns a variant that cannot be a body."""
