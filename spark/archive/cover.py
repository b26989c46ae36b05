"""Which range to take each entry from: replicas' exports overlap, and one copy is enough.

Ranges are few and known to the driver, so no table needs to be grouped for this.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from qm.archive.manifest import Manifest


@dataclass(frozen=True)
class Piece:
    """The indexes taken from one range; the pieces of a group do not overlap."""

    manifest: Manifest
    low: int
    high: int
    """Included in the piece, as `low` is."""

    def is_whole(self, after: int, upto: int) -> bool:
        """Return whether it is everything that its range holds of (after, upto]."""
        manifest = self.manifest
        return self.low <= max(manifest.first, after + 1) and self.high >= min(manifest.last, upto)


def cover(manifests: Iterable[Manifest], after: int, upto: int) -> list[Piece]:
    """Return pieces for (after, upto] of every group, lowest first.

    One node's ranges are used in sequence as long as they have no gap, so that nearly all pieces
    are whole files. A gap that every node has is a gap in the result.
    """
    by_group: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_group.setdefault(manifest.group, []).append(manifest)
    return [
        piece for group in sorted(by_group) for piece in _of_group(by_group[group], after, upto)
    ]


def _of_group(manifests: list[Manifest], after: int, upto: int) -> list[Piece]:
    ordered = sorted(manifests, key=lambda m: (m.first, m.node))
    farthest: dict[str, Manifest] = {}
    """By node: the range that extends what is covered."""
    pieces: list[Piece] = []
    reached, at = after, 0
    while reached < upto:
        while at < len(ordered) and ordered[at].first <= reached + 1:
            joins = ordered[at]
            farthest[joins.node] = max(farthest.get(joins.node, joins), joins, key=_last)
            at += 1
        best = _next(farthest, pieces)
        if best is None or best.last <= reached:
            if at == len(ordered):
                break
            reached = ordered[at].first - 1
            continue
        low = max(best.first, reached + 1)
        reached = min(best.last, upto)
        pieces.append(Piece(best, low, reached))
    return pieces


def _next(farthest: dict[str, Manifest], pieces: list[Piece]) -> Manifest | None:
    """Return the next range: of the previous node, else the one that reaches farthest."""
    if not farthest:
        return None
    if pieces:
        before = pieces[-1].manifest
        own = farthest[before.node]
        if own.last > before.last:
            return own
    return min(farthest.values(), key=lambda m: (-m.last, m.node))


def _last(manifest: Manifest) -> int:
    return manifest.last
