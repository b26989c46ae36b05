"""Applies a batch's outcome to its sessions: which positions are durable now.

Every verdict but "cannot be stored now" is final: accepted, duplicate, out of order, refused and
ignored messages are all counted and acknowledged (QB-A4). A message that cannot be stored ends its
session, and those before it are committed, so that the peer sends it again (QB-A47).
"""

from collections.abc import Sequence
from typing import Final

from qm.edge.batches import AckItem, Batch, Intake, Item, PacketRun
from qm.model.values.columns import IntArray
from qm.model.values.commands import TransferVerdict
from qm.model.values.effects import Outcome
from qm.session import CloseReason

_CLOSE: Final = int(TransferVerdict.CLOSE_SESSION)


def settle(batch: Batch, index: int, outcome: Outcome) -> list[AckItem]:
    """Commit the sessions of a batch that the entry at `index` carried, each once.

    Return acknowledgements whose command must be applied again before they count.
    """
    ack_items = batch.ack_items
    if ack_items:
        return _settle_acks(ack_items, index, is_complete=outcome.value is not True)
    runs = [item for item in batch.items if isinstance(item, PacketRun)]
    verdicts = outcome.verdicts
    if verdicts is None or len(verdicts) != sum(run.count for run in runs):
        _settle_some(runs, index, None)
    elif _CLOSE in verdicts:
        _settle_some(runs, index, verdicts)
    else:
        _settle_all(runs, index)
    return []


def _settle_all(items: Sequence[Item], index: int) -> None:
    for intake, position in {item.intake: item.last_position for item in items}.items():
        intake.settle(position, index)


def _settle_acks(ack_items: list[AckItem], index: int, *, is_complete: bool) -> list[AckItem]:
    """Settle acknowledgements; `is_complete` is False if OrderAcked must be applied again."""
    for item in ack_items:
        if is_complete:
            item.intake.complete(item.last_position)
        else:
            item.intake.keep_open(item.last_position)
    _settle_all(ack_items, index)
    return [] if is_complete else [item for item in ack_items if item.intake.is_open]


def _settle_some(runs: Sequence[PacketRun], index: int, verdicts: IntArray | None) -> None:
    """Settle runs of which something cannot be stored; `verdicts` None: nothing was."""
    upto: dict[Intake, int] = {}
    refused: dict[Intake, None] = {}  # in the order of their messages
    at = 0
    for run in runs:
        mine = () if verdicts is None else verdicts[at : at + run.count].tolist()
        at += run.count
        if run.intake in refused:
            continue
        stored = mine.index(_CLOSE) if _CLOSE in mine else len(mine)
        upto[run.intake] = run.last_position - run.count + stored
        if stored < run.count:
            refused[run.intake] = None
    for intake, position in upto.items():
        intake.settle(position, index)
    for intake in refused:
        if intake.is_open:
            intake.owner.close(CloseReason.QUEUE_MANAGER_QUOTA, "it cannot be stored now")
