"""From a batch's outcome to its sessions: which positions are durable now.

Every verdict but "cannot be stored now" is final: accepted, duplicate, out of order, refused and
ignored messages are all counted and acknowledged (QB-A4). A message that cannot be stored ends its
session, with what lies before it committed, so that the peer sends it again (QB-A47).
"""

from collections.abc import Sequence
from typing import Final

from qm.edge.batches import Batch, Note, Run
from qm.edge.flow import Flow
from qm.model.columns import IntArray
from qm.model.commands import TransferVerdict
from qm.model.effects import Outcome
from qm.session import CloseReason

_CLOSE: Final = int(TransferVerdict.CLOSE_SESSION)


def settle(batch: Batch, index: int, outcome: Outcome) -> Note | None:
    """Commit the sessions of a batch that the entry at `index` carried, each once.

    Returns a note that is to be applied once more before it counts.
    """
    first = batch.items[0]
    if isinstance(first, Note):
        # The value of an OrderAck says whether more of its sequence is to be settled.
        is_complete = outcome.value is not True
        first.flow.settle_note(first.last_position, index, is_complete=is_complete)
        return None if is_complete or not first.flow.is_open else first
    runs = [item for item in batch.items if isinstance(item, Run)]
    verdicts = outcome.verdicts
    if verdicts is None or len(verdicts) != sum(run.count for run in runs):
        _settle_some(runs, index, None)
    elif _CLOSE in verdicts:
        _settle_some(runs, index, verdicts)
    else:
        for flow, position in {run.flow: run.last_position for run in runs}.items():
            flow.settle(position, index)
    return None


def _settle_some(runs: Sequence[Run], index: int, verdicts: IntArray | None) -> None:
    """Settle runs of which something cannot be stored; None: nothing was."""
    upto: dict[Flow, int] = {}
    refused: set[Flow] = set()
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
