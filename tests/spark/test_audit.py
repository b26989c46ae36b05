"""The audit job on files: whole, in steps, and with files that cannot be used."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from qm.archive.schema import SCHEMA_VERSION, Part
from qm.store.signing import Signer
from spark.archive.ranges import find_ranges
from spark.archive.standing import NoArchive, last_audited
from spark.archive.store import ArchiveStore
from spark.archive.summary import AuditChanged, Summary
from spark.audit import AuditOptions, run_audit
from tests.spark.archives import operation
from tests.spark.files import CLUSTER, replace_file, write_archive, write_range
from tests.spark.test_rules import clean


def audit(spark: SparkSession, root: Path, upto: int | None = None) -> Summary:
    return run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER, upto))


def test_an_audit_goes_on_where_the_last_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    archive = clean()
    archive.entry(operation("received", 11))
    archive.entry(operation("received", 11))
    archive.ack(depends_on=7, known=6, exported_with=archive.index)
    write_archive(tmp_path, archive, 0, 5, 12, archive.index)
    first = audit(spark, tmp_path, upto=12)
    assert (first.first, first.last, first.findings_by_rule) == (1, 12, {})
    assert first.entries == 12
    second = audit(spark, tmp_path)
    assert (second.first, second.last) == (13, archive.index)
    assert second.findings_by_rule == {"message_twice": 1, "acknowledged_early": 1}
    example = second.examples[-1]
    assert json.loads(example["evidence"])["lookup_identifier"] == 11
    third = audit(spark, tmp_path)
    assert (third.entries, third.last) == (0, archive.index)
    found = last_audited(ArchiveStore(str(tmp_path)), CLUSTER)
    assert found is not None
    folder = tmp_path / found.folder
    assert "2 findings" in (folder / "report.html").read_text()
    assert (
        'quorate_audit_findings{rule="message_twice"} 1.0' in (folder / "metrics.prom").read_text()
    )


def test_the_report_says_how_many_were_refused_by_which_class(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = clean()
    for reason, count in ((0x8006, 3), (0x800C, 1), (0, 4)):
        for _ in range(count):
            archive.entry({**operation("refused"), "queue": "", "queue_id": 0, "reason": reason})
    write_archive(tmp_path, archive, 0, archive.index)
    summary = audit(spark, tmp_path)
    assert summary.refusals == [
        {"reason": 0, "class": "no class", "messages": 4},
        {"reason": 0x8006, "class": "NACK_BAD_SIGNATURE", "messages": 3},
        {"reason": 0x8004, "class": "NACK_ACCESS_DENIED", "messages": 2},
        {"reason": 0x800C, "class": "0x800C", "messages": 1},
    ]
    found = last_audited(ArchiveStore(str(tmp_path)), CLUSTER)
    assert found is not None
    assert "NACK_BAD_SIGNATURE" in (tmp_path / found.folder / "report.html").read_text()


def test_the_report_says_where_messages_were_signed_or_encrypted(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = clean()
    for key, (is_authenticated, was_encrypted) in enumerate(
        ((True, True), (True, False), (False, False)), 100
    ):
        said = {"is_authenticated": is_authenticated, "was_encrypted": was_encrypted}
        archive.entry({**operation("arrived", key), **said, "queue": "signed", "queue_id": 9})
        archive.entry({**operation("received", key), **said, "queue": "signed", "queue_id": 9})
    write_archive(tmp_path, archive, 0, archive.index)
    summary = audit(spark, tmp_path)
    assert summary.protection == [
        {"queue": "signed", "messages": 3, "authenticated": 2, "encrypted": 1}
    ]
    found = last_audited(ArchiveStore(str(tmp_path)), CLUSTER)
    assert found is not None
    assert "Signed and encrypted" in (tmp_path / found.folder / "report.html").read_text()


def test_an_audit_goes_on_from_what_the_last_one_signed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What it carries over is the audit's own, or nothing is audited."""
    signer = Signer(bytes(32))
    archive = clean()
    archive.entry(operation("received", 11))
    write_archive(tmp_path, archive, 0, 5, archive.index)
    options = AuditOptions(CLUSTER, 5, replays=False, signer=signer)
    first = run_audit(spark, ArchiveStore(str(tmp_path)), options)
    assert first.last == 5
    done = last_audited(ArchiveStore(str(tmp_path), frozenset({signer.public})), CLUSTER)
    assert done is not None
    stays = next(path for path in done.files if path.startswith("carry/stays/"))
    changed = tmp_path / done.folder / stays
    sound = changed.read_bytes()
    (tmp_path / done.folder / "carry" / "stays" / "added.parquet").write_bytes(sound)
    assert audit(spark, tmp_path).findings_by_rule == {}, "what was added counts"
    shutil.rmtree(tmp_path / CLUSTER / "audit" / f"{6:020}-{archive.index:020}")
    changed.write_bytes(sound[:-1])
    with pytest.raises(AuditChanged, match="was changed after the audit"):
        audit(spark, tmp_path)


