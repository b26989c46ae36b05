"""Final changes to a stored packet before it leaves [MS-MQQB 3.1.7.1.1, 3.1.7.1.3].

Everything written here was committed before (QB-A1): these functions assign no numbers. They copy
the packet once and build no value. SessionHeaders are attached by the session as it writes
(QB-A50).
"""

import msgspec

from qm.wire.packets.patch import (
    patch_message_id,
    patch_sent_time,
    patch_sequence,
    patch_transaction,
)
from qm.wire.structures.identifiers import TxSequenceId


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """What TransactionHeader says about a message's place in its sequence."""

    tx_sequence_id: TxSequenceId
    """The sequence."""
    tx_sequence_number: int
    """Committed; the same for each sending."""
    previous_tx_sequence_number: int
    """From `OutgoingTable.previous_numbers`, computed anew for each sending."""
    transaction_id: int = 0
    """Flags.ID: 20 bits, shared by the messages of one transaction."""
    is_first: bool = False
    """Flags.FM: the first message that its transaction sent."""
    is_last: bool = False
    """Flags.LM: the last one."""


def own_packet(
    packet: bytes, message_id: int, sent_time_s: int, numbers: Numbers | None = None
) -> bytes:
    """Return a message that originates here, ready to be offered.

    `sent_time_s`: cluster time at which the send was committed, seconds since 1970 UTC, the same
    for each sending ([MS-MQMQ] 2.2.19.2). `numbers` go into the TransactionHeader of a
    transactional message; without that header they are a `ValueOutOfRange`.
    """
    ready = bytearray(packet)
    patch_message_id(ready, 0, message_id)
    patch_sent_time(ready, 0, sent_time_s)
    if numbers is not None:
        patch_sequence(
            ready,
            0,
            numbers.tx_sequence_id,
            numbers.tx_sequence_number,
            numbers.previous_tx_sequence_number,
        )
        patch_transaction(
            ready,
            0,
            transaction_id=numbers.transaction_id,
            is_first=numbers.is_first,
            is_last=numbers.is_last,
        )
    return bytes(ready)
