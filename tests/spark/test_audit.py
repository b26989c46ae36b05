"""The audit job on files: whole, in steps, and with files that cannot be used."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from qm.archive.schema import Part
from spark.audit import AuditOptions, run_audit
from spark.standing import NoArchive, last_audited
from spark.store import ArchiveStore
from spark.summary import Summary
from tests.spark.archives import operation
from tests.spark.files import CLUSTER, write_archive, write_range
from tests.spark.test_rules import clean


def audit(spark: SparkSession, root: Path, upto: int | None = None) -> Summary:
    return run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER, upto))


def test_an_audit_goes_on_where_the_last_one_ended(spark: SparkSession, tmp_path: Path) -> None:
    archive = clean()
    archive.entry(operation("received", 11))
    archive.entry(operation("received", 11))
    write_archive(tmp_path, archive, 0, 5, 12, archive.index)
    first = audit(spark, tmp_path, upto=12)
    assert (first.first, first.last, first.findings_by_rule) == (1, 12, {})
    assert first.entries == 12
    second = audit(spark, tmp_path)
    assert (second.first, second.last) == (13, archive.index)
    assert second.findings_by_rule == {"message_twice": 1}
    (example,) = second.examples
    assert json.loads(example["evidence"])["lookup_identifier"] == 11
    third = audit(spark, tmp_path)
    assert (third.entries, third.last) == (0, archive.index)
    found = last_audited(ArchiveStore(str(tmp_path)), CLUSTER)
    assert found is not None
    folder = tmp_path / found.folder
    assert "1 findings" in (folder / "report.html").read_text()
    assert (
        'quorate_audit_findings{rule="message_twice"} 1.0' in (folder / "metrics.prom").read_text()
    )


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
