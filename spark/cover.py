"""Which ranges to take each entry from: replicas' exports overlap, and one copy is enough.

Ranges are few and known to the driver, so that no table is ever grouped to find this out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from qm.archive.manifest import Manifest


@dataclass(frozen=True)
class Piece:
    """The indexes that are taken from one range; pieces of a group do not overlap."""

    manifest: Manifest
    low: int
    high: int
    """Both ends belong to it."""


def cover(manifests: Iterable[Manifest], after: int, upto: int) -> list[Piece]:
    """Return pieces for (after, upto] of every group, lowest first, of as few ranges as will do.

    Where every node has a hole, so has what is returned.
    """
    by_group: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_group.setdefault(manifest.group, []).append(manifest)
    return [
        piece for group in sorted(by_group) for piece in _of_group(by_group[group], after, upto)
    ]


def _of_group(manifests: list[Manifest], after: int, upto: int) -> list[Piece]:
    ordered = sorted(manifests, key=lambda m: (m.first, -m.last, m.node))
    pieces: list[Piece] = []
    reached, at = after, 0
    while reached < upto and at < len(ordered):
        best = ordered[at]
        at += 1
        # Of those that join what is covered, the one that reaches farthest.
        while at < len(ordered) and ordered[at].first <= max(reached + 1, best.first):
            if ordered[at].last > best.last:
                best = ordered[at]
            at += 1
        if best.last <= reached:
            continue
        if best.first > upto:
            break
        low = max(best.first, reached + 1)
        reached = min(best.last, upto)
        pieces.append(Piece(best, low, reached))
    return pieces
