"""Replays in pieces: the base that one gives; no checkpoint is believed that the log refutes."""

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from pyspark.sql import SparkSession

from qm.archive.checkpoints import CHECKPOINT_NAME, Checkpoint, checkpoint_folder
from qm.store.backup import STATE_FILE, verify_backup
from qm.store.replay import Replay
from spark.archive.ranges import find_ranges
from spark.archive.store import ArchiveStore
from spark.audit import AuditOptions, run_audit
from spark.compact import Compacted, CompactOptions, run_compaction
from spark.replay.checkpoints import start_of
from spark.replay.replay import ReplayPlan, replay
from tests.spark.archives import NODES
from tests.spark.files import CLUSTER, write_archive
from tests.spark.logs import KEPT, Log, more_traffic, traffic, write_checkpoint
from tests.unit.store.test_store import setup_commands


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return traffic(tmp_path / "node")


def compact(spark: SparkSession, root: Path, *, drops_old: bool = False) -> Compacted:
    return run_compaction(
        spark, ArchiveStore(str(root)), CompactOptions(CLUSTER, drops_old=drops_old)
    )


def halved(root: Path, log: Log) -> Checkpoint:
    """Write an archive with a checkpoint in its middle; return that."""
    checkpoint = write_checkpoint(root, log, NODES[1])
    middle = log.archive.index
    while log.archive.index < 2 * middle:
        more_traffic(log)
    write_archive(root, log.archive, 0, 4, middle + 1, log.archive.index)
    return checkpoint


def folder_of(checkpoint: Checkpoint) -> str:
    return checkpoint_folder(CLUSTER, checkpoint.index, checkpoint.node)


def renamed(root: Path, checkpoint: Checkpoint, **changes: object) -> None:
    """Have the file say something else."""
    changed = msgspec.structs.replace(checkpoint, **changes)
    path = root / folder_of(checkpoint) / CHECKPOINT_NAME
    path.write_bytes(msgspec.json.encode(changed))


