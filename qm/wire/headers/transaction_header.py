"""TransactionHeader: a message's place in a transactional sequence [MS-MQMQ 2.2.20.5]."""

from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.limits import PREVIOUS_TX_SEQUENCE_NUMBER_MAX, TRANSACTION_ID_MAX
from qm.wire.packing import guid_bytes, pack_fields
from qm.wire.structures.identifiers import TxSequenceId

SECTION: Final = "MS-MQMQ 2.2.20.5"

FLAG_CG: Final = 0x0000_0001
FLAG_FA: Final = 0x0000_0002
FLAG_FM: Final = 0x0000_0004
FLAG_LM: Final = 0x0000_0008
ID_SHIFT: Final = 4

# Offsets of TxSequenceID, TxSequenceNumber and PreviousTxSequenceNumber, for peek and patch.
SEQUENCE_OFFSET: Final = 4
SEQUENCE: Final = Struct("<QII")

_LAYOUT: Final = Struct("<IIIII")
TRANSACTION_HEADER_MIN_BYTES: Final = _LAYOUT.size


class TransactionHeader(msgspec.Struct, frozen=True, gc=False):
    """Its presence makes a message transactional; flag bits 24-31 are ignored (MQ-A7)."""

    tx_sequence_id: TxSequenceId
    """The sequence."""
    tx_sequence_number: int
    """The message's position in the sequence, 1..0xFFFFFFFF."""
    previous_tx_sequence_number: int
    """The position of the message before it, 0 when there is none, at most 0xFFFFFFFE."""
    transaction_id: int = 0
    """Flags.ID: 20 bits by which the sender groups the messages of one transaction."""
    is_final_ack_wanted: bool = False
    """Flags.FA: the sender waits for a FinalAck."""
    is_first: bool = False
    """Flags.FM: the first message of its transaction."""
    is_last: bool = False
    """Flags.LM: the last message of its transaction."""
    connector_qm_guid: Guid | None = None
    """Flags.CG: a GUID of the application, not interpreted here."""


def parse_transaction_header(
    buffer: Buffer, offset: int, end: int
) -> tuple[TransactionHeader, int]:
    """Read and check the 20 or 36 bytes."""
    after = offset + TRANSACTION_HEADER_MIN_BYTES
    if after > end:
        raise truncated(offset, TRANSACTION_HEADER_MIN_BYTES, end, "TransactionHeader", SECTION)
    flags, ordinal, time_stamp, number, previous = _LAYOUT.unpack_from(buffer, offset)
    if not number:
        raise ProtocolError(
            offset + 12, "TransactionHeader.TxSequenceNumber", SECTION, "0, numbers start at 1"
        )
    if previous > PREVIOUS_TX_SEQUENCE_NUMBER_MAX:
        raise ProtocolError(
            offset + 16,
            "TransactionHeader.PreviousTxSequenceNumber",
            SECTION,
            "0xFFFFFFFF, no number can follow it",
        )
    connector = None
    if flags & FLAG_CG:
        start, after = after, after + GUID_SIZE_BYTES
        if after > end:
            raise truncated(
                start, GUID_SIZE_BYTES, end, "TransactionHeader.ConnectorQMGuid", SECTION
            )
        connector = bytes(buffer[start:after])
    header = TransactionHeader(
        TxSequenceId(time_stamp=time_stamp, ordinal=ordinal),
        number,
        previous,
        flags >> ID_SHIFT & TRANSACTION_ID_MAX,
        bool(flags & FLAG_FA),
        bool(flags & FLAG_FM),
        bool(flags & FLAG_LM),
        connector,
    )
    return header, after


def transaction_header_size(buffer: Buffer, offset: int) -> int:
    """Return how many bytes the header at `offset` of a checked packet takes."""
    has_connector = buffer[offset] & FLAG_CG
    return TRANSACTION_HEADER_MIN_BYTES + (GUID_SIZE_BYTES if has_connector else 0)


def write_transaction_header(header: TransactionHeader) -> bytes:
    """Return the 20 or 36 bytes; unused flag bits are clear."""
    if not 0 <= header.transaction_id <= TRANSACTION_ID_MAX:
        raise ValueOutOfRange(
            "TransactionHeader.Flags.ID",
            SECTION,
            f"{header.transaction_id} is not 0 to {TRANSACTION_ID_MAX}",
        )
    check_sequence_numbers(header.tx_sequence_number, header.previous_tx_sequence_number)
    connector = b""
    if header.connector_qm_guid is not None:
        connector = guid_bytes(
            header.connector_qm_guid, "TransactionHeader.ConnectorQMGuid", SECTION
        )
    flags = (
        header.transaction_id << ID_SHIFT
        | (FLAG_CG if connector else 0)
        | (FLAG_FA if header.is_final_ack_wanted else 0)
        | (FLAG_FM if header.is_first else 0)
        | (FLAG_LM if header.is_last else 0)
    )
    fixed = pack_fields(
        _LAYOUT,
        "TransactionHeader",
        SECTION,
        flags,
        header.tx_sequence_id.ordinal,
        header.tx_sequence_id.time_stamp,
        header.tx_sequence_number,
        header.previous_tx_sequence_number,
    )
    return fixed + connector


def check_sequence_numbers(number: int, previous: int) -> None:
    """Raise `ValueOutOfRange` when a message cannot have these two numbers."""
    if number < 1:
        raise ValueOutOfRange(
            "TransactionHeader.TxSequenceNumber", SECTION, f"{number}, numbers start at 1"
        )
    if not 0 <= previous <= PREVIOUS_TX_SEQUENCE_NUMBER_MAX:
        raise ValueOutOfRange(
            "TransactionHeader.PreviousTxSequenceNumber",
            SECTION,
            f"{previous} is not 0 to {PREVIOUS_TX_SEQUENCE_NUMBER_MAX}",
        )
