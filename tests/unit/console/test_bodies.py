"""Bodies as people see them."""

import pytest

from qm.console.bodies import SHOWN_MAX_BYTES, VT_BSTR, shown_body


@pytest.mark.parametrize(
    ("body", "kind", "form", "shown"),
    [
        (b"plain", 0, "text", "plain"),
        ("häß".encode("utf-16-le") + b"\0\0", VT_BSTR, "text", "häß"),
        (b"<a>x</a>", 0, "xml", "<a>x</a>"),
        (b"\xef\xbb\xbf<a/>", 0, "xml", "<a/>"),
        (b'{"b": [1]}', 0, "json", '{\n  "b": [\n    1\n  ]\n}'),
        (b"{not json", 0, "text", "{not json"),
        (b"\x00\x01AB", 0, "hex", f"00000000  {'00 01 41 42':<47}  ..AB"),
        (b"[" * 50_000, 0, "text", "[" * 50_000),
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
