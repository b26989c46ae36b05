"""Bodies that .NET's formatters write and read.

The XML and binary bodies here were put together by hand from the documents: XML Schema part 2 for
the lexical forms, [MS-NRBF] 2.2 to 2.6 for the records.
"""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID
from xml.etree.ElementTree import Element, SubElement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.client.formatters import (
    ActiveXFormatter,
    BinaryFormatter,
    FormatError,
    Formatter,
    XmlFormatter,
)
from qm.client.mqac.variant import Typed

XML, BINARY, ACTIVE_X = XmlFormatter(), BinaryFormatter(), ActiveXFormatter()
HEAD = bytes.fromhex("0001000000ffffffff0100000000000000")
WHEN = datetime(2026, 11, 26, 23, 59, 58, 123456, tzinfo=UTC)
GUID = UUID("3e2a1b6c-0d5f-4c8e-9a7b-112233445566")


@pytest.mark.parametrize(
    ("value", "element"),
    [
        ("hällo & <you>", "<string>hällo &amp; &lt;you&gt;</string>"),
        (True, "<boolean>true</boolean>"),
        (-7, "<int>-7</int>"),
        (1 << 40, "<long>1099511627776</long>"),
        ((1 << 64) - 1, "<unsignedLong>18446744073709551615</unsignedLong>"),
        (1.5, "<double>1.5</double>"),
        (float("-inf"), "<double>-INF</double>"),
        (Decimal("12.50"), "<decimal>12.50</decimal>"),
        (WHEN, "<dateTime>2026-11-26T23:59:58.123456Z</dateTime>"),
        (b"\0\x01\x02", "<base64Binary>AAEC</base64Binary>"),
        (GUID, f"<guid>{GUID}</guid>"),
    ],
)
def test_xml_is_what_the_serializer_writes(value: object, element: str) -> None:
    body, body_type = XML.write(value)
    assert body == b'<?xml version="1.0"?>\r\n' + element.encode()
    assert body_type == 0
    assert XML.read_body(body, body_type) == value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"<short>-3</short>", -3),
        (b"<unsignedByte>200</unsignedByte>", 200),
        (b"<float>0.25</float>", 0.25),
        (b"<char>65</char>", "A"),
        (b"<dateTime>2026-11-26T23:59:58.1234567Z</dateTime>", WHEN),
        (b"<dateTime>2026-11-26T00:00:00</dateTime>", datetime(2026, 11, 26)),  # noqa: DTZ001
        (b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\n<string />', ""),
        ('<?xml version="1.0" encoding="utf-16"?><string>ä</string>'.encode("utf-16"), "ä"),
        (
            b'<string xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:nil="true" />',
            None,
        ),
    ],
)
def test_xml_of_other_writers_is_read(body: bytes, value: object) -> None:
    assert XML.read_body(body, 0) == value


def test_an_object_is_an_element() -> None:
    order = Element("Order")
    SubElement(order, "Id").text = "7"
    body, _ = XML.write(order)
    assert body.endswith(b"<Order><Id>7</Id></Order>")
    found = XML.read_body(body, 0)
    assert (found.tag, found.findtext("Id")) == ("Order", "7")
    with pytest.raises(FormatError, match="dict"):
        XML.write({"Id": 7})
    with pytest.raises(FormatError, match="character"):
        XML.write("\x01")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no xml",
        b"<int>seven</int>",
        b"<boolean>yes</boolean>",
        b"<base64Binary>%</base64Binary>",
        b"<string>open",
        b"<guid>x</guid>",
        b'<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><string>&b;</string>',
        b'<!DOCTYPE s SYSTEM "file:///etc/passwd"><string>x</string>',
        b"<a>" * 100_000,
        b'<?xml version="1.0" encoding="no-such"?><string/>',
    ],
)
def test_xml_that_is_broken_or_hostile_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        XML.read_body(body, 0)


