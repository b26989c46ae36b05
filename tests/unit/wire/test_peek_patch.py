"""The hot path's doors: they must see and write what the values hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qm.wire.errors import ValueOutOfRange
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import parse_packet, write_packet
from qm.wire.packets.patch import (
    attach_session_header,
    detach_session_header,
    in_clear,
    patch_message_id,
    patch_sent_time,
    patch_sequence,
    patch_transaction,
)
from qm.wire.packets.peek import (
    effective_priority,
    is_transactional,
    peek_destination,
    peek_head,
    peek_transaction,
    transaction_header_offset,
)
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from tests.unit.wire import raw, strategies

relaxed = settings(max_examples=80)


@pytest.mark.spec("MQ-2.2.18-01")
@relaxed
@given(message=strategies.user_messages, start=st.integers(0, 9))
def test_peeking_sees_what_parsing_sees(message: UserMessage, start: int) -> None:
    encoded = b"\xee" * start + write_packet(message) + b"\xee" * 80
    header = message.user_header
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        head = peek_head(buffer, start)
        assert head[3:10] == (
            len(encoded) - start - 80 - (16 if message.session else 0),
            message.time_to_reach_queue,
            header.source_queue_manager,
            header.queue_manager_address,
            header.time_to_be_received,
            header.sent_time,
            header.message_id,
        )
        assert peek_destination(buffer, start, head) == raw.destination_key(message)
        assert effective_priority(head) == message.priority
        assert is_transactional(head) == (message.transaction is not None)
        if message.transaction is not None:
            assert peek_transaction(buffer, start, head) == (
                message.transaction.tx_sequence_id.to_int(),
                message.transaction.tx_sequence_number,
                message.transaction.previous_tx_sequence_number,
            )


def test_keys_tell_destinations_apart() -> None:
    guid = bytes(range(16))
    number = int.from_bytes(b"ab\0\0", "little")
    names: list[tuple[QueueName | None, bytes]] = [
        (None, guid),
        (PrivateQueueFormatNameId(QueueHost.DESTINATION, number), guid),
        (PrivateQueueFormatNameId(QueueHost.DESTINATION, number), bytes(16)),
        (PrivateQueueFormatNameId(QueueHost.DESTINATION, 1), guid),
        (PublicQueueFormatName(guid), guid),
        (DirectQueueFormatName("OS:h\\q"), guid),
        (DirectQueueFormatName("os:h\\q"), guid),
        (DirectQueueFormatName(""), guid),
    ]
    keys = set()
    for name, address in names:
        header = UserHeader(raw.SOURCE, name, address)
        encoded = write_packet(UserMessage(header, MessagePropertiesHeader()))
        keys.add(peek_destination(encoded, 0, peek_head(encoded, 0)))
    assert len(keys) == len(names)
    # A public queue's name does not depend on where it is thought to be.
    public = UserHeader(raw.SOURCE, PublicQueueFormatName(guid), bytes(16))
    encoded = write_packet(UserMessage(public, MessagePropertiesHeader()))
    assert peek_destination(encoded, 0, peek_head(encoded, 0)) in keys


def test_a_key_never_reaches_beyond_its_packet() -> None:
    """A false count is for the parser to refuse; the key stays inside the packet."""
    for count in (0, 1, 0xFFFF):
        packet = bytearray(raw.message(raw.user(raw.MP | raw.DQ_DIRECT, raw.direct("OS:h\\q"))))
        packet += raw.properties()
        packet[8] = len(packet)
        packet[64:66] = count.to_bytes(2, "little")
        key = peek_destination(bytes(packet) + b"\xaa" * 70_000, 0, peek_head(packet, 0))
        assert key == b"\x07" + (bytes(packet[66:]) if count == 0xFFFF else b"")


sequences = st.tuples(
    strategies.tx_sequence_ids, st.integers(1, 0xFFFF_FFFF), st.integers(0, 0xFFFF_FFFE)
)


@pytest.mark.spec(
    "MQ-2.2.19.1-10", "MQ-2.2.19.1-15", "MQ-2.2.20.5-06", "MQ-2.2.20.5-07", "MQ-2.2.20.5-08"
)
@relaxed
@given(
    message=strategies.user_messages,
    message_id=strategies.u32,
    sent_time=strategies.u32,
    sequence=sequences,
    session=strategies.session_headers,
    marks=st.tuples(st.integers(0, 0xF_FFFF), st.booleans(), st.booleans()),
    start=st.integers(0, 5),
)
def test_patching_writes_what_writing_the_changed_value_writes(
    message: UserMessage,
    message_id: int,
    sent_time: int,
    sequence: tuple[TxSequenceId, int, int],
    session: SessionHeader,
    marks: tuple[int, bool, bool],
    start: int,
) -> None:
    buffer = bytearray(b"\xee" * start + write_packet(message) + b"\xee" * 5)
    view = memoryview(buffer)
    patch_message_id(view, start, message_id)
    patch_sent_time(view, start, sent_time)
    header = msgspec.structs.replace(
        message.user_header, message_id=message_id, sent_time=sent_time
    )
    changed = msgspec.structs.replace(message, user_header=header)
    if message.transaction is not None:
        patch_sequence(view, start, *sequence)
        number, is_first, is_last = marks
        patch_transaction(view, start, transaction_id=number, is_first=is_first, is_last=is_last)
        transaction = msgspec.structs.replace(
            message.transaction,
            tx_sequence_id=sequence[0],
            tx_sequence_number=sequence[1],
            previous_tx_sequence_number=sequence[2],
            transaction_id=number,
            is_first=is_first,
            is_last=is_last,
        )
        changed = msgspec.structs.replace(changed, transaction=transaction)
    assert buffer == b"\xee" * start + write_packet(changed) + b"\xee" * 5

    packet = bytearray(write_packet(changed))
    attach_session_header(packet, session)
    ridden = msgspec.structs.replace(changed, session=session)
    assert packet == write_packet(ridden)
    assert parse_packet(packet, 0, len(packet))[0] == ridden
    detach_session_header(packet)
    plain = write_packet(msgspec.structs.replace(changed, session=None))
    assert packet == plain
    detach_session_header(packet)
    assert packet == plain


def test_what_does_not_fit_changes_nothing() -> None:
    transaction = TransactionHeader(TxSequenceId(time_stamp=1, ordinal=1), 1, 0)
    header = UserHeader(raw.SOURCE, None, is_recoverable=True)
    value = UserMessage(header, MessagePropertiesHeader(), transaction, priority=0)
    packet = bytearray(write_packet(value))
    before = bytes(packet)
    too_wide = 0x1_0000_0000
    sequence = TxSequenceId(time_stamp=2, ordinal=2)
    with pytest.raises(ValueOutOfRange, match=r"UserHeader\.MessageID"):
        patch_message_id(packet, 0, too_wide)
    with pytest.raises(ValueOutOfRange, match=r"UserHeader\.SentTime"):
        patch_sent_time(packet, 0, -1)
    for number, previous in ((0, 0), (1, 0xFFFF_FFFF), (too_wide, 1), (1, -1)):
        with pytest.raises(ValueOutOfRange, match="TransactionHeader"):
            patch_sequence(packet, 0, sequence, number, previous)
    with pytest.raises(ValueOutOfRange, match="TransactionHeader"):
        patch_sequence(packet, 0, TxSequenceId(time_stamp=too_wide, ordinal=0), 1, 0)
    with pytest.raises(ValueOutOfRange, match=r"SessionHeader\.WindowSize"):
        attach_session_header(packet, SessionHeader(window_size=0))
    assert packet == before


def test_a_message_without_transaction_has_no_sequence() -> None:
    packet = bytearray(raw.message())
    head = peek_head(packet, 0)
    for attempt in (
        lambda: transaction_header_offset(packet, 0, head),
        lambda: peek_transaction(packet, 0, head),
        lambda: patch_sequence(packet, 0, TxSequenceId(time_stamp=1, ordinal=1), 1, 0),
    ):
        with pytest.raises(ValueOutOfRange, match=r"UserHeader\.Flags\.TH"):
            attempt()


@relaxed
@given(message=strategies.user_messages, body=st.binary(max_size=80))
def test_a_decrypted_packet_is_what_writing_its_message_writes(
    message: UserMessage, body: bytes
) -> None:
    properties = replace(message.properties, allocation_surplus_bytes=0)
    security = SecurityHeader(1, is_body_encrypted=True, security_id=b"sid")
    sealed = replace(message, properties=properties, security=security, session=None)
    clear = replace(
        sealed,
        properties=replace(properties, message_body=body),
        security=replace(security, is_body_encrypted=False),
    )
    assert in_clear(write_packet(sealed), body) == write_packet(clear)
