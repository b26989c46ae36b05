"""Where the properties of a raw packet are, compared with the full parse."""

from hypothesis import given

from qm.wire.headers.message_properties import parse_message_properties_header
from qm.wire.packets.peek import peek_head, properties_offset
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.unit.wire.strategies import user_messages


@given(user_messages)
def test_properties_are_found_without_a_value(message: UserMessage) -> None:
    packet = b"before" + write_user_message(message)
    at = properties_offset(packet, 6, peek_head(packet, 6))
    parsed, _ = parse_user_message(packet, 6, len(packet))
    found, _ = parse_message_properties_header(packet, at, len(packet))
    assert found == parsed.properties
