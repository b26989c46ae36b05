"""Message bodies on the command line: from text to bytes, and from bytes to readable text."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import click

from qm.cli.lib.text import preview, printable

VT_EMPTY: Final = 0
VT_BSTR: Final = 8
VT_LPSTR: Final = 30
VT_BYTES: Final = 0x2011

BODY_MAX_BYTES: Final = 4 << 20
"""No packet is longer."""
FORMS: Final = ("text", "utf16", "xml", "hex")
"""text: UTF-8; utf16: as COM applications exchange; xml: as .NET applications exchange; hex:
bytes.
"""
_XML_HEAD: Final = '<?xml version="1.0"?>\r\n'


def read_body(text: str | None, file: str | None, form: str | None) -> tuple[bytes, int]:
    """Return bytes and VARTYPE of a body given as text or as a file ("-": standard input). A file's
    bytes are taken as they are unless a form is given.
    """
    if (text is None) == (file is None):
        raise click.UsageError("give the body either with --body or with --file")
    if file is not None:
        raw = _bytes_of(file)
        if form in (None, "hex"):
            return raw, VT_BYTES
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            said = f"{file} is not UTF-8 text at byte {error.start}: leave --as away for raw bytes"
            raise click.ClickException(said) from error
    assert text is not None
    return _WRITERS[form or "text"](text)


def _bytes_of(file: str) -> bytes:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(BODY_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as reader:
                raw = reader.read(BODY_MAX_BYTES + 1)
    except OSError as error:
        raise click.ClickException(f"{file}: {(error.strerror or str(error)).lower()}") from error
    if len(raw) > BODY_MAX_BYTES:
        raise click.ClickException(f"{file} is longer than a message: {BODY_MAX_BYTES} bytes")
    return raw


def append_nothing(file: str) -> None:
    """Fail if a file cannot be written; what is in it stays."""
    try:
        with Path(file).open("ab"):
            pass
    except OSError as error:
        raise click.ClickException(f"{file}: {(error.strerror or str(error)).lower()}") from error


def write_body(body: bytes, file: str) -> None:
    """Write a body as it is to a file, "-": standard output."""
    try:
        if file == "-":
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
        else:
            Path(file).write_bytes(body)
    except OSError as error:
        raise click.ClickException(f"{file}: {(error.strerror or str(error)).lower()}") from error


def shown_body(body: bytes, body_type: int, form: str) -> str:
    """Return a body in readable form, by its own type ("auto") or in the form given."""
    if form == "auto":
        form = _form_of(body, body_type)
    if form == "none":
        return ""
    try:
        return _READERS[form](body)
    except (UnicodeDecodeError, ElementTree.ParseError):
        return preview(body)


def _form_of(body: bytes, body_type: int) -> str:
    if body_type == VT_BSTR:
        return "utf16"
    if body.lstrip(b"\xef\xbb\xbf").startswith(b"<") and _is_xml(body):
        return "xml"
    try:
        text = body.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        return "hex"
    return "text" if all(char.isprintable() or char in "\r\n\t" for char in text) else "hex"


def _is_xml(body: bytes) -> bool:
    try:
        _from_xml(body)
    except ElementTree.ParseError:
        return False
    return True


def _from_hex(text: str) -> tuple[bytes, int]:
    try:
        return bytes.fromhex(text), VT_BYTES
    except ValueError as error:
        raise click.UsageError(f"--body is not hexadecimal text: {error}") from error


def _to_xml(text: str) -> tuple[bytes, int]:
    """Return a document unchanged; other text as .NET's XmlMessageFormatter writes a string."""
    is_document = text.lstrip().startswith("<")
    document = text if is_document else f"{_XML_HEAD}<string>{escape(text)}</string>"
    return document.encode("utf-8"), VT_EMPTY


def _from_xml(body: bytes) -> str:
    root = ElementTree.fromstring(body)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode")


_WRITERS: Final[dict[str, Callable[[str], tuple[bytes, int]]]] = {
    "text": lambda text: (text.encode("utf-8"), VT_BYTES),
    "utf16": lambda text: (text.encode("utf-16-le"), VT_BSTR),
    "xml": _to_xml,
    "hex": _from_hex,
}
_READERS: Final[dict[str, Callable[[bytes], str]]] = {
    "text": lambda body: printable(body.rstrip(b"\0").decode("utf-8")),
    "utf16": lambda body: printable(body.decode("utf-16-le").rstrip("\0")),
    "xml": _from_xml,
    "hex": lambda body: body.hex(" ", -4),
}
