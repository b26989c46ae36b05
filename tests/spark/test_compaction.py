"""Compaction: a base that is proven twice, from which the log, and a cluster, go on."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from qm.archive.manifest import MANIFEST_NAME, range_folder
from qm.archive.schema import Part
from qm.store.backup import verify_backup
from qm.store.signing import SIGNATURE_SUFFIX, Signer
from spark.archive.base import BASE_NAME, find_bases
from spark.archive.store import ArchiveStore
from spark.audit import AuditOptions, run_audit
from spark.compact import Compacted, CompactOptions, run_compaction
from spark.replay.replay import ReplayPlan, replay
from tests.spark.archives import NODES
from tests.spark.files import CLUSTER, write_archive, write_range
from tests.spark.logs import KEPT, Log, more_traffic, traffic

SIGNER = Signer(bytes(32))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return traffic(tmp_path / "node")


def compact(
    spark: SparkSession, root: Path, upto: int | None = None, *, drops_old: bool = False
) -> Compacted:
    options = CompactOptions(CLUSTER, upto, drops_old=drops_old)
    return run_compaction(spark, ArchiveStore(str(root)), options)


def test_bases_follow_one_another_and_each_is_a_backup(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root, middle = tmp_path / "archive", log.archive.index
    first_digest = log.digest.hex()
    write_archive(root, log.archive, 0, 4, middle)
    first = compact(spark, root)
    assert (first.built_from, first.index, first.messages) == (0, middle, KEPT)
    assert first.digest == first_digest
    assert first.told_by == list(NODES)
    assert compact(spark, root).index == middle, "there is nothing new"
    more_traffic(log)
    write_archive(root, log.archive, middle, log.archive.index)
    second = compact(spark, root)
    assert (second.built_from, second.index) == (middle, log.archive.index)
    assert (second.digest, second.messages) == (log.digest.hex(), KEPT - 4)
    assert second.entries == 3, "what the old base stands for is not replayed"
    assert second.stream_bytes < second.data_bytes + 40_000
    verified = verify_backup(root / second.folder)
    assert (verified.digest, verified.messages) == (log.digest.hex(), KEPT - 4)


def test_data_are_taken_from_whichever_node_has_them(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """One node writes them at a time, and the ranges of others end where they like."""
    root, last = tmp_path / "archive", log.archive.index
    write_range(root, log.archive, "n1.1", 1, 4)
    write_range(root, log.archive, "n1.1", 5, last, has_data=False)
    write_range(root, log.archive, "n2.1", 1, 6, has_data=False)
    write_range(root, log.archive, "n2.1", 7, last)
    write_range(root, log.archive, "n3.1", 1, 2, has_data=False)
    write_range(root, log.archive, "n3.1", 3, last - 1)
    write_range(root, log.archive, "n3.1", last, last, has_data=False)
    audited = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    assert audited.findings_by_rule == {}, audited.examples
    assert [(said.index, said.problem) for said in audited.replays] == [(last, "")]
    made = compact(spark, root)
    assert (made.index, made.digest, made.messages) == (last, log.digest.hex(), KEPT)


def test_only_what_is_proven_and_audited_is_dropped(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root, middle = tmp_path / "archive", log.archive.index
    write_archive(root, log.archive, 0, middle)
    first = compact(spark, root, drops_old=True)
    assert first.dropped == [], "nothing was audited"
    run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    more_traffic(log)
    write_archive(root, log.archive, middle, log.archive.index)
    second = compact(spark, root, drops_old=True)
    assert len(second.dropped) == 1 + len(NODES)
    assert not (root / first.folder).exists()
    assert len(list(root.glob(f"{CLUSTER}/ranges/*/*/manifest.json"))) == len(NODES)
    summary = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    assert summary.first == middle + 1
    assert [(said.index, said.marks, said.problem) for said in summary.replays] == [
        (second.index, 0, "")
    ]


def test_a_state_that_nodes_did_not_have_is_no_base(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    for row in log.archive.of(Part.ENTRIES, audit_mark=1, node=NODES[2]):
        row["digest"] = bytes(16)
    write_archive(root, log.archive, 0, log.archive.index)
    done = compact(spark, root)
    assert done.is_refused
    assert NODES[2] in done.problems[0]
    assert find_bases(ArchiveStore(str(root)), CLUSTER) == ([], [])
    assert not list(root.glob(f"{CLUSTER}/base/*/*"))


def test_a_run_that_was_killed_leaves_no_base_and_the_next_one_is_whole(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    write_archive(root, log.archive, 0, log.archive.index)
    killed = root / CLUSTER / "base" / f"{log.archive.index:020}"
    killed.mkdir(parents=True)
    (killed / "state.qsnap").write_bytes(b"half")
    assert find_bases(ArchiveStore(str(root)), CLUSTER) == ([], [])
    done = compact(spark, root)
    assert not done.problems
    assert verify_backup(root / done.folder).messages == KEPT


def test_a_damaged_base_is_named_and_its_predecessor_serves(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root, middle = tmp_path / "archive", log.archive.index
    write_archive(root, log.archive, 0, middle)
    first = compact(spark, root)
    more_traffic(log)
    write_archive(root, log.archive, middle, log.archive.index)
    second = compact(spark, root)
    stream = root / second.folder / "state.qsnap"
    stream.write_bytes(stream.read_bytes()[:-1])
    bases, (problem,) = find_bases(ArchiveStore(str(root)), CLUSTER)
    assert [base.index for base in bases] == [first.index]
    assert problem.path == f"{second.folder}/{BASE_NAME}"
    again = compact(spark, root)
    assert (again.index, again.digest) == (second.index, second.digest)
    assert verify_backup(root / again.folder).digest == second.digest


def test_files_that_were_altered_or_cannot_be_read_are_named_and_others_serve(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """A digest that was turned into another one; a page that is none."""
    root, last = tmp_path / "archive", log.archive.index
    write_archive(root, log.archive, 0, last)
    altered = root / range_folder(CLUSTER, NODES[0], 1, last) / "entries.parquet"
    data = altered.read_bytes()
    assert log.digest in data
    altered.write_bytes(data.replace(log.digest, bytes(16)))
    broken = root / range_folder(CLUSTER, NODES[1], 1, last) / "entries.parquet"
    broken.write_bytes(b"PAR1" + bytes(1000) + broken.read_bytes()[1004:])
    done = compact(spark, root)
    assert sorted(problem.rpartition("/")[2] for problem in done.problems) == [
        "entries.parquet cannot be read: " + _unread(broken),
        "entries.parquet has other bytes than its manifest says",
    ]
    assert done.told_by == [NODES[2]]
    assert (done.digest, done.messages) == (log.digest.hex(), KEPT)


def _unread(path: Path) -> str:
    with pytest.raises(OSError) as caught:
        pq.read_table(path)
    return str(caught.value)


def test_a_replay_says_where_and_why_it_ends(log: Log, tmp_path: Path) -> None:
    """Damage, a missing entry, entries without data: each with file and entry."""
    root, last = tmp_path / "archive", log.archive.index
    for row in log.archive.of(Part.ENTRIES, node=NODES[0], index=5):
        row["data"] = row["data"][:-1] + b"?"
    for row in log.archive.of(Part.ENTRIES, node=NODES[1], index=5):
        row["data"] = None
    log.archive.drop(Part.ENTRIES, node=NODES[2], index=5)
    found = []
    for node in NODES:
        folder = write_range(root, log.archive, node, 1, last).relative_to(root)
        plan = ReplayPlan(
            url=str(root), group=1, start=None, files=[f"{folder}/entries.parquet"], upto=last
        )
        replayed = replay(plan)
        assert replayed.index == 4
        found.append((replayed.is_damage, replayed.problem.removeprefix(f"{folder}/")))
    without = (
        "entries.parquet: entry 5 has no data, and no usable range of another node has them: nodes"
        " export with another policy than full, or the file that had them is gone"
    )
    follows = (
        "entries.parquet: entry 6 does not go on from entry 4, the last one before it: it names"
        " entry 5 and another chain value"
    )
    assert found == [
        (True, "entries.parquet: entry 5 does not give its chain value"),
        (False, without),
        (True, follows),
    ]


def test_what_no_trusted_key_signed_is_left_out(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """As if it were not there: an archive of others' files gives no base."""
    root = tmp_path / "archive"
    write_archive(root, log.archive, 0, 4, log.archive.index)
    store = ArchiveStore(str(root), frozenset({SIGNER.public}))
    done = run_compaction(spark, store, CompactOptions(CLUSTER))
    assert not done.folder
    assert any("has no signature" in problem for problem in done.problems)
    for path in root.rglob(MANIFEST_NAME):
        signature = SIGNER.sign(path.name, path.read_bytes())
        path.with_name(path.name + SIGNATURE_SUFFIX).write_bytes(signature)
    done = run_compaction(spark, store, CompactOptions(CLUSTER, signer=SIGNER))
    assert (done.problems, bool(done.folder)) == ([], True)
    assert find_bases(store, CLUSTER)[1] == []
    other = ArchiveStore(str(root), frozenset({Signer(bytes(31) + b"\1").public}))
    assert "was signed by" in find_bases(other, CLUSTER)[1][0].detail
