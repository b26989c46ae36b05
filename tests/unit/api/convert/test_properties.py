"""Attributes of stored messages for readers."""

import pytest

from qm.api.convert.properties import properties_of
from qm.model.values.rows import PositionFlag
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.patch import patch_signature_version
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.unit.model.world import packet


def test_texts_that_protobuf_cannot_carry_are_shown_all_the_same() -> None:
    """A label is any 16-bit units; half a surrogate pair must not make it unreadable."""
    raw = packet(1, properties={"label": "a\ud800z"})
    assert properties_of(raw, 1, 2, 0, with_body=True).label == "a\ufffdz"
    whole = packet(1, properties={"label": "\U0001f600"})
    assert properties_of(whole, 1, 2, 0, with_body=True).label == "\U0001f600"


@pytest.mark.parametrize(("flags", "level"), [(PositionFlag.AUTHENTICATED, 3), (0, 0)])
def test_a_verified_signature_is_shown_only_if_apply_said_so(flags: int, level: int) -> None:
    """AS of a packet that was not verified here is what its sender wrote."""
    made, _ = parse_user_message(packet(1), 0, len(packet(1)))
    security = SecurityHeader(signature=b"signed", sender_cert=b"certificate")
    raw = bytearray(
        write_user_message(UserMessage(made.user_header, made.properties, security=security))
    )
    patch_signature_version(raw, 3)
    shown = properties_of(bytes(raw), 1, 2, int(flags), with_body=True)
    assert (shown.authentication_level, shown.sender_certificate) == (level, b"certificate")
    assert parse_user_message(raw, 0, len(raw))[0].security == security
