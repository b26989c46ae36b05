"""One check for every structure: written, read whole, read inside other bytes, read cut short."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from qm.wire.errors import ProtocolError

Value = TypeVar("Value")
Parse = Callable[[bytes | bytearray | memoryview, int, int], tuple[Value, int]]
Write = Callable[[Value], bytes]


def check_codec(parse: Parse[Value], write: Write[Value], value: Value, raw: bytes) -> None:
    """Check a structure whose own bytes say where it ends."""
    check_whole(parse, write, value, raw)
    assert parse(raw + b"\xff" * 7, 0, len(raw) + 7) == (value, len(raw))
    for size in range(len(raw)):
        check_refused(parse, raw[:size])


def check_whole(parse: Parse[Value], write: Write[Value], value: Value, raw: bytes) -> None:
    """Check a structure that fills its buffer to the end."""
    assert write(value) == raw
    surrounded = b"\xee" * 5 + raw + b"\xee" * 3
    for buffer in (surrounded, bytearray(surrounded), memoryview(surrounded)):
        assert parse(buffer, 5, 5 + len(raw)) == (value, 5 + len(raw))


def check_refused(parse: Parse[Value], raw: bytes) -> ProtocolError:
    """Check that the bytes have no reading, and that the error says where and why."""
    with pytest.raises(ProtocolError) as caught:
        parse(b"\xee" * 3 + raw, 3, 3 + len(raw))
    error = caught.value
    assert 3 <= error.offset <= 3 + len(raw)
    assert error.section.startswith(("MS-MQMQ ", "MS-MQQB "))
    assert error.field
    assert error.reason
    return error


def value_or_error(parse: Parse[Value], raw: bytes) -> Value | ProtocolError:
    """Read any bytes at all; every other exception is a bug."""
    try:
        return parse(raw, 0, len(raw))[0]
    except ProtocolError as error:
        return error
