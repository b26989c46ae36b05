"""ActiveXMessageFormatter: one value as COM programs send it, its type in the body's VARTYPE."""

from typing import Any, Final

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.formatters.formatter import FormatError, Formatter
from qm.client.mqac.variant import VT_EMPTY, from_body, to_body

VT_LPWSTR: Final = 31
VT_BYTE_VECTOR: Final = 0x1011
"""VT_VECTOR | VT_UI1, as .NET writes byte[]."""
VT_BYTE_ARRAY: Final = 0x2011


class ActiveXFormatter(Formatter):
    """str, bytes, bool, int, float, Decimal (as currency) and datetime; `qm.client.mqac.variant.
    Typed` selects another type. A text becomes VT_BSTR, which .NET, COM and scripts read alike.
    """

    @override
    def write(self, value: Any) -> tuple[bytes, int]:
        try:
            return to_body(value)
        except MqError as error:
            raise FormatError(str(error)) from None

    @override
    def read_body(self, body: bytes, body_type: int) -> Any:
        if body_type in (VT_BYTE_VECTOR, VT_BYTE_ARRAY):
            return body
        if body_type == VT_LPWSTR:
            try:
                return body.decode("utf-16-le").rstrip("\0")
            except UnicodeDecodeError as error:
                raise FormatError(f"not UTF-16: {error}") from None
        value = from_body(body, body_type)
        if isinstance(value, bytes) and body_type != VT_EMPTY:
            raise FormatError(
                f"a body of {len(body)} bytes is no value of type {body_type:#x}: it was written by"
                " another formatter, or is broken"
            )
        return value
