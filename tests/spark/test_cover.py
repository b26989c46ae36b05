"""One copy of each entry, from whole ranges of one node as long as it has them."""

from qm.archive.manifest import Manifest
from qm.archive.schema import SCHEMA_VERSION
from spark.archive.cover import cover
from tests.spark.files import CLUSTER


def manifest(node: str, first: int, last: int, group: int = 1) -> Manifest:
    return Manifest(SCHEMA_VERSION, CLUSTER, node, group, first, last, first - 1, "", "", ())


def covered(
    ranges: list[Manifest], after: int = 0, upto: int = 100
) -> list[tuple[str, int, int, bool]]:
    """Return (node, low, high, is_whole) of the pieces."""
    return [
        (piece.manifest.node, piece.low, piece.high, piece.is_whole(after, upto))
        for piece in cover(ranges, after, upto)
    ]


def test_a_node_without_gap_gives_all_and_its_files_are_whole() -> None:
    ranges = [manifest("n1", 1, 40), manifest("n1", 41, 80), manifest("n1", 81, 120)]
    ranges += [manifest("n2", 1, 30), manifest("n2", 31, 60), manifest("n2", 61, 110)]
    own = [("n1", 1, 40, True), ("n1", 41, 80, True), ("n1", 81, 100, True)]
    assert covered(ranges) == own
    assert covered(ranges, after=20) == [("n1", 21, 40, True), *own[1:]]


def test_where_a_node_has_a_gap_another_one_stands_in() -> None:
    ranges = [manifest("n1", 1, 40), manifest("n1", 61, 100)]
    ranges += [manifest("n2", 1, 30), manifest("n2", 31, 70), manifest("n2", 71, 90)]
    assert covered(ranges) == [
        ("n1", 1, 40, True),
        ("n2", 41, 70, False),
        ("n2", 71, 90, True),
        ("n1", 91, 100, False),
    ]


def test_where_every_node_has_a_hole_so_has_the_copy() -> None:
    ranges = [manifest("n1", 1, 10), manifest("n2", 1, 12), manifest("n1", 20, 100)]
    assert covered(ranges) == [("n2", 1, 12, True), ("n1", 20, 100, True)]
    assert covered(ranges, upto=15) == [("n2", 1, 12, True)]
    assert covered([manifest("n1", 200, 300)]) == []


def test_ranges_of_one_node_that_overlap_are_taken_once() -> None:
    ranges = [manifest("n1", 1, 50), manifest("n1", 40, 60), manifest("n1", 61, 100)]
    assert [(low, high) for _, low, high, _ in covered(ranges)] == [(1, 50), (51, 60), (61, 100)]


def test_groups_are_covered_each_for_itself() -> None:
    ranges = [manifest("n1", 1, 100), manifest("n1", 1, 100, group=2)]
    assert [piece.manifest.group for piece in cover(ranges, 0, 100)] == [1, 2]
