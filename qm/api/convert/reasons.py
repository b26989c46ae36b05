"""Why a message is a dead letter, in words."""

from typing import Final

from qm.model.messages.message import UnusedMessageClass
from qm.wire.message_class import MessageClass

_C: Final = MessageClass
_U: Final = UnusedMessageClass
_WORDS: Final[dict[int, str]] = {
    _C.ACK_REACH_QUEUE: "it reached its queue",
    _C.ACK_RECEIVE: "it was received, but the receiver's session ended before it confirmed that",
    _C.NACK_BAD_DST_Q: "the destination queue does not exist or cannot be used",
    _C.NACK_DELETED: "it was purged before it left",
    _C.NACK_REACH_QUEUE_TIMEOUT: "its time to reach the queue ran out",
    _C.NACK_Q_EXCEED_QUOTA: "the destination queue's quota was exceeded",
    _C.NACK_ACCESS_DENIED: "its sender may not send to the destination queue",
    _C.NACK_HOP_COUNT_EXCEEDED: "it passed too many queue managers",
    _C.NACK_BAD_SIGNATURE: "its signature does not verify",
    _C.NACK_BAD_ENCRYPTION: "it could not be decrypted",
    _U.NACK_COULD_NOT_ENCRYPT: "it could not be encrypted for its destination",
    _C.NACK_NOT_TRANSACTIONAL_Q: "it is transactional and the queue is not",
    _C.NACK_NOT_TRANSACTIONAL_MSG: "the queue is transactional and the message is not",
    _C.NACK_UNSUPPORTED_CRYPTO_PROVIDER: "its cryptographic provider is not supported",
    _U.NACK_SOURCE_COMPUTER_GUID_CHANGED: "the sending queue manager has another GUID now",
    _C.NACK_Q_DELETED: "its queue was deleted",
    _C.NACK_Q_PURGED: "its queue was purged",
    _C.NACK_RECEIVE_TIMEOUT: "it was not received in time",
    _U.NACK_RECEIVE_TIMEOUT_AT_SENDER: "its time to be received ran out before it left",
    _C.NACK_RECEIVE_REJECTED: "a receiver rejected it",
}


def reason_in_words(message_class: int) -> str:
    """Return the reason that a MessageClass gives for a dead letter; "" for 0."""
    if not message_class:
        return ""
    return _WORDS.get(message_class, f"class {message_class:#06x}")
