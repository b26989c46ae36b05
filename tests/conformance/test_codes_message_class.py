"""Message class identifiers, MS-MQMQ 2.2.18.1.6."""

import pytest

from qm.wire.message_class import (
    MessageClass,
    MessageClassRole,
    is_custom_message_class,
    is_negative,
    message_class_role,
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
    negative = {member.name: member.value for member in MessageClass if is_negative(member)}
    assert negative == arrival | receive
    for value in negative.values():
        assert message_class_role(value) is MessageClassRole.ADMINISTRATION
    for unassigned in (0x8008, 0x800C, 0xC003, 0xC005):
        assert unassigned not in {member.value for member in MessageClass}
        assert message_class_role(unassigned) is not MessageClassRole.ADMINISTRATION


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
