"""New messages while the leader's disk is nearly full: refused before they enter the log.

Receiving, purging, acknowledgements and everything else that frees space goes on (DESIGN section
6). A peer's messages get the verdict that ends its session, so that it keeps and resends them.
"""

from array import array
from struct import Struct
from typing import Final

from qm.model.values.commands import TransferVerdict
from qm.model.values.effects import Outcome
from qm.pb import command_pb2
from qm.store.codec import peek_command

_HEADER_LENGTH: Final = Struct("<I")
_LENGTH_DELIMITED: Final = 2


def _tag(op: str) -> bytes:
    """Return the bytes with which the header of such a command begins."""
    number = command_pb2.Command.DESCRIPTOR.fields_by_name[op].number
    key, tag = number << 3 | _LENGTH_DELIMITED, bytearray()
    while key > 0x7F:
        tag.append(key & 0x7F | 0x80)
        key >>= 7
    return bytes((*tag, key))


_SEND: Final = _tag("send")
_EDGE_BATCH: Final = _tag("edge_batch")


def is_send(payload: bytes) -> bool:
    """Return whether an encoded command is a client's Send."""
    return payload.startswith(_SEND, _HEADER_LENGTH.size)


def is_edge_batch(payload: bytes) -> bool:
    """Return whether an encoded command is a run of arrivals."""
    return payload.startswith(_EDGE_BATCH, _HEADER_LENGTH.size)


def refusal(payload: bytes) -> Outcome:
    """Return the outcome of an EdgeBatch of which nothing can be stored now."""
    _, batch = peek_command(payload)
    return Outcome(0, array("H", [TransferVerdict.CLOSE_SESSION]) * len(batch.facts_of))