@pytest.mark.parametrize(
    ("value", "record"),
    [
        ("hello", "06 01000000 05 68656c6c6f"),
        (None, "0a"),
        (
            42,
            "04 01000000 0c 53797374656d2e496e743332 01000000 07 6d5f76616c7565 00 08 2a000000",
        ),
        (
            True,
            "04 01000000 0e 53797374656d2e426f6f6c65616e 01000000 07 6d5f76616c7565 00 01 01",
        ),
        (b"\x01\x02", "0f 01000000 02000000 02 0102"),
    ],
)
def test_binary_is_as_the_format_has_it(value: object, record: str) -> None:
    body, body_type = BINARY.write(value)
    assert body == HEAD + bytes.fromhex(record) + b"\x0b"
    assert body_type == 0x300
    assert BINARY.read_body(body, body_type) == value


@settings(max_examples=60)
@given(
    st.one_of(
        st.text(max_size=300),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(allow_nan=False),
        st.binary(max_size=300),
        st.decimals(
            allow_nan=False, allow_infinity=False, places=9, min_value=-(10**15), max_value=10**15
        ),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
        st.booleans(),
    )
)
def test_binary_reads_what_it_writes(value: object) -> None:
    assert BINARY.read_body(*BINARY.write(value)) == value


def test_a_decimal_that_net_cannot_hold_is_refused() -> None:
    for text in ("1e29", "1e-29", "79228162514264337593543950336"):
        with pytest.raises(FormatError, match="digits"):
            BINARY.write(Decimal(text))
    most = Decimal("-7922816251426433759354395.0335")
    assert BINARY.read_body(*BINARY.write(most)) == most


@settings(max_examples=200)
@given(st.binary(max_size=80).map(lambda rest: HEAD + rest) | st.binary(max_size=80))
def test_binary_never_does_more_than_refuse(body: bytes) -> None:
    try:
        BINARY.read_body(body, 0x300)
    except FormatError as error:
        assert str(error)


@pytest.mark.parametrize(
    "record",
    [
        "06 01000000 ffffffff0f",  # a text of 4 GiB
        "0f 01000000 ffffff7f 02",  # an array of 2 GiB
        "0f 01000000 ffffffff 02",
        "04 01000000 01 41 ffffff7f",
        "05 01000000",  # a class of the sender's own
        "0c 02000000 01 61",  # its library
        "06 01000000 01 61 06 02000000 01 62",  # a second object
    ],
)
def test_graphs_and_lies_about_lengths_are_refused(record: str) -> None:
    with pytest.raises(FormatError):
        BINARY.read_body(HEAD + bytes.fromhex(record) + b"\x0b", 0x300)


@pytest.mark.parametrize(
    ("value", "body_type"),
    [("ä", 8), (7, 3), (True, 11), (2.5, 5), (Decimal("1.25"), 6), (b"raw", 0x2011)],
)
def test_a_value_of_com_carries_its_type(value: object, body_type: int) -> None:
    body, found = ACTIVE_X.write(value)
    assert found == body_type
    assert ACTIVE_X.read_body(body, found) == value


def test_what_net_writes_for_com_is_read() -> None:
    assert ACTIVE_X.read_body("text".encode("utf-16-le"), 31) == "text"
    assert ACTIVE_X.read_body(b"bytes", 0x1011) == b"bytes"
    assert ACTIVE_X.read_body(b"ansi", 30) == "ansi"
    assert ACTIVE_X.read_body(*ACTIVE_X.write(Typed(2, -5))) == -5
    for body, body_type in ((b"\x01", 3), (b"x", 0x300), (b"\0", 31), (b"\0", 8)):
        with pytest.raises(FormatError):
            ACTIVE_X.read_body(body, body_type)
    with pytest.raises(FormatError):
        ACTIVE_X.write([1])


@pytest.mark.parametrize("formatter", [XML, BINARY, ACTIVE_X])
def test_a_message_is_made_of_a_value(formatter: Formatter) -> None:
    message = formatter.message("order 7", label="order", priority=5)
    assert (message.label, message.priority) == ("order", 5)
    assert formatter.read_body(message.body, message.body_type) == "order 7"
