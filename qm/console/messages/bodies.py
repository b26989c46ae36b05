"""Bodies of messages as text for people: nothing of them is ever taken for markup."""

import json
from typing import Final
from xml.etree.ElementTree import indent, tostring

import msgspec

from qm.client.formatters import ActiveXFormatter, BinaryFormatter, FormatError
from qm.client.formatters.binary import BODY_TYPE as VT_BINARY
from qm.client.formatters.xml import document

SHOWN_MAX_BYTES: Final = 64 << 10
"""Of one body; the rest can be downloaded."""
_HEX_LINE_BYTES: Final = 16
VT_BSTR: Final = 8
VT_LPSTR: Final = 30
PRETTY_MAX_CHARS: Final = 256 << 10
"""Of a document with its indents, which may be a thousand times as long as without."""
EDITED_MAX_BYTES: Final = 64 << 10
_TEXTS: Final = (0, VT_BSTR, VT_LPSTR, 31, 0x1011, 0x2011)
"""Types of bodies that may be text, of whatever formatter."""
_UTF16, _UTF8, _HEX = "utf-16-le", "utf-8", "hex"
"""How an edited body becomes bytes again."""


class ShownBody(msgspec.Struct, frozen=True):
    """A body in one form."""

    form: str
    """text, xml, json, value (of a type that a formatter wrote) or hex."""
    text: str
    is_cut: bool


def shown_body(body: bytes, body_type: int, form: str = "") -> ShownBody:
    """Return a body in a form, or in the one that fits its type and contents best."""
    part = body[:SHOWN_MAX_BYTES]
    is_cut = len(part) < len(body)
    if form in ("", "value") and (value := _value(body, body_type)) is not None:
        return ShownBody("value", value[:SHOWN_MAX_BYTES], len(value) > SHOWN_MAX_BYTES)
    if form != "hex" and (text := _text(part, body_type, is_cut=is_cut)) is not None:
        if form in ("", "json") and text.lstrip()[:1] in ("{", "[") and not is_cut:
            pretty = _json(text)
            if pretty is not None:
                return ShownBody("json", pretty, is_cut)
        is_markup = text.lstrip().startswith("<")
        if form in ("", "xml") and is_markup and not is_cut:
            text = _indented(text)
        return ShownBody("xml" if is_markup and form != "text" else "text", text, is_cut)
    return ShownBody("hex", hex_lines(part), is_cut)


def _text(part: bytes, body_type: int, *, is_cut: bool) -> str | None:
    """Return text if it is one: UTF-16 by its type or mark, else UTF-8 without control codes."""
    has_mark = part[:2] == b"\xff\xfe"
    if body_type == VT_BSTR or has_mark:
        even = part[: len(part) & ~1]
        return even.decode("utf-16-le", "replace").lstrip("\ufeff").rstrip("\0")
    try:
        text = part.decode("utf-8", "ignore" if is_cut else "strict").rstrip("\0")
    except UnicodeDecodeError:
        return None
    if body_type == VT_LPSTR:
        return text
    is_plain = all(one.isprintable() or one in "\t\r\n\ufeff" for one in text)
    return text.lstrip("\ufeff") if is_plain else None


def _value(body: bytes, body_type: int) -> str | None:
    """Return what .NET's or COM's formatters wrote, if its type says so and it is no text."""
    if body_type in _TEXTS:
        return None
    formatter = BinaryFormatter() if body_type == VT_BINARY else ActiveXFormatter()
    try:
        value = formatter.read_body(body, body_type)
    except FormatError:
        return None
    return value if isinstance(value, str) else f"{value} ({type(value).__name__})"


def _indented(text: str) -> str:
    """Return a document with each element in a line of its own; as it is if it is none, or would be
    too long.
    """
    try:
        root = document(text.encode("utf-8"))
    except FormatError:
        return text
    indent(root)
    pretty = tostring(root, encoding="unicode")
    return pretty if len(pretty) <= PRETTY_MAX_CHARS else text


def editable_text(body: bytes, body_type: int) -> tuple[str, str]:
    """Return a body as text to edit, and the form in which `edited_body` takes it back."""
    if body_type in _TEXTS and (text := _text(body, body_type, is_cut=False)) is not None:
        is_wide = body_type == VT_BSTR or body[:2] == b"\xff\xfe"
        form = _UTF16 if is_wide else _UTF8
        if text.encode(form) == body:
            return text, form
    return "\n".join(body[at : at + 32].hex(" ") for at in range(0, len(body), 32)), _HEX


def edited_body(text: str, form: str) -> bytes:
    """Return the bytes of an edited body. Raises ValueError with what is wrong."""
    if form == _HEX:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ValueError("a body in bytes is pairs of hexadecimal digits") from None
    if form not in (_UTF8, _UTF16):
        raise ValueError("there is no such form of a body")
    # A browser sends lines as forms have them.
    return text.replace("\r\n", "\n").encode(form)


def _json(text: str) -> str | None:
    """Return JSON with each value in a line of its own, None if it is none or would be too long."""
    parts: list[str] = []
    length = 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            parts.append(part)
            length += len(part)
            if length > PRETTY_MAX_CHARS:
                return None
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def hex_lines(part: bytes) -> str:
    """Return offset, bytes and characters, 16 bytes a line."""
    lines = []
    for at in range(0, len(part), _HEX_LINE_BYTES):
        line = part[at : at + _HEX_LINE_BYTES]
        chars = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{at:08x}  {line.hex(' '):<{3 * _HEX_LINE_BYTES - 1}}  {chars}")
    return "\n".join(lines)
