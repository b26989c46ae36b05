import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    message_class_text,
    transaction_mismatch_class,
)

u16 = st.integers(0, 0xFFFF)


@given(u16)
def test_every_class_has_exactly_one_reading(value: int) -> None:
    role = message_class_role(value)
    defined = value in list(MessageClass)
    custom = is_custom_message_class(value)
    assert defined + custom + (role is MessageClassRole.UNDEFINED) == 1
    assert (acknowledge_flag(value) is not None) == (role is MessageClassRole.ADMINISTRATION)
    assert message_class_text(value).startswith("MQMSG_CLASS_" if defined else "0x")


def test_bits_say_what_happened_and_where() -> None:
    for member in MessageClass:
        assert is_negative(member) == member.name.startswith("NACK_")
    assert [member.name for member in MessageClass if is_receive_event(member)] == [
        "ACK_RECEIVE",
        "NACK_Q_DELETED",
        "NACK_Q_PURGED",
        "NACK_RECEIVE_TIMEOUT",
        "NACK_RECEIVE_REJECTED",
    ]


@pytest.mark.parametrize(
    ("member", "flag"),
    [
        (MessageClass.ACK_REACH_QUEUE, AcknowledgeFlags.PA),
        (MessageClass.ACK_RECEIVE, AcknowledgeFlags.PR),
        (MessageClass.NACK_ACCESS_DENIED, AcknowledgeFlags.NA),
        (MessageClass.NACK_Q_PURGED, AcknowledgeFlags.NR),
        (MessageClass.NORMAL, None),
        (MessageClass.REPORT, None),
        (MessageClass.ORDER_ACK, None),
        (0x0100, None),
    ],
)
def test_each_acknowledgment_has_its_request_flag(
    member: int, flag: AcknowledgeFlags | None
) -> None:
    assert acknowledge_flag(member) is flag


def test_expiry_is_reported_by_where_the_message_was() -> None:
    assert expiry_class(reached_queue=False) is MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert expiry_class(reached_queue=True) is MessageClass.NACK_RECEIVE_TIMEOUT


@pytest.mark.parametrize("message", [False, True])
@pytest.mark.parametrize("queue", [False, True])
def test_transactional_kinds_must_agree(message: bool, queue: bool) -> None:
    expected = {
        (True, False): MessageClass.NACK_NOT_TRANSACTIONAL_Q,
        (False, True): MessageClass.NACK_NOT_TRANSACTIONAL_MSG,
    }.get((message, queue))
    assert (
        transaction_mismatch_class(message_transactional=message, queue_transactional=queue)
        is expected
    )
