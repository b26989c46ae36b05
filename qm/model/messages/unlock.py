"""What overtakes a read lock."""

from qm.model.state.ledger import QueueInHand
from qm.model.values.rows import SEQUENTIAL_ID_MAX


def is_purge_pending(queue: QueueInHand, key: int) -> bool:
    """Whether a purge overtook the lock: PurgePending follows from the watermark (design.md).

    DM-A12: asked of what reads and moves lock; an enqueue that is not committed yet stays.
    """
    return key & SEQUENTIAL_ID_MAX <= queue.watermark
