from hypothesis import given
from hypothesis import strategies as st

from qm.wire.message_class import (
    MessageClass,
    MessageClassRole,
    is_custom_message_class,
    is_negative,
    message_class_role,
    message_class_text,
)

u16 = st.integers(0, 0xFFFF)


@given(u16)
def test_every_class_has_exactly_one_reading(value: int) -> None:
    role = message_class_role(value)
    defined = value in list(MessageClass)
    custom = is_custom_message_class(value)
    assert defined + custom + (role is MessageClassRole.UNDEFINED) == 1
    assert message_class_text(value).startswith("MQMSG_CLASS_" if defined else "0x")


def test_a_bit_says_what_happened() -> None:
    for member in MessageClass:
        assert is_negative(member) == member.name.startswith("NACK_")
