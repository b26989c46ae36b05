"""One replay in several parallel pieces, each from a checkpoint to the next (design.md).

A checkpoint is one node's claim about its state. It is trusted when the piece before it ends with
the same digest; if one is not, everything is replayed again in one piece.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Final

from msgspec import structs
from pyspark.sql import SparkSession

from qm.archive.checkpoints import Checkpoint
from spark.archive.files import FileProblem
from spark.archive.ranges import Ranges
from spark.replay.checkpoints import problem_of, start_of
from spark.replay.cuts import Cutting
from spark.replay.replay import Replayed, ReplayPlan, run_replays

logger = logging.getLogger(__name__)

NO_STATE: Final = (
    "the archive begins after entry {} and has no usable checkpoint behind it from which a replay"
    " could begin: nodes write one when they archive with the policy full"
)


@dataclass(frozen=True)
class Pieces:
    """The result of a replay."""

    replayed: Replayed
    at: Sequence[Checkpoint] = ()
    """Checkpoints at which it was cut."""
    problems: Sequence[FileProblem] = ()
    """Checkpoints that the log does not confirm."""
    begun_at: int = 0
    """Index of the checkpoint from which the replay began, 0: from what the plan says."""


def replay_in_pieces(
    spark: SparkSession,
    plan: ReplayPlan,
    ranges: Ranges,
    checkpoints: Sequence[Checkpoint],
    slots: int,
) -> Pieces:
    """Replay on this many slots. `plan`: the whole, without files.

    Without a state to start from, and in an archive that begins after the cluster's first entry, it
    starts from the oldest usable checkpoint.
    """
    begins_after = ranges.begins_after(plan.group)
    if plan.start is not None or not begins_after:
        return _replay_from(spark, plan, ranges, checkpoints, slots)
    problems: list[FileProblem] = []
    for first in checkpoints:
        if first.group == plan.group and begins_after <= first.index < plan.upto:
            start = structs.replace(plan, start=start_of(first))
            pieces = _replay_from(spark, start, ranges, checkpoints, slots)
            if not pieces.replayed.is_of_start:
                return replace(pieces, problems=[*problems, *pieces.problems], begun_at=first.index)
            problems.append(problem_of(first, f"cannot be used: {pieces.replayed.problem}"))
    return Pieces(Replayed(problem=NO_STATE.format(begins_after)), problems=problems)


def _replay_from(
    spark: SparkSession,
    plan: ReplayPlan,
    ranges: Ranges,
    checkpoints: Sequence[Checkpoint],
    slots: int,
) -> Pieces:
    low = plan.start.index if plan.start is not None else 0
    inside = {
        one.index: one
        for one in reversed(checkpoints)
        if one.group == plan.group and low < one.index < plan.upto
    }
    cutting = Cutting(ranges.entry_bytes(plan.group, low, plan.upto), plan.upto, slots)
    chosen = cutting.choose([inside[index] for index in sorted(inside)])
    problems: list[FileProblem] = []
    if chosen:
        logger.info("replaying in %d pieces", len(chosen) + 1)
        results = _run(spark, _cut(plan, ranges, chosen), cutting.order(chosen))
        problems = _refuted(chosen, results)
        if not problems:
            return Pieces(_joined(results), chosen)
        logger.warning("%s %s: replaying without it", problems[0].path, problems[0].detail)
    whole = structs.replace(plan, files=ranges.entry_files(plan.group, low, plan.upto))
    return Pieces(run_replays(spark, [whole])[0], problems=problems)


def _run(spark: SparkSession, plans: Sequence[ReplayPlan], order: Sequence[int]) -> list[Replayed]:
    """Replay in the given order; return the results in the order of the plans."""
    results = zip(order, run_replays(spark, [plans[k] for k in order]), strict=True)
    return [replayed for _, replayed in sorted(results, key=itemgetter(0))]


def _cut(plan: ReplayPlan, ranges: Ranges, at: Sequence[Checkpoint]) -> list[ReplayPlan]:
    """Return a plan for each piece; the last one produces the output of the whole."""
    starts = [plan.start, *map(start_of, at)]
    ends = [*(one.index for one in at), plan.upto]
    last = len(ends) - 1
    return [
        structs.replace(
            plan,
            start=start,
            upto=end,
            files=ranges.entry_files(plan.group, start.index if start is not None else 0, end),
            output=plan.output if k == last else "",
            is_verified=plan.is_verified and k == last,
        )
        for k, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _refuted(at: Sequence[Checkpoint], results: Sequence[Replayed]) -> list[FileProblem]:
    """Return the problem of the first checkpoint that the log does not confirm."""
    for checkpoint, (before, behind) in zip(at, pairwise(results), strict=True):
        if before.problem:
            return []  # as it is in one piece
        if behind.is_of_start:
            return [problem_of(checkpoint, f"cannot be used: {behind.problem}")]
        if (before.index, before.digest) != (checkpoint.index, checkpoint.digest):
            detail = (
                f"holds the state {checkpoint.digest} of entry {checkpoint.index}, the log gives"
                f" {before.digest} at {before.index}"
            )
            return [problem_of(checkpoint, detail)]
    return []


def _joined(results: Sequence[Replayed]) -> Replayed:
    """Return the pieces as one, up to the first that could not continue."""
    ended = next((k for k, one in enumerate(results) if one.problem), len(results) - 1)
    pieces = results[: ended + 1]
    return structs.replace(
        pieces[-1],
        entries=sum(one.entries for one in pieces),
        data_bytes=sum(one.data_bytes for one in pieces),
        cpu_s=sum(one.cpu_s for one in pieces),
        marks=[mark for one in pieces for mark in one.marks],
    )
