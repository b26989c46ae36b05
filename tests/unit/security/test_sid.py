"""SIDs: text and bytes, and what cannot be one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.security.sid import EVERYONE, is_guest, parse_sid, sid_from_text, sid_text
from qm.wire.errors import ProtocolError, ValueOutOfRange

sids = st.builds(
    lambda authority, numbers: (
        bytes((1, len(numbers)))
        + authority.to_bytes(6, "big")
        + b"".join(number.to_bytes(4, "little") for number in numbers)
    ),
    st.integers(0, (1 << 48) - 1),
    st.lists(st.integers(0, (1 << 32) - 1), max_size=15),
)


def test_known_forms() -> None:
    assert EVERYONE == bytes.fromhex("010100000000000100000000")
    text = "S-1-5-21-1004336348-1177238915-682003330-512"
    assert sid_text(sid_from_text(text)) == text
    assert sid_from_text("s-1-0x5-18") == sid_from_text("S-1-5-18")


@given(sids)
def test_text_and_bytes_agree(sid: bytes) -> None:
    assert sid_from_text(sid_text(sid)) == sid
    assert parse_sid(b"zz" + sid + b"tail", 2, 2 + len(sid) + 4, "SID") == (sid, 2 + len(sid))


@pytest.mark.parametrize(
    "text", ["", "S-1", "S-2-5-18", "S-1-5-", "S-1-5-4294967296", "S-1-x", "S-1" + "-1" * 17, "٣"]
)
def test_what_is_no_sid(text: str) -> None:
    with pytest.raises(ValueOutOfRange):
        sid_from_text(text)


@given(st.binary(max_size=80))
def test_any_bytes_end_in_a_sid_or_a_protocol_error(data: bytes) -> None:
    try:
        sid, after = parse_sid(data, 0, len(data), "SID")
    except ProtocolError as error:
        assert error.field == "SID"
    else:
        assert data[:after] == sid


def test_guest() -> None:
    assert is_guest(sid_from_text("S-1-5-21-1-2-3-501"))
    assert not is_guest(sid_from_text("S-1-5-21-1-2-3-500"))
    assert not is_guest(sid_from_text("S-1-5-32-501"))
