"""Every rule finds its planted fault and nothing else; a clean archive gives no finding."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from qm.archive.schema import Part
from spark.rules import all_findings
from spark.rules.carry import ENDS, nothing_carried
from spark.rules.digests import REPLAYED, not_reproduced
from tests.spark.archives import TRANSACTION, Archive, operation, refused, sent, tables


def clean(group: int = 1, upgraded_at: int = 2) -> Archive:
    """Return an archive with everything in it that is legal."""
    archive = Archive(group, upgraded_at)
    archive.entry(operation("arrived", 1), operation("arrived", 2), operation("arrived", 3))
    archive.entry(sent(11, 0), sent(12))
    # 13 expired at the sender: 14 names 12.
    archive.entry(sent(14, 12))
    # A new sequence begins anew; what is refused for good belongs to it.
    archive.entry(sent(15, 0, sequence=10), refused(16, sequence=10), refused(17, sequence=10))
    archive.entry(operation("pending", 21, transaction=TRANSACTION))
    archive.entry(operation("pending", 22, transaction=TRANSACTION))
    archive.entry(operation("arrived", 21), operation("arrived", 22))
    archive.entry(operation("pending", 23, transaction=b"u" * 16))
    archive.entry(operation("rolled_back", 23))
    # There and back.
    archive.entry(operation("moved_out", 1), operation("moved_in", 1, queue_id=8, queue="other"))
    archive.entry(operation("moved_out", 1, queue_id=8, queue="other"), operation("moved_in", 1))
    archive.entry(operation("locked", 2))
    archive.entry(operation("unlocked", 2))
    archive.entry(operation("received", 2), operation("expired", 3))
    archive.entry(mark=1)
    archive.report(1, messages=7, size_bytes=700)
    archive.ack(depends_on=4, known=9)
    archive.replay(1)
    archive.base(4)
    return archive


def rules_of(spark: SparkSession, archives: list[Archive]) -> dict[int, set[str]]:
    """Return which rules have findings, by group."""
    nothing = nothing_carried(spark)
    marks = [row for archive in archives for row in archive.replayed]
    bases = [row for archive in archives for row in archive.bases]
    read = tables(spark, archives)
    found: DataFrame = all_findings(read, nothing, spark.createDataFrame(bases, ENDS)).findings
    found = found.unionByName(not_reproduced(read, spark.createDataFrame(marks, REPLAYED)))
    rules: dict[int, set[str]] = {archive.group: set() for archive in archives}
    for row in found.select("group", "rule").distinct().collect():
        rules[row["group"]].add(row["rule"])
    return rules


def _another_entry(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, index=3, node="n2.1"):
        row["term"] = 2


def _flipped_byte(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, index=5):
        row["data"] = b"Entry 5"


def _flipped_byte_of_an_older_entry(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, index=1):
        row["data"] = b"Entry 1"


def _edited_with_its_hash(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, index=5):
        row["data_blake3"] = b"\x01" * 32
        row["data"] = None


def _hash_removed(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, index=5):
        row["data_blake3"] = None


def _gap(archive: Archive) -> None:
    archive.drop(Part.ENTRIES, index=8)
    archive.drop(Part.OPERATIONS, index=8)


def _exported_twice(archive: Archive) -> None:
    for part in (Part.ENTRIES, Part.OPERATIONS):
        for row in archive.of(part, index=12, node="n3.1"):
            archive.rows[part].append({**row, "range_first": 12})


def _other_effects(archive: Archive) -> None:
    for row in archive.of(Part.OPERATIONS, index=1, ordinal=1, node="n3.1"):
        row["size_bytes"] = 101


def _lost_operation(archive: Archive) -> None:
    archive.drop(Part.OPERATIONS, index=12, node="n3.1")


def _wrong_digest(archive: Archive) -> None:
    for row in archive.of(Part.ENTRIES, audit_mark=1, node="n3.1"):
        row["digest"] = bytes(16)


def _state_not_reproduced(archive: Archive) -> None:
    archive.replayed[0]["replayed"] = bytes(16)


def _base_of_another_log(archive: Archive) -> None:
    archive.bases.append((archive.group, 6, bytes(32)))


def _received_twice(archive: Archive) -> None:
    archive.entry(operation("received", 2))


def _arrived_twice(archive: Archive) -> None:
    archive.entry(operation("arrived", 11))


def _vanished(archive: Archive) -> None:
    archive.entry(operation("received", 99))


def _swapped(archive: Archive) -> None:
    archive.entry(sent(19, 17, sequence=10))
    archive.entry(sent(18, 17, sequence=10))


def _skipped(archive: Archive) -> None:
    archive.entry(sent(19, 18, sequence=10))


def _doubled(archive: Archive) -> None:
    archive.entry(sent(15, 0, sequence=10, key=30))


def _half(archive: Archive) -> None:
    archive.entry(
        operation("pending", 31, transaction=b"v" * 16),
        operation("pending", 32, transaction=b"v" * 16),
    )
    archive.entry(operation("arrived", 31), operation("rolled_back", 32))


def _early_ack(archive: Archive) -> None:
    archive.ack(depends_on=9, known=8)


def _lost_everywhere(archive: Archive) -> None:
    _gap(archive)
    archive.ack(depends_on=8, known=9)


def _wrong_count(archive: Archive) -> None:
    archive.entry(mark=2)
    archive.report(2, messages=8, size_bytes=700)


def _over_quota(archive: Archive) -> None:
    archive.entry(mark=2)
    archive.report(2, messages=7, size_bytes=700, quota_kb=0)


PLANTED: list[tuple[Callable[[Archive], None], set[str]]] = [
    (_another_entry, {"replicas_differ", "entry_edited"}),
    (_flipped_byte, {"entry_edited"}),
    (_flipped_byte_of_an_older_entry, {"entry_edited"}),
    (_edited_with_its_hash, {"entry_edited"}),
    (_hash_removed, {"entry_edited"}),
    (_gap, {"chain_broken", "message_twice", "contents_differ"}),
    (_exported_twice, {"ranges_overlap"}),
    (_other_effects, {"effects_differ"}),
    (_lost_operation, {"operations_missing"}),
    (_wrong_digest, {"digests_differ", "state_not_reproduced"}),
    (_state_not_reproduced, {"state_not_reproduced"}),
    (_base_of_another_log, {"base_broken"}),
    (_received_twice, {"message_twice"}),
    (_arrived_twice, {"message_twice"}),
    (_vanished, {"message_twice"}),
    (_swapped, {"stream_disordered"}),
    (_skipped, {"stream_disordered"}),
    (_doubled, {"accepted_twice", "stream_disordered"}),
    (_half, {"transaction_half"}),
    (_early_ack, {"acknowledged_early"}),
    (
        _lost_everywhere,
        {"acknowledged_but_missing", "chain_broken", "message_twice", "contents_differ"},
    ),
    (_wrong_count, {"contents_differ"}),
    (_over_quota, {"quota_exceeded"}),
]


def _ranges_left_out(archive: Archive) -> None:
    """A node that installed a snapshot has nothing of what the snapshot covers."""
    for index in range(1, 6):
        archive.drop(Part.ENTRIES, index=index, node="n3.1")
        archive.drop(Part.OPERATIONS, index=index, node="n3.1")


def test_every_planted_fault_is_found_and_nothing_else(spark: SparkSession) -> None:
    """Each in a group of its own, all in one run."""
    archives, expected = [clean(0), clean(1)], {0: set[str](), 1: set[str]()}
    _ranges_left_out(archives[1])
    for group, (plant, rules) in enumerate(PLANTED, 2):
        archive = clean(group)
        plant(archive)
        archives.append(archive)
        expected[group] = rules
    assert rules_of(spark, archives) == expected
