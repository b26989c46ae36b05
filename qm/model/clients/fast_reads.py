"""The fast lane of destructive reads: plain positions from the head of a queue.

A position is plain when it has no obligation, is not journaled and the read is neither
transactional nor two-phase. Its row moves unchanged to the result, and with it the reference to its
body; counts and effects are settled per run. All others end through `qm.model.messages.endings`.
"""

from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Final

from qm.model.state.head import keys_of
from qm.model.state.ledger import LEVELS, Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.effects import EffectKind
from qm.model.values.results import ResultRow, received_run
from qm.model.values.rows import POSITION_ROW, PositionFlag
from qm.wire.message_class import MessageClass

_NOT_PLAIN: Final = int(
    PositionFlag.HAS_OBLIGATION | PositionFlag.HAS_LOCK | PositionFlag.HAS_OUTGOING
)
_OF_ROW: Final = Struct("<2xH8x14xIQ24x")
"""Taken from a POSITION row: flags, stored size, deadline."""
assert _OF_ROW.size == POSITION_ROW.size


def read_plain(
    ledger: Ledger, queue: QueueInHand, first_number: int, count: int, room_bytes: int
) -> ResultRow | None:
    """Receive up to `count` plain positions from the head, for consecutive numbers.

    Stops before one that is not plain, and after the one that fills `room_bytes`. None if there are
    none.
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
    flags, sizes, deadlines = zip(*_OF_ROW.iter_unpack(packed), strict=True)
    plain = _plain(flags, sizes, deadlines, room_bytes)
    if plain < len(keys):
        for level in range(LEVELS):
            left = [key for key in keys[plain:] if key >> 56 == level]
            if left:
                queue.window(level).give_back(left)
        row_keys, keys = row_keys[:plain], keys[:plain]
        packed = packed[: plain * POSITION_ROW.size]
    if not keys:
        return None
    size = sum(sizes[:plain])
    ledger.state.delete_rows(Table.POSITION, row_keys)
    _settle(ledger, queue, keys, size)
    queue_id = queue.record.queue_id
    ledger.applied.note(
        EffectKind.RECEIVED,
        MessageClass.ACK_RECEIVE,
        row_keys,
        (packed,),
        (queue_id,),
        ends=(row_keys[0], row_keys[-1]),
    )
    return received_run(first_number, queue_id, keys, packed, size)


def _plain(
    flags: Sequence[int], sizes: Sequence[int], deadlines: Sequence[int], room_bytes: int
) -> int:
    """Return how many of the positions are plain and fit."""
    count = len(flags)
    if any(deadlines) or any(flag & _NOT_PLAIN for flag in set(flags)):
        count = next(k for k in range(count) if deadlines[k] or flags[k] & _NOT_PLAIN)
    if sum(sizes[:count]) > room_bytes:
        count = next(k for k, end in enumerate(accumulate(sizes), 1) if end >= room_bytes)
    return count


def _settle(ledger: Ledger, queue: QueueInHand, keys: list[int], size: int) -> None:
    for key in keys:
        queue.counts[key >> 56] -= 1
    queue.removals += len(keys)
    ledger.discharge_bytes(queue, size)
