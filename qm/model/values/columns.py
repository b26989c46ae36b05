"""Columns of unsigned integers, whose element type Python 3.11 cannot express at run time."""

from array import array
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

if TYPE_CHECKING:
    IntArray: TypeAlias = array[int]
else:
    IntArray: TypeAlias = array

U32: Final = "I"
"""Type code of `array`."""
U64: Final = "Q"
U32Column: TypeAlias = Annotated[IntArray, U32]
U64Column: TypeAlias = Annotated[IntArray, U64]


def typecode_of(field_type: Any) -> str | None:
    """Return the type code of a field declared as a column, None for any other field."""
    for typecode, column in ((U32, U32Column), (U64, U64Column)):
        if field_type == column:
            return typecode
    return None
