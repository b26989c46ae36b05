"""Columns of unsigned integers, whose element type Python 3.11 cannot name at run time."""

from array import array
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    IntArray: TypeAlias = array[int]
else:
    IntArray: TypeAlias = array
