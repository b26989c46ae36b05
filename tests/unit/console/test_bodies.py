"""Bodies as people see them."""

import pytest

from qm.client.formatters import BinaryFormatter
from qm.console.messages.bodies import (
    PRETTY_MAX_CHARS,
    SHOWN_MAX_BYTES,
    VT_BSTR,
    ShownBody,
    editable_text,
    edited_body,
    shown_body,
)


@pytest.mark.parametrize(
    ("body", "kind", "form", "shown"),
    [
        (b"plain", 0, "text", "plain"),
        ("häß".encode("utf-16-le") + b"\0\0", VT_BSTR, "text", "häß"),
        (b"<a>x</a>", 0, "xml", "<a>x</a>"),
        (b"\xef\xbb\xbf<a/>", 0, "xml", "<a />"),
        (b'{"b": [1]}', 0, "json", '{\n  "b": [\n    1\n  ]\n}'),
        (b"{not json", 0, "text", "{not json"),
        (b"\x00\x01AB", 0, "hex", f"00000000  {'00 01 41 42':<47}  ..AB"),
        (b"[" * 50_000, 0, "text", "[" * 50_000),
        (b"<a><b>1</b><c/></a>", 0, "xml", "<a>\n  <b>1</b>\n  <c />\n</a>"),
        (b"<a><b></a>", 0, "xml", "<a><b></a>"),
        (
            b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
            0,
            "xml",
            '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
        ),
        (b"\x07\0\0\0", 3, "value", "7 (int)"),
        (b"\xff\xff", 11, "value", "True (bool)"),
        (BinaryFormatter().write("text of .NET")[0], 0x300, "value", "text of .NET"),
        (b"\x07", 3, "hex", f"00000000  {'07':<47}  ."),
    ],
)
def test_the_form_fits_the_contents(body: bytes, kind: int, form: str, shown: str) -> None:
    found = shown_body(body, kind)
    assert (found.form, found.text, found.is_cut) == (form, shown, False)


def test_a_form_may_be_asked_for_and_long_bodies_are_cut() -> None:
    assert shown_body(b"AB", 0, "hex").text.endswith("AB")
    assert shown_body(b"<a/>", 0, "text").form == "text"
    found = shown_body("ä".encode() * SHOWN_MAX_BYTES, 0)
    assert found.is_cut
    assert found.text == "ä" * (SHOWN_MAX_BYTES // 2)


@pytest.mark.parametrize("depth", [60, 900])
def test_indents_do_not_make_much_of_little(depth: int) -> None:
    """A message of 64 KiB would become 58 MiB, and keep the node for seconds."""
    room = SHOWN_MAX_BYTES - 2 * depth
    values = b"[" * depth + b"1," * (room // 2 - 1) + b"1" + b"]" * depth
    assert shown_body(values, 0) == ShownBody("text", values.decode(), False)
    few = b"[" * depth + b"1" + b"]" * depth
    assert (shown_body(few, 0).form == "json") == (depth == 60)
    elements = b"<a>" * depth + b"<b/>" * ((room - 5 * depth) // 4) + b"</a>" * depth
    assert len(shown_body(elements, 0).text) <= PRETTY_MAX_CHARS


@pytest.mark.parametrize(
    ("body", "kind", "form"),
    [
        ("häß\n".encode(), 0, "utf-8"),
        ("häß".encode("utf-16-le"), VT_BSTR, "utf-16-le"),
        ("\ufeffx".encode("utf-16-le"), 0, "hex"),  # a mark would be lost
        (b"\0\x01\xff" * 20, 0, "hex"),
        (b"7\0\0\0", 3, "hex"),
        (b"", 0, "utf-8"),
    ],
)
def test_an_edited_body_that_was_not_changed_is_the_same(body: bytes, kind: int, form: str) -> None:
    text, found = editable_text(body, kind)
    assert found == form
    assert edited_body(text.replace("\n", "\r\n"), form) == body


def test_what_cannot_be_a_body_is_said() -> None:
    for text, form in (("0", "hex"), ("xy", "hex"), ("x", "cp437")):
        with pytest.raises(ValueError, match=r"hexadecimal|form"):
            edited_body(text, form)
