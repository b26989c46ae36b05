"""Packets that a load generator sends as its own queue manager [MS-MQMQ 2.2.20]."""

from qm.load.workload import Planned, Target
from qm.wire.guid import Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.patch import patch_message_id
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName

_DIRECT = "DIRECT="
_TRANSACTION_IDS = 1 << 20
_NO_SEQUENCE = TxSequenceId(time_stamp=0, ordinal=0)


def message_packet(
    source: Guid, target: Target, planned: Planned, *, wants_final_ack: bool = False
) -> bytes:
    """Return the packet of a planned message, without numbers (`qm.session.outgoing`)."""
    transaction = None
    if planned.transaction:
        transaction = TransactionHeader(
            _NO_SEQUENCE,
            1,
            0,
            planned.transaction % _TRANSACTION_IDS,
            wants_final_ack,
            planned.is_first,
            planned.is_last,
        )
    header = UserHeader(
        source,
        DirectQueueFormatName(direct_text(target.format_name)),
        is_recoverable=planned.delivery.value != "express",
    )
    return write_packet(
        UserMessage(
            header,
            MessagePropertiesHeader(planned.body, planned.name),
            transaction,
            priority=planned.priority,
        )
    )


def numbered_copies(packet: bytes, first_id: int, count: int) -> list[bytes]:
    """Return copies of a packet whose MessageIDs follow each other from `first_id` (u32)."""
    copy = bytearray(packet)
    copies = []
    for message_id in range(first_id, first_id + count):
        patch_message_id(copy, 0, message_id)
        copies.append(bytes(copy))
    return copies


def direct_text(format_name: str) -> str:
    """Return a direct format name as packets carry it, without its prefix."""
    if not format_name.upper().startswith(_DIRECT):
        raise ValueError(
            f"{format_name!r} is not a direct format name; write DIRECT=OS:host\\queue"
        )
    return format_name[len(_DIRECT) :]
