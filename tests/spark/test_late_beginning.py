"""An archive that was switched on after the cluster's birth: it begins with a checkpoint."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.archive.store import ArchiveStore
from spark.archive.summary import Summary
from spark.audit import AuditOptions, run_audit
from spark.compact import CompactOptions, run_compaction
from spark.main import EXIT_FINDINGS, EXIT_PARTIAL, audit_exit_code
from spark.report.report import report_html
from tests.spark.archives import NODES, Archive, operation
from tests.spark.files import CLUSTER, write_archive
from tests.spark.logs import Log, more_traffic, traffic, write_checkpoint


def audited(spark: SparkSession, root: Path) -> Summary:
    return run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return traffic(tmp_path / "node")


def late(root: Path, log: Log, *, with_checkpoint: bool) -> int:
    """Write an archive that begins after what is there; return the entry that it begins after."""
    begin = log.archive.index
    if with_checkpoint:
        write_checkpoint(root, log, NODES[0])
    more_traffic(log)
    write_archive(root, log.archive, begin, log.archive.index)
    return begin


def test_it_is_audited_and_says_what_it_covers(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    begin = late(root, log, with_checkpoint=True)
    summary = audited(spark, root)
    assert (summary.first, summary.last) == (begin + 1, log.archive.index)
    assert (summary.begun_after, summary.is_partial) == (begin, True)
    assert [(said.index, said.problem) for said in summary.replays] == [(summary.last, "")]
    assert [said.digest for said in summary.replays] == [log.digest.hex()]
    assert "state_not_reproduced" not in summary.findings_by_rule
    assert f"begins after entry {begin}" in report_html(summary)


def test_it_is_compacted_from_its_checkpoint(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    begin = late(root, log, with_checkpoint=True)
    store, options = ArchiveStore(str(root)), CompactOptions(CLUSTER)
    done = run_compaction(spark, store, options)
    assert (done.problems, done.built_from) == ([], begin)
    assert (done.index, done.digest) == (log.archive.index, log.digest.hex())
    middle = log.archive.index
    log.audit_mark()
    write_archive(root, log.archive, middle, log.archive.index)
    again = run_compaction(spark, store, options)
    assert (again.problems, again.built_from, again.index) == ([], middle, log.archive.index)


def test_without_a_checkpoint_it_says_what_is_missing(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    begin = late(root, log, with_checkpoint=False)
    done = run_compaction(spark, ArchiveStore(str(root)), CompactOptions(CLUSTER))
    assert done.is_refused
    assert f"begins after entry {begin} and has no usable checkpoint" in done.problems[0]
    summary = audited(spark, root)
    assert "no usable checkpoint" in summary.replays[0].problem
    assert not summary.is_damaged


def test_what_was_there_before_may_end_and_counts_at_marks(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, archive = tmp_path / "archive", Archive()
    archive.entry(operation("arrived", 1), operation("arrived", 2))
    archive.entry(operation("arrived", 3), mark=1)
    archive.report(1, messages=3, size_bytes=300)
    archive.entry(operation("received", 1), mark=2)
    archive.report(2, messages=2, size_bytes=200)
    write_archive(root, archive, 1, 3)
    summary = audited(spark, root)
    assert summary.findings_by_rule == {}
    assert audit_exit_code(summary) == EXIT_PARTIAL
    archive.entry(operation("received", 2), mark=3)
    archive.report(3, messages=1, size_bytes=100)
    write_archive(root, archive, 3, 4)
    later = audited(spark, root)
    assert later.findings_by_rule == {}
    assert (later.first, later.is_partial, later.begun_after) == (4, False, 1)
    assert audit_exit_code(later) == 0
    archive.entry(operation("received", 3), mark=4)
    archive.report(4, messages=1, size_bytes=100)
    archive.entry(operation("received", 3), mark=5)
    archive.report(5, messages=0, size_bytes=0)
    write_archive(root, archive, 4, 6)
    wrong = audited(spark, root)
    assert wrong.findings_by_rule == {"message_twice": 1}
    assert audit_exit_code(wrong) == EXIT_FINDINGS
