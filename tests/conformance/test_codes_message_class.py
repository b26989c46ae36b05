"""Message class identifiers, MS-MQMQ 2.2.18.1.6."""

import pytest

from qm.wire.message_class import (
    AcknowledgeFlags,
    MessageClass,
    MessageClassRole,
    acknowledge_flag,
    expiry_class,
    is_custom_message_class,
    is_negative,
    is_receive_event,
    message_class_role,
    transaction_mismatch_class,
)


@pytest.mark.spec("MQ-2.2.18.1.6-01")
def test_positive_and_neutral_classes() -> None:
    assert MessageClass.NORMAL.value == 0x0000
    assert MessageClass.REPORT.value == 0x0001
    assert MessageClass.ACK_REACH_QUEUE.value == 0x0002
    assert MessageClass.ORDER_ACK.value == 0x00FF
    assert MessageClass.ACK_RECEIVE.value == 0x4000
    assert MessageClass.ACK_RECEIVE.spec_name == "MQMSG_CLASS_ACK_RECEIVE"
    positive = [member.name for member in MessageClass if not is_negative(member)]
    assert positive == ["NORMAL", "REPORT", "ACK_REACH_QUEUE", "ORDER_ACK", "ACK_RECEIVE"]


@pytest.mark.spec("MQ-2.2.18.1.6-02", "MQ-2.2.18.1.6-03")
def test_negative_classes() -> None:
    arrival = {
        "NACK_BAD_DST_Q": 0x8000,
        "NACK_DELETED": 0x8001,
        "NACK_REACH_QUEUE_TIMEOUT": 0x8002,
        "NACK_Q_EXCEED_QUOTA": 0x8003,
        "NACK_ACCESS_DENIED": 0x8004,
        "NACK_HOP_COUNT_EXCEEDED": 0x8005,
        "NACK_BAD_SIGNATURE": 0x8006,
        "NACK_BAD_ENCRYPTION": 0x8007,
        "NACK_NOT_TRANSACTIONAL_Q": 0x8009,
        "NACK_NOT_TRANSACTIONAL_MSG": 0x800A,
        "NACK_UNSUPPORTED_CRYPTO_PROVIDER": 0x800B,
    }
    receive = {
        "NACK_Q_DELETED": 0xC000,
        "NACK_Q_PURGED": 0xC001,
        "NACK_RECEIVE_TIMEOUT": 0xC002,
        "NACK_RECEIVE_REJECTED": 0xC004,
    }
    negative = [member for member in MessageClass if is_negative(member)]
    assert {m.name: m.value for m in negative if not is_receive_event(m)} == arrival
    assert {m.name: m.value for m in negative if is_receive_event(m)} == receive
    assert {acknowledge_flag(value) for value in arrival.values()} == {AcknowledgeFlags.NA}
    assert {acknowledge_flag(value) for value in receive.values()} == {AcknowledgeFlags.NR}
    for unassigned in (0x8008, 0x800C, 0xC003, 0xC005):
        assert unassigned not in {member.value for member in MessageClass}
        assert acknowledge_flag(unassigned) is None


@pytest.mark.spec("MQ-2.2.18.1.6-04")
def test_a_custom_class_keeps_bits_9_to_12_zero() -> None:
    defined = {member.value for member in MessageClass}
    for value in range(0x10000):
        custom = value not in defined and not any(value >> bit & 1 for bit in (9, 10, 11, 12))
        assert is_custom_message_class(value) == custom
        if custom:
            assert message_class_role(value) is MessageClassRole.APPLICATION
        elif value not in defined:
            assert message_class_role(value) is MessageClassRole.UNDEFINED


@pytest.mark.spec("MQ-2.2.18.1.6-06", "MQ-2.2.18.1.6-07")
def test_expired_messages_are_reported_by_where_they_were() -> None:
    assert expiry_class(reached_queue=False).value == 0x8002
    assert expiry_class(reached_queue=True).value == 0xC002


@pytest.mark.spec("MQ-2.2.18.1.6-08")
def test_the_transactional_kind_of_message_and_queue() -> None:
    to_plain = transaction_mismatch_class(message_transactional=True, queue_transactional=False)
    assert to_plain is not None
    assert to_plain.value == 0x8009
    to_tx = transaction_mismatch_class(message_transactional=False, queue_transactional=True)
    assert to_tx is not None
    assert to_tx.value == 0x800A
    for both in (False, True):
        assert (
            transaction_mismatch_class(message_transactional=both, queue_transactional=both) is None
        )


@pytest.mark.spec("MQ-2.2.18.1.6-09")
def test_administration_acknowledgments_answer_their_request_flags() -> None:
    for value, flag in ((0x0002, AcknowledgeFlags.PA), (0x4000, AcknowledgeFlags.PR)):
        assert message_class_role(value) is MessageClassRole.ADMINISTRATION
        assert acknowledge_flag(value) is flag
    assert (AcknowledgeFlags.PA.value, AcknowledgeFlags.PR.value) == (1, 2)
    for value, role in (
        (0x0000, MessageClassRole.APPLICATION),
        (0x0001, MessageClassRole.REPORT),
        (0x00FF, MessageClassRole.ORDER),
    ):
        assert message_class_role(value) is role
        assert acknowledge_flag(value) is None
