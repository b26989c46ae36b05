"""Round trips of every structure and packet, in canonical form and as accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.wire.headers.base_header import parse_base_header, write_base_header
from qm.wire.headers.debug_header import parse_debug_header, write_debug_header
from qm.wire.headers.message_properties import (
    parse_message_properties_header,
    write_message_properties_header,
)
from qm.wire.headers.multi_queue_format import (
    parse_multi_queue_format_header,
    write_multi_queue_format_header,
)
from qm.wire.headers.security_header import (
    parse_provider_info,
    parse_security_header,
    write_provider_info,
    write_security_header,
)
from qm.wire.headers.session_header import parse_session_header, write_session_header
from qm.wire.headers.soap_header import parse_soap_header, write_soap_header
from qm.wire.headers.transaction_header import parse_transaction_header, write_transaction_header
from qm.wire.headers.user_header import parse_user_header, write_user_header
from qm.wire.packets.packet import Packet, write_packet
from qm.wire.packets.ping import parse_ping, write_ping
from tests.unit.wire import strategies
from tests.unit.wire.streams import check_io

Parse = Callable[[bytes, int, int], tuple[Any, int]]
Write = Callable[[Any], bytes]

STRUCTURES: dict[str, tuple[st.SearchStrategy[Any], Write, Parse]] = {
    "BaseHeader": (strategies.base_headers, write_base_header, parse_base_header),
    "UserHeader": (strategies.user_headers, write_user_header, parse_user_header),
    "TransactionHeader": (
        strategies.transaction_headers,
        write_transaction_header,
        parse_transaction_header,
    ),
    "SecurityHeader": (strategies.security_headers, write_security_header, parse_security_header),
    "MessagePropertiesHeader": (
        strategies.message_properties,
        write_message_properties_header,
        parse_message_properties_header,
    ),
    "DebugHeader": (strategies.debug_headers, write_debug_header, parse_debug_header),
    "SoapHeader": (strategies.soap_headers, write_soap_header, parse_soap_header),
    "MultiQueueFormatHeader": (
        strategies.multi_queue_format_headers,
        write_multi_queue_format_header,
        parse_multi_queue_format_header,
    ),
    "SessionHeader": (strategies.session_headers, write_session_header, parse_session_header),
    "Ping": (strategies.pings, write_ping, parse_ping),
}


@pytest.mark.parametrize("name", STRUCTURES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_structure_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    values, write, parse = STRUCTURES[name]
    value = data.draw(values)
    raw = write(value)
    assert len(raw) % 4 == 0
    assert parse(raw, 0, len(raw)) == (value, len(raw))
    # Anywhere in a buffer, with anything around it.
    buffer = b"\xff" * 5 + raw + b"\xff" * 9
    assert parse(buffer, 5, len(buffer)) == (value, 5 + len(raw))
    assert write(parse(raw, 0, len(raw))[0]) == raw


@settings(max_examples=60)
@given(info=strategies.provider_infos)
def test_provider_info_is_read_as_it_was_written(info: Any) -> None:
    raw = write_provider_info(info)
    assert parse_provider_info(raw, 0, len(raw)) == (info, len(raw))


@settings(max_examples=200)
@given(packet=strategies.packets)
def test_a_packet_is_read_as_it_was_written(packet: Packet) -> None:
    check_io(packet, write_packet(packet))