def test_pieces_give_the_base_that_one_replay_gives(
    spark: SparkSession, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "archive"
    halved(root, log)
    caplog.set_level("INFO")
    done = compact(spark, root)
    assert "replaying in 2 pieces" in caplog.text
    assert (done.problems, done.entries) == ([], log.archive.index)
    assert (done.index, done.digest) == (log.archive.index, log.digest.hex())
    assert done.told_by == list(NODES)
    verified = verify_backup(root / done.folder)
    assert (verified.digest, verified.messages) == (log.digest.hex(), done.messages)
    summary = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    assert "file_unusable" not in summary.findings_by_rule


def test_a_checkpoint_of_an_older_release_is_used(
    spark: SparkSession, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "archive"
    checkpoint = halved(root, log)
    data = (root / folder_of(checkpoint) / STATE_FILE).read_bytes()
    renamed(root, checkpoint, schema=1, stream_sha256=sha256(data).hexdigest(), stream_blake3="")
    caplog.set_level("INFO")
    done = compact(spark, root)
    assert "replaying in 2 pieces" in caplog.text
    assert (done.problems, done.digest) == ([], log.digest.hex())


def test_of_two_at_one_entry_one_is_used_and_of_those_at_the_end_none(
    spark: SparkSession, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the last one claims would be refuted."""
    root = tmp_path / "archive"
    checkpoint = halved(root, log)
    for other in (
        msgspec.structs.replace(checkpoint, node=NODES[2]),
        msgspec.structs.replace(checkpoint, index=log.archive.index, digest="00" * 16),
    ):
        shutil.copytree(root / folder_of(checkpoint), root / folder_of(other))
        (root / folder_of(other) / CHECKPOINT_NAME).write_bytes(msgspec.json.encode(other))
    caplog.set_level("INFO")
    done = compact(spark, root)
    assert "replaying in 2 pieces" in caplog.text
    assert (done.problems, done.digest) == ([], log.digest.hex())


def other_state(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    """The state of another log that came as far."""
    other = Log(root.parent / "other")
    other.put(*setup_commands())
    while other.archive.index < checkpoint.index:
        other.put()
    folder = root / folder_of(checkpoint)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    write_checkpoint(root, other, NODES[1])
    return "holds the state"


def altered(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    path = root / folder_of(checkpoint) / STATE_FILE
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "has other bytes than what is beside it says"


def altered_and_named(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    """A row that its node read wrongly: it named what it wrote."""
    path = root / folder_of(checkpoint) / STATE_FILE
    data = path.read_bytes()
    at = data.index(b"MANIFEST-")
    data = data[:at] + b"MANIFOLD-" + data[at + 9 :]
    path.write_bytes(data)
    renamed(root, checkpoint, stream_blake3=blake3(data).hexdigest())
    return "cannot be used"


def body_altered(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    """The rows are right, a body is not."""
    path = root / folder_of(checkpoint) / STATE_FILE
    data = path.read_bytes()
    at = data.rindex(bytes(900))
    data = data[:at] + b"?" + data[at + 1 :]
    path.write_bytes(data)
    renamed(root, checkpoint, stream_blake3=blake3(data).hexdigest())
    return "does not match its checksum"


def truncated(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    path = root / folder_of(checkpoint) / STATE_FILE
    path.write_bytes(path.read_bytes()[:-1])
    return f"names {checkpoint.stream_bytes} bytes of {STATE_FILE}"


def unreadable(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    (root / folder_of(checkpoint) / CHECKPOINT_NAME).write_text("{")
    return "unreadable"


def foreign(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    renamed(root, checkpoint, cluster="cd" * 16)
    return "of cluster " + "cd" * 16


def newer(root: Path, _log: Log, checkpoint: Checkpoint) -> str:
    renamed(root, checkpoint, schema=99)
    return "has schema 99"


@pytest.mark.parametrize(
    "damage",
    [
        other_state,
        altered,
        altered_and_named,
        body_altered,
        truncated,
        unreadable,
        foreign,
        newer,
    ],
)
def test_a_checkpoint_that_is_wrong_is_named_and_the_base_is_right(
    spark: SparkSession, log: Log, tmp_path: Path, damage: Callable[[Path, Log, Checkpoint], str]
) -> None:
    root = tmp_path / "archive"
    text = damage(root, log, halved(root, log))
    done = compact(spark, root)
    assert [text in problem for problem in done.problems] == [True], done.problems
    assert (done.digest, done.entries) == (log.digest.hex(), log.archive.index)
    assert verify_backup(root / done.folder).digest == log.digest.hex()


def test_an_audit_replays_in_pieces_and_names_the_state_that_nobody_had(
    spark: SparkSession, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "archive"
    checkpoint = halved(root, log)
    other_state(root, log, checkpoint)
    caplog.set_level("INFO")
    summary = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    assert "replaying in 2 pieces" in caplog.text
    assert summary.is_damaged
    (example,) = (one for one in summary.examples if one["rule"] == "file_unusable")
    assert (example["node"], example["subject"]) == (NODES[1], folder_of(checkpoint))
    assert "holds the state" in example["detail"]
    more_traffic(log)
    write_archive(root, log.archive, summary.last, log.archive.index)
    again = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER))
    assert again.last > summary.last
    assert not again.is_damaged, "a finding is never shown twice"
    (said,) = summary.replays
    assert (said.index, said.problem) == (summary.last, "")


def test_a_checkpoint_goes_with_the_log_that_it_stands_for(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    first = halved(root, log)
    done = compact(spark, root, drops_old=True)
    assert done.dropped == [folder_of(first)], "no range was audited"
    assert not (root / folder_of(first)).exists()
    late = write_checkpoint(root, log, NODES[0])
    more_traffic(log)
    second = write_checkpoint(root, log, NODES[0])
    assert compact(spark, root, drops_old=True).dropped == [folder_of(late)]
    assert (root / folder_of(second)).exists()


def test_messages_that_a_checkpoint_has_are_in_the_base(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """Bodies come out of the checkpoint, though their entries are replayed nowhere else."""
    root = tmp_path / "archive"
    checkpoint = write_checkpoint(root, log, NODES[2])
    for _ in range(checkpoint.index):
        log.put()
    log.audit_mark()
    write_archive(root, log.archive, 0, log.archive.index)
    done = compact(spark, root)
    assert (done.problems, done.messages) == ([], KEPT)
    assert verify_backup(root / done.folder).messages == KEPT


def test_a_state_that_breaks_what_is_applied_to_it_is_named(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another log's state may lack what entries take for granted."""
    root = tmp_path / "archive"
    checkpoint = halved(root, log)

    def broken(*_: object) -> None:
        raise KeyError("queue")

    monkeypatch.setattr(Replay, "apply", broken)
    files = find_ranges(ArchiveStore(str(root)), CLUSTER, 0).entry_files(1, 0, log.archive.index)
    plan = ReplayPlan(
        url=str(root),
        group=1,
        start=start_of(checkpoint),
        files=files,
        upto=log.archive.index,
    )
    replayed = replay(plan)
    assert (replayed.is_of_start, replayed.is_damage) == (True, True)
    assert replayed.problem == f"{folder_of(checkpoint)}/{STATE_FILE}: KeyError('queue')"
