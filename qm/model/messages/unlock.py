"""Return of a read-locked position to its queue ([MS-MQDMPR] 3.1.4.5, 3.1.7.1.12)."""

from qm.model.messages.endings import Endings
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.values.effects import EffectKind
from qm.model.values.rows import SEQUENTIAL_ID_MAX, Position, PositionFlag
from qm.wire.message_class import MessageClass


def is_purge_pending(queue: QueueInHand, key: int) -> bool:
    """Whether a purge overtook the lock: PurgePending follows from the watermark (design.md)."""
    return key & SEQUENTIAL_ID_MAX <= queue.watermark


def give_back(
    ledger: Ledger, endings: Endings, queue: QueueInHand, key: int, position: Position
) -> None:
    """Make it Available at its place, unless a purge or its deadline overtook the lock."""
    if is_purge_pending(queue, key):
        reason = (
            MessageClass.NACK_Q_DELETED if queue.record.is_deleting else MessageClass.NACK_Q_PURGED
        )
        endings.end(queue, key, position, reason)
    elif position.flags & PositionFlag.EXPIRY_DUE:
        endings.end(queue, key, position, MessageClass.NACK_RECEIVE_TIMEOUT)
    else:
        ledger.unlock(queue, key, position, EffectKind.UNLOCKED)
