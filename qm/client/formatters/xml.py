"""XmlMessageFormatter: one value as an XML document whose root element says its type.

Values are those of the types of XML Schema that .NET's XmlSerializer writes for primitives. An
object of a class is an element of its name with one element for each member: it is an `Element`
here, to be written and read.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser, tostring

from typing_extensions import override

from qm.client.formatters.formatter import FormatError, Formatter

BODY_TYPE: Final = 0
"""VT_EMPTY: the formatter sets no type."""
DEPTH_MAX: Final = 64
"""Of elements in each other."""
_HEAD: Final = b'<?xml version="1.0"?>\r\n'
_NIL: Final = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_I32: Final = range(-(1 << 31), 1 << 31)
_I64: Final = range(-(1 << 63), 1 << 63)
_U64: Final = range(1 << 64)
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document can hold."""
_FRACTION: Final = re.compile(r"(\.\d{1,6})\d*")
"""Of a second: .NET writes seven digits."""


class XmlFormatter(Formatter):
    """str, bool, int, float, Decimal, datetime, bytes, UUID, None, and elements."""

    @override
    def write(self, value: Any) -> tuple[bytes, int]:
        element = value if isinstance(value, Element) else _element(value)
        for text in element.itertext():
            found = _FORBIDDEN.search(text)
            if found is not None:
                raise FormatError(f"XML cannot hold the character {found[0]!r}")
        return _HEAD + tostring(element, encoding="utf-8"), BODY_TYPE

    @override
    def read_body(self, body: bytes, body_type: int) -> Any:
        return _value(document(body))


def document(body: bytes) -> Element:
    """Return the root of a document of bounded depth and without a DOCTYPE. Raises FormatError."""
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(body)
        root: Element = parser.close()
    except FormatError:
        raise
    except (ParseError, LookupError, ValueError) as error:
        raise FormatError(f"the body is no XML document: {error}") from None
    return root


class _Builder(TreeBuilder):
    """Builds elements, and refuses what could grow or reach beyond the document."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    @override
    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FormatError(f"elements lie more than {DEPTH_MAX} deep in each other")
        return super().start(tag, attrs)

    @override
    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        raise FormatError("the document declares a type (DOCTYPE), which no formatter writes")


def _element(value: Any) -> Element:
    name, text = _written(value)
    element = Element(name)
    element.text = text
    return element


def _written(value: Any) -> tuple[str, str]:
    match value:
        case str():
            return "string", value
        case bool():
            return "boolean", "true" if value else "false"
        case int() if value in _I32:
            return "int", str(value)
        case int() if value in _I64:
            return "long", str(value)
        case int() if value in _U64:
            return "unsignedLong", str(value)
        case float():
            return "double", _float_text(value)
        case Decimal() if value.is_finite():
            return "decimal", format(value, "f")
        case datetime():
            return "dateTime", _date_text(value)
        case bytes() | bytearray() | memoryview():
            return "base64Binary", base64.b64encode(value).decode("ascii")
        case UUID():
            return "guid", str(value)
    raise FormatError(f"{type(value).__name__} has no XML type: write an Element of its members")


def _float_text(value: float) -> str:
    special = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}
    return special.get(repr(value), repr(value))


def _date_text(value: datetime) -> str:
    text = value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    return text.replace("+00:00", "Z")


def _date(text: str) -> datetime:
    return datetime.fromisoformat(_FRACTION.sub(r"\1", text).replace("Z", "+00:00"))


def _boolean(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text]


def _bytes(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _floating(text: str) -> float:
    return float(text.replace("INF", "inf"))


_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "boolean": _boolean,
        "decimal": Decimal,
        "double": _floating,
        "float": _floating,
        "dateTime": _date,
        "base64Binary": _bytes,
        "guid": UUID,
        "char": lambda text: chr(int(text)),
        **dict.fromkeys(
            (
                "byte",
                "short",
                "int",
                "long",
                "unsignedByte",
                "unsignedShort",
                "unsignedInt",
                "unsignedLong",
            ),
            int,
        ),
    }
)


def _value(element: Element) -> Any:
    """Return the value of a root element, itself if it is an object's."""
    if element.get(_NIL) in ("true", "1"):
        return None
    if len(element):
        return element
    text = element.text or ""
    if element.tag == "string":
        return text
    read = _READERS.get(element.tag)
    if read is None:
        return element
    try:
        return read(text.strip())
    except (ValueError, KeyError, OverflowError, InvalidOperation, binascii.Error):
        raise FormatError(f"{text[:40]!r} is no {element.tag}") from None