def test_files_that_cannot_be_used_are_named_and_the_rest_is_audited(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = clean()
    last = archive.index
    write_range(tmp_path, archive, "n1.1", 1, last)
    truncated = write_range(tmp_path, archive, "n2.1", 1, last) / "entries.parquet"
    truncated.write_bytes(truncated.read_bytes()[:-10])
    altered = write_range(tmp_path, archive, "n3.1", 1, 8) / "operations.parquet"
    data = bytearray(altered.read_bytes())
    data[20] ^= 1
    altered.write_bytes(bytes(data))
    foreign = write_range(tmp_path, archive, "n3.1", 9, last) / "manifest.json"
    foreign.write_bytes(foreign.read_bytes().replace(CLUSTER.encode(), b"cd" * 16))
    summary = audit(spark, tmp_path)
    unusable = {
        row["subject"].rpartition("/")[2]: row["detail"]
        for row in summary.examples
        if row["rule"] == "file_unusable"
    }
    assert unusable.keys() == {"entries.parquet", "operations.parquet", "manifest.json"}
    assert "its manifest says" in unusable["entries.parquet"]
    assert "other bytes" in unusable["operations.parquet"]
    assert "cluster cd" in unusable["manifest.json"]
    assert summary.entries == last
    assert summary.findings_by_rule.keys() <= {"file_unusable", "operations_missing"}


@pytest.mark.parametrize("older", range(1, SCHEMA_VERSION))
def test_nodes_of_two_releases_are_read_and_compared(
    spark: SparkSession, tmp_path: Path, older: int
) -> None:
    """A rolling upgrade: n1 wrote an older schema up to 8; ranges begin at other places."""
    middle = 8
    archive = clean(upgraded_at=middle)
    for row in archive.of(Part.OPERATIONS):
        row["body_ordinal"] = row["ordinal"]
    last = archive.index
    write_range(tmp_path, archive, "n1.1", 1, middle, schema_version=older)
    write_range(tmp_path, archive, "n1.1", middle + 1, last)
    write_range(tmp_path, archive, "n2.1", 1, 4)
    write_range(tmp_path, archive, "n2.1", 5, last)
    summary = audit(spark, tmp_path)
    assert summary.findings_by_rule == {}, summary.examples
    assert summary.entries == last
    archive = clean(upgraded_at=last)
    for row in archive.of(Part.OPERATIONS, node="n2.1", index=6):
        row["size_bytes"] += 1
    write_range(tmp_path / "other", archive, "n1.1", 1, last, schema_version=older)
    write_range(tmp_path / "other", archive, "n2.1", 1, last)
    assert audit(spark, tmp_path / "other").findings_by_rule == {"effects_differ": 1}


def test_foreign_files_are_named_whatever_their_manifest_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Another cluster's, another program's, another schema's: as if somebody had put them there."""
    archive = clean()
    last = archive.index
    write_range(tmp_path, archive, "n1.1", 1, last)
    write_range(tmp_path, archive, "n2.1", 1, last, own_cluster="cd" * 16)
    folder = write_range(tmp_path, archive, "n3.1", 1, last)
    replace_file(folder, Part.ENTRIES, pa.table({"some": [1], "other": ["columns"]}))
    drifted = pq.read_table(folder / "operations.parquet")
    place = drifted.column_names.index("size_bytes")
    sizes = pa.array([str(size) for size in drifted["size_bytes"].to_pylist()])
    replace_file(folder, Part.OPERATIONS, drifted.set_column(place, "size_bytes", sizes))
    ranges = find_ranges(ArchiveStore(str(tmp_path)), CLUSTER, 0)
    named = {
        "/".join(problem.path.split("/")[-3::2]): problem.detail for problem in ranges.problems
    }
    assert "'cdcd" in named["n2.1/entries.parquet"]
    assert "says quorate.cluster ''" in named["n3.1/entries.parquet"]
    assert named["n3.1/operations.parquet"] == "has string in size_bytes, not int64"
    summary = audit(spark, tmp_path)
    assert summary.findings_by_rule == {"file_unusable": len(ranges.problems)}, summary.examples
    assert summary.is_damaged
    assert summary.entries == last


def test_a_base_that_does_not_continue_the_chain_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = clean()
    write_archive(tmp_path, archive, 0, 6)
    assert audit(spark, tmp_path).findings_total == 0
    other = clean()
    for row in other.of(Part.ENTRIES, index=7):
        row["chain_before"] = b"\x07" * 32
    write_archive(tmp_path, other, 6, other.index)
    assert "chain_broken" in audit(spark, tmp_path).findings_by_rule


def test_an_empty_folder_is_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoArchive):
        audit(spark, tmp_path)
