"""Bodies of messages as text for people: nothing of them is ever taken for markup."""

import json
from typing import Final

import msgspec

SHOWN_MAX_BYTES: Final = 64 << 10
"""Of one body; the rest can be downloaded."""
_HEX_LINE_BYTES: Final = 16
VT_BSTR: Final = 8
VT_LPSTR: Final = 30


class ShownBody(msgspec.Struct, frozen=True):
    """A body in one form."""

    form: str
    """text, xml, json or hex."""
    text: str
    is_cut: bool


def shown_body(body: bytes, body_type: int, form: str = "") -> ShownBody:
    """Return a body in a form, or in the one that fits its type and contents best."""
    part = body[:SHOWN_MAX_BYTES]
    is_cut = len(part) < len(body)
    if form != "hex" and (text := _text(part, body_type, is_cut=is_cut)) is not None:
        if form in ("", "json") and text.lstrip()[:1] in ("{", "[") and not is_cut:
            pretty = _json(text)
            if pretty is not None:
                return ShownBody("json", pretty, is_cut)
        is_markup = text.lstrip().startswith("<")
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


def _json(text: str) -> str | None:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def hex_lines(part: bytes) -> str:
    """Return offset, bytes and characters, 16 bytes a line."""
    lines = []
    for at in range(0, len(part), _HEX_LINE_BYTES):
        line = part[at : at + _HEX_LINE_BYTES]
        chars = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{at:08x}  {line.hex(' '):<{3 * _HEX_LINE_BYTES - 1}}  {chars}")
    return "\n".join(lines)
