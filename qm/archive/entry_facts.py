"""What an entry's own bytes say about its effects: transactions, senders' sequences, digests.

Decoding costs per command and per message, so it is done outside apply, and only for entries whose
kept row says that they need it, or for digests of bodies.
"""

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final

import msgspec

from qm.model.values.commands import AuditMark, Command, CommandBatch, EdgeBatch
from qm.model.values.effects import EffectKind
from qm.names.guid import GUID_SIZE_BYTES, guid_text
from qm.store.codec import decode_entry, packet_spans
from qm.store.effects.effects_row import EffectsRow
from qm.wire.packets.peek import is_transactional, peek_destination, peek_head, peek_transaction
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT, QUEUE_TYPE_PUBLIC

_TAKEN: Final = frozenset({EffectKind.ARRIVED, EffectKind.PENDING, EffectKind.REFUSED})
"""Effects that a packet of the same entry may have caused."""
_PRIVATE_ID: Final = Struct("<I")


class Sender(msgspec.Struct, frozen=True, gc=False):
    """What a transactional packet says about its stream."""

    destination: str
    """As on the wire: equal texts mean names that are equal byte for byte."""
    sequence_id: int
    sequence: int
    previous: int


class EntryFacts(msgspec.Struct, frozen=True, gc=False):
    """Columns by ordinal of the effect; absent where there is nothing to report."""

    transactions: dict[int, bytes]
    senders: dict[int, Sender]
    audit_mark: int | None
    """Number of the last AuditMark in the entry."""


def entry_facts(kept: EffectsRow, data: bytes) -> EntryFacts:
    """Return what an entry says about its effects. Raises UnknownCommand."""
    batch = decode_entry(kept.index, data)
    marks = [command.number for command in batch.commands if isinstance(command, AuditMark)]
    facts = EntryFacts({}, {}, marks[-1] if marks else None)
    firsts, batches = _edge_batches(batch)
    ends = kept.command_ends.cast("I")
    body_indexes, body_ordinals = kept.body_indexes.cast("Q"), kept.body_ordinals.cast("H")
    begin = 0
    for command, end in zip(batch.commands, ends, strict=True):
        transaction = _transaction_of(command)
        for k in range(begin, end):
            if transaction is not None:
                facts.transactions[k] = transaction
            if batches and kept.kinds[k] in _TAKEN and body_indexes[k] == kept.index:
                ordinal = body_ordinals[k]
                place = bisect_right(firsts, ordinal) - 1
                sender = _sender(batches[place], ordinal) if place >= 0 else None
                if sender is not None:
                    facts.senders[k] = sender
        begin = end
    return facts


def _transaction_of(command: Command) -> bytes | None:
    transaction: bytes | None = getattr(command, "transaction", None)
    return transaction


def _edge_batches(batch: CommandBatch) -> tuple[list[int], list[EdgeBatch]]:
    """Return the runs of arrivals, and the ordinal of the first packet of each."""
    found = [command for command in batch.commands if isinstance(command, EdgeBatch)]
    return [command.first_ordinal for command in found], found


def _sender(command: EdgeBatch, ordinal: int) -> Sender | None:
    """Return what a packet says about its stream; None if it is a client's or has no stream."""
    k = ordinal - command.first_ordinal
    if k >= len(command.offsets) - 1:
        return None
    packets, offset = command.packets, command.offsets[k]
    head = peek_head(packets, offset)
    if not is_transactional(head):
        return None
    name = destination_text(peek_destination(packets, offset, head))
    return Sender(name, *peek_transaction(packets, offset, head))


def destination_text(key: bytes) -> str:
    """Return a key of `qm.wire.packets.peek.peek_destination` as text; different keys give
    different texts.
    """
    queue_type, name = key[0], key[1:]
    if queue_type == QUEUE_TYPE_DIRECT:
        return name.decode("utf-16-le", "backslashreplace")
    if queue_type == QUEUE_TYPE_PUBLIC:
        return f"PUBLIC={guid_text(name)}"
    if not name:
        return ""
    (identifier,) = _PRIVATE_ID.unpack(name[GUID_SIZE_BYTES:])
    return f"PRIVATE={guid_text(name[:GUID_SIZE_BYTES])}\\{identifier:08X};{queue_type}"


def body_digests(kept: EffectsRow, data: bytes) -> dict[int, bytes]:
    """Return SHA-256 of the packet behind each effect whose packet is in this entry."""
    spans: Sequence[tuple[int, int]] = packet_spans(kept.index, data)
    digests: dict[int, bytes] = {}
    found: dict[int, bytes] = {}
    view = memoryview(data)
    places = zip(kept.body_indexes.cast("Q"), kept.body_ordinals.cast("H"), strict=True)
    for k, (index, ordinal) in enumerate(places):
        if index != kept.index or ordinal >= len(spans):
            continue
        digest = digests.get(ordinal)
        if digest is None:
            offset, length = spans[ordinal]
            digest = digests[ordinal] = sha256(view[offset : offset + length]).digest()
        found[k] = digest
    return found
