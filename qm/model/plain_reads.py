"""The fast lane of destructive reads: plain positions from the head of a queue.

A position is plain when it owes nothing, is not journaled and the read is neither transactional nor
two-phase. Its body's reference goes over to the result, so nothing is counted; rows, counts and
effects are settled per run. Everything else ends through `qm.model.endings`.
"""

from typing import Final

from qm.model.effects import EffectKind
from qm.model.ledger import LEVELS, Ledger, QueueInHand
from qm.model.results import ResultRow
from qm.model.rows import POSITION_KEY, POSITION_ROW, RESULT_ENTRY, PositionFlag, ResultKind
from qm.model.state import Table
from qm.wire.message_class import MessageClass

_NOT_PLAIN: Final = int(
    PositionFlag.HAS_OBLIGATION | PositionFlag.HAS_LOCK | PositionFlag.HAS_OUTGOING
)
_RECEIVED: Final = ResultKind.RECEIVED.value
_EFFECT: Final = bytes((EffectKind.RECEIVED,))


def read_plain(
    ledger: Ledger, queue: QueueInHand, first_number: int, count: int, room_bytes: int
) -> ResultRow | None:
    """Receive up to `count` plain positions from the head, for consecutive numbers.

    Stops before one that is not plain, and behind the one that fills `room_bytes`. None: none.
    """
    state = ledger.state
    queue_id = queue.record.queue_id
    entries: list[bytes] = []
    taken: list[tuple[int, tuple[int, ...]]] = []
    row_keys: list[bytes] = []
    size = 0
    for level in range(LEVELS):
        available = queue.counts[level] - queue.locked[level]
        if not available:
            continue
        window = queue.window(level)
        while available and len(entries) < count and size < room_bytes:
            head = window.first(state)
            if head is None:
                break
            key, row = head
            fields = POSITION_ROW.unpack(row)
            flags = fields[2]
            if flags & _NOT_PLAIN or fields[9]:
                return _settle(ledger, queue, entries, taken, row_keys, size)
            entries.append(
                RESULT_ENTRY.pack(
                    first_number + len(entries),
                    0,
                    flags,
                    _RECEIVED,
                    fields[1],
                    queue_id,
                    key,
                    fields[3],
                    fields[4],
                    fields[5],
                    fields[6],
                    fields[7],
                    fields[10],
                    fields[11],
                    fields[12],
                )
            )
            window.take_first()
            row_keys.append(POSITION_KEY.pack(queue_id, key))
            taken.append((key, fields))
            size += fields[8]
            available -= 1
        if len(entries) == count or size >= room_bytes:
            break
    return _settle(ledger, queue, entries, taken, row_keys, size)


def _settle(
    ledger: Ledger,
    queue: QueueInHand,
    entries: list[bytes],
    taken: list[tuple[int, tuple[int, ...]]],
    row_keys: list[bytes],
    size: int,
) -> ResultRow | None:
    if not entries:
        return None
    ledger.state.delete_rows(Table.POSITION, row_keys)
    for key, _ in taken:
        queue.counts[key >> 56] -= 1
    queue.removals += len(taken)
    ledger.discharge_bytes(queue, size)
    effects = ledger.applied.effects
    effects.kinds += _EFFECT * len(taken)
    effects.queue_ids.extend([queue.record.queue_id] * len(taken))
    effects.lookup_identifiers.extend([key for key, _ in taken])
    effects.reasons.extend([MessageClass.ACK_RECEIVE] * len(taken))
    effects.message_ordinals.extend([fields[11] for _, fields in taken])
    effects.source_queue_managers.extend([fields[10] for _, fields in taken])  # type: ignore[misc]
    effects.sizes_bytes.extend([fields[8] for _, fields in taken])
    effects.body_indexes.extend([fields[3] for _, fields in taken])
    return ResultRow(b"".join(entries))
