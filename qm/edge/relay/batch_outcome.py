"""From a batch's outcome to its sessions: which positions are durable now.

Every verdict but "cannot be stored now" is final: accepted, duplicate, out of order, refused and
ignored messages are all counted and acknowledged (QB-A4). A message that cannot be stored ends its
session, with what lies before it committed, so that the peer sends it again (QB-A47).
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

    Returns notes whose command is to be applied once more before they count.
    """
    notes = batch.notes
    if notes:
        return _settle_notes(notes, index, is_complete=outcome.value is not True)
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
    for flow, position in {item.flow: item.last_position for item in items}.items():
        flow.settle(position, index)


def _settle_notes(notes: list[AckItem], index: int, *, is_complete: bool) -> list[AckItem]:
    """The value of OrderAcked says whether more of its sequences is to be settled."""
    for note in notes:
        if is_complete:
            note.flow.complete(note.last_position)
        else:
            note.flow.keep_open(note.last_position)
    _settle_all(notes, index)
    return [] if is_complete else [note for note in notes if note.flow.is_open]


def _settle_some(runs: Sequence[PacketRun], index: int, verdicts: IntArray | None) -> None:
    """Settle runs of which something cannot be stored; None: nothing was."""
    upto: dict[Intake, int] = {}
    refused: set[Intake] = set()
    at = 0
    for run in runs:
        mine = () if verdicts is None else verdicts[at : at + run.count].tolist()
        at += run.count
        if run.flow in refused:
            continue
        stored = mine.index(_CLOSE) if _CLOSE in mine else len(mine)
        upto[run.flow] = run.last_position - run.count + stored
        if stored < run.count:
            refused.add(run.flow)
    for flow, position in upto.items():
        flow.settle(position, index)
    for flow in refused:
        if flow.is_open:
            flow.owner.close(CloseReason.QUEUE_MANAGER_QUOTA, "it cannot be stored now")
