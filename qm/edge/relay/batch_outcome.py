"""Applies a batch's outcome to its sessions: which positions are durable now.

Every verdict but "cannot be stored now" is final: accepted, duplicate, out of order, refused and
ignored messages are all counted and acknowledged (QB-A4). A message that cannot be stored ends its
session, and those before it are committed, so that the peer sends it again (QB-A47).
"""

from collections.abc import Sequence
from typing import Final

from qm.edge.batches import AckItem, Batch, FinalAckItem, Intake, Item, PacketRun
from qm.model.values.columns import IntArray
from qm.model.values.commands import TransferVerdict
from qm.model.values.effects import Outcome
from qm.session import CloseReason

_CLOSE: Final = int(TransferVerdict.CLOSE_SESSION)
_REASONS: Final = {
    _CLOSE: (
        CloseReason.QUEUE_MANAGER_QUOTA,
        "it cannot be stored now",
    ),
    int(TransferVerdict.ELSEWHERE): (
        CloseReason.PEER_ELSEWHERE,
        "its queue manager is bound to another address: `qm peer show` tells which",
    ),
}
"""Verdicts that end a session before the message that has them."""


def settle(batch: Batch, index: int, outcome: Outcome) -> list[AckItem]:
    """Commit the sessions of a batch that the entry at `index` carried, each once.

    Return acknowledgements whose command must be applied again before they count.
    """
    verdicts = outcome.verdicts
    ack_items = batch.ack_items
    if ack_items and isinstance(ack_items[0], FinalAckItem):
        # One that was not taken is not acknowledged either, so that it can come again.
        _settle_some(ack_items, index, verdicts)
        return []
    if ack_items:
        return _settle_acks(ack_items, index, is_complete=outcome.value is not True)
    runs = [item for item in batch.items if isinstance(item, PacketRun)]
    if verdicts is None or len(verdicts) != sum(run.count for run in runs):
        _settle_some(runs, index, None)
    elif _REASONS.keys().isdisjoint(verdicts):
        _settle_all(runs, index)
    else:
        _settle_some(runs, index, verdicts)
    return []


def _settle_all(items: Sequence[Item], index: int) -> None:
    for intake, position in {item.intake: item.last_position for item in items}.items():
        intake.settle(position, index)


def _settle_acks(ack_items: list[AckItem], index: int, *, is_complete: bool) -> list[AckItem]:
    """Settle OrderAcks; `is_complete` is False if the command must be applied again."""
    for item in ack_items:
        if is_complete:
            item.intake.complete(item.last_position)
        else:
            item.intake.keep_open(item.last_position)
    _settle_all(ack_items, index)
    return [] if is_complete else [item for item in ack_items if item.intake.is_open]


def _settle_some(items: Sequence[Item], index: int, verdicts: IntArray | None) -> None:
    """Settle items of which something was not taken; `verdicts` None: nothing was."""
    upto: dict[Intake, int] = {}
    refused: dict[Intake, int] = {}  # in the order of their messages
    at = 0
    for item in items:
        mine = (_CLOSE,) if verdicts is None else verdicts[at : at + item.count].tolist()
        at += item.count
        if item.intake in refused:
            continue
        taken = next((k for k, verdict in enumerate(mine) if verdict in _REASONS), item.count)
        upto[item.intake] = item.last_position - item.count + taken
        if taken < item.count:
            refused[item.intake] = mine[taken]
    for intake, position in upto.items():
        intake.settle(position, index)
    for intake, verdict in refused.items():
        if intake.is_open:
            intake.owner.close(*_REASONS[verdict])
