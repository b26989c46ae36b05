"""The fast lane of destructive reads: plain positions from the head of a queue.

A position is plain when it owes nothing, is not journaled and the read is neither transactional nor
two-phase. Its row goes over to the result as it is, and with it the reference to its body; counts
and effects are settled per run, in columns. Everything else ends through `qm.model.endings`.
"""

from itertools import accumulate
from typing import Any, Final

from qm.model.effects import EffectKind
from qm.model.head import keys_of
from qm.model.ledger import LEVELS, Ledger, QueueInHand
from qm.model.results import ResultRow, received_run
from qm.model.rows import POSITION_ROW, PositionFlag
from qm.model.state import Table
from qm.wire.message_class import MessageClass

_NOT_PLAIN: Final = int(
    PositionFlag.HAS_OBLIGATION | PositionFlag.HAS_LOCK | PositionFlag.HAS_OUTGOING
)
Columns = list[tuple[Any, ...]]
"""POSITION_ROW's fields, one tuple each."""
_FLAGS, _BODY_INDEXES, _BODY_ORDINALS = 2, 3, 6
_SIZES, _DEADLINES, _SOURCES, _ORDINALS = 8, 9, 10, 11
_EFFECT: Final = bytes((EffectKind.RECEIVED,))


def read_plain(
    ledger: Ledger, queue: QueueInHand, first_number: int, count: int, room_bytes: int
) -> ResultRow | None:
    """Receive up to `count` plain positions from the head, for consecutive numbers.

    Stops before one that is not plain, and behind the one that fills `room_bytes`. None: none.
    """
    found: list[tuple[bytes, bytes]] = []
    for level in range(LEVELS):
        wanted = min(queue.counts[level] - queue.locked[level], count - len(found))
        if wanted > 0:
            found += queue.window(level).take(ledger.state, wanted)
    if not found:
        return None
    row_keys, rows = (list(column) for column in zip(*found, strict=True))
    keys, packed = keys_of(row_keys), b"".join(rows)
    columns = [*zip(*POSITION_ROW.iter_unpack(packed), strict=True)]
    plain = _plain(columns, room_bytes)
    if plain < len(keys):
        for level in range(LEVELS):
            left = [key for key in keys[plain:] if key >> 56 == level]
            if left:
                queue.window(level).give_back(left)
        row_keys, keys = row_keys[:plain], keys[:plain]
        packed = packed[: plain * POSITION_ROW.size]
        columns = [column[:plain] for column in columns]
    if not keys:
        return None
    size = sum(columns[_SIZES])
    ledger.state.delete_rows(Table.POSITION, row_keys)
    _settle(ledger, queue, keys, columns, size)
    return received_run(first_number, queue.record.queue_id, keys, packed, size)


def _plain(columns: Columns, room_bytes: int) -> int:
    """Return how many of the positions are plain and have room."""
    flags, sizes, deadlines = columns[_FLAGS], columns[_SIZES], columns[_DEADLINES]
    count = len(flags)
    if any(deadlines) or any(flag & _NOT_PLAIN for flag in set(flags)):
        count = next(k for k in range(count) if deadlines[k] or flags[k] & _NOT_PLAIN)
    if sum(sizes[:count]) > room_bytes:
        count = next(k for k, end in enumerate(accumulate(sizes), 1) if end >= room_bytes)
    return count


def _settle(
    ledger: Ledger, queue: QueueInHand, keys: list[int], columns: Columns, size: int
) -> None:
    queue_id, count = queue.record.queue_id, len(keys)
    for key in keys:
        queue.counts[key >> 56] -= 1
    queue.removals += count
    ledger.discharge_bytes(queue, size)
    effects = ledger.applied.effects
    effects.kinds += _EFFECT * count
    effects.queue_ids.extend([queue_id] * count)
    effects.lookup_identifiers.extend(keys)
    effects.reasons.extend([MessageClass.ACK_RECEIVE] * count)
    effects.message_ordinals.extend(columns[_ORDINALS])
    effects.source_queue_managers.extend(columns[_SOURCES])
    effects.sizes_bytes.extend(columns[_SIZES])
    effects.body_indexes.extend(columns[_BODY_INDEXES])
    effects.body_ordinals.extend(columns[_BODY_ORDINALS])
